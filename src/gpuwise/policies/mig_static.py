"""Static MIG: every GPU partitioned once, the same way. The baseline for policies that repartition GPUs."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import NOTHING, Decision, Explain, Reason, Why
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.core.job.shape import Shape
from gpuwise.core.protocols import Placer
from gpuwise.devices.catalogue import gpu_types
from gpuwise.devices.mig import Layout, has_mig, layout_of, mig_profiles, slices_of
from gpuwise.policies.beliefs import speed as believed
from gpuwise.policies.placing.eligible import Hosts
from gpuwise.policies.slices.mig_gpus import MigGpus, room_numbers, start_without_slices
from gpuwise.policies.slices.moves import promote
from gpuwise.policies.slices.partitions import Where, may_slice, on_mig_slice

AS_FAST = 0.95
"""A job takes the smallest of the slices on which it has at least this part of its best speed."""


@dataclass(frozen=True)
class StaticMig:
    """Partitions every GPU with MIG once, into the same slices; jobs take the slice on which they are fastest."""

    name = "mig-static"
    wakes_on = CAPACITY_CHANGES
    layout: str = "3g+2g+2g"
    """The slices, such as 3g.20gb+2g.10gb+1g.5gb; 3g is the smallest profile of three compute slices. GPU types that
    do not support them are not partitioned."""
    promote: bool = True
    """Whether jobs move to better slices when no job waits for these."""

    def __post_init__(self) -> None:
        if not any(self._layout(gpu) for gpu in gpu_types() if has_mig(gpu)):
            raise GpuwiseError(
                f"policy {self.name!r}: layout is {self.layout!r}, which no GPU type supports; "
                "write for example 3g.20gb+2g.10gb+2g.10gb, see gpuwise gpus --mig"
            )

    def feasible(self, capacity: Capacity, shape: Shape, placer: Placer) -> bool:
        """Whether a job fits on the empty cluster once it is partitioned."""
        trial = capacity.fork()
        for where, layout in self._to_partition(trial):
            trial.repartition(*where, slices_of(trial.nodes.types[trial.nodes.type_of[where[0]]], layout))
        types, type_of, hosts = trial.types_for(shape), trial.nodes.type_of, Hosts(trial, shape).with_room(1)
        usable = [each for (node, _), each in trial.layouts.items() if type_of[node] in types and hosts >> node & 1]
        sizes = [piece.memory_bytes for slices in usable for piece in slices]
        if may_slice(shape) and any(size >= shape.gpu_bytes for size in sizes):
            return True
        return placer(trial, shape, shape.gpus) is not None

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Partitions GPUs that are not partitioned yet; starts what fits, by submission."""
        if not view.waiting and not view.placed:
            return NOTHING
        draft = view.draft()
        gpus = MigGpus(draft)
        for where, layout in self._to_partition(draft.capacity):
            draft.cut(*where, slices_of(gpus.kind(where[0]), layout))
        left = [job for job in draft.waiting() if not _place(gpus, job)]
        if self.promote and not left:
            promote(gpus)
        return draft.seal(reasons=_explain(gpus))

    def _to_partition(self, capacity: Capacity) -> list[tuple[Where, Layout]]:
        """The idle GPUs that are not partitioned yet, with the places of their slices."""
        found = []
        for node, idle in enumerate(capacity.idle):
            layout = self._layout(capacity.nodes.types[capacity.nodes.type_of[node]]) if idle else None
            if layout is not None and capacity.up[node]:
                found += [((node, device), layout) for device in range(idle.bit_length()) if idle >> device & 1]
        return found

    def _layout(self, gpu: str) -> Layout | None:
        if not has_mig(gpu):
            return None
        profiles = [_profile(gpu, each) for each in re.split(r"[+,]", self.layout)]
        known = [each for each in profiles if each is not None]
        return layout_of(gpu, known) if known and len(known) == len(profiles) else None


def _profile(gpu: str, text: str) -> str | None:
    """The profile of that name, or the smallest with that many compute slices."""
    return next((each.name for each in mig_profiles(gpu) if text in (each.name, each.name.partition(".")[0])), None)


def _place(gpus: MigGpus, job: int) -> bool:
    """Starts a job on the slice where it is fastest, on the largest if its speed is unknown; else on whole GPUs."""
    draft, shape = gpus.draft, gpus.view.shape(job)
    if may_slice(shape):
        free = [(gpus.speed_on(job, where, piece), where, piece) for where, piece in gpus.free_slices(job, True)]
        best = max((speed for speed, _, _ in free), default=0.0)
        if best > 0:
            enough = [each for each in free if each[0] >= best * AS_FAST]
            _, where, piece = min(enough, key=lambda each: (each[2].milli, each[1], each[2].start))
            return draft.start(job, on_mig_slice(where, piece))
        largest = max(free, key=lambda each: each[2].milli, default=None)
        if largest is not None and math.isnan(believed(gpus.view, job, on_mig_slice(*largest[1:]))):
            return draft.start(job, on_mig_slice(*largest[1:]))
    return start_without_slices(draft, job)


def _explain(gpus: MigGpus) -> Explain:
    draft = gpus.draft

    def explain(job: int) -> Reason:
        reason = draft.explain(job)
        if reason.code is Why.NO_SUCH_NODE:
            return reason
        if reason.code is not Why.NEVER_FITS and gpus.makes_no_progress(job):
            return Reason(Why.NO_SPEED)
        numbers = room_numbers(draft.view, job, reason)
        return Reason(Why.NO_SLICE, numbers) if may_slice(draft.view.shape(job)) and numbers["slices"] else reason

    return explain
