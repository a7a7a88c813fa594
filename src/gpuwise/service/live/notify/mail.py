"""Sends a notification as mail, through the server that the deployment names."""

from __future__ import annotations

import smtplib
import socket
import ssl
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from ipaddress import ip_address

from gpuwise.core import __version__
from gpuwise.service.live.notify.deadline import Deadline
from gpuwise.service.live.notify.errors import NotSentError
from gpuwise.service.live.notify.message import Message
from gpuwise.service.live.notify.settings import TLS_PORT, MailServer

HOW = "an administrator can enable it with: gpuwise up --smtp HOST"
PARTING_S = 2.0


class Mail:
    """Sends mail through one server, encrypted if the server can."""

    def __init__(self, server: MailServer | None, timeout_s: float) -> None:
        self._server = server
        self._timeout_s = timeout_s

    @property
    def refusal(self) -> str:
        """Why no mail is sent here; empty if it is."""
        return "" if self._server is not None else f"mail is not enabled here; {HOW}"

    def send(self, mailbox: str, message: Message) -> None:
        """Sends a message; raises if the server did not accept it."""
        if self._server is None:
            raise NotSentError(self.refusal)
        with ExitStack() as stack:
            with Deadline(self._timeout_s) as deadline:
                session = stack.enter_context(closing(_Session(self._server, deadline, self._timeout_s)))
                _log_in(session, self._server)
                session.send_message(letter(self._server.sender, mailbox, message))
            _part(session)


def letter(sender: str, mailbox: str, message: Message) -> EmailMessage:
    """The mail of a message."""
    mail = EmailMessage()
    mail["From"], mail["To"] = sender, mailbox
    mail["Subject"] = f"[gpuwise] {message.title}"
    mail["Date"] = format_datetime(datetime.now(UTC))
    mail["Message-ID"] = f"<{message.key}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["User-Agent"] = f"gpuwise/{__version__}"
    lines = (f"{name}: {_plain(name, value)}" for name, value in message.facts.items() if value not in ("", None))
    mail.set_content("\n".join((message.text, "", *lines, "")))
    return mail


def _plain(name: str, value: object) -> str:
    if name.endswith("_at") and isinstance(value, float):
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return ", ".join(f"{each} {key}" for key, each in value.items()) if isinstance(value, dict) else str(value)


class _Session(smtplib.SMTP):
    """A connection to a mail server, which a deadline breaks, with TLS where the server offers it."""

    def __init__(self, server: MailServer, deadline: Deadline, timeout_s: float) -> None:
        self._deadline = deadline
        self._tls = deadline.tls()
        if _is_loopback(server.host):  # nothing is between, and few such servers have a certificate that others trust
            self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        name = socket.gethostname()  # smtplib would ask the name service, which may take long
        super().__init__(server.host, server.port, name, timeout=timeout_s)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        """What smtplib calls to connect."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        connection = self._deadline.connect((str(address[0]) for *_, address in found), port)
        return self._tls.wrap_socket(connection, server_hostname=host) if port == TLS_PORT else connection

    def secure(self) -> None:
        """Begins TLS if the server offers it and it is not yet in use."""
        self.ehlo_or_helo_if_needed()
        if self.has_extn("starttls") and not self.is_secured:
            self.starttls(context=self._tls)

    @property
    def is_secured(self) -> bool:
        """Whether TLS is in use."""
        return isinstance(self.sock, ssl.SSLSocket)


def _log_in(session: _Session, server: MailServer) -> None:
    session.secure()
    if not server.user:
        return
    if not session.is_secured and not _is_loopback(server.host):
        raise NotSentError("the mail server does not offer STARTTLS, and a password is not sent without")
    session.login(server.user, server.password)


def _part(session: _Session) -> None:
    """Says goodbye; the mail was accepted, however that goes."""
    with suppress(OSError, smtplib.SMTPException), Deadline(PARTING_S) as deadline:
        if session.sock is not None:
            deadline.watch(session.sock)
            session.quit()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
