"""Why a caller is turned away."""

from __future__ import annotations

from gpuwise.core.errors import GpuwiseError


class UnauthorizedError(GpuwiseError):
    """Nobody is known by the token or cookie that was shown, or none was."""


class WrongTokenError(UnauthorizedError):
    """A token that is nobody's; it may be a guess."""


class ForbiddenError(GpuwiseError):
    """The caller is known, and may not do this."""


class NotFoundError(GpuwiseError):
    """There is no such thing, or none that the caller may know of."""


class InvalidError(GpuwiseError):
    """A value that cannot be; the text names it."""


class TooManyError(GpuwiseError):
    """The caller asks too often, or for too much at once."""

    def __init__(self, text: str, retry_after_s: float) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class NoAnswerError(GpuwiseError):
    """What was asked did not answer in time."""
