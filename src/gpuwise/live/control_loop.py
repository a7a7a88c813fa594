"""The control loop: one thread that owns the engine. It takes in, decides, writes, and only then acts."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gpuwise.core.assignments import Desired
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import Event, JobCancelled, NodeChanged, NodeEvent, WokeUp
from gpuwise.core.observations import AttemptObserved
from gpuwise.core.protocols import Executor
from gpuwise.core.records import AuditEntry, Batch, JournalLine, StoreError
from gpuwise.engine.engine import Engine
from gpuwise.engine.node_transitions import still_drained
from gpuwise.live.failures import PATIENCE, Failures
from gpuwise.live.inbox import Inbox, Request
from gpuwise.live.intake import JobIntake
from gpuwise.live.notifications import of_ended
from gpuwise.live.recovery import EngineStore, MakeEngine
from gpuwise.live.submissions import UserLimits

log = logging.getLogger("gpuwise.controller")

PROGRESS_EVERY_S = 1.0
"""How often progress alone is written."""


class LiveExecutor(Executor, Protocol):
    """An executor of real jobs: it can be woken from other threads, and left without ending its jobs."""

    def wake(self) -> None:
        """Lets `observe` return."""
        ...

    def close(self) -> None:
        """Stops watching; jobs continue to run."""
        ...


@dataclass(slots=True)
class ResizeRequest:
    """A number of GPUs that a user asks for."""

    uid: str
    gpus: int
    refusal: GpuwiseError | None = None

    def answer(self) -> None:
        """Raises why it was refused, if it was."""
        if self.refusal is not None:
            raise self.refusal


class ControlLoop:
    """Engine, job records and executor behind one inbox.

    A turn takes in events and requests, lets the engine decide, writes everything in one transaction, answers, and
    carries the commands out. When a turn fails, the engine is thrown away and rebuilt from the store, as after a crash:
    there is one way back, and it is used often enough to be trusted.
    """

    def __init__(
        self, executor: LiveExecutor, engine_store: EngineStore, fallback: MakeEngine | None, limits: UserLimits
    ) -> None:
        self.executor = executor
        self.inbox = Inbox(executor.wake)
        self.audit: deque[AuditEntry] = deque()
        self.listeners: list[Callable[[Sequence[JournalLine]], None]] = []
        self.on_notifications: Callable[[], object] = lambda: None
        """Called when there are notifications to be sent."""
        self.stopping = threading.Event()
        self.trouble = ""
        """What is wrong now, for people; empty is nothing."""
        self.resizes: list[ResizeRequest] = []
        """Those of this turn, until the engine knows the turn's events."""
        self._engine_store = engine_store
        self._fallback = fallback
        self._limits = limits
        self._clock = engine_store.clock
        self._failures = Failures()
        self._replaced = ""
        """Which policy was replaced, for people."""
        self._progress_due_s = 0.0
        self._stale = True
        """Whether the engine knows more than the store."""
        self._restarted = True
        """Whether the policy is to be asked at the next turn, whatever happens."""
        self._rebuild()

    def _rebuild(self) -> None:
        """Makes engine, job records and admission again from the store, and lets the executor follow."""
        engine = self._engine_store.rebuild()
        self.intake = JobIntake(engine, self._engine_store.store, self._clock, self._limits)
        self._leave_out_unrecorded(engine)
        self._restarted = True
        self.executor.follow(engine.desired(), complete=True)
        self._stale = False
        self.executor.wake()

    def _leave_out_unrecorded(self, engine: Engine) -> None:
        """Cancels jobs whose records cannot be read, and those that wait for their success; the others continue.

        All of it is written at once: after a restart, nothing could be said of what waited for a job that has ended.
        """
        now_s = self._clock.now_s()
        if not self.intake.unrecorded:
            return
        for row in self.intake.unrecorded:
            log.error("job %s is cancelled, since its record cannot be read", engine.state.jobs.ids[row])
        engine.take_in(now_s, [JobCancelled(now_s, row) for row in self.intake.unrecorded])
        follows = self.intake.end_unrecorded(now_s)
        engine.take_in(now_s, follows)
        self.intake.follow(follows)
        self._write(now_s)

    def turn(self) -> None:
        """One turn; a failure ends in a rebuild, never in an exception."""
        taken: list[Request] = []
        try:
            if self._stale:
                self._rebuild()
            now_s, happened = self._observe()
            taken = self.inbox.take()
            if self._failures.turns:  # what may fail again must not keep questions from being answered
                taken = self._without_reads(now_s, taken)
            self._take_turn(now_s, happened, taken)
            self._failures.turns = 0
            self.trouble = "; ".join(
                filter(None, (self._replaced, self._failures.left_out(self.intake.job_records.live)))
            )
        except Exception as error:
            self._fail(error, taken)

    def _without_reads(self, now_s: float, taken: Sequence[Request]) -> list[Request]:
        """Answers questions from what is in the store; the requests that are left."""
        for request in taken:
            if request.reads and request.take_in(now_s) is not None:
                request.answer()
        return [request for request in taken if not request.reads]

    def _observe(self) -> tuple[float, list[Event | AttemptObserved]]:
        until_s = wake_at = self.intake.engine.wake_at
        if self.intake.job_records.has_progress:
            until_s = min(self._progress_due_s, until_s if until_s is not None else self._progress_due_s)
        if (begins_s := self.intake.begins_s) < math.inf:
            until_s = min(begins_s, math.inf if until_s is None else until_s)
        if len(self.inbox):
            until_s = 0.0
        seen = self.executor.observe(until_s)
        if seen is None:
            return self._clock.now_s(), []
        now_s, happened = seen
        news = [each for each in happened if not isinstance(each, WokeUp) and not self._failures.is_left_out(each)]
        if wake_at is not None and now_s >= wake_at:
            news.append(WokeUp(now_s))
        return now_s, news

    def _take_turn(
        self, now_s: float, happened: Sequence[Event | AttemptObserved], requests: Sequence[Request]
    ) -> None:
        intake, engine = self.intake, self.intake.engine
        self.resizes = []
        self._take_in(now_s, happened)
        events = intake.outcomes(now_s, [each for each in engine.journal.records if isinstance(each, Event)])
        accepted = []
        for request in requests:
            if (follows := request.take_in(now_s)) is not None:
                events += follows
                accepted.append(request)
        events += intake.revisions(now_s)
        events += intake.admit(now_s)
        if self._restarted:
            self._restarted = False
            events.append(WokeUp(now_s))
        engine.take_in(now_s, events)
        desired = [*self._decide(), *self._resize(now_s)]
        if intake.follow(engine.journal.records):
            self.executor.wake()  # nodes joined or left: the next turn admits the jobs that may be scheduled now
        lines = self._write(now_s)
        for request in accepted:
            request.answer()
        if desired:
            self.executor.follow(engine.addressed(desired))
        if lines:
            for listener in tuple(self.listeners):
                listener(lines)
        self._compact()

    def _take_in(self, now_s: float, happened: Sequence[Event | AttemptObserved]) -> None:
        """Takes in what the executor saw; what cannot be taken in fails this turn, and is left out in the end."""
        for each in happened:
            try:
                if isinstance(each, AttemptObserved):
                    self.intake.observed(each)
                self.intake.engine.take_in(now_s, (self._still_drained(each),))
            except StoreError:
                raise
            except Exception:
                self._failures.failed(each)
                raise
            self._failures.succeeded(each)
        if any(isinstance(each, NodeEvent) for each in happened):
            self.intake.nodes_changed()

    def _still_drained(self, seen: Event | AttemptObserved) -> Event | AttemptObserved:
        """What an executor reports of a node does not end a drain; only a user does."""
        if not isinstance(seen, NodeChanged):
            return seen
        nodes = self.intake.engine.state.nodes
        row = nodes.row(seen.node.name)
        return seen if row is None else replace(seen, node=still_drained(nodes.specs[row], seen.node))

    def _decide(self) -> Sequence[Desired]:
        """Asks the policy; only what fails here is its fault."""
        try:
            desired = self.intake.engine.decide()
        except Exception:
            self._failures.policy += 1
            raise
        self._failures.policy = 0
        return desired

    def _resize(self, now_s: float) -> list[Desired]:
        """Carries out the resizes of this turn, now that the engine knows what has happened; then asks the policy."""
        desired: list[Desired] = []
        for resize in self.resizes:
            try:
                desired += self.intake.resize(now_s, resize.uid, resize.gpus)
            except StoreError:
                raise
            except GpuwiseError as refusal:
                resize.refusal = refusal
        if not desired:
            return []
        self.intake.engine.take_in(now_s, [WokeUp(now_s)])
        return [*desired, *self._decide()]

    def _write(self, now_s: float) -> list[JournalLine]:
        """Writes the turn, all or nothing."""
        records, batch = self.intake.job_records, Batch()
        batch.lines = self._engine_store.take_lines(self.intake.engine, now_s)
        batch.jobs, batch.attempts = records.take_changed()
        batch.notifications = of_ended(records.ended, self.intake.admission.has_tasks, time.time())
        if records.has_progress and now_s >= self._progress_due_s:
            batch.jobs += records.take_progress()
            self._progress_due_s = now_s + PROGRESS_EVERY_S
        while self.audit:
            batch.audit.append(self.audit.popleft())
        if batch:
            try:
                self._engine_store.commit(batch)
            except StoreError:
                self.audit.extendleft(reversed(batch.audit))
                raise
            records.written(batch.jobs)
        if batch.notifications:
            self.on_notifications()
        return batch.lines

    def _compact(self) -> None:
        """Continues with an engine without what has ended, if the journal has become long."""
        engine = self._engine_store.compact(self.intake.engine, len(self.intake.job_records.live))
        if engine is not None:
            self.intake.engine = engine
            self._restarted = True
            self.executor.wake()

    def _fail(self, error: Exception, taken: Sequence[Request]) -> None:
        """Gives up on a turn: refuses its requests, waits a little, and starts again from what is on disk.

        Until that works nothing else is done: what the engine has in memory was never written.
        """
        self._failures.turns += 1
        self._stale = True
        if isinstance(error, StoreError):
            log.warning("a turn could not be written: %s", error)
        else:
            log.exception("a turn failed; starting again from the store")
        self.trouble = str(error) or type(error).__name__
        for request in taken:
            request.refuse(error)
        if self._failures.policy >= PATIENCE and self._fallback is not None:
            name = self.intake.engine.policy.name
            log.error("policy %r failed %d times in a row; fifo decides from now on", name, PATIENCE)
            self._replaced = f"policy {name!r} fails ({error}); fifo decides until the next start"
            self._engine_store.make_engine, self._fallback = self._fallback, None
        if self._failures.turns > 1:  # those who have asked meanwhile do not wait until it works again
            for request in self.inbox.take(reads_too=False):
                request.refuse(error)
        self.stopping.wait(self._failures.back_off_s())
