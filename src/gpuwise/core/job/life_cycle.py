"""The life of a job: its statuses, and which may follow which."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Status(enum.IntEnum):
    """The life of a job."""

    DECLARED = 0
    """Known, not submitted yet."""
    PENDING = 1
    STARTING = 2
    """It has GPUs; no step yet since a start, resume, move or resize."""
    RUNNING = 3
    SUSPENDING = 4
    """Its GPUs are allocated to others next; it is saving its state."""
    SUSPENDED = 5
    SUCCEEDED = 6
    FAILED = 7
    CANCELLED = 8


STATUS_BY_CODE = tuple(Status)
"""To index it takes a tenth of the time of ``Status(code)``."""
WAITING = frozenset((Status.PENDING, Status.SUSPENDED))
PLACED = frozenset((Status.STARTING, Status.RUNNING))
ENDED = frozenset((Status.SUCCEEDED, Status.FAILED, Status.CANCELLED))

LIFE_CYCLE: Mapping[Status, frozenset[Status]] = {
    Status.DECLARED: frozenset((Status.PENDING,)),
    Status.PENDING: frozenset((Status.STARTING, Status.SUCCEEDED, Status.CANCELLED)),
    Status.STARTING: frozenset(
        (Status.STARTING, Status.RUNNING, Status.SUSPENDING, Status.SUSPENDED, Status.PENDING, *ENDED)
    ),
    Status.RUNNING: frozenset((Status.STARTING, Status.SUSPENDING, Status.PENDING, *ENDED)),
    Status.SUSPENDING: frozenset((Status.SUSPENDED, Status.PENDING, *ENDED)),
    Status.SUSPENDED: frozenset((Status.STARTING, Status.SUCCEEDED, Status.CANCELLED)),
    Status.SUCCEEDED: frozenset(),
    Status.FAILED: frozenset(),
    Status.CANCELLED: frozenset(),
}
"""Which status may follow which; a job whose node is lost is pending again, one moved before its first step
starts again, one whose start is refused is what it was before, and one that waits has succeeded if an attempt that was
given up turns out to have done all its work."""
