"""What can go wrong between the command line and the server, each with its exit code."""

from __future__ import annotations

from gpuwise.core.errors import GpuwiseError

FAILED, REFUSED, UNREACHABLE, NOT_PERMITTED, NO_SUCH_JOB, INTERRUPTED = 1, 2, 3, 4, 5, 130

EXIT_CODES = (
    "Exit codes: 0 done; 1 a job failed; 2 wrong use, or the server refused; 3 the server cannot be reached or cannot "
    "serve now; 4 not permitted; 5 no such job; 130 interrupted. Waiting for a single job gives the job's own."
)


class LiveError(GpuwiseError):
    """A request that came to nothing."""

    exit_code = REFUSED
    later_s: float | None = None
    """After how long the server says that it may be asked again."""


class UnreachableError(LiveError):
    """The server does not answer, or cannot serve now."""

    exit_code = UNREACHABLE


class BrokenError(UnreachableError):
    """The connection broke while a request was under way: it may have been carried out or not."""


class NotPermittedError(LiveError):
    """The token is missing, not known, or not allowed to do this."""

    exit_code = NOT_PERMITTED


class NoSuchJobError(LiveError):
    """There is no such job, or it is another user's."""

    exit_code = NO_SUCH_JOB
