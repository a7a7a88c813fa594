"""The devices under the fleet: which are lost, which are back, and which are to be cut anew once they are empty."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuwise.core.commands import MigSlice, Repartition
from gpuwise.core.events import DeviceLost, DeviceRestored
from gpuwise.core.jobs import Status
from gpuwise.core.state import ClusterState
from gpuwise.devices.machine import DeviceInUseError, Machine, MachineError, Where
from gpuwise.live.local.fleet import Fleet
from gpuwise.live.local.outbox import Outbox, Wanted
from gpuwise.live.local.runs import Run

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0


class Devices:
    """Looks after the devices once a second."""

    def __init__(self, machine: Machine, fleet: Fleet, outbox: Outbox) -> None:
        self._machine = machine
        self._fleet = fleet
        self._outbox = outbox
        self._to_cut: dict[Where, tuple[MigSlice, ...]] = {}
        """Devices that are not cut yet as the engine has them; nothing is started on them."""
        self._refused: set[Where] = set()
        """Those of them that could not be cut: for the engine they are lost, until they can."""
        self._complaints: set[str] = set()
        self._told: set[Where] = set()
        self.check_s = -math.inf
        """When to look again."""

    def bind(self, state: ClusterState) -> None:
        """Begins anew: devices that are not cut as the engine has them are to be cut."""
        self._told.clear()
        self._to_cut.clear()
        self._refused.clear()
        self._fleet.closed_devices.clear()
        self.check_s = -math.inf
        now = self._machine.layout()
        self._restore_layouts(state.capacity.layouts.keys() | now.keys(), now)
        self.cut_what_is_empty()

    def begin(self) -> None:
        """The engine knows everything that was told so far."""
        self._told.clear()

    def check(self, now_s: float) -> None:
        """Looks which devices are lost and which are back."""
        if now_s < self.check_s:
            return
        self.check_s = now_s + CHECK_EVERY_S
        lost, known = self._machine.lost(), self._known()
        if back := known - lost - self._to_cut.keys():  # a GPU that comes back is whole
            self._restore_layouts(back, self._machine.layout())
        self.cut_what_is_empty()
        lost |= self._refused
        for where in sorted((lost - known) - self._told):
            self._told.add(where)
            self._lose(now_s, where)
        for where in sorted((known - lost) - self._told - self._to_cut.keys()):
            self._told.add(where)
            self._outbox.events.append(DeviceRestored(now_s, *where))
        if not self._machine.stand_in:
            try:
                self._measure()
            except Exception as error:  # what jobs use is for the records, and never worth a turn
                self._complain("memory on GPUs could not be measured", error)

    def _measure(self) -> None:
        """Notes how much memory each run's processes have on GPUs; a job's processes are in sessions of its own."""
        sessions = {pid: run for run in self._fleet.runs.values() for pid in run.pids()}
        used: Counter[Path] = Counter()
        for reading in self._machine.read().values():
            for pid, memory_bytes in reading.processes.items():
                if math.isfinite(memory_bytes) and (run := sessions.get(_session(pid))) is not None:
                    used[run.attempt.folder] += int(memory_bytes)
        for folder, memory_bytes in used.items():
            run = self._fleet.runs[folder]
            run.gpu_memory_bytes = max(run.gpu_memory_bytes, memory_bytes)

    def _known(self) -> frozenset[Where]:
        """The devices that the engine has as lost."""
        masks = self._outbox.state.capacity.lost
        return frozenset((node, i) for node, mask in masks.items() for i in range(mask.bit_length()) if mask >> i & 1)

    def _lose(self, now_s: float, where: Where) -> None:
        node, device = where
        name = self._machine.devices[node][device].name
        interrupted: list[tuple[int, float]] = []
        runs, state = self._on(where), self._outbox.state
        placed = {state.jobs.ids[row] for row, placement in state.placed.items() if where in placement.devices()}
        for uid in placed | {run.uid for run in runs}:
            want = Wanted.of(state, uid)
            if (uid in placed or want.status is Status.SUSPENDING) and not self._outbox.is_over(uid):
                interrupted.append((want.row, self._fleet.kept(uid, want)))
                self._outbox.interrupted(uid)
        for run in runs:
            self._fleet.interrupt(run, f"{name} was lost")
        self._outbox.events.append(DeviceLost(now_s, node, device, tuple(sorted(interrupted))))

    def _on(self, where: Where) -> list[Run]:
        return [run for run in self._fleet.runs.values() if where in run.placement.devices()]

    # -- MIG ------------------------------------------------------------------------------------------------------

    def cut(self, command: Repartition) -> None:
        """Cuts a device once it is empty; until then nothing is started on it."""
        where = (command.node, command.device)
        self._close(where, command.slices)
        self.cut_what_is_empty()

    def _restore_layouts(self, devices: Iterable[Where], now: Mapping[Where, tuple[MigSlice, ...]]) -> None:
        """Those of some devices that are not cut as the engine has them are to be cut so."""
        layouts = self._outbox.state.capacity.layouts
        for where in devices:
            wanted = layouts.get(where, ())
            if _cuts(wanted) != _cuts(now.get(where, ())):
                self._close(where, wanted)

    def _close(self, where: Where, slices: tuple[MigSlice, ...]) -> None:
        """Nothing is started on a device until it is cut."""
        self._to_cut[where] = slices
        self._fleet.closed_devices.add(where)

    def cut_what_is_empty(self) -> None:
        """Cuts the devices that nobody is on any more."""
        for where, slices in list(self._to_cut.items()):
            runs = self._on(where)
            for run in runs:
                if run.told_over:  # parked, it would hold the device for ever
                    self._fleet.interrupt(run, "its device is cut anew")
            if runs:
                continue
            try:
                self._machine.repartition(*where, slices)
            except DeviceInUseError as error:
                self._complain("a device is not cut yet; trying again", error)
                continue
            except MachineError as error:  # it is not as the engine has it, so nothing may run on it
                self._complain("a device cannot be cut; it counts as lost until it can", error)
                if where not in self._refused:
                    self._refused.add(where)
                    self.check_s = -math.inf  # to be told at once
                continue
            self._complaints.clear()
            del self._to_cut[where]
            self._refused.discard(where)
            self._fleet.closed_devices.discard(where)
            self._fleet.touch_waiting()

    def _complain(self, what: str, error: Exception) -> None:
        """Says once what is wrong."""
        line = f"{what}: {error}"
        if line not in self._complaints:
            self._complaints.add(line)
            log.warning("%s", line, exc_info=None if isinstance(error, MachineError) else error)


def _cuts(slices: Iterable[MigSlice]) -> set[tuple[str, int]]:
    """What two layouts must have in common to be the same; drivers and catalogue do not agree on the bytes."""
    return {(each.profile, each.start) for each in slices}


def _session(pid: int) -> int:
    """The session of a process; 0 if it has ended."""
    try:
        return os.getsid(pid)
    except (OSError, OverflowError):
        return 0
