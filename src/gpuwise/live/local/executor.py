"""The local executor: jobs as processes on the devices of this machine."""

from __future__ import annotations

import logging
import math
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuwise.core.assignments import Desired, NodeRequest
from gpuwise.core.events import NodeRemoved, ReleaseRefused, WokeUp
from gpuwise.core.observations import Observations
from gpuwise.devices.machine import Machine, Where
from gpuwise.live.clock import Clock
from gpuwise.live.local.accounts import Accounts
from gpuwise.live.local.attempts.folders import Folders, attempt_token
from gpuwise.live.local.attempts.launch import Launcher, LaunchSpec
from gpuwise.live.local.attempts.limits import Cgroups
from gpuwise.live.local.attempts.messages import Message, MessageSocket, Notice, Progressed
from gpuwise.live.local.attempts.reports import Reports
from gpuwise.live.local.attempts.runs import RunTable
from gpuwise.live.local.attempts.starter import Starter
from gpuwise.live.local.desired import DesiredState
from gpuwise.live.local.devices import Devices
from gpuwise.live.local.plan import IDLE
from gpuwise.live.local.reconciler import Reconciler
from gpuwise.live.local.time_slices import Switching
from gpuwise.live.local.watch import News, Watch

log = logging.getLogger(__name__)

JUST_NOW_S = 0.05
"""Policies that decide in rounds ask for moments; this much later still counts as the moment."""


class LocalExecutor:
    """Jobs as processes. All of it but `wake` belongs to one thread.

    It keeps nothing that is not on disk too, but for what is wanted; what is so is in the folders of the attempts, and
    every step compares the two. So a crash, a restart and an engine rebuilt from the store are the same to it: it gets
    everything that is wanted, and reports everything it observes.
    """

    def __init__(
        self,
        folder: Path,
        machine: Machine,
        clock: Clock,
        launch_of: Callable[[str], LaunchSpec],
        secret: bytes,
        *,
        coalesce_s: float = 0.005,
        accounts: Accounts | None = None,
    ) -> None:
        self._clock = clock
        self._coalesce_s = coalesce_s
        self._last_s = clock.now_s()
        self._folders = Folders(folder)
        self._cgroups = Cgroups.find(folder)
        launcher = Launcher(self._folders, machine, self._cgroups, accounts)
        self._messages = MessageSocket(
            launcher.socket,
            lambda uid, number: attempt_token(secret, uid, number),
            for_all=bool(folder.stat().st_mode & stat.S_IXOTH),
        )
        self._watch = Watch(self._messages)
        self._reports = Reports(clock, self._folders)
        self.table = RunTable(machine, DesiredState(machine))
        starter = Starter(launcher, self._watch, clock, secret)
        self._reconciler = Reconciler(self._folders, self.table, starter, self._reports, clock, launch_of)
        self._devices = Devices(self.table, self._reconciler, self._reports)

    def follow(self, desired: Sequence[Desired], complete: bool = False) -> None:
        """Notes what is wanted and begins to make it so; ``complete`` if that is everything, as after a restart."""
        if not complete:  # else what was reported last may never have been written
            self._begin()
        jobs, devices = self.table.desired.take(desired, complete)
        if complete:
            self._reports.begin_again()
            self._reconciler.begin_again()
            self._devices.begin_again()
        else:
            self._devices.partition(devices)
            self._reconciler.touch(*jobs)
            self._reconciler.reconcile()
        for each in desired:
            if isinstance(each, NodeRequest):
                self._decline(each)

    def _decline(self, request: NodeRequest) -> None:
        """Reports that a node cannot be had, or that this one cannot be released."""
        log.error("node %s: this machine has the devices it has", request.node.name)
        kind = NodeRemoved if request.wanted else ReleaseRefused
        self._reports.events.append(kind(self._clock.now_s(), request.node.name))

    def observe(self, until_s: float | None) -> Observations:
        """What is seen next, or nothing when `wake` was called; at ``until_s`` at the latest, with `WokeUp`."""
        self._begin()
        ready_s = math.inf
        news = self._watch.sleep(0.0)  # after a stall, what was sent meanwhile counts first
        called = news.called
        self._take_in(news)
        if until_s is None:
            until_s = math.inf
        elif until_s < self._last_s:
            until_s = self._clock.now_s()
        while True:
            now_s = self._clock.now_s()
            self._devices.check(now_s)
            self._reconciler.check(now_s)
            self._reconciler.reconcile()
            ready_s = min(ready_s, self._reports.ready_s(now_s, self._coalesce_s))
            if called or now_s >= min(ready_s, until_s):
                return self._hand_over(now_s, until_s)
            next_s = min(ready_s, until_s, self._reconciler.next_check_s(), self._devices.check_s)
            news = self._watch.sleep(next_s - now_s)
            called = news.called
            self._take_in(news)

    def processes(self) -> dict[Where, list[int]]:
        """The first processes of what runs, by device, without their children."""
        found: dict[Where, list[int]] = {}
        for run in self.table.runs.values():
            for where in run.placement.devices():
                found.setdefault(where, []).extend(run.pids())
        return found

    def switching(self) -> Switching:
        """What switching between jobs that share devices by time slices has cost so far."""
        return self._reconciler.switching

    def wake(self) -> None:
        """Ends a wait; may be called from any thread."""
        self._watch.call()

    def close(self) -> None:
        """Stops watching; jobs continue to run."""
        self._watch.close()
        self._messages.close()
        if self._cgroups is not None:
            self._cgroups.close()

    def _begin(self) -> None:
        """The caller observes again, or has decided: what was reported last is on record."""
        self._reconciler.touch(*self._reports.recorded())
        self._reconciler.recorded()

    def _hand_over(self, now_s: float, until_s: float) -> Observations:
        """Everything there is to report. If the time that was asked for has just come, it is exactly that time."""
        woke = now_s >= until_s
        if woke and now_s - until_s < JUST_NOW_S:
            now_s = until_s
        happened = self._reports.take(now_s)
        self._reconciler.reported()
        if woke:
            happened.append(WokeUp(now_s))
        self._last_s = now_s
        return now_s, happened

    def _take_in(self, news: News) -> None:
        for folder in news.gone:
            if (run := self.table.runs.get(folder)) is not None:
                self._reconciler.touch(run.uid)
        progress: dict[str, Progressed] = {}
        for message in news.messages:
            if isinstance(message, Progressed):
                progress[message.uid] = message
            else:
                self._receive(message)
        for message in progress.values():
            self._receive(message)

    def _receive(self, message: Message) -> None:
        run = self.table.runs.get(self._folders.attempt(message.uid, message.attempt).folder)
        if run is None:
            return
        if isinstance(message, Notice):
            if message.kind == "obeyed":
                run.order_done(message.seq)
                self._reconciler.resumed(run)
            elif message.kind == "resumed":
                self._reconciler.resumed(run)
            if run.actual() in IDLE:
                self._reconciler.touch_waiting()  # its devices are free now
            self._reconciler.touch(run.uid)
        elif isinstance(message, Progressed):
            self._reports.progressed(run, message)
