"""MIG cut once: every GPU the same way, for good. The baseline for policies that cut as jobs come and go."""

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
from gpuwise.core.job.table import Shape
from gpuwise.core.protocols import Placer
from gpuwise.devices import Layout, gpu_types, has_mig, layout_of, mig_profiles, slices_of
from gpuwise.policies.beliefs import speed as believed
from gpuwise.policies.placing.eligible import Hosts
from gpuwise.policies.slices.cuts import Where, on_piece
from gpuwise.policies.slices.mig_gpus import Gpus, may_slice, room_numbers, start_whole
from gpuwise.policies.slices.moves import promote

AS_FAST = 0.95
"""Of the slices on which a job is at least so near to its best speed, it takes the smallest."""


@dataclass(frozen=True)
class StaticMig:
    """Cuts every GPU with MIG into the same slices, once; jobs take the slice on which they are fastest."""

    name = "mig-static"
    wakes_on = CAPACITY_CHANGES
    layout: str = "3g+2g+2g"
    """The slices, such as 3g.20gb+2g.10gb+1g.5gb; 3g is the smallest profile of three compute slices. GPU types that
    cannot be cut so stay whole."""
    promote: bool = True
    """Whether jobs move to better slices when nobody waits for those."""

    def __post_init__(self) -> None:
        if not any(self._layout(gpu) for gpu in gpu_types() if has_mig(gpu)):
            raise GpuwiseError(
                f"policy {self.name!r}: layout is {self.layout!r}, which no GPU can be cut into; "
                "write for example 3g.20gb+2g.10gb+2g.10gb, see gpuwise gpus --mig"
            )

    def holds(self, capacity: Capacity, shape: Shape, placer: Placer) -> bool:
        """Whether the empty cluster holds a job once it is cut."""
        trial = capacity.fork()
        for where, layout in self._to_cut(trial):
            trial.repartition(*where, slices_of(trial.nodes.types[trial.nodes.type_of[where[0]]], layout))
        types, type_of, hosts = trial.types_for(shape), trial.nodes.type_of, Hosts(trial, shape).with_room(1)
        usable = [cut for (node, _), cut in trial.layouts.items() if type_of[node] in types and hosts >> node & 1]
        sizes = [piece.memory_bytes for cut in usable for piece in cut]
        if may_slice(shape) and any(size >= shape.gpu_memory_bytes for size in sizes):
            return True
        return placer(trial, shape, shape.gpus) is not None

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Cuts what is not cut yet; starts what fits, by submission."""
        if not view.waiting and not view.placed:
            return NOTHING
        draft = view.draft()
        gpus = Gpus(draft)
        for where, layout in self._to_cut(draft.capacity):
            draft.cut(*where, slices_of(gpus.kind(where[0]), layout))
        left = [job for job in draft.waiting() if not _place(gpus, job)]
        if self.promote and not left:
            promote(gpus)
        return draft.seal(reasons=_explain(gpus))

    def _to_cut(self, capacity: Capacity) -> list[tuple[Where, Layout]]:
        """The idle GPUs that are still whole and can be cut so, and where the slices go."""
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


def _place(gpus: Gpus, job: int) -> bool:
    """Puts a job on the slice where it is fastest, on the largest if nothing is known of it; else on whole GPUs."""
    draft, shape = gpus.draft, gpus.view.shape(job)
    if may_slice(shape):
        free = [(gpus.speed_on(job, where, piece), where, piece) for where, piece in gpus.free_slices(job, True)]
        best = max((speed for speed, _, _ in free), default=0.0)
        if best > 0:
            enough = [each for each in free if each[0] >= best * AS_FAST]
            _, where, piece = min(enough, key=lambda each: (each[2].milli, each[1], each[2].start))
            return draft.start(job, on_piece(where, piece))
        largest = max(free, key=lambda each: each[2].milli, default=None)
        if largest is not None and math.isnan(believed(gpus.view, job, on_piece(*largest[1:]))):
            return draft.start(job, on_piece(*largest[1:]))
    return start_whole(draft, job)


def _explain(gpus: Gpus) -> Explain:
    draft = gpus.draft

    def explain(job: int) -> Reason:
        reason = draft.explain(job)
        if reason.code is Why.NO_SUCH_NODE:
            return reason
        if reason.code is not Why.NEVER_FITS and gpus.stands_still(job):
            return Reason(Why.NO_SPEED)
        numbers = room_numbers(draft.view, job, reason)
        return Reason(Why.NO_SLICE, numbers) if may_slice(draft.view.shape(job)) and numbers["slices"] else reason

    return explain
