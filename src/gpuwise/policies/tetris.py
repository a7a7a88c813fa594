"""Tetris: packs by how well a job's demand fits what a node has left, mixed with shortest remaining time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuwise.core.commands import NOTHING, Decision
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.core.job.shape import Shape, total_host
from gpuwise.core.tables import Array
from gpuwise.policies.placing.eligible import as_mask
from gpuwise.policies.placing.placement import worst_fit


@dataclass(frozen=True)
class Tetris:
    """The job whose demand best fits the node with the most room for it ranks highest (Grandl et al., SIGCOMM'14).

    A job's score is the dot product of its demand and the free resources of the node, both as parts of the node's own,
    plus ``shortness`` times how short it is among the waiting jobs.
    """

    name = "tetris"
    wakes_on = CAPACITY_CHANGES
    placer = staticmethod(worst_fit)
    shortness: float = 0.5

    def rank(self, view: ClusterView, job: int) -> float:
        """Among jobs that ask for the same, the shortest first."""
        return view.time_left_s(job)

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Starts the best-scored job that fits, and again, until none does."""
        if not view.waiting:
            return NOTHING
        draft = view.draft()
        heads = {shape: iter(lane) for shape, lane in view.waiting.lanes.items()}
        first = {shape: next(lane)[1] for shape, lane in heads.items()}
        while first:
            shape = self._best(draft, first)
            if not draft.start(first[shape]):
                del first[shape]
                continue
            following = next(heads[shape], None)
            if following is None:
                del first[shape]
            else:
                first[shape] = following[1]
        return draft.seal()

    def _best(self, draft: Draft, first: dict[int, int]) -> int:
        """The shape whose first job scores highest."""
        view = draft.view
        shapes = list(first)
        remaining = np.array([view.time_left_s(first[shape]) for shape in shapes])
        short = 1.0 - remaining / max(remaining.max(), 1e-9)
        fits = np.array([_alignment(draft, view.shape(first[shape])) for shape in shapes])
        return shapes[int(np.argmax(fits + self.shortness * short))]


def _alignment(draft: Draft, shape: Shape) -> float:
    """The best dot product of a shape's demand and a node's free resources, over nodes it may run on."""
    capacity, nodes = draft.capacity, draft.view.nodes
    count = len(nodes)
    gpus = np.maximum(nodes.gpus[:count], 1)
    idle = np.fromiter((mask.bit_count() for mask in capacity.idle), dtype="f8", count=count)
    usable = np.isin(nodes.gpu_type[:count], capacity.types_for(shape)) & np.asarray(capacity.up)
    if shape.require or shape.avoid:
        usable &= as_mask(capacity.allowed(shape), count)
    score = np.minimum(shape.gpus, gpus) * shape.milli / 1000 / gpus * (idle / gpus)
    cpus, memory_bytes = total_host(shape)
    score += _part(cpus, capacity.free_cpus, nodes.cpus[:count])
    score += _part(memory_bytes, capacity.free_memory, nodes.memory_bytes[:count])
    return float(np.max(score[usable], initial=-1.0))


def _part(asked: float, free: Array, total: Array) -> Array:
    known = np.isfinite(total) & (total > 0)
    size = np.where(known, total, 1.0)
    part: Array = np.where(known, asked / size * np.where(known, free, 0.0) / size, 0.0)
    return part
