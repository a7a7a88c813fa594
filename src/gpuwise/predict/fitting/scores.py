"""How good predictions were: a holdout is what was predicted for data left out of the fit, beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuwise.predict.base import Bools, Estimates, Floats


@dataclass(frozen=True, slots=True)
class Target:
    """What a measure shall reach."""

    measure: str
    """A name in `Scores`: mape, rmsle, mae, coverage, under_5pct."""
    at_least: float
    goal: float


@dataclass(frozen=True, slots=True)
class Holdout:
    """Predictions for data that the predictor had not seen."""

    name: str
    """``layers-random``: what is predicted and what was left out."""
    predictor: str
    data: tuple[str, ...]
    """The data sets, by their folders."""
    left_out: str
    """For people: "one GPU at a time"."""
    unit: str
    measured: Floats
    estimates: Estimates
    labels: Sequence[str] = ()
    """What each row is, for plots and for looking at the worst."""
    group: Sequence[str] = ()
    """The data set, GPU or family of each row; scores are given for each too."""
    targets: tuple[Target, ...] = ()
    note: str = ""

    def rows(self, which: Bools) -> Holdout:
        """The same for some of its rows."""
        kept = np.flatnonzero(which).tolist()
        return replace(
            self,
            measured=self.measured[which],
            estimates=self.estimates.rows(which),
            labels=[self.labels[row] for row in kept] if self.labels else (),
            group=[self.group[row] for row in kept] if self.group else (),
        )


@dataclass(frozen=True, slots=True)
class Scores:
    """Measures of error; fractions, not percent."""

    rows: int
    mape: float
    """Mean of |predicted − measured| / measured."""
    median_ape: float
    rmsle: float
    """Root mean square of log(1 + predicted) − log(1 + measured), in the unit of the holdout."""
    mae: float
    """Mean of |predicted − measured|, in the unit of the holdout."""
    bias: float
    """Mean of (predicted − measured) / measured."""
    under: float
    """Share of rows predicted below what was measured."""
    under_5pct: float
    """Share predicted more than 5 % below what was measured."""
    coverage: float
    """Share of measurements inside the 90 % interval."""
    width: float
    """Median of (high − low) / value."""
    in_domain: float
    """Share of rows that the predictor calls like its data."""


def score(measured: Floats, estimates: Estimates) -> Scores:
    """The measures over all rows."""
    value, truth = estimates.value, np.asarray(measured, dtype=np.float64)
    relative = (value - truth) / truth
    inside = (truth >= estimates.low) & (truth <= estimates.high)
    logs = np.log1p(np.maximum(value, 0.0)) - np.log1p(np.maximum(truth, 0.0))
    return Scores(
        rows=len(truth),
        mape=float(np.mean(np.abs(relative))),
        median_ape=float(np.median(np.abs(relative))),
        rmsle=float(np.sqrt(np.mean(logs**2))),
        mae=float(np.mean(np.abs(value - truth))),
        bias=float(np.mean(relative)),
        under=float(np.mean(relative < 0.0)),
        under_5pct=float(np.mean(relative < -0.05)),
        coverage=float(np.mean(inside)),
        width=float(np.median((estimates.high - estimates.low) / value)),
        in_domain=float(np.mean(estimates.in_domain)),
    )
