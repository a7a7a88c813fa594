"""The controller: one thread that owns the engine. It takes in, decides, writes, and only then acts."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from time import monotonic
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from gpuwise.core.assignments import Desired
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.commands import Reason
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import Event, NodeChanged, NodeEvent, WokeUp
from gpuwise.core.job.request import JobRequest
from gpuwise.core.observations import AttemptObserved, Phase
from gpuwise.core.protocols import Executor
from gpuwise.core.records import AuditEntry, Batch, JobRecord, JournalLine, QueueRecord, Snapshot, Store, StoreError
from gpuwise.engine.engine import Engine
from gpuwise.engine.node_transitions import still_drained
from gpuwise.live.clock import Clock
from gpuwise.live.inbox import Handler, Inbox, Request
from gpuwise.live.intake import JobIntake, Limits, NotPossibleError
from gpuwise.live.journal_lines import journal_line
from gpuwise.live.recovery import Layouts, MakeEngine, compacted, recover, to_json

log = logging.getLogger("gpuwise.controller")
Result = TypeVar("Result")
Key = tuple[str, int, Phase] | str
"""What makes observations the same: job, attempt and phase, or the kind of an event and what it is about."""

PROGRESS_EVERY_S = 1.0
"""How often progress alone is written."""
COMPACT_LINES = 20_000
"""After so many journal lines, or four for each live job, the state is written whole and what has ended is let go."""
BACK_OFF_S = (0.05, 0.2, 1.0, 2.0)
"""How long to wait after one failed turn, two, and so on."""
PATIENCE = 3
"""After this many failures in a row a policy is replaced, and an observation left out."""
MAX_FAILING = 100
"""Observations whose failures are counted."""


class LiveExecutor(Executor, Protocol):
    """An executor of real jobs: it can be woken from other threads, and left without ending its jobs."""

    def wake(self) -> None:
        """Lets `observe` return."""
        ...

    def close(self) -> None:
        """Stops watching; jobs go on."""
        ...


class Controller:
    """Engine, books and executor behind one inbox.

    A turn takes in events and requests, lets the engine decide, writes everything in one transaction, answers, and
    carries the commands out. When a turn fails, the engine is thrown away and rebuilt from the store, as after a crash:
    there is one way back, and it is used often enough to be trusted.
    """

    def __init__(
        self,
        store: Store,
        executor: LiveExecutor,
        cluster: ClusterSpec,
        make_engine: MakeEngine,
        clock: Clock,
        *,
        fallback: MakeEngine | None = None,
        limits: Limits | None = None,
        layouts: Layouts = MappingProxyType({}),
    ) -> None:
        self.clock = clock
        self.store = store
        self.trouble = ""
        """What is wrong now, for people; empty is nothing."""
        self._executor = executor
        self._cluster = cluster
        self._make_engine = make_engine
        self._fallback = fallback
        self._limits = limits or Limits()
        self._layouts = layouts
        self._inbox = Inbox(executor.wake)
        self._audit: deque[AuditEntry] = deque()
        self._listeners: list[Callable[[Sequence[JournalLine]], None]] = []
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._failures = 0
        self._policy_failures = 0
        self._replaced = ""
        self._progress_due_s = 0.0
        self._resizes: list[_Resize] = []
        """Sizes that users ask for, until the engine knows the turn's events."""
        self._stale = True
        """Whether the engine knows more than the store."""
        self._knows_nodes = False
        """Whether the nodes at the start are in the records; from then on, what happens to nodes is."""
        self._compact_at = COMPACT_LINES
        self._restarted = True
        """Whether the policy is to be asked at the next turn, whatever happens."""
        self._failing: dict[Key, int] = {}
        """How often each observation could not be taken in, since it last could."""
        self._rebuild()

    # -- for other threads ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Runs in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="gpuwise-controller", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ends the thread after its turn; jobs go on."""
        self._stopping.set()
        self._executor.wake()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._inbox.close()
        self._executor.close()

    @property
    def engine(self) -> Engine:
        """The engine; other threads may only look at what cannot change, and use `ask` for the rest."""
        return self._intake.engine

    def live(self, uid: str) -> JobRecord | None:
        """The record of a job that has not ended, newer than the store's."""
        return self._intake.job_records.shown.get(uid)

    def live_records(self) -> list[JobRecord]:
        """The records of all jobs that have not ended."""
        return list(self._intake.job_records.shown.values())

    def submit(self, requests: Sequence[JobRequest], user: str, key: str | None = None) -> Future[list[JobRecord]]:
        """New jobs; the future has their records once they are on disk."""

        def handle(now_s: float) -> tuple[list[Event], Callable[[], list[JobRecord]]]:
            events, records = self._intake.submit(now_s, requests, user, key)
            return events, lambda: [self.live(record.uid) or record for record in records]

        return self._inbox.put(handle)

    def cancel(self, uids: Sequence[str], by: str) -> Future[None]:
        """Takes jobs back."""
        return self._inbox.put(lambda now_s: (self._intake.cancel(now_s, uids, f"cancelled by {by}"), _nothing))

    def suspend(self, uids: Sequence[str]) -> Future[None]:
        """Holds jobs back until they are resumed; those that run leave their GPUs."""
        return self._inbox.put(self._without_events(lambda: self._intake.hold(uids)))

    def resume(self, uids: Sequence[str]) -> Future[None]:
        """Lets jobs that were suspended by their user go on."""
        return self._inbox.put(self._without_events(lambda: self._intake.release(uids)))

    def resize(self, uid: str, gpus: int) -> Future[None]:
        """Runs an elastic job on with another number of GPUs."""

        def handle(now_s: float) -> tuple[list[Event], Callable[[], None]]:
            resize = _Resize(uid, gpus)
            self._resizes.append(resize)
            return [], resize.answer

        return self._inbox.put(handle)

    def observe(self, gpu_util_frac: Mapping[str, float]) -> Future[None]:
        """Jobs were seen to use so much of their GPUs, each while it was alone on them."""
        return self._inbox.put(lambda now_s: (self._intake.utilizations(now_s, gpu_util_frac), _nothing))

    def set_queue(self, queue: QueueRecord) -> Future[None]:
        """Gives a queue limits."""

        def change() -> None:
            self.store.put_queue(queue)
            self._intake.admission.set_queue(queue)

        return self._inbox.put(self._without_events(change))

    def forget_queue(self, name: str) -> Future[bool]:
        """Takes a queue's limits away; whether it had any."""

        def handle(now_s: float) -> tuple[list[Event], Callable[[], bool]]:
            had = self.store.delete_queue(name)
            self._intake.admission.forget_queue(name)
            return [], lambda: had

        return self._inbox.put(handle)

    def set_schedulable(self, node: str, schedulable: bool) -> Future[bool]:
        """Drains a node, or ends that; whether there is such a node."""

        def handle(now_s: float) -> tuple[list[Event], Callable[[], bool]]:
            nodes = self._intake.engine.state.nodes
            row = nodes.row(node)
            if row is None:
                return [], lambda: False
            return [NodeChanged(now_s, replace(nodes.specs[row], schedulable=schedulable))], lambda: True

        return self._inbox.put(handle)

    def ask(self, question: Callable[[JobIntake], Result]) -> Future[Result]:
        """Answers a question about the state between two turns."""

        def handle(now_s: float) -> tuple[list[Event], Callable[[], Result]]:
            return [], lambda: question(self._intake)

        return self._inbox.put(handle)

    def why(self, uid: str) -> Future[Reason | None]:
        """Why a job waits."""
        return self.ask(lambda intake: intake.reason(uid))

    def note(self, entry: AuditEntry) -> None:
        """Keeps an audit entry, written with the next turn."""
        self._audit.append(entry)
        self._executor.wake()

    def listen(self, listener: Callable[[Sequence[JournalLine]], None]) -> Callable[[], None]:
        """Calls a listener, in the controller's thread, with each turn's journal lines; returns how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # -- the controller's thread ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Takes turns until told to stop."""
        while not self._stopping.is_set():
            self.turn()

    def turn(self) -> None:
        """One turn; a failure ends in a rebuild, never in an exception."""
        taken: list[Request] = []
        try:
            if self._stale:
                self._rebuild()
            now_s, happened = self._observe()
            taken = self._inbox.take()
            self._take_turn(now_s, happened, taken)
            self._failures = 0
            self.trouble = "; ".join(filter(None, (self._replaced, self._left_out())))
        except Exception as error:
            self._fail(error, taken)

    def _observe(self) -> tuple[float, list[Event | AttemptObserved]]:
        until_s = wake_at = self._intake.engine.wake_at
        if self._intake.job_records.has_progress:
            until_s = min(self._progress_due_s, until_s if until_s is not None else self._progress_due_s)
        if len(self._inbox):
            until_s = 0.0
        seen = self._executor.observe(until_s)
        if seen is None:
            return self.clock.now_s(), []
        now_s, happened = seen
        news = [each for each in happened if not isinstance(each, WokeUp) and not self._is_left_out(each)]
        if wake_at is not None and now_s >= wake_at:
            news.append(WokeUp(now_s))
        return now_s, news

    def _is_left_out(self, seen: Event | AttemptObserved) -> bool:
        return bool(self._failing) and self._failing.get(_key(seen), 0) >= PATIENCE

    def _left_out(self) -> str:
        """Which observations are left out, for people; those of jobs that have ended do not matter any more."""
        if not self._failing:
            return ""
        live = self._intake.job_records.live
        self._failing = {key: count for key, count in self._failing.items() if isinstance(key, str) or key[0] in live}
        left_out = [_describe(key) for key, count in self._failing.items() if count >= PATIENCE]
        return f"cannot take in {', '.join(left_out)}; see the controller log" if left_out else ""

    def _take_turn(
        self, now_s: float, happened: Sequence[Event | AttemptObserved], requests: Sequence[Request]
    ) -> None:
        intake, engine = self._intake, self._intake.engine
        self._resizes = []
        self._take_in(now_s, happened)
        events = intake.outcomes(now_s, [each for each in engine.journal.records if isinstance(each, Event)])
        answered = [request for request in requests if self._handle(request, now_s, events)]
        events += intake.revisions(now_s)
        events += intake.admit(now_s)
        if self._restarted:
            self._restarted = False
            events.append(WokeUp(now_s))
        engine.take_in(now_s, events)
        desired = [*self._decide(), *self._resize(now_s)]
        if intake.follow(engine.journal.records):
            self._executor.wake()  # nodes came or went: the next turn sees who may enter the line now
        lines = self._write(now_s)
        for request in answered:
            _answer(request)
        if desired:
            self._executor.follow(engine.addressed(desired))
        self._tell(lines)
        if self._lines > max(self._compact_at, 4 * len(intake.job_records.live)):
            self._try_to_compact()

    def _take_in(self, now_s: float, happened: Sequence[Event | AttemptObserved]) -> None:
        """Takes in what the executor saw; what cannot be taken in fails this turn, and is left out in the end."""
        for each in happened:
            try:
                if isinstance(each, AttemptObserved):
                    self._intake.observed(each)
                self._intake.engine.take_in(now_s, (self._still_drained(each),))
            except StoreError:
                raise
            except Exception:
                self._count_failure(each)
                raise
            if self._failing:
                self._failing.pop(_key(each), None)
        if any(isinstance(each, NodeEvent) for each in happened):
            self._intake.nodes_changed()

    def _count_failure(self, seen: Event | AttemptObserved) -> None:
        key = _key(seen)
        count = self._failing[key] = self._failing.pop(key, 0) + 1
        log.error("%s cannot be taken in%s", seen, "; it is left out from now on" if count >= PATIENCE else "")
        if len(self._failing) > MAX_FAILING:
            del self._failing[next(iter(self._failing))]

    def _still_drained(self, seen: Event | AttemptObserved) -> Event | AttemptObserved:
        """What an executor reports of a node does not end a drain; `set_schedulable` does."""
        if not isinstance(seen, NodeChanged):
            return seen
        nodes = self._intake.engine.state.nodes
        row = nodes.row(seen.node.name)
        return seen if row is None else replace(seen, node=still_drained(nodes.specs[row], seen.node))

    def _handle(self, request: Request, now_s: float, happened: list[Event]) -> bool:
        """Takes a request in; one that cannot be done is told so at once and changes nothing."""
        try:
            events, request.answer = request.handle(now_s)
        except StoreError:
            raise
        except GpuwiseError as error:
            request.future.set_exception(error)
            return False
        happened += events
        return True

    def _decide(self) -> Sequence[Desired]:
        """Asks the policy; only what fails here is its fault."""
        try:
            desired = self._intake.engine.decide()
        except Exception:
            self._policy_failures += 1
            raise
        self._policy_failures = 0
        return desired

    def _resize(self, now_s: float) -> list[Desired]:
        """Carries out what sizes users asked for, now that the engine knows what has happened; then asks the policy."""
        engine, desired = self._intake.engine, list[Desired]()
        for resize in self._resizes:
            try:
                if resize.uid not in self._intake.admission:
                    raise NotPossibleError(f"job {resize.uid} has ended")
                desired += engine.order(now_s, self._intake.resize(resize.uid, resize.gpus))
            except StoreError:
                raise
            except GpuwiseError as refusal:
                resize.refusal = refusal
        if not desired:
            return []
        engine.take_in(now_s, [WokeUp(now_s)])
        return [*desired, *self._decide()]

    def _write(self, now_s: float) -> list[JournalLine]:
        """Writes the turn, all or nothing."""
        intake, batch = self._intake, Batch()
        batch.lines = self._new_lines(now_s)
        batch.jobs, batch.attempts = intake.job_records.take_changed()
        if intake.job_records.has_progress and now_s >= self._progress_due_s:
            batch.jobs += intake.job_records.take_progress()
            self._progress_due_s = now_s + PROGRESS_EVERY_S
        while self._audit:
            batch.audit.append(self._audit.popleft())
        if batch:
            try:
                self.store.commit(batch)
            except StoreError:
                self._audit.extendleft(reversed(batch.audit))
                raise
            intake.job_records.written(batch.jobs)
            self._sequence += len(batch.lines)
            self._lines += len(batch.lines)
        return batch.lines

    def _new_lines(self, now_s: float) -> list[JournalLine]:
        """The turn's journal. That the policy was asked and left all as it was is not worth a write."""
        state, records = self._intake.engine.state, self._intake.engine.journal.records
        if all(isinstance(record, WokeUp) for record in records):
            records.clear()
        lines = []
        for number, record in enumerate(records, start=self._sequence + 1):
            at_s = record.at_s if isinstance(record, Event) else now_s
            lines.append(journal_line(number, self.clock.unix(at_s), record, now_s, state))
        records.clear()
        return lines

    def _tell(self, lines: Sequence[JournalLine]) -> None:
        if lines:
            for listener in tuple(self._listeners):
                listener(lines)

    # -- the way back ---------------------------------------------------------------------------------------------

    def _fail(self, error: Exception, taken: Sequence[Request]) -> None:
        """Gives up on a turn: tells who asked, waits a little, and starts again from what is on disk.

        Until that works nothing else is done: what the engine has in memory was never written.
        """
        self._failures += 1
        self._stale = True
        if isinstance(error, StoreError):
            log.warning("a turn could not be written: %s", error)
        else:
            log.exception("a turn failed; starting again from the store")
        self.trouble = str(error) or type(error).__name__
        for request in taken:
            if not request.future.done():
                request.future.set_exception(error if isinstance(error, GpuwiseError) else _internal(error))
        if self._policy_failures >= PATIENCE and self._fallback is not None:
            log.error("policy %r failed %d times in a row; fifo decides from now on", self.engine.policy.name, PATIENCE)
            self._replaced = f"policy {self.engine.policy.name!r} fails ({error}); fifo decides until the next start"
            self._make_engine, self._fallback = self._fallback, None
        self._refuse_waiting(error)
        self._stopping.wait(BACK_OFF_S[min(self._failures, len(BACK_OFF_S)) - 1])

    def _refuse_waiting(self, error: Exception) -> None:
        """Those who have asked meanwhile are told at once, not when it works again."""
        if self._failures > 1:
            for request in self._inbox.take():
                request.future.set_exception(error if isinstance(error, GpuwiseError) else _internal(error))

    def _rebuild(self) -> None:
        """Makes engine, books and admission anew from the store, and lets the executor follow."""
        found = recover(
            self.store, self._cluster, self._make_engine, self.clock, self._layouts, same_nodes=self._knows_nodes
        )
        self._knows_nodes = True
        found.engine.journal.records.clear()
        self._sequence, self._lines = found.sequence, found.lines
        self._intake = JobIntake(found.engine, self.store, self.clock, self._limits)
        self._restarted = True
        self._executor.follow(found.engine.desired(), complete=True)
        self._stale = False
        self._executor.wake()

    def _try_to_compact(self) -> None:
        """Compacts the journal; if that fails, tries again some lines later."""
        self._compact_at = self._lines + COMPACT_LINES
        try:
            self._compact()
        except Exception:
            log.exception("could not compact the journal; it goes on growing")

    def _compact(self) -> None:
        """Writes the state whole, and goes on with one that has forgotten what has ended."""
        begun = monotonic()
        body = to_json(self._intake.engine)
        engine = compacted(self._intake.engine, body, self._make_engine)
        self.store.commit(Batch(snapshot=Snapshot(self._sequence, body)))
        self._compact_at = COMPACT_LINES
        self._intake.engine = engine
        self._lines = 0
        self._restarted = True
        self._executor.wake()
        log.info("compacted the journal at line %d in %.2f s", self._sequence, monotonic() - begun)

    @staticmethod
    def _without_events(change: Callable[[], None]) -> Handler:
        def handle(now_s: float) -> tuple[list[Event], Callable[[], Any]]:
            change()
            return [], _nothing

        return handle


@dataclass(slots=True)
class _Resize:
    """A size that a user asks for."""

    uid: str
    gpus: int
    refusal: GpuwiseError | None = None

    def answer(self) -> None:
        """Raises why it was refused, if it was."""
        if self.refusal is not None:
            raise self.refusal


def _key(seen: Event | AttemptObserved) -> Key:
    """What makes two observations the same, whenever they are made."""
    if isinstance(seen, AttemptObserved):
        return seen.job, seen.attempt, seen.phase
    node = getattr(seen, "node", "")
    parts = (type(seen).__name__, getattr(node, "name", node), getattr(seen, "device", ""), getattr(seen, "job", ""))
    return " ".join(str(part) for part in parts if part != "")


def _describe(key: Key) -> str:
    if isinstance(key, str):
        return key
    job, attempt, phase = key
    return f"that attempt {attempt} of job {job} is {phase.name.lower()}"


def _nothing() -> None:
    """The answer to what is merely done."""


def _answer(request: Request) -> None:
    try:
        assert request.answer is not None
        request.future.set_result(request.answer())
    except Exception as error:
        request.future.set_exception(error)


def _internal(error: Exception) -> GpuwiseError:
    return GpuwiseError(f"something went wrong inside the controller ({type(error).__name__}); see the controller log")
