"""What the executor has observed and not yet reported: each thing once, until it is asked to begin again."""

from __future__ import annotations

from dataclasses import replace

from gpuwise.core.events import Event
from gpuwise.core.observations import NO_DETAILS, AttemptObserved, Cause, Details, Phase
from gpuwise.live.clock import Clock
from gpuwise.live.local.attempts.folders import Exit, Folders
from gpuwise.live.local.attempts.messages import Progressed
from gpuwise.live.local.attempts.runs import Run

PROGRESS_EVERY_S = 1.0
"""Progress alone is reported this often."""
Kept = tuple[float | None, float | None]
"""What is left of a job's work: in its own steps, and out of how many; None is unknown."""


class Reports:
    """Observations until they are taken."""

    def __init__(self, clock: Clock, folders: Folders) -> None:
        self._clock = clock
        self._folders = folders
        self.events: list[Event] = []
        """What happened to devices; reported after what happened to attempts."""
        self._seen: list[AttemptObserved] = []
        self._progress: dict[str, AttemptObserved] = {}
        self._progress_reported_s = 0.0
        self._reported: dict[str, set[tuple[int, Phase]]] = {}
        """Of each job, the attempts and phases that were reported."""
        self._over: set[str] = set()
        """Jobs that were reported to be over, until that is on record."""

    def begin_again(self) -> None:
        """Forgets what was reported: everything is looked up and reported again."""
        self.events, self._seen, self._progress = [], [], {}
        self._reported.clear()
        self._over.clear()

    def recorded(self) -> set[str]:
        """What was reported is on record, and decided on; the jobs that were reported to be over."""
        unreported = {seen.job for seen in self._seen}
        reported, self._over = self._over - unreported, self._over & unreported
        return reported

    def is_over(self, uid: str) -> bool:
        """Whether it is reported, or about to be, that a job does not run any more."""
        return uid in self._over

    def ready_s(self, now_s: float, coalesce_s: float) -> float:
        """When what there is to report is due."""
        if self.events or self._seen:
            return now_s + coalesce_s
        return self._progress_reported_s + PROGRESS_EVERY_S if self._progress else float("inf")

    def take(self, now_s: float) -> list[Event | AttemptObserved]:
        """Everything there is to report; nothing of it is later than now."""
        happened: list[Event | AttemptObserved] = [
            seen if seen.at_s <= now_s else seen._replace(at_s=now_s)
            for seen in (*self._seen, *self._progress.values())
        ]
        happened += [event if event.at_s <= now_s else replace(event, at_s=now_s) for event in self.events]
        if self._progress:
            self._progress_reported_s = now_s
        self.events, self._seen, self._progress = [], [], {}
        return happened

    def running(self, run: Run, *, begins: bool = True) -> None:
        """An attempt runs, which is reported once; ``begins`` unless it was observed to run before."""
        if not self._is_news(run.uid, run.number, Phase.RUNNING):
            return
        at_s = self._moment(run.started_at)
        step, steps = self._folders.saved_steps(run.uid) if begins and not run.is_resumed else (None, None)
        self._seen.append(
            AttemptObserved(at_s, run.uid, run.number, Phase.RUNNING, step, steps, Details(started_s=at_s))
        )

    def progressed(self, run: Run, message: Progressed) -> None:
        """A job reports how far it is."""
        details = Details(loss=message.loss, samples_per_s=message.samples_per_s)
        self._progress[run.uid] = AttemptObserved(
            self._clock.now_s(), run.uid, run.number, Phase.RUNNING, message.step, message.steps, details
        )

    def ended(self, run: Run, phase: Phase, ended: Exit, details: Details, kept: Kept | None) -> None:
        """An attempt is over; ``kept`` is what is left of its work, None what its last checkpoint keeps."""
        if run.reported_over or not self._is_news(run.uid, run.number, phase):
            return
        at_s = self._moment(ended.at)
        started_at = run.started_at
        known = replace(
            details,
            started_s=min(self._clock.seconds(started_at), at_s) if started_at is not None else at_s,
            exit_code=ended.code,
            cpu_s=ended.cpu_s,
        )
        last = self._progress.get(run.uid)
        kept = kept or self._folders.saved_steps(run.uid)
        if phase is Phase.SUCCEEDED and last is None:
            kept = (None, None)
        elif phase is Phase.SUCCEEDED and last is not None:  # what it sent last is news too
            kept = (last.step, last.steps)
            known = replace(known, loss=last.details.loss, samples_per_s=last.details.samples_per_s)
        self._put(AttemptObserved(at_s, run.uid, run.number, phase, kept[0], kept[1], known))

    def never_ran(
        self, uid: str, attempt: int, phase: Phase, details: Details = NO_DETAILS, *, keeps_all: bool = False
    ) -> None:
        """An attempt is over that never came to run here; its job has what it saved, or all it has done."""
        if self._is_news(uid, attempt, phase):
            kept: Kept = (None, None) if keeps_all else self._folders.saved_steps(uid)
            self._put(AttemptObserved(self._clock.now_s(), uid, attempt, phase, kept[0], kept[1], details))

    def interrupted(self, run: Run, why: str) -> None:
        """A run has lost its device."""
        if self._is_news(run.uid, run.number, Phase.FAILED):
            details = Details(cause=Cause.DEVICE_LOST, text=why)
            now_s, kept = self._clock.now_s(), self._folders.saved_steps(run.uid)
            self._put(AttemptObserved(now_s, run.uid, run.number, Phase.FAILED, kept[0], kept[1], details))
            self._reported[run.uid].discard(
                (run.number, Phase.FAILED)
            )  # its end is reported once more, for the records

    def _put(self, seen: AttemptObserved) -> None:
        self._over.add(seen.job)
        self._progress.pop(seen.job, None)
        self._seen.append(seen)

    def _is_news(self, uid: str, attempt: int, phase: Phase) -> bool:
        reported = self._reported.setdefault(uid, set())
        if (attempt, phase) in reported:
            return False
        reported.add((attempt, phase))
        return True

    def remove(self, uid: str, attempt: int) -> None:
        """An attempt is over and all of it reported, as are those before it."""
        newer = {each for each in self._reported.pop(uid, ()) if each[0] > attempt}
        if newer:
            self._reported[uid] = newer

    def _moment(self, unix: float | None) -> float:
        """A Unix time on the controller's clock, not after now."""
        now_s = self._clock.now_s()
        return now_s if unix is None else min(now_s, self._clock.seconds(unix))
