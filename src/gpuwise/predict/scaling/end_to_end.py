"""End-to-end time by linear regression, as Ardagna et al. (Politecnico di Milano) do it."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from gpuwise.predict.base import COVERAGE, Columns, Estimates, Floats, PredictionError, Predictor, strings
from gpuwise.predict.columns import has, sized
from gpuwise.predict.intervals.conformal import Conformal
from gpuwise.predict.intervals.domain import Domain
from gpuwise.predict.scaling.stepwise import ENTER, REMOVE, augmented, select, solved, with_constant

FEATURES = ("iterations", "batch", "gflops", "gpus", "nodes", "threads", "disk_delay_s")
MAY_BE_ZERO = ("threads", "disk_delay_s")
LEAST = 1e-3
"""A straight line may say less than 0 s; never less than this share of the shortest time seen."""


class EndToEndTime(Predictor):
    """Time of a training run: linear regression on its sizes, augmented with inverse and cross terms, chosen stepwise.

    Columns, whichever are given: ``iterations``, ``batch`` (samples per GPU and step), ``gflops`` (of the GPUs, per
    second), ``gpus``, ``nodes``, ``threads`` (that read data), ``disk_delay_s``; the last two may be 0, which leaves
    their inverses out, and can be asked for if it was in the data. Measured: ``time_s``. With ``by`` (the name of a
    column) there is one regression for each of its values, as Gianniti, Zhang and Ardagna (CLOSER 2019) fit
    one for each network, framework and GPU type. The interval comes from leaving out the largest fifth of the rows of
    each regression, since extrapolation is what it is used for.
    """

    def __init__(self, by: str = "", enter: float = ENTER, remove: float = REMOVE) -> None:
        self.by = by
        self.enter = enter
        self.remove = remove

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Selects features and learns their coefficients."""
        time_s = np.asarray(y, dtype=np.float64)
        if not len(time_s) or not np.all(np.isfinite(time_s)) or np.any(time_s <= 0):
            raise PredictionError("measured times must be finite and above 0; leave out rows that were not measured")
        self.columns_ = [name for name in FEATURES if has(X, name)]
        if not self.columns_:
            raise PredictionError(f"no column to regress on; give some of {', '.join(FEATURES)}")
        table, groups = _table(X, self.columns_, len(time_s)), self._groups(X, len(time_s))
        self.domain_ = Domain.of(table, self.columns_)
        self.models_ = {}
        residuals: list[float] = []
        for group in sorted(set(groups)):
            mine = np.flatnonzero(groups == group)
            part = {name: column[mine] for name, column in table.items()}
            self.models_[str(group)] = self._fitted(part, time_s[mine])
            residuals += self._extrapolated(part, time_s[mine])
        self.interval_ = Conformal(residuals or [-1.0, 1.0])
        return self

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """The time of each run, with its interval."""
        self._check_fitted()
        count = len(sized(X, self.columns_[0], _least(self.columns_[0])))
        table = _table(X, self.columns_, count)
        for name, column in table.items():
            if name not in self._zeros() and np.any(column == 0):
                raise PredictionError(f"column {name!r} is 0, which the fit had no row of; fit such rows too")
        groups = self._groups(X, count)
        value = np.zeros(count)
        for group in sorted(set(groups)):
            if group not in self.models_:
                raise PredictionError(f"{self.by} {str(group)!r} was not in the data of the fit")
            mine = np.flatnonzero(groups == group)
            value[mine] = _said(self.models_[str(group)], {name: column[mine] for name, column in table.items()})
        return self.interval_.around(value, coverage, np.broadcast_to(self.domain_.holds(table), (count,)).copy())

    def _groups(self, X: Columns, count: int) -> Any:  # noqa: N803
        return np.asarray(strings(X, self.by) if self.by else [""] * count)

    def _zeros(self) -> list[str]:
        """The columns that were 0 somewhere in the data of the fit."""
        return [name for name, (low, _) in self.domain_.ranges.items() if low == 0]

    def _fitted(self, table: dict[str, Floats], time_s: Floats) -> dict[str, Any]:
        terms = augmented(table, self._zeros())
        names = list(terms)
        features = np.stack([terms[name] for name in names], axis=1) if names else np.zeros((len(time_s), 0))
        unit = np.maximum(np.sqrt(np.mean(features**2, axis=0)), 1e-300)
        chosen = select(features / unit, time_s, self.enter, self.remove)
        coefficients = solved(features[:, chosen] / unit[chosen], time_s) / np.concatenate([[1.0], unit[chosen]])
        return {
            "terms": [names[each] for each in chosen],
            "coefficients": coefficients,
            "least_s": time_s.min() * LEAST,
        }

    def _extrapolated(self, table: dict[str, Floats], time_s: Floats) -> list[float]:
        """log(measured / predicted) of the longest fifth, predicted from the rest."""
        order = np.argsort(time_s, kind="stable")
        kept, out = order[: -max(1, len(order) // 5)], order[-max(1, len(order) // 5) :]
        if len(kept) < 3:
            return []
        model = self._fitted({name: column[kept] for name, column in table.items()}, time_s[kept])
        said = _said(model, {name: column[out] for name, column in table.items()})
        return [float(each) for each in np.log(time_s[out]) - np.log(said)]


def _least(name: str) -> float | None:
    return 0.0 if name in MAY_BE_ZERO else None


def _table(X: Columns, names: list[str], count: int) -> dict[str, Floats]:  # noqa: N803
    table = {name: sized(X, name, _least(name)) for name in names}
    for name, column in table.items():
        if len(column) != count:
            raise PredictionError(f"column {name!r} has {len(column)} rows, not {count} like the others")
    return table


def _said(model: dict[str, Any], table: dict[str, Floats]) -> Floats:
    count = len(next(iter(table.values())))
    columns = [_term(name, table) for name in model["terms"]]
    features = np.stack(columns, axis=1) if columns else np.zeros((count, 0))
    return np.asarray(np.maximum(with_constant(features) @ np.asarray(model["coefficients"]), model["least_s"]))


def _term(name: str, table: dict[str, Floats]) -> Floats:
    made = np.ones(1)
    for factor in name.split("·"):
        column = table[factor.removeprefix("1/")]
        made = made * (1.0 / column if factor.startswith("1/") else column)
    return made
