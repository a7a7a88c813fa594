"""Training runs: when they reached which loss, and how many steps they predict for a run that still trains."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from gpuwise.predict.base import Floats, PredictionError, packable
from gpuwise.predict.convergence.loss_curve import LEAST_POINTS, LossCurve

ALONE = ("hyperbola", "power", "logarithm")
BESIDE = ("near", "aligned", "trend")
METHODS = (*ALONE, *BESIDE)
"""How the number of steps is predicted: by curves through the run's own points, and by earlier runs of the workload
(those of a similar batch; the same, shifted by how much sooner or later this run reached its values; a line over
batch)."""
REACH = 0.5
"""How fast an earlier run counts less when its batch is another, in units of log."""
MOST_LEVELS = 5
DOUBT = 2.0
"""Runs are aligned by the last `MOST_LEVELS` values that both have reached, shrunk to no shift as by `DOUBT` more."""
LONGEST = 4.0
"""A curve that never reaches the target predicts this multiple of the steps done."""


@packable
class Run:
    """One training run: its best loss so far at each step (metrics that rise are negated)."""

    def __init__(self, workload: str, batch: float, steps: Floats, loss: Floats, target: float, sign: float) -> None:
        self.workload = workload
        self.batch = batch
        self.steps = steps
        self.loss = loss
        self.sign = sign
        """−1 where larger is better: loss and target are the negative of what was given."""
        self.best = np.minimum.accumulate(loss)
        self.target = target
        self._alone: Floats | None = None
        self._beside: dict[Run, tuple[float, float]] = {}

    @classmethod
    def of(
        cls, workload: str, batch: float, steps: ArrayLike, values: ArrayLike, target: float, sign: float = 1.0
    ) -> Self:
        """Larger is better if the target is above the first value; ``sign`` is for a run without any."""
        at, value = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
        if at.shape != value.shape or np.any(~(at > 0)) or np.any(np.diff(at) < 0):
            raise PredictionError(f"workload {workload!r}: steps must be above 0, in order, and one for each value")
        if not np.isfinite(target):
            raise PredictionError(f"workload {workload!r}: a target of {target}; it must be a finite number")
        if len(value):
            sign = -1.0 if target > value[0] else 1.0
        return cls(workload, batch, at, sign * value, sign * target, sign)

    def reached(self, levels: ArrayLike) -> Floats:
        """The first step with at most each loss; nan if none."""
        index = np.searchsorted(-self.best, -np.asarray(levels, dtype=np.float64) - 1e-12)
        return np.where(index < len(self.steps), self.steps[np.minimum(index, len(self.steps) - 1)], np.nan)

    def until(self, step: float) -> Self:
        """What was known of the run at a step."""
        seen = self.steps <= step
        return type(self)(self.workload, self.batch, self.steps[seen], self.loss[seen], self.target, self.sign)

    @property
    def now(self) -> float:
        """The last step known, at least 1."""
        return float(self.steps[-1]) if len(self.steps) else 1.0

    def alone(self) -> Floats:
        """log of the total number of steps by each curve through its own points; nan for too few points."""
        if self._alone is None:
            enough = len(np.unique(self.steps)) >= 2 and len(self.steps) >= LEAST_POINTS and np.ptp(self.loss) > 0
            self._alone = np.array([self._by(family) if enough else np.nan for family in ALONE])
        return self._alone

    def _by(self, family: str) -> float:
        curve = LossCurve(family, rises=False).observe(self.steps, self.loss)
        return float(np.log(np.clip(curve.reached_at(self.target), self.now, LONGEST * self.now)))

    def compared(self, other: Run) -> tuple[float, float]:
        """log of the other's steps to this target (nan: never), and how much later in log this one reached its values.

        Compared at the last few values that both have reached.
        """
        if other not in self._beside:
            levels = np.unique(self.best)[:MOST_LEVELS]
            later = np.log(self.reached(levels) / other.reached(levels))
            later = later[np.isfinite(later)]
            total = float(np.log(other.reached(self.target)))
            self._beside[other] = (total, float(later.sum() / (len(later) + DOUBT)))
        return self._beside[other]

    def to_document(self) -> dict[str, Any]:
        """In types of JSON."""
        rows = {"steps": self.steps.tolist(), "loss": self.loss.tolist()}
        return {"workload": self.workload, "batch": self.batch, "target": self.target, "sign": self.sign, **rows}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `to_document`."""
        rows = np.asarray(document["steps"]), np.asarray(document["loss"])
        return cls(document["workload"], document["batch"], rows[0], rows[1], document["target"], document["sign"])


def beside(run: Run, others: list[Run]) -> Floats:
    """log of the total number of steps by earlier runs of the workload, as `BESIDE` names them; nan without any."""
    compared = np.array([run.compared(other) for other in others]).reshape(-1, 2)
    known = np.isfinite(compared[:, 0])
    if not known.any():
        return np.full(len(BESIDE), np.nan)
    away = np.array([np.log(other.batch / run.batch) for other in others])[known]
    weight = np.exp(-(np.abs(away) - np.abs(away).min()) / REACH)
    weight /= weight.sum()
    log_totals, shifts = compared[known].T
    near = float(weight @ log_totals)
    return np.array([near, near + float(weight @ shifts), _trend(away, log_totals, weight)])


def _trend(away: Floats, log_totals: Floats, weight: Floats) -> float:
    """A weighted line over log batch, flattened by a ridge, at the run's own batch."""
    mean_away, mean_total = weight @ away, weight @ log_totals
    slope = weight @ ((away - mean_away) * (log_totals - mean_total)) / (weight @ (away - mean_away) ** 2 + REACH**2)
    return float(mean_total - slope * mean_away)


def common_target(values: Collection[Floats], margin: float = 0.05, share: float = 0.9) -> float:
    """A value that most runs of a workload reach: the best of ``share`` of them, less ``margin`` of the way there.

    The way is from the median first value to there; whether it rises is seen from the first and last values.
    """
    first = float(np.median([each[0] for each in values]))
    sign = -1.0 if np.median([each[-1] for each in values]) > first else 1.0
    best = float(np.quantile([np.min(sign * each) for each in values], share))
    return sign * (best + margin * (sign * first - best))
