"""Step time of any network on any GPU: a sum over operators at peak rates, with learned efficiencies and residual."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpuwise.predict.base import COVERAGE, Bools, Columns, Estimates, Floats, PredictionError, Predictor, packable
from gpuwise.predict.columns import strings, strings_or
from gpuwise.predict.intervals.conformal import Conformal, folds, spread_of_few
from gpuwise.predict.intervals.domain import Domain
from gpuwise.predict.time.gpu_rates import canonical
from gpuwise.predict.time.operator_sum import GPU_SPREAD, OperatorSum
from gpuwise.predict.time.terms import column, host_counts, priors, shape_features, terms
from gpuwise.predict.trees import Forest

Names = NDArray[Any]
CAP = 0.6
"""Log residuals beyond this are cut before the forest sees them: such steps have another cause than the network."""
LAYOUTS = ("nchw", "nhwc")
OPTIONAL = {"layout": "nchw", "host": ""}
UNSEEN = "unseen GPU"
ANY = "any "


@packable
class RooflineTime(Predictor):
    """Seconds of a training step, or of a forward pass, from what its operators have to do.

    Columns: ``gpu``, ``precision`` (fp32, tf32, fp16, bf16), those of `predict.time.work.work`; optional ``layout``
    (nchw, nhwc) and ``host`` (the machine it was measured on). To fit also ``family``: networks that are left out
    together to calibrate intervals.

    The time is an `OperatorSum` over `terms`, fitted for each regime (single or mixed precision, and layout), times the
    exponential of a forest over the shares of the terms where a precision has at least ``forest_rows`` measured steps.
    """

    def __init__(self, spread: float = 0.9, near: float = 0.8, forest_rows: int = 200, trees: int = 60, leaf: int = 3,
                 inner: int = 5, seed: int = 0) -> None:  # fmt: skip
        self.spread = spread
        self.near = near
        """How far the factors of a second memory layout may be from those of the first, in log space."""
        self.forest_rows = forest_rows
        self.trees = trees
        self.leaf = leaf
        self.inner = inner
        self.seed = seed

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Learns efficiencies, the residual, and how wrong both are for families and for GPUs that were left out."""
        rows, times, family = _Rows.of(X), np.log(np.asarray(y, dtype=np.float64)), np.asarray(strings(X, "family"))
        if len(set(family)) < 2:
            raise PredictionError(f"steps of one family alone, {family[0]}, say nothing of other networks")
        self._learn(rows, times)
        self.conformal_ = self._calibrated(rows, times, family)
        self.domain_ = Domain.of({"flops": rows.flops, "bytes": rows.bytes}, ("flops", "bytes"))
        return self

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """Seconds of each step."""
        self._check_fitted()
        rows = _Rows.of(X)
        value = np.exp(self._log_times(rows))
        measured = self.measured_on(X)
        inside = measured & self.domain_.contains({"flops": rows.flops, "bytes": rows.bytes})
        parts: list[tuple[str, Bools, ArrayLike]] = [
            (regime, which, 1.0) for regime, which in rows.regimes() if regime in self.conformal_
        ]
        if not measured.all():  # on a new GPU a network is at least as uncertain as on one that was measured
            parts.append((UNSEEN, ~measured, self._uncertainty(rows.take(~measured))))
        out = Estimates(value, value.copy(), value.copy(), inside)
        for key, which, uncertainty in parts:
            part = self.conformal_[key].around(value[which], coverage, inside[which], uncertainty)
            out.low[which], out.high[which] = np.fmin(out.low[which], part.low), np.fmax(out.high[which], part.high)
        return out

    def measured_on(self, X: Columns) -> Bools:  # noqa: N803
        """Whether steps were measured on each row's GPU at its precision."""
        rows = _Rows.of(X)
        known = [gpu in self.gpus_.get(regime, ()) for gpu, regime in zip(rows.gpu, rows.regime, strict=True)]
        return np.asarray(known, dtype=np.bool_)

    def busy_share(self, X: Columns) -> Floats:  # noqa: N803
        """The share of each step in which the GPU is at work and does not wait for the host."""
        self._check_fitted()
        return np.asarray(self._shares(_Rows.of(X)).sum(axis=1))

    def gpu_seconds(self, X: Columns) -> Floats:  # noqa: N803
        """Seconds that each row's operators keep the GPU busy, without what the host and the residual add."""
        self._check_fitted()
        regime = _regimes(X)
        parts, seconds = terms(X), np.zeros(len(regime))
        for each in sorted(set(regime)):
            which = regime == each
            seconds[which] = parts[which] @ np.exp(self._model(str(each)).factors)
        return seconds

    # -- learning -----------------------------------------------------------------------------------------------------

    def _learn(self, rows: _Rows, times: Floats) -> None:
        self.sums_: dict[str, OperatorSum] = {}
        self.gpus_: dict[str, list[str]] = {}
        for regime, which in rows.regimes():
            part = rows.take(which)
            factors, launches, spread = self._priors(regime)
            fitted = OperatorSum.of(
                part.parts, part.counts, list(part.host), np.exp(times[which]), factors, launches, spread
            )
            self.sums_[regime] = fitted
            self.gpus_[regime] = sorted({str(gpu) for gpu in part.gpu})
            for gpu in self.gpus_[regime]:  # a machine with this GPU whose host was not measured
                effects = [fitted.machines[host] for host in sorted(set(part.host[part.gpu == gpu]))]
                fitted.machines[f"{ANY}{gpu}"] = tuple(np.mean(effects, axis=0).tolist())
        self.forests_: dict[str, Forest] = {}
        for precision in sorted(set(rows.precision)):
            which = rows.precision == precision
            if which.sum() >= self.forest_rows:
                part = rows.take(which)
                left = np.clip(times[which] - self._sums(part), -CAP, CAP)
                self.forests_[precision] = self._grow(self._table(part), left)

    def _priors(self, regime: str) -> tuple[Floats, Floats, float]:
        """The priors of a fit: physics alone, or the fit of another layout of the same precision."""
        first = next((each for each in self.sums_ if each.partition("/")[0] == regime.partition("/")[0]), None)
        if first is None:
            return *priors(), self.spread
        fitted = self.sums_[first]
        gpu, host = np.mean([effect for name, effect in fitted.machines.items() if name.startswith(ANY)], axis=0)
        return fitted.factors + gpu, fitted.launches + host, self.near

    def _grow(self, table: Floats, left: Floats) -> Forest:
        from sklearn.ensemble import ExtraTreesRegressor

        grower = ExtraTreesRegressor(
            self.trees, min_samples_leaf=self.leaf, max_features=0.4, random_state=self.seed, n_jobs=1
        )
        return Forest.of(grower.fit(table, left))

    def _calibrated(self, rows: _Rows, times: Floats, family: Names) -> dict[str, Conformal]:
        left = times - self._without(rows, times, list(folds(family, self.inner, self.seed)))[0]
        made = {
            regime: Conformal(left[which] * spread_of_few(len(set(family[which])))) for regime, which in rows.regimes()
        }
        alone = [rows.gpu == gpu for gpu in sorted(set(rows.gpu))]
        # A GPU is new in all regimes, and its host too; where only one was measured the error of families must do.
        shared = [out for out in alone if set(rows.precision[~out]) & set(rows.precision[out])]
        residuals = left / self._uncertainty(rows)
        if len(shared) > 2:
            unseen, uncertainty = self._without(rows, times, shared)
            residuals = (times - unseen) / uncertainty
        # From so few GPUs the sign of the next error is unknown: each error counts both ways.
        return made | {UNSEEN: Conformal(np.concatenate([residuals, -residuals]))}

    def _without(self, rows: _Rows, times: Floats, outs: list[Bools]) -> tuple[Floats, Floats]:
        """Predictions for rows by a model that did not see them, and its uncertainty; NaN where it has none."""
        predicted, uncertainty = np.full((2, len(times)), np.nan)
        for out in outs:
            model = type(self)(**self.get_params())
            model._learn(rows.take(~out), times[~out])
            able = out & np.isin(rows.regime, list(model.sums_))
            predicted[able], uncertainty[able] = model._log_times(rows.take(able)), model._uncertainty(rows.take(able))
        return predicted, uncertainty

    # -- predicting ---------------------------------------------------------------------------------------------------

    def _log_times(self, rows: _Rows) -> Floats:
        total = self._sums(rows)
        for precision in set(rows.precision) & set(self.forests_):
            which = rows.precision == precision
            total[which] += self.forests_[precision].predict(self._table(rows.take(which)))
        return total

    def _sums(self, rows: _Rows) -> Floats:
        total = np.zeros(len(rows.gpu))
        for regime, which in rows.regimes():
            part = rows.take(which)
            total[which] = self._model(regime).log_times(part.parts, part.counts, self._machines(part, regime))
        return total

    def _uncertainty(self, rows: _Rows) -> Floats:
        """The uncertainty on a machine that was not measured: of its GPU, and of its host where that counts."""
        uncertainty = np.full(len(rows.gpu), GPU_SPREAD)
        for regime, which in rows.regimes():
            part = rows.take(which)
            uncertainty[which] += self._model(regime).host_uncertainty(
                part.parts, part.counts, self._machines(part, regime)
            )
        return uncertainty

    def _table(self, rows: _Rows) -> Floats:
        """What the forest sees: each term's share in the time, at peak rates too, and the shapes of the network."""
        peak = rows.parts / rows.parts.sum(axis=1, keepdims=True)
        return np.column_stack([self._shares(rows), peak, rows.shapes, rows.layout == "nhwc"])

    def _shares(self, rows: _Rows) -> Floats:
        """Each term's share in the time of each step."""
        shares = np.zeros_like(rows.parts)
        for regime, which in rows.regimes():
            part = rows.take(which)
            shares[which] = self._model(regime).shares(part.parts, part.counts, self._machines(part, regime))
        return shares

    def _model(self, regime: str) -> OperatorSum:
        """The sum of a regime, or of the nearest one that was measured."""
        precision = regime.partition("/")[0]
        near = [regime, f"{precision}/nchw", f"{precision}/nhwc", *self.sums_]
        return self.sums_[next(each for each in near if each in self.sums_)]

    def _machines(self, rows: _Rows, regime: str) -> list[str]:
        """The machine of each row: its host where that was measured, else an average machine with its GPU."""
        known, pairs = self._model(regime).machines, zip(rows.host, rows.gpu, strict=True)
        return [str(host) if host in known else f"{ANY}{gpu}" for host, gpu in pairs]


class _Rows:
    """Columns as the model uses them."""

    def __init__(self, **columns: Any) -> None:
        self.parts: Floats = columns["parts"]
        self.counts: Floats = columns["counts"]
        self.shapes: Floats = columns["shapes"]
        self.flops: Floats = columns["flops"]
        self.bytes: Floats = columns["bytes"]
        self.gpu: Names = columns["gpu"]
        self.host: Names = columns["host"]
        self.precision: Names = columns["precision"]
        self.layout: Names = columns["layout"]
        self.regime: Names = columns["regime"]

    @classmethod
    def of(cls, X: Columns) -> Self:  # noqa: N803
        gpu = np.asarray(canonical(strings(X, "gpu")))
        layout, host = (np.asarray(strings_or(X, name, len(gpu), usual)) for name, usual in OPTIONAL.items())
        regime = _regimes(X)
        precision = np.asarray([each.partition("/")[0] for each in regime])
        parts = terms(X)
        if np.any(parts.sum(axis=1) <= 0):
            raise PredictionError("a step with no work in it; its columns are those of gpuwise.predict.time.work.work")
        return cls(parts=parts, counts=host_counts(X), shapes=shape_features(X), flops=column(X, "flops"), gpu=gpu,
                   host=host, bytes=column(X, "bytes"), precision=precision, layout=layout, regime=regime)  # fmt: skip

    def take(self, which: Any) -> _Rows:
        return _Rows(**{name: value[which] for name, value in vars(self).items()})

    def regimes(self) -> Iterator[tuple[str, Bools]]:
        """Each regime with its rows; the usual layout first."""
        for regime in sorted(set(self.regime)):
            yield str(regime), self.regime == regime


def _regimes(X: Columns) -> Names:  # noqa: N803
    """Single or mixed precision, and the memory layout, of each row."""
    precisions = strings(X, "precision")
    layouts = strings_or(X, "layout", len(precisions), OPTIONAL["layout"])
    if unknown := sorted(set(layouts) - set(LAYOUTS)):
        raise PredictionError(f"layout {unknown[0]!r} is not one of {', '.join(LAYOUTS)}")
    kinds = ["single" if each in ("fp32", "tf32", "fp64") else "mixed" for each in precisions]
    return np.asarray([f"{kind}/{layout}" for kind, layout in zip(kinds, layouts, strict=True)])
