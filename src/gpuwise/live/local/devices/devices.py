"""The devices under the fleet: which are lost, which are back, and which are to be cut anew once they are empty."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuwise.core.commands import MigSlice
from gpuwise.core.events import DeviceLost, DeviceRestored
from gpuwise.devices.machine import DeviceInUseError, Machine, MachineError, Reading, Where
from gpuwise.live.local.attempts.outbox import Outbox
from gpuwise.live.local.attempts.runs import Run
from gpuwise.live.local.devices.claims import ForeignUse, Owner
from gpuwise.live.local.devices.owners import Owners
from gpuwise.live.local.fleet import Fleet
from gpuwise.live.local.plan import Actual
from gpuwise.live.local.wanted import Wishes

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0


class Devices:
    """Looks after the devices once a second."""

    def __init__(self, machine: Machine, fleet: Fleet, outbox: Outbox, wishes: Wishes) -> None:
        self._machine = machine
        self._fleet = fleet
        self._outbox = outbox
        self._wishes = wishes
        self._to_cut: dict[Where, tuple[MigSlice, ...]] = {}
        """Devices that are not cut yet as is wanted; nothing is started on them."""
        self._refused: set[Where] = set()
        """Those of them that could not be cut: they are told to be lost, until they can."""
        self._complaints: set[str] = set()
        self._told: dict[Where, bool] = {}
        """Of each device, whether it was last told to be lost; nothing is known of one that is not here."""
        self._foreign = ForeignUse(machine.nodes)
        self._unknown: set[int] | None = None
        """Processes on GPUs that were nobody's when last looked at."""
        self.check_s = -math.inf
        """When to look again."""

    def begin_again(self) -> None:
        """Begins again: devices that are not cut as is wanted are to be cut, and all is told again."""
        self._told.clear()
        self._to_cut.clear()
        self._refused.clear()
        self._foreign.forget()
        self._fleet.closed_devices.clear()
        self._unknown = None
        self.check_s = -math.inf
        now = self._machine.layout()
        self._restore_layouts(self._wishes.layouts.keys() | now.keys(), now)
        self.cut_what_is_empty()

    def check(self, now_s: float) -> None:
        """Looks which devices are lost and which are back."""
        if now_s < self.check_s:
            return
        self.check_s = now_s + CHECK_EVERY_S
        lost, known = self._machine.lost(), {where for where, is_lost in self._told.items() if is_lost}
        if back := known - lost - self._to_cut.keys():  # a GPU that comes back is whole
            self._restore_layouts(back, self._machine.layout())
        self.cut_what_is_empty()
        lost |= self._refused
        for where in sorted(self._all()):
            if where in lost and self._told.get(where) is not True:
                self._lose(now_s, where)
            elif where not in lost and self._told.get(where) is not False and where not in self._to_cut:
                self._outbox.events.append(DeviceRestored(now_s, *self._named(where)))
                self._told[where] = False
                self._fleet.closed_devices.discard(where)
                self._fleet.touch_waiting()
        if not self._machine.stand_in:
            try:
                self._measure(now_s)
            except Exception as error:  # what jobs use is for the records, and never worth a turn
                self._complain("memory on GPUs could not be measured", error)

    def _measure(self, now_s: float) -> None:
        """Notes how much memory each run's processes have on GPUs, and tells what others use of them."""
        readings, used = self._machine.read(), Counter[Path]()
        owners = Owners(self._fleet.runs.values())
        for reading in readings.values():
            for pid, memory_bytes in reading.processes.items():
                if math.isfinite(memory_bytes) and (run := owners.run_of(pid)) is not None:
                    used[run.attempt.folder] += int(memory_bytes)
        self._tell_claims(now_s, readings, owners)
        for folder, memory_bytes in used.items():
            run = self._fleet.runs[folder]
            run.gpu_memory_bytes = max(run.gpu_memory_bytes, memory_bytes)

    def _tell_claims(self, now_s: float, readings: Mapping[Where, Reading], owners: Owners) -> None:
        """Tells what others use, once it was seen twice: a job's process may be just beginning, or ending."""
        unknown: set[int] = set()
        before, self._unknown = self._unknown, unknown
        if before is None:  # nobody can tell a stranger from a job's process at the first look
            unknown |= {pid for each in readings.values() for pid in each.processes if owners.run_of(pid) is None}
            return

        def owner_of(pid: int) -> tuple[Owner, str]:
            run = owners.run_of(pid)
            if run is not None:
                # One that merely waits for its turn holds its place still.
                is_parked = run.told_over and run.actual() is Actual.PARKED
                return (Owner.PARKED if is_parked else Owner.RUNNING), run.uid
            unknown.add(pid)
            return (Owner.STRANGER if pid in before else Owner.RUNNING), ""

        self._outbox.events += self._foreign.changes(now_s, readings, owner_of)
        self._fleet.taken_devices = frozenset(self._foreign.taken)

    def _all(self) -> list[Where]:
        return [(node, device) for node, row in enumerate(self._machine.devices) for device in range(len(row))]

    def _named(self, where: Where) -> tuple[str, str]:
        """A device by the name of its node and its id."""
        spec = self._machine.nodes[where[0]]
        return spec.name, spec.device_id(where[1])

    def _lose(self, now_s: float, where: Where) -> None:
        self._told[where] = True
        self._fleet.closed_devices.add(where)  # whoever waits for it must not begin when those there are gone
        node, device = where
        why = f"{self._machine.devices[node][device].name} was lost"
        for run in self._on(where):
            if not run.told_over:
                self._outbox.interrupted(run, why)
            self._fleet.interrupt(run, why)
        self._outbox.events.append(DeviceLost(now_s, *self._named(where)))

    def _on(self, where: Where) -> list[Run]:
        return [run for run in self._fleet.runs.values() if where in run.placement.devices()]

    # -- MIG ------------------------------------------------------------------------------------------------------

    def cut(self, devices: Iterable[Where]) -> None:
        """Cuts devices as is wanted, each once it is empty; until then nothing is started on it."""
        for where in devices:
            self._close(where, self._wishes.layouts[where])
        self.cut_what_is_empty()

    def _restore_layouts(self, devices: Iterable[Where], now: Mapping[Where, tuple[MigSlice, ...]]) -> None:
        """Those of some devices that are not cut as is wanted are to be cut so."""
        layouts = self._wishes.layouts
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
            except MachineError as error:  # it is not as is wanted, so nothing may run on it
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
