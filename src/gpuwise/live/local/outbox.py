"""What the executor has to tell: events for the engine, each once, and reports for the records."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwise.core.commands import Placement
from gpuwise.core.events import DeviceLost, Event, JobFailed, JobFinished, JobProgressed, JobStarted, JobSuspended
from gpuwise.core.jobs import Status
from gpuwise.core.spec import ClusterSpec
from gpuwise.core.state import ClusterState
from gpuwise.live.clock import Clock
from gpuwise.live.local.attempts import Exit, Folders
from gpuwise.live.local.mailbox import Progressed
from gpuwise.live.local.outcome import Outcome
from gpuwise.live.local.runs import Run
from gpuwise.live.local.steps import NEWS_FRAC, believed_steps, kept_steps, scaled
from gpuwise.live.reports import AttemptEnded, AttemptStarted, Progress, Report, Saved

PROGRESS_EVERY_S = 1.0
HOLDING = frozenset((Status.STARTING, Status.RUNNING, Status.SUSPENDING))
"""In these, a job may end."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where the engine has a job."""

    row: int = -1
    status: Status | None = None
    number: int = 0
    """How often it was given GPUs."""
    placement: Placement | None = None
    over: int = 0
    """Of these placements, how many the engine knows to be over."""

    @classmethod
    def of(cls, state: ClusterState, uid: str) -> Wanted:
        """The job by a name; one that is not known any more shall not be here."""
        row = state.jobs.row_of.get(uid)
        if row is None:
            return cls()
        jobs = state.jobs
        return cls(row, state.status(row), jobs.placements.item(row), state.placed.get(row), jobs.over.item(row))


class Outbox:
    """Events and reports until they are taken."""

    def __init__(self, clock: Clock, folders: Folders) -> None:
        self.state = ClusterState(ClusterSpec(()))
        self._clock = clock
        self._folders = folders
        self.events: list[Event] = []
        self.reports: list[Report] = []
        self._started: set[str] = set()
        self._over: set[str] = set()

    def bind(self, state: ClusterState) -> None:
        """Begins anew; what was to be told to another engine is found out again."""
        self.state = state
        self.events, self.reports = [], []
        self.begin()

    def begin(self) -> None:
        """The engine knows everything that was told so far."""
        untold = {self.state.jobs.ids[row] for event in self.events for row in _rows(event)}
        self._started &= untold
        self._over &= untold

    def is_over(self, uid: str) -> bool:
        """Whether the engine is about to learn that a job does not run any more."""
        return uid in self._over

    # -- events ---------------------------------------------------------------------------------------------------

    def started(self, run: Run, want: Wanted) -> None:
        """An attempt runs; it is news once for each placement."""
        uid = run.uid
        if want.status is not Status.STARTING or want.number != run.number or uid in self._started | self._over:
            return
        self._started.add(uid)
        at_s = self.moment(run.started_at, want.row)
        self.events.append(JobStarted(at_s, want.row))
        self.reports.append(AttemptStarted(uid, run.number, at_s, run.placement))
        kept = self.kept(uid, want.row, run.declared_steps)
        if not run.is_going_on and self._is_news(want.row, kept - self.state.jobs.steps_done.item(want.row)):
            self.events.append(JobProgressed(at_s, want.row, kept))

    def finished(self, uid: str, want: Wanted, at_s: float) -> None:
        """A job has done what it had to."""
        if self._ends(uid, want):
            self.events.append(JobFinished(at_s, want.row))

    def failed(self, uid: str, want: Wanted, cause: str, at_s: float, declared: bool) -> None:
        """A job's attempt ended on an error."""
        if self._ends(uid, want):
            kept = self.kept(uid, want.row, declared)
            self.events.append(JobFailed(at_s, want.row, kept, cause, will_retry=False))

    def suspended(self, uid: str, want: Wanted, steps: float) -> None:
        """A job has left its devices."""
        if want.status is Status.SUSPENDING and self._ends(uid, want):
            self.events.append(JobSuspended(self._clock.now_s(), want.row, steps))

    def interrupted(self, uid: str) -> None:
        """A job has lost its device; the event that says so is another's to tell."""
        self._over.add(uid)

    def _ends(self, uid: str, want: Wanted) -> bool:
        if want.status not in HOLDING or uid in self._over:
            return False
        self._over.add(uid)
        return True

    # -- progress -------------------------------------------------------------------------------------------------

    def progressed(self, run: Run, want: Wanted, message: Progressed) -> None:
        """A job says how far it is: always a report, an event if the engine thinks otherwise."""
        now_s = self._clock.now_s()
        self.reports.append(Progress(run.uid, now_s, message.step, message.steps, message.loss, message.samples_per_s))
        if want.status is not Status.RUNNING or want.number != run.number or run.uid in self._over:
            return
        if now_s - run.progress_s < PROGRESS_EVERY_S:
            return
        total = self.state.jobs.steps.item(want.row)
        steps = scaled(message.step, message.steps, total, run.declared_steps)
        if steps is not None and self._is_news(want.row, steps - believed_steps(self.state.jobs, want.row, now_s)):
            run.progress_s = now_s
            self.events.append(JobProgressed(now_s, want.row, steps))

    def saved(self, run: Run, step: float) -> None:
        """A job has a checkpoint."""
        self.reports.append(Saved(run.uid, self._clock.now_s(), step))

    def _is_news(self, row: int, difference: float) -> bool:
        return bool(abs(difference) > NEWS_FRAC * self.state.jobs.steps.item(row))

    def kept(self, uid: str, row: int, declared: bool) -> float:
        """What the last checkpoint of a job keeps."""
        return kept_steps(self._folders.checkpoint(uid), self.state.jobs.steps.item(row), declared)

    # -- reports --------------------------------------------------------------------------------------------------

    def ended(self, run: Run, ended: Exit, outcome: Outcome, detail: str, peak: float | None, at_s: float) -> None:
        """An attempt is over."""
        if run.told_over:
            return
        begun = run.started_at
        started_s = min(self._clock.seconds(begun), at_s) if begun is not None else at_s
        self.reports.append(
            AttemptEnded(
                run.uid, run.number, at_s, run.placement, started_s, outcome, ended.code, detail, peak, ended.cpu_s
            )
        )

    def moment(self, unix: float | None, row: int) -> float:
        """A Unix time on the controller's clock: not after now, and not before the job got its place."""
        now_s = self._clock.now_s()
        if unix is None:
            return now_s
        placed_s = self.state.jobs.placed_s.item(row) if row >= 0 else 0.0
        return min(now_s, max(self._clock.seconds(unix), placed_s if placed_s == placed_s else 0.0))


def _rows(event: Event) -> list[int]:
    """The jobs that an event is about."""
    if isinstance(event, DeviceLost):
        return [row for row, _ in event.interrupted]
    return [event.job] if hasattr(event, "job") else []
