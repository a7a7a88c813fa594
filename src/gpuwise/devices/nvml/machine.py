"""The NVIDIA GPUs of this machine, through NVML."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pynvml  # type: ignore[import-untyped]

from gpuwise.core.commands import MigSlice, Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.devices.host import Host, this_host
from gpuwise.devices.machine import NONE, Device, DeviceInUseError, MachineError, NoGpusError, Reading, Where
from gpuwise.devices.nvml.choice import choose
from gpuwise.devices.nvml.gpu import Gpu, find_gpus, nodes_of
from gpuwise.devices.nvml.mps import Mps, MpsError
from gpuwise.devices.nvml.partitioning import repartition

_WHY_NOT = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "there is no NVIDIA driver here (libnvidia-ml.so.1 cannot be loaded)",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded; does nvidia-smi work?",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated and the old one still runs; reboot",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not use the NVIDIA driver; check the permissions of /dev/nvidia*",
}


class NvmlMachine:
    """NVIDIA GPUs: one node per GPU type, in the order of the driver within it."""

    stand_in = False

    def __init__(self, gpus: Sequence[Gpu], host: Host, notes: Sequence[str] = (), mps: Mps | None = None) -> None:
        self.nodes, self._gpus = nodes_of(gpus, host)
        self.notes = tuple(notes)
        self._mps = mps
        self._lock = threading.RLock()

    @classmethod
    def open(cls, mps: Path | None = None, chosen: Sequence[str] | None = None) -> NvmlMachine:
        """The ``chosen`` GPUs, else those this process may use, with an MPS daemon in folder ``mps`` if it is given."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NoGpusError(_WHY_NOT.get(error.value, f"NVML does not start ({error})")) from error
        host = this_host()
        gpus, notes = find_gpus(host)
        try:
            gpus, more = choose(gpus, chosen)
        except MachineError:
            _end_session()
            raise
        notes += more
        if not gpus:
            _end_session()
            raise NoGpusError("; ".join(notes) or "the NVIDIA driver sees no GPU")
        machine = cls(gpus, host, notes)
        machine._make_whole(machine._gpus)
        machine._start_mps(mps)
        return machine

    @property
    def devices(self) -> tuple[tuple[Device, ...], ...]:
        """``devices[node][device]``, with the slices as last read."""
        found: list[list[Device]] = [[] for _ in self.nodes]
        for (node, _), gpu in self._gpus.items():
            found[node].append(gpu.device)
        return tuple(map(tuple, found))

    def read(self, running: Mapping[Where, Collection[int]] | None = None) -> Mapping[Where, Reading]:
        """What every GPU does, with all processes on it, foreign ones included."""
        with self._lock:
            return {where: gpu.read() for where, gpu in self._gpus.items()}

    def lost(self) -> frozenset[Where]:
        """GPUs that fell off the bus or need a reset, and those in MIG mode without a slice."""
        with self._lock:
            before = {where for where, gpu in self._gpus.items() if gpu.lost}
            if len(before) == len(self._gpus):
                _restart_session()
            gone = {where for where, gpu in self._gpus.items() if not gpu.answers()}
            self._make_whole(before - gone)
            return frozenset(gone | {where for where, gpu in self._gpus.items() if gpu.is_bare})

    def environment(self, placement: Placement, *, memory_bytes: float = 0.0) -> dict[str, str]:
        """The GPUs or slices by UUID; for GPUs shared through MPS also the job's share of each."""
        with self._lock:
            devices = [self._gpu(where).device for where in placement.devices()]
            uuids = self._uuids(placement)
        found = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(uuids)}
        found["NVIDIA_VISIBLE_DEVICES"] = ",".join(uuids) or NONE
        daemon = self._mps_for(placement.sharing, devices)
        if daemon is not None:
            share = placement.milli / WHOLE_GPU_MILLI
            memory = [memory_bytes or share * device.memory_bytes for device in devices]
            found |= daemon.variables(placement.milli, memory)
        return found

    def cores(self, placement: Placement) -> None:
        """Jobs on GPUs may use any core."""
        for where in placement.devices():
            self._gpu(where)

    def repartition(self, node: int, device: int, slices: Sequence[MigSlice]) -> None:
        """Partitions a GPU in MIG mode; refused while a slice that would be destroyed is in use: nothing changes."""
        with self._lock:
            gpu = self._gpu((node, device))
            who = f"GPU {gpu.device.uuid} ({gpu.device.name})"
            if not gpu.device.mig_enabled and not slices:
                return
            if not gpu.device.mig_enabled:
                switch = f"nvidia-smi -i {gpu.bus_id} -mig 1"
                raise MachineError(f"{who} is not in MIG mode; root can switch it on: {switch}")
            try:
                repartition(gpu.handle, [(each.profile, each.start) for each in slices])
            except MachineError as error:
                raise type(error)(f"{who}: {error}") from error
            except pynvml.NVMLError_InUse as error:
                raise DeviceInUseError(f"{who} cannot be repartitioned while it is in use") from error
            except pynvml.NVMLError_NoPermission as error:
                raise MachineError(f"{who}: only root may repartition it") from error
            except pynvml.NVMLError as error:
                raise MachineError(f"{who}: the driver refuses this partition ({error})") from error
            finally:
                gpu.refresh()

    def layout(self) -> Mapping[Where, tuple[MigSlice, ...]]:
        """The slices of the GPUs in MIG mode; one with a single slice of its full size counts as whole."""
        with self._lock:
            for gpu in self._gpus.values():
                gpu.refresh()
            return {
                where: tuple(each.slice for each in gpu.device.mig)
                for where, gpu in self._gpus.items()
                if gpu.is_partitioned
            }

    def close(self) -> None:
        """Ends the session with the driver, and the MPS daemon unless jobs use it."""
        if self._mps is not None:
            self._mps.stop()
        _end_session()

    def _gpu(self, where: Where) -> Gpu:
        if where not in self._gpus:
            raise MachineError(f"this machine has no device {where[1]} on node {where[0]}")
        return self._gpus[where]

    def _uuids(self, placement: Placement) -> list[str]:
        if placement.sharing is not Sharing.MIG:
            return [self._gpu(where).whole_uuid() for where in placement.devices()]
        return [
            self._gpu((node, devices.bit_length() - 1)).slice_uuid(start) for node, devices, start in placement.grants
        ]

    def _mps_for(self, sharing: Sharing, devices: Sequence[Device]) -> Mps | None:
        """The daemon for jobs that share GPUs; None on GPUs in MIG mode, or while the daemon is down."""
        if sharing is not Sharing.SHARED or any(device.mig_enabled for device in devices):
            return None
        with suppress(MpsError):
            if self._mps is not None:
                self._mps.start()
            return self._mps
        return None

    def _make_whole(self, among: Collection[Where]) -> None:
        """Nothing can run on a GPU in MIG mode without a slice, as after a reset: it gets one of its full size."""
        for node, number in among:
            if self._gpus[node, number].is_bare:
                try:
                    self.repartition(node, number, ())
                except MachineError as error:
                    self.notes += (f"nothing can run on it before it is partitioned: {error}",)

    def _start_mps(self, folder: Path | None) -> None:
        if folder is not None:
            self._mps = Mps(folder)
            try:
                self._mps.start()
            except MpsError as error:
                self.notes += (f"jobs that share a GPU do so without MPS: {error}",)


def _end_session() -> None:
    with suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


def _restart_session() -> None:
    """A new session with the driver: an old one does not see a driver that was reloaded."""
    _end_session()
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
