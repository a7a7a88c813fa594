"""GPUs that are partitioned with MIG: which slices they have, and which are free."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.whole_gpus import WholeGpus, replaced
from gpuwise.core.commands import MigSlice, Placement
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.job.shape import Shape

Layouts = dict[tuple[int, int], tuple[MigSlice, ...]]


class MigSlices(WholeGpus):
    """The slices of partitioned devices."""

    def __init__(self, nodes: NodeTable) -> None:
        super().__init__(nodes)
        self.layouts: Layouts = {}
        """Slices of the partitioned devices."""
        self.free_slices: Layouts = {}
        self._slices_but_shut: Mapping[tuple[int, int], tuple[MigSlice, ...]] = {}
        """Free slices of devices that are shut."""

    def repartition(self, node: int, device: int, slices: tuple[MigSlice, ...]) -> None:
        """Partitions an empty device into slices, or makes it whole again."""
        where = (node, device)
        before = self.layouts.get(where, ())
        empty = len(self.free_slices.get(where, ())) == len(before) if before else bool(self.idle[node] >> device & 1)
        if not empty:
            raise OverAllocationError(
                f"node {self.nodes.names[node]}: device {device} is in use and cannot be repartitioned"
            )
        layouts, free = self._own_slices()
        layouts.pop(where, None)
        free.pop(where, None)
        if slices:
            layouts[where] = free[where] = slices
            self._set_idle(node, self.idle[node] & ~(1 << device))
        else:
            self._set_idle(node, self.idle[node] | 1 << device)

    def slice_at(self, node: int, device: int, start: int) -> MigSlice | None:
        """The slice of a partitioned device that begins at ``start``."""
        return next((each for each in self.layouts.get((node, device), ()) if each.start == start), None)

    def _take_slices(self, placement: Placement, shape: Shape) -> None:
        wanted = []
        for grant in placement.grants:
            where = (grant.node, grant.devices.bit_length() - 1)
            piece = self.slice_at(*where, grant.slice_start)
            usable = self.up[grant.node] and piece is not None and piece.memory_bytes >= shape.gpu_bytes
            if piece is None or not usable or piece not in self.free_slices[where] or (where, piece) in wanted:
                raise OverAllocationError(
                    f"node {self.nodes.names[grant.node]}: no free slice at {where[1]}/{grant.slice_start}"
                )
            wanted.append((where, piece))
        _, free = self._own_slices()
        for where, piece in wanted:
            free[where] = tuple(each for each in free[where] if each != piece)

    def _retake_slices(self, placement: Placement) -> None:
        for node, devices, start in placement.grants:
            if start not in {each.start for each in self._free_on((node, devices.bit_length() - 1))}:
                raise OverAllocationError(f"node {self.nodes.names[node]}: no empty slice at {start}")
        for node, devices, start in placement.grants:
            where = (node, devices.bit_length() - 1)
            self._set_free(where, {each.start for each in self._free_on(where)} - {start})

    def _give_slices(self, placement: Placement) -> None:
        for node, devices, start in placement.grants:
            where = (node, devices.bit_length() - 1)
            self._set_free(where, {start, *(each.start for each in self._free_on(where))})

    def _free_on(self, where: tuple[int, int]) -> tuple[MigSlice, ...]:
        """Slices of a device that no job is on, whether it is shut or not."""
        return self._slices_but_shut.get(where) or self.free_slices.get(where, ())

    def _set_free(self, where: tuple[int, int], starts: set[int]) -> None:
        layouts, free = self._own_slices()
        pieces = tuple(each for each in layouts[where] if each.start in starts)
        shut = self.shut.get(where[0], 0) >> where[1] & 1
        if shut or where in self._slices_but_shut:
            self._slices_but_shut = replaced(self._slices_but_shut, where, pieces if shut else None)
        free[where] = () if shut else pieces

    def _follow_shut_slices(self, node: int, device: int) -> None:
        """Frees the slices of a device that is not shut any more, or blocks them."""
        if (where := (node, device)) in self.layouts:
            self._set_free(where, {each.start for each in self._free_on(where)})

    def _own_slices(self) -> tuple[Layouts, Layouts]:
        if "layouts" in self._borrowed:
            self._borrowed -= {"layouts", "free_slices"}
            self.layouts, self.free_slices = self.layouts.copy(), self.free_slices.copy()
        return self.layouts, self.free_slices
