"""Sends a notification as mail, through the server that the deployment names."""

from __future__ import annotations

import smtplib
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from ipaddress import ip_address

from gpuwise.core import __version__
from gpuwise.service.live.notify.errors import NotSentError
from gpuwise.service.live.notify.message import Message
from gpuwise.service.live.notify.settings import TLS_PORT, MailServer

HOW = "an administrator can enable it with: gpuwise up --smtp HOST"


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
        session = _session(self._server, self._timeout_s)
        try:
            _log_in(session, self._server)
            session.send_message(letter(self._server.sender, mailbox, message))
            with suppress(OSError, smtplib.SMTPException):  # it was accepted, however they part
                session.quit()
        finally:
            session.close()


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


def _session(server: MailServer, timeout_s: float) -> smtplib.SMTP:
    """A connection, with TLS where the server offers it."""
    context = ssl.create_default_context()
    if _is_loopback(server.host):  # nothing is between, and few such servers have a certificate that others trust
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    name = socket.gethostname()  # smtplib would ask the name service, which may take long
    if server.port == TLS_PORT:
        return smtplib.SMTP_SSL(server.host, server.port, name, timeout=timeout_s, context=context)
    session = smtplib.SMTP(server.host, server.port, name, timeout=timeout_s)
    try:
        session.ehlo_or_helo_if_needed()
        if session.has_extn("starttls"):
            session.starttls(context=context)
    except BaseException:
        session.close()
        raise
    return session


def _log_in(session: smtplib.SMTP, server: MailServer) -> None:
    if not server.user:
        return
    if not isinstance(session.sock, ssl.SSLSocket) and not _is_loopback(server.host):
        raise NotSentError("the mail server does not offer STARTTLS, and a password is not sent without")
    session.login(server.user, server.password)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
