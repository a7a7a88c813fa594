"""Stepwise regression: features enter and leave one at a time, by the F test of what they explain."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

import numpy as np

from gpuwise.predict.base import Floats

ENTER = 0.05
REMOVE = 0.10
"""Probabilities of the partial F test: below the first a feature enters, above the second it leaves again."""


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
    """Of an F as large as this by chance, for one more feature; a perfect fit needs none."""
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
