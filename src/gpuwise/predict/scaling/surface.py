"""The step time of one job over batch size, GPUs and nodes: a sum of costs that cannot be negative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from gpuwise.predict.base import Floats, PredictionError, packable

NEAR = {"batch": (0.5, 0.5, 1.0), "gpus": (0.3, 1.0, 1.0)}
"""How fast the effect of a measurement on its neighbours fades, in doublings of batch, GPUs and nodes, by the axis that
will be extrapolated."""
FAR_BATCH = 2.0
"""The same of synchronization over batch, of which it depends little, where batch will be extrapolated."""
DOUBT = 0.1
"""How many measurements the smooth surface is worth when it disagrees with those close by."""
RIDGE = 1e-3
"""A small pull of each cost to 0, relative to the data: where two costs explain the same times, both are shared in."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of a surface: how costs overlap, whether work may grow faster than the batch, which rows count most."""

    overlap: float = 1.0
    """The exponent γ: at 1 costs add up, far above 1 the largest hides the others."""
    superlinear: bool = False
    """Adds a cost that grows with batch^1.5 (padding of sequences does that)."""
    recency: float = 0.0
    """Rows are weighted with (size / largest size)^recency, along the axis that will be extrapolated."""
    anchored: bool = False
    """Takes computation from runs on one GPU, and explains the rest as synchronization."""


@packable
class StepSurface:
    """Step time as ``(Σ θᵢ·φᵢ^γ)^(1/γ)``, θ ≥ 0, moved towards what was measured close by.

    The costs φ are: a constant, the batch per GPU, and for synchronization: that there are several GPUs, log₂ of their
    number, their number, and the same for nodes, and GPUs beside each other behind one network card. With γ = 1
    this is Optimus' and Ernest's sum of costs; γ > 1 lets synchronization hide behind computation, as Pollux
    (OSDI'21) models it. For a fixed γ it is linear in θ, so it is fitted by non-negative least squares, on
    relative error.

    An anchored surface is ``(C(batch)^γ + Σ θᵢ·φᵢ^γ)^(1/γ)`` with C from the runs on one GPU alone, where there are at
    least three batch sizes of those.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.compute: StepSurface | None = None

    def fit(self, batch: Floats, gpus: Floats, nodes: Floats, step_s: Floats, axis: str = "batch") -> StepSurface:
        """Learns from measured step times; ``axis`` (batch or gpus) is the one along which ``recency`` counts."""
        if not len(step_s) or np.any(step_s <= 0):
            raise PredictionError("step times must be above 0, and at least one is needed")
        self.batch_unit = float(batch.max())
        self.near = NEAR[axis]
        self.compute = self._one_gpu(batch, gpus, nodes, step_s, axis) if self.shape.anchored else None
        size = batch if axis == "batch" else gpus
        power = step_s**self.shape.overlap
        weight = (size / size.max()) ** self.shape.recency / power
        costs = self._costs(batch, gpus, nodes) * weight[:, None]
        unit = np.sqrt(np.mean(costs**2, axis=0))
        unit[unit == 0.0] = 1.0
        target = (power - self._computed(batch, gpus, nodes)) * weight
        pull = RIDGE * float(np.linalg.norm(power * weight)) * np.eye(len(unit))
        from scipy.optimize import nnls

        theta, _ = nnls(np.vstack([costs / unit, pull]), np.concatenate([target, np.zeros(len(unit))]))
        self.theta = theta / unit
        self._keep(batch, gpus, nodes, self._left_over(power, self._powers(batch, gpus, nodes)))
        return self

    def _keep(self, batch: Floats, gpus: Floats, nodes: Floats, residual: Floats) -> None:
        """Counts and sums of residuals for each batch and each placement."""
        self.batches, row = np.unique(np.log2(batch), return_inverse=True)
        self.places, column = np.unique(np.log2(np.stack([gpus, nodes], axis=1)), axis=0, return_inverse=True)
        self.counts = np.zeros((len(self.batches), len(self.places)))
        self.sums = np.zeros_like(self.counts)
        np.add.at(self.counts, (row.ravel(), column.ravel()), 1.0)
        np.add.at(self.sums, (row.ravel(), column.ravel()), residual)

    def _one_gpu(self, batch: Floats, gpus: Floats, nodes: Floats, step_s: Floats, axis: str) -> StepSurface | None:
        alone = gpus == 1
        if len(np.unique(batch[alone])) < 3:
            return None
        shape = Shape(1.0, self.shape.superlinear, self.shape.recency)
        return StepSurface(shape).fit(batch[alone], gpus[alone], nodes[alone], step_s[alone], "batch")

    def _computed(self, batch: Floats, gpus: Floats, nodes: Floats) -> Floats:
        if self.compute is None:
            return np.zeros(len(batch))
        return np.asarray(self.compute(batch, np.ones_like(gpus), np.ones_like(nodes)) ** self.shape.overlap)

    def _left_over(self, power: Floats, smooth: Floats) -> Floats:
        """Beside computation that is known, what is left is time (of synchronization); else it is a factor."""
        return np.asarray(power - smooth if self.compute else (np.log(power) - np.log(smooth)) / self.shape.overlap)

    def _powers(self, batch: Floats, gpus: Floats, nodes: Floats) -> Floats:
        total = self._computed(batch, gpus, nodes) + self._costs(batch, gpus, nodes) @ self.theta
        return np.asarray(np.maximum(total, 1e-300))

    def smooth(self, batch: Floats, gpus: Floats, nodes: Floats) -> Floats:
        """The surface alone."""
        return np.asarray(self._powers(batch, gpus, nodes) ** (1.0 / self.shape.overlap))

    def __call__(self, batch: Floats, gpus: Floats, nodes: Floats) -> Floats:
        """The surface, moved by the residuals of measurements close by (a kernel mean, shrunk to 0)."""
        moved = self._moved(batch, gpus, nodes)
        if self.compute is None:
            return np.asarray(self.smooth(batch, gpus, nodes) * np.exp(moved))
        least = self._computed(batch, gpus, nodes) * 0.9**self.shape.overlap
        return np.asarray(np.maximum(self._powers(batch, gpus, nodes) + moved, least) ** (1.0 / self.shape.overlap))

    def _moved(self, batch: Floats, gpus: Floats, nodes: Floats) -> Floats:
        batches, row = np.unique(np.log2(batch), return_inverse=True)
        places, column = np.unique(np.log2(np.stack([gpus, nodes], axis=1)), axis=0, return_inverse=True)
        reach = FAR_BATCH if self.compute and self.near == NEAR["batch"] else self.near[0]
        by_batch = np.exp(-np.abs(batches[:, None] - self.batches[None, :]) / reach)
        away = np.abs(self.places[:, None, :] - places[None, :, :]) / np.array(self.near[1:])
        by_place = np.exp(-away.sum(axis=2))
        mean = (by_batch @ self.sums @ by_place) / (by_batch @ self.counts @ by_place + DOUBT)
        return np.asarray(mean[row.ravel(), column.ravel()])

    def _costs(self, batch: Floats, gpus: Floats, nodes: Floats) -> Floats:
        work = batch / self.batch_unit
        several, network = (gpus > 1) * 1.0, (nodes > 1) * 1.0
        beside = np.log2(1.0 + (gpus - nodes) / np.maximum(nodes - 1.0, 0.5) ** 2) * network  # worst with two nodes
        costs = [several, np.log2(gpus), gpus - 1.0, network, np.log2(nodes), nodes - 1.0, beside]
        if self.compute is None:
            costs += [np.ones_like(work), work]
            if self.shape.superlinear:
                costs.append(work**1.5)
        else:  # GPUs of one node share its input pipeline
            costs += [work * several, work * (gpus / nodes - 1.0)]
        return np.asarray(np.stack(costs, axis=1) ** self.shape.overlap)

    def to_document(self) -> dict[str, Any]:
        """In types of JSON."""
        table = {name: getattr(self, name).tolist() for name in ("theta", "batches", "places", "counts", "sums")}
        compute = self.compute.to_document() if self.compute else None
        return {
            "shape": astuple(self.shape),
            "batch_unit": self.batch_unit,
            "near": self.near,
            "compute": compute,
            **table,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> StepSurface:
        """The inverse of `to_document`."""
        made = cls(Shape(*document["shape"]))
        made.batch_unit, made.near = document["batch_unit"], tuple(document["near"])
        made.compute = cls.from_document(document["compute"]) if document["compute"] else None
        for name in ("theta", "batches", "places", "counts", "sums"):
            setattr(made, name, np.asarray(document[name], dtype=np.float64))
        return made
