"""The devices of this machine: which are lost, which are back, which are to be repartitioned once they are empty."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping

from gpuwise.core.commands import MigSlice
from gpuwise.core.events import DeviceLost, DeviceRestored
from gpuwise.devices.machine import DeviceInUseError, MachineError, Where
from gpuwise.live.local.attempts.reports import Reports
from gpuwise.live.local.attempts.runs import RunTable
from gpuwise.live.local.device_usage import DeviceUsage
from gpuwise.live.local.reconciler import Reconciler

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0


class Devices:
    """Checks the devices once a second."""

    def __init__(self, table: RunTable, reconciler: Reconciler, reports: Reports) -> None:
        self._table = table
        self._machine = table.machine
        self._reconciler = reconciler
        self._reports = reports
        self._usage = DeviceUsage(table)
        self._to_partition: dict[Where, tuple[MigSlice, ...]] = {}
        """Devices that are not partitioned yet as is wanted; nothing is started on them."""
        self._refused: set[Where] = set()
        """Those of them that could not be partitioned: they are reported as lost, until they can."""
        self._complaints: set[str] = set()
        self._reported_lost: dict[Where, bool] = {}
        """Of each device, whether it was last reported as lost; nothing was reported of one that is not here."""
        self.check_s = -math.inf
        """When to look again."""

    def begin_again(self) -> None:
        """Begins again: devices that are not partitioned as is wanted are to be, and everything is reported again."""
        self._reported_lost.clear()
        self._to_partition.clear()
        self._refused.clear()
        self._usage.begin_again()
        self._table.closed_devices.clear()
        self.check_s = -math.inf
        now = self._machine.layout()
        self._restore_layouts(self._table.desired.layouts.keys() | now.keys(), now)
        self.partition_empty()

    def check(self, now_s: float) -> None:
        """Looks which devices are lost and which are back."""
        if now_s < self.check_s:
            return
        self.check_s = now_s + CHECK_EVERY_S
        lost, known = self._machine.lost(), {where for where, is_lost in self._reported_lost.items() if is_lost}
        if back := known - lost - self._to_partition.keys():  # a GPU that comes back is whole
            self._restore_layouts(back, self._machine.layout())
        self.partition_empty()
        lost |= self._refused
        for where in sorted(self._all()):
            if where in lost and self._reported_lost.get(where) is not True:
                self._lose(now_s, where)
            elif where not in lost and self._reported_lost.get(where) is not False and where not in self._to_partition:
                self._reports.events.append(DeviceRestored(now_s, *self._named(where)))
                self._reported_lost[where] = False
                self._table.closed_devices.discard(where)
                self._reconciler.touch_waiting()
        if not self._machine.stand_in:
            try:
                self._reports.events += self._usage.measure(now_s)
            except Exception as error:  # what jobs use is for the records, and never worth a turn
                self._complain("memory on GPUs could not be measured", error)

    def _all(self) -> list[Where]:
        return [(node, device) for node, row in enumerate(self._machine.devices) for device in range(len(row))]

    def _named(self, where: Where) -> tuple[str, str]:
        """A device by the name of its node and its id."""
        spec = self._machine.nodes[where[0]]
        return spec.name, spec.device_id(where[1])

    def _lose(self, now_s: float, where: Where) -> None:
        self._reported_lost[where] = True
        self._table.closed_devices.add(where)  # a job that waits for it must not start when those there are gone
        node, device = where
        why = f"{self._machine.devices[node][device].name} was lost"
        for run in self._table.on(where):
            if not run.reported_over:
                self._reports.interrupted(run, why)
            self._reconciler.interrupt(run, why)
        self._reports.events.append(DeviceLost(now_s, *self._named(where)))

    def partition(self, devices: Iterable[Where]) -> None:
        """Partitions devices as is wanted, each once it is empty; until then nothing is started on it."""
        for where in devices:
            self._close(where, self._table.desired.layouts[where])
        self.partition_empty()

    def _restore_layouts(self, devices: Iterable[Where], now: Mapping[Where, tuple[MigSlice, ...]]) -> None:
        """Those of some devices that are not partitioned as is wanted are to be."""
        layouts = self._table.desired.layouts
        for where in devices:
            wanted = layouts.get(where, ())
            if _slices_of(wanted) != _slices_of(now.get(where, ())):
                self._close(where, wanted)

    def _close(self, where: Where, slices: tuple[MigSlice, ...]) -> None:
        """Nothing is started on a device until it is partitioned."""
        self._to_partition[where] = slices
        self._table.closed_devices.add(where)

    def partition_empty(self) -> None:
        """Partitions the devices that no run is on any more."""
        for where, slices in list(self._to_partition.items()):
            runs = self._table.on(where)
            for run in runs:
                if run.reported_over:  # parked, it would stay on the device for ever
                    self._reconciler.interrupt(run, "its device is repartitioned")
            if runs:
                continue
            try:
                self._machine.repartition(*where, slices)
            except DeviceInUseError as error:
                self._complain("a device is not partitioned yet; trying again", error)
                continue
            except MachineError as error:  # it is not as is wanted, so nothing may run on it
                self._complain("a device cannot be partitioned; it counts as lost until it can", error)
                if where not in self._refused:
                    self._refused.add(where)
                    self.check_s = -math.inf  # to be reported at once
                continue
            self._complaints.clear()
            del self._to_partition[where]
            self._refused.discard(where)
            self._table.closed_devices.discard(where)
            self._reconciler.touch_waiting()

    def _complain(self, what: str, error: Exception) -> None:
        """Logs once what is wrong."""
        line = f"{what}: {error}"
        if line not in self._complaints:
            self._complaints.add(line)
            log.warning("%s", line, exc_info=None if isinstance(error, MachineError) else error)


def _slices_of(slices: Iterable[MigSlice]) -> set[tuple[str, int]]:
    """What two layouts must have in common to be the same; drivers and catalogue do not agree on the bytes."""
    return {(each.profile, each.start) for each in slices}
