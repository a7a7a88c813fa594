"""The local executor: carries commands out with processes on the devices of this machine."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gpuwise.core.commands import Command, Provision, Rearrange, Release, Repartition
from gpuwise.core.events import Event, WokeUp
from gpuwise.core.protocols import ClusterFacts
from gpuwise.core.state import ClusterState
from gpuwise.devices.machine import Machine, Where
from gpuwise.live.clock import Clock
from gpuwise.live.local.attempts import Folders, attempt_token
from gpuwise.live.local.cgroups import Cgroups
from gpuwise.live.local.devices import Devices
from gpuwise.live.local.fleet import Fleet
from gpuwise.live.local.launch import Launcher, LaunchSpec
from gpuwise.live.local.mailbox import Mailbox, Message, Notice, Progressed, SavedState
from gpuwise.live.local.outbox import Outbox, Wanted
from gpuwise.live.local.plan import Actual
from gpuwise.live.local.starter import Starter
from gpuwise.live.local.watch import News, Watch
from gpuwise.live.reports import Report

log = logging.getLogger(__name__)

JUST_NOW_S = 0.05
"""Policies that decide in rounds ask for moments; so much later still counts as the moment."""


class LocalExecutor:
    """Jobs as processes. All of it but `wake` belongs to one thread.

    It keeps nothing that is not on disk too: what is wanted is in the engine's state, what is stands in the folders of
    the attempts, and every step compares the two. So a crash, a restart and a state rebuilt from the store are all the
    same to it: `bind`, and go on.
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
        self._fleet = Fleet(self._folders, machine, starter, self._outbox, clock, launch_of)
        self._devices = Devices(machine, self._fleet, self._outbox)

    # -- the protocol ---------------------------------------------------------------------------------------------

    def bind(self, state: ClusterState) -> None:
        """Takes over whatever runs, for an engine in this state; what the engine does not know comes as events."""
        self._outbox.bind(state)
        self._fleet.bind(state)
        self._devices.bind(state)

    def apply(self, now_s: float, commands: Sequence[Command]) -> None:
        """Begins to carry out commands that the state bound last has gone through."""
        self._begin()
        ids = self._outbox.state.jobs.ids
        for command in commands:
            if isinstance(command, (Provision, Release)):
                log.error("%s: this machine has the devices it has", command)
            elif isinstance(command, Repartition):
                self._devices.cut(command)
            elif isinstance(command, Rearrange):
                self._fleet.touch(*(ids[job] for job, _ in command.moves))
            else:
                self._fleet.touch(ids[command.job])  # type: ignore[attr-defined]
        self._fleet.settle()

    def wait(self, until_s: float | None) -> tuple[float, list[Event]]:
        """The next events, or none when `wake` was called; at ``until_s`` at the latest, with `WokeUp`."""
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
            if self._outbox.events:
                ready_s = min(ready_s, now_s + self._coalesce_s)
            if called or now_s >= min(ready_s, until_s):
                return self._hand_over(now_s, until_s)
            next_s = min(ready_s, until_s, self._fleet.next_check_s(), self._devices.check_s)
            news = self._watch.sleep(next_s - now_s)
            called = news.called
            self._take_in(news)

    def facts(self) -> ClusterFacts:
        """What runs where."""
        runs = [run for run in self._fleet.runs.values() if run.is_started and run.actual() is not Actual.PARKED]
        rows = self._outbox.state.jobs.row_of
        return ClusterFacts({rows[run.uid]: run.placement for run in runs if run.uid in rows})

    def processes(self) -> dict[Where, list[int]]:
        """The first processes of what runs, by device; their children are theirs to find."""
        found: dict[Where, list[int]] = {}
        for run in self._fleet.runs.values():
            for where in run.placement.devices():
                found.setdefault(where, []).extend(run.pids())
        return found

    # -- beyond it ------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Ends a wait; may be called from any thread."""
        self._watch.call()

    def reports(self) -> list[Report]:
        """What happened beyond events since this was last asked."""
        reports, self._outbox.reports = self._outbox.reports, []
        return reports

    def close(self) -> None:
        """Stops watching; jobs go on."""
        self._watch.close()
        self._mailbox.close()
        if self._cgroups is not None:
            self._cgroups.close()

    # -- the loop -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Whoever waits again, or has decided, has written down what the last wait told."""
        self._outbox.begin()
        self._devices.begin()
        self._fleet.forget_told()

    def _hand_over(self, now_s: float, until_s: float) -> tuple[float, list[Event]]:
        """Everything that is to be told. If the time that was asked for has just come, it is exactly that time."""
        events, self._outbox.events = self._outbox.events, []
        self._fleet.told()
        if now_s >= until_s:
            if now_s - until_s < JUST_NOW_S:
                now_s = until_s
                events = [replace(event, at_s=min(event.at_s, now_s)) for event in events]
            events.append(WokeUp(now_s))
        self._last_s = now_s
        return now_s, events

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
                if run.actual() is Actual.PARKED:
                    self._fleet.touch_waiting()  # whatever is wanted of it next, its devices are free now
            self._fleet.touch(run.uid)
        elif isinstance(message, Progressed):
            self._outbox.progressed(run, Wanted.of(self._outbox.state, run.uid), message)
        elif isinstance(message, SavedState):
            self._outbox.saved(run, message.step)
