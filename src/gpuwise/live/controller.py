"""The controller of the live service, for other threads: each request is a future that the control loop answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.commands import Reason
from gpuwise.core.events import Event, NodeChanged
from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import AuditEntry, JobRecord, JournalLine, QueueRecord, Store, StoreError
from gpuwise.engine.desired import repeated
from gpuwise.engine.engine import Engine
from gpuwise.live import changes
from gpuwise.live.clock import Clock
from gpuwise.live.control_loop import ControlLoop, LiveExecutor, ResizeRequest
from gpuwise.live.intake import JobIntake
from gpuwise.live.recovery import EngineStore, Layouts, MakeEngine
from gpuwise.live.space import FULL, SpaceReserve
from gpuwise.live.submissions import UserLimits

Result = TypeVar("Result")


class Controller:
    """The control loop in a thread of its own, and what other threads may ask of it."""

    def __init__(
        self,
        store: Store,
        executor: LiveExecutor,
        cluster: ClusterSpec,
        make_engine: MakeEngine,
        clock: Clock,
        *,
        fallback: MakeEngine | None = None,
        limits: UserLimits | None = None,
        layouts: Layouts = MappingProxyType({}),
        space: SpaceReserve | None = None,
    ) -> None:
        self.clock = clock
        self.store = store
        engine_store = EngineStore(store, cluster, make_engine, clock, layouts)
        self._space = space
        if space is not None:
            engine_store.before_write = space.check
        self._loop = ControlLoop(executor, engine_store, fallback, limits or UserLimits())
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Runs in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="gpuwise-controller", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Takes turns until `stop` is called."""
        while not self._loop.stopping.is_set():
            self.turn()

    def turn(self) -> None:
        """One turn; for callers that do not `start` a thread."""
        self._loop.turn()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ends the thread after its turn; jobs continue to run."""
        self._loop.stopping.set()
        self._loop.executor.wake()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._loop.inbox.close()
        self._loop.executor.close()

    @property
    def trouble(self) -> str:
        """What is wrong now, for people; empty is nothing."""
        return self._loop.trouble or ("" if self.has_space() else FULL)

    def has_space(self) -> bool:
        """Whether the disk has room for more than what must be written."""
        return self._space is None or self._space.check()

    @property
    def engine(self) -> Engine:
        """The engine; other threads may only look at what cannot change, and use `ask` for the rest."""
        return self._loop.intake.engine

    def live(self, uid: str) -> JobRecord | None:
        """The record of a job that has not ended, newer than the store's."""
        return self._loop.intake.job_records.shown.get(uid)

    def live_records(self) -> list[JobRecord]:
        """The records of all jobs that have not ended."""
        return list(self._loop.intake.job_records.shown.values())

    def submit(self, requests: Sequence[JobRequest], user: str, key: str | None = None) -> Future[list[JobRecord]]:
        """New jobs; the future has their records once they are on disk."""
        if not self.has_space():
            refused: Future[list[JobRecord]] = Future()
            refused.set_exception(StoreError(FULL))
            return refused

        def handle(now_s: float) -> tuple[list[Event], Callable[[], list[JobRecord]]]:
            events, records = self._loop.intake.submit(now_s, requests, user, key)
            return events, lambda: [self.live(record.uid) or record for record in records]

        return self._loop.inbox.put(handle)

    def cancel(self, uids: Sequence[str], by: str) -> Future[None]:
        """Cancels jobs."""
        return self._with_events(lambda now_s: self._loop.intake.cancel(now_s, uids, f"cancelled by {by}"))

    def suspend(self, uids: Sequence[str]) -> Future[None]:
        """Puts jobs on hold until they are resumed; those that run release their GPUs."""
        return self._without_events(lambda: self._loop.intake.hold(uids))

    def resume(self, uids: Sequence[str]) -> Future[None]:
        """Lets jobs continue that were suspended by their user."""
        return self._without_events(lambda: self._loop.intake.release(uids))

    def hold(self, uids: Sequence[str]) -> Future[None]:
        """Puts jobs on hold that have not started."""
        return self._without_events(lambda: changes.hold(self._loop.intake, uids))

    def requeue(self, uids: Sequence[str], by: str) -> Future[None]:
        """Stops jobs that have GPUs and puts them into the queue again."""
        return self._with_events(lambda now_s: changes.requeue(self._loop.intake, now_s, uids, by))

    def update(self, uids: Sequence[str], wanted: Mapping[str, Any]) -> Future[None]:
        """Changes priority, time limit or deadline of jobs."""

        def handle(now_s: float) -> tuple[list[Event], Callable[[], None]]:
            return changes.update(self._loop.intake, now_s, uids, wanted), look_again

        def look_again() -> None:
            """A running attempt is started with its time limit: its executor is to look at it again."""
            state = self.engine.state
            rows = (state.jobs.row_of[uid] for uid in uids if uid in state.jobs.row_of)
            self._loop.executor.follow([each for row in rows for each in repeated(state, row)])

        return self._loop.inbox.put(handle)

    def resize(self, uid: str, gpus: int) -> Future[None]:
        """Lets an elastic job continue on another number of GPUs."""

        def handle(now_s: float) -> tuple[list[Event], Callable[[], None]]:
            resize = ResizeRequest(uid, gpus)
            self._loop.resizes.append(resize)
            return [], resize.answer

        return self._loop.inbox.put(handle)

    def observe(self, gpu_util_frac: Mapping[str, float]) -> Future[None]:
        """The utilization of GPUs was measured, of each job while it was alone on them."""
        return self._with_events(lambda now_s: self._loop.intake.utilizations(now_s, gpu_util_frac))

    def set_queue(self, queue: QueueRecord) -> Future[None]:
        """Gives a queue limits."""

        def change() -> None:
            self.store.put_queue(queue)
            self._loop.intake.admission.set_queue(queue)

        return self._without_events(change)

    def remove_queue(self, name: str) -> Future[bool]:
        """Removes a queue's limits; whether it had any."""

        def change() -> bool:
            had = self.store.delete_queue(name)
            self._loop.intake.admission.remove_queue(name)
            return had

        return self._without_events(change)

    def set_schedulable(self, node: str, schedulable: bool) -> Future[bool]:
        """Drains a node, or ends that; whether there is such a node."""

        def handle(now_s: float) -> tuple[list[Event], Callable[[], bool]]:
            nodes = self.engine.state.nodes
            row = nodes.row(node)
            if row is None:
                return [], lambda: False
            return [NodeChanged(now_s, replace(nodes.specs[row], schedulable=schedulable))], lambda: True

        return self._loop.inbox.put(handle)

    def ask(self, question: Callable[[JobIntake], Result]) -> Future[Result]:
        """Answers a question about the state between two turns."""
        return self._loop.inbox.put(lambda now_s: ([], lambda: question(self._loop.intake)), reads=True)

    def why(self, uid: str) -> Future[Reason | None]:
        """Why a job waits."""
        return self.ask(lambda intake: intake.reason(uid))

    def _with_events(self, make: Callable[[float], list[Event]]) -> Future[None]:
        return self._loop.inbox.put(lambda now_s: (make(now_s), lambda: None))

    def _without_events(self, change: Callable[[], Result]) -> Future[Result]:
        def handle(now_s: float) -> tuple[list[Event], Callable[[], Result]]:
            result = change()
            return [], lambda: result

        return self._loop.inbox.put(handle)

    def note(self, entry: AuditEntry) -> None:
        """Keeps an audit entry, written with the next turn."""
        self._loop.audit.append(entry)
        self._loop.executor.wake()

    def listen(self, listener: Callable[[Sequence[JournalLine]], None]) -> Callable[[], None]:
        """Calls a listener, in the controller's thread, with each turn's journal lines; returns how to stop that."""
        self._loop.listeners.append(listener)
        return lambda: self._loop.listeners.remove(listener)

    def on_notifications(self, wake: Callable[[], object]) -> None:
        """Has a function called, in the controller's thread, when there are notifications to be sent."""
        self._loop.on_notifications = wake
