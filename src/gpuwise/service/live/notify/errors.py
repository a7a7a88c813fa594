"""Why a notification could not be sent, in words that do not repeat its address."""

from __future__ import annotations

import socket
import ssl
from http.client import HTTPException
from smtplib import SMTPException, SMTPRecipientsRefused, SMTPResponseException

from gpuwise.core.errors import GpuwiseError


class NotSentError(GpuwiseError):
    """A notification could not be sent."""


def reason_of(error: Exception) -> str:
    """What went wrong, for people."""
    match error:
        case NotSentError():
            return str(error)
        case TimeoutError():
            return "it did not answer in time"
        case socket.gaierror():
            return f"its host is not known ({error.strerror})"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({error.verify_message})"
        case ssl.SSLError():
            return f"it does not use TLS as it should ({error.reason})"
        case SMTPResponseException():
            return f"the mail server refused it (SMTP {error.smtp_code})"
        case SMTPRecipientsRefused():
            return f"the mail server refused the mailbox (SMTP {next(iter(error.recipients.values()))[0]})"
        case SMTPException():
            return f"the mail server did not accept it ({type(error).__name__})"
        case HTTPException():
            return f"it does not answer as a web server does ({type(error).__name__})"
        case OSError():
            return f"it cannot be reached ({error.strerror or type(error).__name__})"
        case _:
            return f"it could not be sent ({type(error).__name__})"
