"""What is kept of jobs that run for real: records that the controller writes to a store."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.request import JobRequest
from gpuwise.core.notification import Notification
from gpuwise.core.search import EndedQuery


class StoreError(GpuwiseError):
    """The store could not be read or written: the disk is full, the server is away. Nothing of the write was kept."""


RESTORE = "put a backup in its place with: gpuwise restore FILE"
"""What to do about a damaged database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job: what was asked for and what came of it. Times are Unix times."""

    uid: str
    """``17``, or ``17-3`` for the task with index 3 of array 17."""
    user: str
    request: JobRequest
    status: str = "pending"
    """A `Status` in lower case."""
    why_ended: str = ""
    """Why it failed or was cancelled, for people."""
    submitted_at: float = 0.0
    started_at: float | None = None
    """When it first took GPUs."""
    ended_at: float | None = None
    exit_code: int | None = None
    """Of its last attempt; a signal is 128 and its number, as in a shell."""
    attempts: int = 0
    failures: int = 0
    """Attempts that failed and count against its retries."""
    out_of_memory: int = 0
    """Attempts that ran out of memory."""
    held: str = ""
    """Why it may not be placed now: ``user``, ``dependency``, ``begin``, ``array``, ``quota`` or ``share``; several are
    joined by commas, as in ``dependency,user``; empty is not on hold."""
    placement: str = ""
    """Where it is, for people; empty while it has no GPUs."""
    duration_s: float = 0.0
    """The estimate of its run time."""
    duration_low_s: float | None = None
    duration_high_s: float | None = None
    """The interval of ``duration_s``; None is not known."""
    duration_source: str = "declared"
    """A `Source`, as those below."""
    gpu_memory_bytes: float = 0.0
    """What is forecast of its memory on each GPU; corrected after it ran out."""
    gpu_memory_low_bytes: float | None = None
    gpu_memory_high_bytes: float | None = None
    gpu_memory_source: str = "declared"
    gpu_util_frac: float | None = None
    """What is forecast, and later seen, of its use of its GPUs when it is alone."""
    gpu_util_low_frac: float | None = None
    gpu_util_high_frac: float | None = None
    gpu_util_source: str = "declared"
    step: float | None = None
    steps: float | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    peak_memory_bytes: float | None = None
    gpu_s: float = 0.0
    """GPU time it has had."""
    preemptions: int = 0
    idempotency_key: str | None = None
    """What the client called this submission, so that sending it again does not run it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One launch of a job."""

    uid: str
    number: int
    placement: str
    started_at: float
    ended_at: float | None = None
    exit_code: int | None = None
    outcome: str = ""
    """succeeded, failed, out of memory, suspended, moved, requeued, cancelled or lost; empty while it runs."""
    detail: str = ""
    peak_memory_bytes: float | None = None
    cpu_s: float | None = None


class AttemptUse(NamedTuple):
    """What an attempt had of the cluster, and whose it was."""

    uid: str
    user: str
    queue: str
    placement: str
    started_at: float
    ended_at: float | None
    gpu_util_frac: float | None
    gpu_util_source: str


@dataclass(frozen=True, slots=True)
class JournalLine:
    """One event or command as it is kept; ``sequence`` rises by one from line to line and is never used twice."""

    sequence: int
    at: float
    """Unix time."""
    kind: str
    uid: str | None
    body: str
    """The record as JSON."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after the journal's lines up to ``sequence``."""

    sequence: int
    body: str


class UserRole(enum.StrEnum):
    """What the user of a token may do."""

    ADMIN = "admin"
    """Everything."""
    USER = "user"
    """Submit, see and touch their own jobs; see the cluster."""
    VIEWER = "viewer"
    """See the queue, the details of their own jobs and the cluster; rotate their own tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A token, by the hash of its secret."""

    id: str
    digest: str
    """SHA-256 of the secret, in hex."""
    user: str
    role: UserRole
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    """When it ends, or ended; a token that was rotated may have some time left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """A queue: what its jobs may use together."""

    name: str
    max_gpus: float | None = None
    """GPUs its jobs may have at one time; None is no limit."""
    max_jobs: int | None = None
    """Jobs it may have that have not ended."""
    weight: float = 1.0
    """Its share when others wait too."""
    users: tuple[str, ...] = ()
    """Who may submit to it; empty is every user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who did what to what."""

    at: float
    user: str
    action: str
    target: str
    outcome: str
    """``ok`` or why it was refused."""
    address: str = ""


@dataclass(slots=True)
class Batch:
    """What one turn of the controller writes, all or nothing."""

    lines: list[JournalLine] = field(default_factory=list)
    jobs: list[JobRecord] = field(default_factory=list)
    attempts: list[AttemptRecord] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)
    notifications: list[Notification] = field(default_factory=list)
    snapshot: Snapshot | None = None
    """Takes the place of all lines up to its sequence when the service starts again; the lines stay to be read."""

    def __bool__(self) -> bool:
        return bool(self.lines or self.jobs or self.attempts or self.audit or self.notifications or self.snapshot)


@dataclass(frozen=True, slots=True)
class EndedPage:
    """A page of the ended jobs."""

    rows: list[tuple[JobRecord, int]]
    """Jobs with 0; for an array its first task that was found, with the number of those."""
    total: int
    """All jobs that have ended."""
    matching: int
    """Those that the search found."""
    row_count: int
    """The rows of all pages."""
    offset: int


class Store(Protocol):
    """Keeps records. One process writes; several threads of it read. Failures are `StoreError`."""

    unreadable: dict[str, str]
    """Rows that lists leave out since they cannot be read, such as ``job 17``, and why."""

    @property
    def place(self) -> str:
        """Where the store is, without a password."""
        ...

    def close(self) -> None:
        """Closes the database."""
        ...

    def meta(self, name: str, default: str) -> str:
        """A setting of the service; written with ``default`` when it is not there yet."""
        ...

    def commit(self, batch: Batch) -> None:
        """Writes a batch in one transaction and returns when it is on disk."""
        ...

    def recover(self) -> tuple[Snapshot | None, list[JournalLine]]:
        """The last snapshot and the lines after it."""
        ...

    def live_jobs(self) -> list[JobRecord]:
        """Jobs that have not ended, in the order they were submitted; those that cannot be read are left out."""
        ...

    def last_job_number(self) -> int:
        """The highest number that a job or array was ever given; 0 is none."""
        ...

    def job(self, uid: str) -> JobRecord | None:
        """One job."""
        ...

    def jobs(
        self,
        *,
        user: str | None = None,
        statuses: Sequence[str] = (),
        queue: str | None = None,
        name: str | None = None,
        uids: Sequence[str] = (),
        before: str | None = None,
        limit: int = 100,
    ) -> list[JobRecord]:
        """Jobs, newest first; an array's id in ``uids`` means all its tasks; ``before`` is a uid, for the next page."""
        ...

    def ended_page(self, query: EndedQuery) -> EndedPage:
        """A page of the jobs that have ended, searched and sorted."""
        ...

    def counts_by_array(self, numbers: Sequence[str]) -> dict[str, dict[str, int]]:
        """Of each array, the number of its ended tasks by status."""
        ...

    def count_live(self, user: str) -> int:
        """How many jobs of a user have not ended."""
        ...

    def by_idempotency_key(self, user: str, key: str) -> list[JobRecord]:
        """The jobs that an earlier submission with this key made."""
        ...

    def run_times(self, request: JobRequest, user: str, limit: int = 20) -> list[tuple[float, float]]:
        """Run time (s) and peak memory (bytes, 0 is unknown) of a user's last successes with the same command."""
        ...

    def attempts(self, uid: str) -> list[AttemptRecord]:
        """The launches of a job, first one first."""
        ...

    def attempts_between(self, since: float, until: float) -> list[AttemptUse]:
        """The launches, of all jobs, that ran at some time between two Unix times."""
        ...

    def lines(self, *, after: int = 0, uid: str | None = None, limit: int = 1000) -> list[JournalLine]:
        """Journal lines after a sequence number, in order."""
        ...

    def last_sequence(self) -> int:
        """The sequence number of the newest line; 0 is none."""
        ...

    def prune(self, *, ended_before: float, keep_lines: int) -> int:
        """Deletes jobs and tokens that ended before a time, and old lines no restart needs; returns the rows."""
        ...

    def next_notification(self, busy: Collection[tuple[str, str]], full: Collection[str]) -> Notification | None:
        """The notification to be sent next, but for busy pairs of user and destination, and users with enough."""
        ...

    def put_notification(self, notification: Notification) -> None:
        """Adds or changes a notification."""
        ...

    def delete_notification(self, uid: str, position: int) -> None:
        """Deletes a notification, which was sent."""
        ...

    def notifications(self, uid: str) -> list[Notification]:
        """The notifications of a job or an array that were not sent, in the order of its addresses."""
        ...

    def put_token(self, token: TokenRecord) -> None:
        """Adds or changes a token."""
        ...

    def tokens(self) -> list[TokenRecord]:
        """All tokens, revoked ones too."""
        ...

    def put_queue(self, queue: QueueRecord) -> None:
        """Adds or changes a queue."""
        ...

    def delete_queue(self, name: str) -> bool:
        """Deletes a queue's limits; returns whether there were any."""
        ...

    def queues(self) -> list[QueueRecord]:
        """All queues that have limits, by name."""
        ...

    def audit(self, *, before: int | None = None, limit: int = 100) -> list[tuple[int, AuditEntry]]:
        """Audit entries with their numbers, newest first."""
        ...
