"""What is recorded of a notification until it was sent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """That the end of a job is to be sent to one of its addresses, or could not be sent there."""

    uid: str
    """``17``; of an array it stands for all its tasks."""
    position: int
    """Of the address among those of the job."""
    user: str
    destination: str
    """Scheme, host and port of the address, ``mailto:`` for mail."""
    created_at: float
    next_at: float
    """When it is sent, or sent again."""
    tries: int = 0
    """How often that has failed."""
    error: str = ""
    """Why it failed last."""
    given_up_at: float | None = None
