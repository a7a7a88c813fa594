"""The waiting jobs by kind: those that ask for the same and gain about the same."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpuwise.core.cluster.queue import Entry
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.job.shape import Shape
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.policies.gpu_types.gains import Outlook, outlook

MOST_KINDS = 48
"""Kinds of jobs that are told apart among those that ask for the same; a queue of more is read at so many places."""


@dataclass(frozen=True, slots=True)
class Lot:
    """Waiting jobs of one shape and about the same gain: a part of their lane."""

    lane: Sequence[Entry]
    at: int
    end: int
    outlook: Outlook
    """Of the first of them."""
    gpus: float
    """That all of them ask for."""


def lots_of(view: ClusterView, signal: str, each: bool) -> Iterator[Lot]:
    """The waiting jobs by kind, or each by itself; they are in the order of their gains."""
    for shape, lane in view.waiting.lanes.items():
        starts = list(range(len(lane))) if each else _kinds(lane)
        gpus = _gpus(view.jobs.shapes[shape])
        for at, end in zip(starts, (*starts[1:], len(lane)), strict=True):
            yield Lot(lane, at, end, outlook(view, lane[at][1], signal), gpus * (end - at))


def wanted_milli(view: ClusterView) -> int:
    """Thousandths of GPUs that all waiting jobs ask for."""
    lanes = ((view.jobs.shapes[shape], lane) for shape, lane in view.waiting.lanes.items())
    return sum(len(lane) * shape.gpus * shape.milli for shape, lane in lanes)


def _kinds(lane: Sequence[Entry]) -> list[int]:
    """Where each run of equal ranks begins; evenly spaced places and the last one if there are too many."""
    starts = [0]
    while (end := bisect_right(lane, (lane[starts[-1]][0], math.inf))) < len(lane):
        starts.append(end)
        if len(starts) > MOST_KINDS:
            return sorted({*np.linspace(0, len(lane) - 1, MOST_KINDS).astype(int).tolist()})
    return starts


def _gpus(shape: Shape) -> float:
    return shape.gpus * shape.milli / WHOLE_GPU_MILLI
