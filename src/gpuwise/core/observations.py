"""What an executor reports of attempts: late, twice or out of order, as real clusters do."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from gpuwise.core.assignments import Where
from gpuwise.core.events import Event


class Phase(enum.IntEnum):
    """Where an attempt is in its life."""

    STARTING = 0
    """Its devices are taken; no step yet."""
    RUNNING = 1
    SUSPENDED = 2
    """It has left its devices as asked, with what it has done."""
    MOVED = 3
    """It has left its devices so that the next attempt of its job can begin elsewhere."""
    SUCCEEDED = 4
    FAILED = 5
    STOPPED = 6
    """It is gone, as wanted."""
    REFUSED = 7
    """It was never started, through no fault of its job."""


OVER = frozenset(Phase) - {Phase.STARTING, Phase.RUNNING}
"""Phases that no other follows."""


class Cause(enum.StrEnum):
    """Why an attempt failed, or was refused."""

    ERROR = "error"
    """Its program ended with an error, or could not be started."""
    OUT_OF_MEMORY = "out of memory"
    LIMIT = "limit"
    """It exceeded a limit its user or the service has set; it is not tried again."""
    LOST = "lost"
    """What ran it is gone without a word: its supervisor, its pod."""
    DEVICE_LOST = "device lost"
    NODE_LOST = "node lost"
    REQUEUED = "requeued"
    """Its user wants it to be started again."""
    BUSY = "busy"
    """Refused: others use what it was given."""
    UNAVAILABLE = "unavailable"
    """Refused: the node does not answer, or does not take it now."""
    REJECTED = "rejected"
    """Refused: the node or cluster will not take this job as it is."""


UNCOUNTED = frozenset((Cause.DEVICE_LOST, Cause.NODE_LOST, Cause.REQUEUED))
"""Failures that are not the job's own and do not count against its retries."""


class RankStatus(NamedTuple):
    """One process of an attempt."""

    rank: int
    phase: Phase
    node: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What else may be known of an attempt; whatever is not known is left out."""

    cause: Cause = Cause.ERROR
    """Why it failed, or was refused."""
    text: str = ""
    """The same for people."""
    avoid: tuple[str, ...] = ()
    """Nodes on which its job should not be tried again soon, after a refusal."""
    where: tuple[Where, ...] = ()
    """Where it really is; empty is where it was assigned."""
    ranks: tuple[RankStatus, ...] = ()
    started_s: float | None = None
    exit_code: int | None = None
    peak_memory_bytes: float | None = None
    """The most memory it had on all its devices together."""
    cpu_s: float | None = None
    loss: float | None = None
    samples_per_s: float | None = None


NO_DETAILS = Details()


@final
class AttemptObserved(NamedTuple):
    """How one attempt of a job is found at a time."""

    at_s: float
    job: str
    attempt: int
    phase: Phase
    step: float | None = None
    """How far it is, or what is kept of it once it is over, in its own steps; None is unknown, and after a suspension
    it means that all it has done is kept."""
    steps: float | None = None
    """Steps in all, as the job itself counts them; None if it does not say."""
    details: Details = NO_DETAILS


Observations = tuple[float, Sequence[Event | AttemptObserved]]
"""A time, and what an executor saw up to then; a plain tuple, since a simulation makes hundreds of thousands."""
