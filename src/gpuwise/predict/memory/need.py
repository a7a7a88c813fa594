"""Memory: the most that a training job will take of a GPU, in parts that a user knows, and whether it will fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpuwise.predict.base import COVERAGE, Columns, Estimates, Floats, PredictionError, Predictor
from gpuwise.predict.columns import floats, rows_where, strings
from gpuwise.predict.intervals.conformal import Conformal, folds, log_ratio, widened
from gpuwise.predict.intervals.domain import Domain
from gpuwise.predict.memory.parts import (
    DEVICE,
    NAMES,
    NUMBERS,
    PRIOR,
    Table,
    grown,
    kinds,
    places,
    pooled,
    sizes,
    solve,
    trained_bytes,
)

NORMAL = NormalDist()
PLACE = "framework/measure/gpu"
SURE = 0.1
"""The scale of errors of a job without workspace; one that were all workspace would have 1 more."""
QUANTILE_STEP = 0.01
Way = tuple[float, float]
"""How a framework's coefficients are learned: strength of the prior, growth of the FFT workspace with the batch."""


class MemoryNeed(Predictor):
    """Peak memory of a training job in bytes.

    ``need = context(gpu) + a·(P + T·(1 + states)) + b·largest layer + c·saved activations + d·largest activation +
    e·Winograd + f·FFT workspace``, with coefficients of each framework that are not negative and are drawn to what
    physics says. How strongly, and how the FFT workspace grows with the batch, is chosen among ``strengths`` and
    ``growths`` on architectures left out in turn. TensorFlow's pool grows by doubling: on the device it takes the next
    power of two, and with convolutions beside it the workspace that it lets cuDNN try.

    What is given as value is not the middle but a quantile of what was measured for architectures left out, since a job
    that needs more than predicted fails, and one that needs less wastes a little: the highest one, up to ``quantile``,
    with which these were off by at most ``budget`` on average. Errors grow with the share of the need that is cuDNN's
    choice, its workspace: so do the margin and the interval.

    Columns (see `memory_features`): ``framework`` (pytorch, tensorflow), ``gpu``, ``measure`` (device: what nvidia-smi
    shows; allocator: what tensors take, without context and pool), ``batch_size``, ``parameter_bytes`` (P),
    ``trainable_bytes`` (T, those with a gradient: 0 for a forward pass alone; without this column all),
    ``optimizer_states`` (values kept for each of these), ``largest_layer_bytes``, ``saved_bytes``, ``index_bytes``,
    ``largest_write_bytes``, ``winograd_bytes``, ``fft_bytes``, ``convolutions``; for `fit` also ``architecture``.
    """

    def __init__(
        self,
        quantile: float = 0.95,
        budget: float = 0.13,
        strengths: Sequence[float] = (0.1, 1.0, 4.0),
        growths: Sequence[float] = (0.0, 0.5, 1.0),
    ) -> None:
        self.quantile = quantile
        self.budget = budget
        self.strengths = strengths
        self.growths = growths

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Learns coefficients and contexts, and from architectures left out in turn how far off they are."""
        measured = np.asarray(y, dtype=np.float64)
        if not len(measured) or np.any(measured <= 0):
            raise PredictionError("memory is learned from rows with more than 0 bytes; there are none or others")
        rows = {name: np.asarray(X[name]) for name in (*NUMBERS, *NAMES, "architecture")}
        rows["trainable_bytes"] = trained_bytes(X)
        if len(set(rows["architecture"].tolist())) < 2:
            raise PredictionError(f"memory of {rows['architecture'][0]} alone says nothing of other networks")
        of_kind = np.array(kinds(rows))
        ways = {each: self._best_way(rows, measured, each) for each in sorted(set(rows["framework"].tolist()))}
        need, scale = self._left_out(rows, measured, ways)
        residuals = log_ratio(measured, need) / scale
        self._learn(rows, measured, ways)
        self.residuals_ = {}
        for kind in sorted(set(of_kind.tolist())):
            seen = set(rows["architecture"][of_kind == kind].tolist())
            self.residuals_[kind] = np.sort(widened(residuals[of_kind == kind], len(seen)))
        self.quantile_ = self._affordable(of_kind, residuals, scale)
        self.domain_ = Domain.of(_domain_columns(rows), ("parameter_bytes", "saved_bytes"), (PLACE,))
        return self

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """Bytes for each row, with the interval."""
        self._check_fitted()
        raw, scale, of_kind = self.expected(X), self._scale(X), np.array(kinds(X))
        made = np.empty((3, len(raw)))
        for kind in sorted(set(of_kind.tolist())):
            of = of_kind == kind
            margin = self._margin(kind, self.quantile_)
            value = raw[of] * np.exp(margin * scale[of])
            there = Conformal(self._residuals_of(kind) - margin).around(value, coverage, of[of], scale[of])
            made[:, of] = there.value, there.low, there.high
        inside = self.domain_.contains(_domain_columns(X)) & np.ones(len(raw), dtype=np.bool_)
        return Estimates(made[0], made[1], made[2], inside)

    def p_oom(self, X: Columns, capacity_bytes: ArrayLike) -> Floats:  # noqa: N803
        """The probability that each row's job runs out of memory on a GPU, or a slice of one, with that capacity.

        The residuals of architectures left out, each blurred by Silverman's rule so that few of them suffice.
        """
        self._check_fitted()
        raw = self.expected(X)
        capacity = np.broadcast_to(np.asarray(capacity_bytes, dtype=np.float64), raw.shape)
        if np.any(capacity <= 0):
            raise PredictionError(f"a capacity of {capacity.min():g} bytes; it must be above 0")
        room = np.log(capacity / raw) / self._scale(X)
        return np.array([_share_above(self._residuals_of(kind), at) for kind, at in zip(kinds(X), room, strict=True)])

    def breakdown(self, X: Columns) -> dict[str, Floats]:  # noqa: N803
        """Bytes by part for each row: what the middle estimate is made of, before the margin against running out."""
        self._check_fitted()
        parts = self._weighted(X)
        weight = np.array([self.coefficients_.get(each, PRIOR)["states"] for each in strings(X, "framework")])
        gradients = weight * trained_bytes(X)
        tensors = np.asarray(sum(parts.values()))
        return {
            "parameters": weight * floats(X, "parameter_bytes"),
            "gradients": gradients,
            "optimizer": gradients * floats(X, "optimizer_states"),
            "activations": parts["saved"] + parts["largest_write"],
            "workspace": parts["largest_layer"] + parts["winograd"] + parts["fft"],
            "pool": grown(X, tensors) - tensors,
            "context": self._contexts(X),
        }

    # -- what it is made of -------------------------------------------------------------------------------------------

    def expected(self, X: Columns) -> Floats:  # noqa: N803
        """Bytes for each row in the middle, before the margin against running out of memory."""
        return np.asarray(grown(X, np.asarray(sum(self._weighted(X).values()))) + self._contexts(X))

    def _weighted(self, X: Columns) -> dict[str, Floats]:  # noqa: N803
        frameworks = strings(X, "framework")
        parts = sizes(X, np.array([self.growths_.get(each, 0.0) for each in frameworks]))
        weights = [self.coefficients_.get(each, PRIOR) for each in frameworks]
        return {part: np.array([each[part] for each in weights]) * parts[part] for part in PRIOR}

    def _contexts(self, X: Columns) -> Floats:  # noqa: N803
        """What the driver and libraries take on each row's GPU."""
        rows = zip(strings(X, "framework"), strings(X, "gpu"), strings(X, "measure"), strict=True)
        return np.array([self._context(framework, gpu) * (measure == DEVICE) for framework, gpu, measure in rows])

    def _context(self, framework: str, gpu: str) -> float:
        """As this framework has it there, else as on the most costly GPU it is known on, else as any has it."""
        own = self.contexts_.get(framework, {})
        every = [each for table in self.contexts_.values() for each in table.values()]
        return float(own[gpu]) if gpu in own else float(max(own.values() or every, default=0.0))

    def _residuals_of(self, kind: str) -> Floats:
        if kind in self.residuals_:
            return np.asarray(self.residuals_[kind])
        return np.sort(np.concatenate(list(self.residuals_.values())))

    def _scale(self, X: Columns) -> Floats:  # noqa: N803
        """How far off a row may be, in log space: most where most of it is workspace, which cuDNN chooses.

        A pool is off by its doublings, whatever is in it.
        """
        parts = self._weighted(X)
        return np.where(pooled(X), 1.0, SURE + (parts["winograd"] + parts["fft"]) / self.expected(X))

    def _margin(self, kind: str, quantile: float) -> float:
        """How far above the middle estimate the value is given, in log space, for a scale of 1."""
        return float(np.quantile(self._residuals_of(kind), quantile))

    def _affordable(self, of_kind: NDArray[Any], residuals: Floats, scale: Floats) -> float:
        """The highest quantile with which the rows left out are off by at most the budget; else the middle."""
        for quantile in np.arange(self.quantile, 0.5, -QUANTILE_STEP).tolist():
            margin = np.array([self._margin(kind, quantile) for kind in of_kind])
            if np.mean(np.abs(np.expm1((margin - residuals) * scale))) <= self.budget:
                return float(quantile)
        return 0.5

    # -- learning -----------------------------------------------------------------------------------------------------

    def _best_way(self, rows: Table, y: Floats, framework: str) -> Way:
        """The way with the smallest mean absolute log error on architectures left out."""
        of = (rows["framework"] == framework) & ~pooled(rows)
        ways = list(product(self.strengths, self.growths))
        if len(set(rows["architecture"][of].tolist())) < 3:
            return ways[len(ways) // 2]
        own, measured = rows_where(dict(rows), of), y[of]
        made = [self._left_out(own, measured, {framework: way})[0] for way in ways]
        errors = [np.mean(np.abs(log_ratio(measured, need))) for need in made]
        return ways[int(np.argmin(errors))]

    def _left_out(self, rows: Table, y: Floats, ways: dict[str, Way]) -> tuple[Floats, Floats]:
        """The need of each row and its scale, learned without its architecture."""
        need, scale = np.empty(len(y)), np.empty(len(y))
        for out in folds(rows["architecture"], len(y)):
            self._learn(rows_where(dict(rows), ~out), y[~out], ways)
            asked = rows_where(dict(rows), out)
            need[out], scale[out] = self.expected(asked), self._scale(asked)
        return need, scale

    def _learn(self, rows: Table, y: Floats, ways: dict[str, Way]) -> None:
        self.coefficients_: dict[str, dict[str, float]] = {}
        self.contexts_: dict[str, dict[str, float]] = {}
        self.growths_ = {framework: growth for framework, (_, growth) in ways.items()}
        for framework, way in ways.items():
            of = rows["framework"] == framework
            plain, in_pool = of & ~pooled(rows), of & pooled(rows)
            if plain.any():
                found = solve(rows_where(dict(rows), plain), y[plain], *way)
                self.coefficients_[framework], self.contexts_[framework] = found
            if in_pool.any():
                self._learn_contexts(framework, rows_where(dict(rows), in_pool), y[in_pool])

    def _learn_contexts(self, framework: str, rows: dict[str, Any], y: Floats) -> None:
        """Of a pool that grows in steps: the middle of what was measured beside the pool."""
        beside = y - grown(rows, np.asarray(sum(self._weighted(rows).values())))
        for gpu in sorted(set(rows["gpu"].tolist())):
            middle = float(np.median(beside[rows["gpu"] == gpu]))
            self.contexts_.setdefault(framework, {})[gpu] = max(middle, 0.0)


def _domain_columns(X: Columns) -> dict[str, Any]:  # noqa: N803
    """Names are combined: the context of one framework on a GPU is not that of another."""
    numbers = {name: floats(X, name) for name in ("parameter_bytes", "saved_bytes")}
    return {**numbers, **{name: strings(X, name) for name in NAMES}, PLACE: places(X)}


def _share_above(residuals: Floats, at: float) -> float:
    spread = max(float(np.std(residuals)), 0.01)
    width = 0.9 * spread * len(residuals) ** -0.2  # Silverman, Density Estimation, 1986, eq. 3.31
    return float(np.mean([NORMAL.cdf(each) for each in (residuals - at) / width]))
