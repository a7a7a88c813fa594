"""The local executor: jobs as processes on the devices of this machine."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuwise.core.assignments import Desired, NodeRequest
from gpuwise.core.events import NodeRemoved, ReleaseRefused, WokeUp
from gpuwise.core.observations import Observations
from gpuwise.devices.machine import Machine, Where
from gpuwise.live.clock import Clock
from gpuwise.live.local.attempts.folders import Folders, attempt_token
from gpuwise.live.local.attempts.mailbox import Mailbox, Message, Notice, Progressed
from gpuwise.live.local.attempts.outbox import Outbox
from gpuwise.live.local.devices.devices import Devices
from gpuwise.live.local.fleet import Fleet
from gpuwise.live.local.plan import STANDS_STILL
from gpuwise.live.local.supervisor.cgroups import Cgroups
from gpuwise.live.local.supervisor.launch import Launcher, LaunchSpec
from gpuwise.live.local.supervisor.starter import Starter
from gpuwise.live.local.time_slices.turns import Switching
from gpuwise.live.local.wanted import Wishes
from gpuwise.live.local.watch import News, Watch

log = logging.getLogger(__name__)

JUST_NOW_S = 0.05
"""Policies that decide in rounds ask for moments; so much later still counts as the moment."""


class LocalExecutor:
    """Jobs as processes. All of it but `wake` belongs to one thread.

    It keeps nothing that is not on disk too, but for what is wanted, which it is told; what is stands in the folders of
    the attempts, and every step compares the two. So a crash, a restart and an engine rebuilt from the store are all
    the same to it: it is told everything that is wanted, and tells everything it sees.
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
    ) -> None:
        self._clock = clock
        self._coalesce_s = coalesce_s
        self._last_s = clock.now_s()
        self._folders = Folders(folder)
        self._cgroups = Cgroups.find(folder)
        launcher = Launcher(self._folders, machine, self._cgroups)
        self._mailbox = Mailbox(launcher.socket, lambda uid, number: attempt_token(secret, uid, number))
        self._watch = Watch(self._mailbox)
        self._outbox = Outbox(clock, self._folders)
        starter = Starter(launcher, self._watch, clock, secret)
        self._wishes = Wishes(machine)
        self._fleet = Fleet(self._folders, machine, starter, self._outbox, self._wishes, clock, launch_of)
        self._devices = Devices(machine, self._fleet, self._outbox, self._wishes)

    # -- the protocol ---------------------------------------------------------------------------------------------

    def follow(self, desired: Sequence[Desired], complete: bool = False) -> None:
        """Takes note of what is wanted and begins to make it so; ``complete`` is all there is, as after a restart."""
        if not complete:  # else what was reported last may never have been written down
            self._begin()
        jobs, devices = self._wishes.take(desired, complete)
        if complete:
            self._outbox.begin_again()
            self._fleet.begin_again()
            self._devices.begin_again()
        else:
            self._devices.cut(devices)
            self._fleet.touch(*jobs)
            self._fleet.settle()
        for each in desired:
            if isinstance(each, NodeRequest):
                self._decline(each)

    def _decline(self, request: NodeRequest) -> None:
        """Reports that a node cannot be had, or that this one cannot be given back."""
        log.error("node %s: this machine has the devices it has", request.node.name)
        kind = NodeRemoved if request.wanted else ReleaseRefused
        self._outbox.events.append(kind(self._clock.now_s(), request.node.name))

    def observe(self, until_s: float | None) -> Observations:
        """What is seen next, or nothing when `wake` was called; at ``until_s`` at the latest, with `WokeUp`."""
        self._begin()
        ready_s = math.inf
        news = self._watch.sleep(0.0)  # whoever was slow to come here shall not blame those who have answered meanwhile
        called = news.called
        self._take_in(news)
        if until_s is None:
            until_s = math.inf
        elif until_s < self._last_s:
            until_s = self._clock.now_s()
        while True:
            now_s = self._clock.now_s()
            self._devices.check(now_s)
            self._fleet.check(now_s)
            self._fleet.settle()
            ready_s = min(ready_s, self._outbox.ready_s(now_s, self._coalesce_s))
            if called or now_s >= min(ready_s, until_s):
                return self._hand_over(now_s, until_s)
            next_s = min(ready_s, until_s, self._fleet.next_check_s(), self._devices.check_s)
            news = self._watch.sleep(next_s - now_s)
            called = news.called
            self._take_in(news)

    def processes(self) -> dict[Where, list[int]]:
        """The first processes of what runs, by device; their children are theirs to find."""
        found: dict[Where, list[int]] = {}
        for run in self._fleet.runs.values():
            for where in run.placement.devices():
                found.setdefault(where, []).extend(run.pids())
        return found

    def switching(self) -> Switching:
        """What switching between jobs that share devices by turns has cost so far."""
        return self._fleet.switching

    # -- beyond it ------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Ends a wait; may be called from any thread."""
        self._watch.call()

    def close(self) -> None:
        """Stops watching; jobs go on."""
        self._watch.close()
        self._mailbox.close()
        if self._cgroups is not None:
            self._cgroups.close()

    # -- the loop -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Whoever looks again, or has decided, has written down what was told last."""
        self._fleet.touch(*self._outbox.answered())
        self._fleet.forget_told()

    def _hand_over(self, now_s: float, until_s: float) -> Observations:
        """Everything that is to be told. If the time that was asked for has just come, it is exactly that time."""
        woke = now_s >= until_s
        if woke and now_s - until_s < JUST_NOW_S:
            now_s = until_s
        happened = self._outbox.take(now_s)
        self._fleet.told()
        if woke:
            happened.append(WokeUp(now_s))
        self._last_s = now_s
        return now_s, happened

    def _take_in(self, news: News) -> None:
        for folder in news.gone:
            if (run := self._fleet.runs.get(folder)) is not None:
                self._fleet.touch(run.uid)
        progress: dict[str, Progressed] = {}
        for message in news.mail:
            if isinstance(message, Progressed):
                progress[message.uid] = message
            else:
                self._hear(message)
        for message in progress.values():
            self._hear(message)

    def _hear(self, message: Message) -> None:
        run = self._fleet.runs.get(self._folders.attempt(message.uid, message.attempt).folder)
        if run is None:
            return
        if isinstance(message, Notice):
            if message.kind == "obeyed":
                run.hear_obeyed(message.seq)
                self._fleet.went_on(run)
            elif message.kind == "resumed":
                self._fleet.went_on(run)
            if run.actual() in STANDS_STILL:
                self._fleet.touch_waiting()  # whatever is wanted of it next, its devices are free now
            self._fleet.touch(run.uid)
        elif isinstance(message, Progressed):
            self._outbox.progressed(run, message)
