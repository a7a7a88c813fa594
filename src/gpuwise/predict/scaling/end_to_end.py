"""End-to-end time by stepwise linear regression, as Ardagna et al. (Politecnico di Milano) do it."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from gpuwise.predict.base import COVERAGE, Columns, Estimates, Floats, PredictionError, Predictor
from gpuwise.predict.columns import has_column, positive, strings
from gpuwise.predict.intervals.conformal import Conformal
from gpuwise.predict.intervals.domain import Domain

FEATURES = ("iterations", "batch", "gflops", "gpus", "nodes", "threads", "disk_delay_s")
MAY_BE_ZERO = ("threads", "disk_delay_s")
ENTER = 0.05
REMOVE = 0.10
"""Probabilities of the partial F test: below the first a feature enters, above the second it leaves again."""
LEAST = 1e-3
"""A straight line may go below 0 s; predictions are at least this share of the shortest time measured."""


class EndToEndTime(Predictor):
    """Time of a training run: linear regression on its sizes, augmented with inverse and cross terms, chosen stepwise.

    Columns, whichever are given: ``iterations``, ``batch`` (samples per GPU and step), ``gflops`` (of the GPUs, per
    second), ``gpus``, ``nodes``, ``threads`` (that read data), ``disk_delay_s``; the last two may be 0, which leaves
    their inverses out, and can be predicted for if it was in the data. Measured: ``time_s``. With ``by`` (the name of a
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
        self.columns_ = [name for name in FEATURES if has_column(X, name)]
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
        count = len(positive(X, self.columns_[0], _least(self.columns_[0])))
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
            value[mine] = _predicted(self.models_[str(group)], {name: column[mine] for name, column in table.items()})
        return self.interval_.around(value, coverage, np.broadcast_to(self.domain_.contains(table), (count,)).copy())

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
        predicted = _predicted(model, {name: column[out] for name, column in table.items()})
        return [float(each) for each in np.log(time_s[out]) - np.log(predicted)]


def _least(name: str) -> float | None:
    return 0.0 if name in MAY_BE_ZERO else None


def _table(X: Columns, names: list[str], count: int) -> dict[str, Floats]:  # noqa: N803
    table = {name: positive(X, name, _least(name)) for name in names}
    for name, column in table.items():
        if len(column) != count:
            raise PredictionError(f"column {name!r} has {len(column)} rows, not {count} like the others")
    return table


def _predicted(model: dict[str, Any], table: dict[str, Floats]) -> Floats:
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


def augmented(table: dict[str, Floats], zeros: Collection[str] = ()) -> dict[str, Floats]:
    """Features with their inverses and the products of any two of different features, as Ardagna et al. have it.

    A feature that may be 0 (named in ``zeros``, or seen to be) has no inverse.
    """
    single = {name: column for name, column in table.items() if np.ptp(column) > 0}
    terms = {name: (name, column) for name, column in single.items()}
    inverted = {name: column for name, column in single.items() if name not in zeros and np.all(column > 0)}
    terms |= {f"1/{name}": (name, 1.0 / column) for name, column in inverted.items()}
    made = {name: column for name, (_, column) in terms.items()}
    for one, other in combinations(terms, 2):
        if terms[one][0] != terms[other][0]:
            made[f"{one}·{other}"] = terms[one][1] * terms[other][1]
    return made


def select(features: Floats, y: Floats, enter: float = ENTER, remove: float = REMOVE) -> list[int]:
    """The columns that forward-backward selection keeps (Draper and Smith, Applied Regression Analysis, ch. 15).

    The column with the largest partial F enters while its probability is below ``enter``; then the column whose partial
    F has become more probable than ``remove`` leaves. Stops when neither changes anything, or a set comes back.
    """
    chosen: list[int] = []
    seen = {frozenset(chosen)}
    while True:
        added = _best_to_add(features, y, chosen, enter)
        if added is not None:
            chosen = [*chosen, added]
        dropped = _worst_to_drop(features, y, chosen, remove)
        if dropped is not None:
            chosen = [each for each in chosen if each != dropped]
        if (added is None and dropped is None) or frozenset(chosen) in seen:
            return chosen
        seen.add(frozenset(chosen))


def _best_to_add(features: Floats, y: Floats, chosen: list[int], enter: float) -> int | None:
    free = len(y) - len(chosen) - 2
    candidates = [each for each in range(features.shape[1]) if each not in chosen]
    if free < 1 or not candidates:
        return None
    before = unexplained(features, y, chosen)
    after = np.array([unexplained(features, y, [*chosen, each]) for each in candidates])
    best = int(np.argmin(after))
    return candidates[best] if _probability(before, float(after[best]), free) < enter else None


def _worst_to_drop(features: Floats, y: Floats, chosen: list[int], remove: float) -> int | None:
    free = len(y) - len(chosen) - 1
    if free < 1 or not chosen:
        return None
    now = unexplained(features, y, chosen)
    without = [unexplained(features, y, [each for each in chosen if each != out]) for out in chosen]
    worst = int(np.argmin(without))
    return chosen[worst] if _probability(without[worst], now, free) > remove else None


def _probability(before: float, after: float, free: int) -> float:
    """The probability of such an F by chance, for one more feature; a perfect fit needs none."""
    from scipy.special import fdtrc  # takes a while to import, and only a fit needs it

    if before <= 1e-24:
        return 1.0
    return float(fdtrc(1, free, (before - after) / max(after / free, 1e-300)))


def unexplained(features: Floats, y: Floats, chosen: list[int]) -> float:
    """The sum of squares that a regression on these columns leaves."""
    rest = y - with_constant(features[:, chosen]) @ solved(features[:, chosen], y)
    return float(rest @ rest)


def with_constant(features: Floats) -> Floats:
    """The columns with a column of ones before them."""
    return np.column_stack([np.ones(len(features)), features])


def solved(features: Floats, y: Floats) -> Floats:
    """The constant and the coefficient of each column, by least squares."""
    return np.asarray(np.linalg.lstsq(with_constant(features), y, rcond=None)[0])
