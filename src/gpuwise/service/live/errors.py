"""Why the service refuses a call, or does not answer it."""

from __future__ import annotations

from gpuwise.core.errors import GpuwiseError


class UnauthorizedError(GpuwiseError):
    """The call has no token and no session, or not a valid one."""


class WrongTokenError(UnauthorizedError):
    """A token that is not known or no longer valid; it may be a guess."""


class ForbiddenError(GpuwiseError):
    """The caller is known, and may not do this."""


class NotFoundError(GpuwiseError):
    """There is no such thing, or none that the caller may know of."""


class InvalidError(GpuwiseError):
    """An invalid value; the text names it."""


class TooManyError(GpuwiseError):
    """Too many requests, or too many streams at once."""

    def __init__(self, text: str, retry_after_s: float) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class NoAnswerError(GpuwiseError):
    """The controller or a worker thread did not answer in time."""
