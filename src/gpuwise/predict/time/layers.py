"""Time of a single convolution or dense layer: the linear model of the literature, and the one that gpuwise uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpuwise.predict.base import COVERAGE, Bools, Columns, Estimates, Floats, PredictionError, Predictor
from gpuwise.predict.columns import floats, strings
from gpuwise.predict.intervals.conformal import Conformal, log_ratio
from gpuwise.predict.intervals.domain import Domain
from gpuwise.predict.time.gpu_rates import canonical, rates
from gpuwise.predict.trees import Forest

STATES = {"none": 0, "sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 2, "adam": 2, "adadelta": 2}
"""Values that an optimizer keeps for each weight."""
ACTIVATIONS = ("none", "relu", "tanh", "sigmoid")
NUMBERS = ("batch", "input_size", "kernel", "stride", "channels_in", "channels_out")
NAMES = ("gpu", "kind", "optimizer", "activation")
FEWEST = 100
"""Layers of a GPU that make an interval of its own."""
OVERHEAD_S = 1e-4
"""What a step of one layer takes however small it is: kernel launches and the framework. The residual corrects it."""


class LayerTime(Predictor):
    """Time of one convolution or dense layer: a roofline of its work, corrected by boosted trees in log space.

    Columns: ``gpu``, ``kind`` (conv, dense), ``batch``, ``input_size`` (height and width; 1 if dense), ``kernel``,
    ``stride``, ``same_padding`` (0, 1), ``channels_in``, ``channels_out``, ``bias`` (0, 1), ``optimizer`` (none: the
    forward pass only; else forward, backward and update), ``activation`` (none, relu, tanh, sigmoid). Gives seconds,
    in FP32.

        t = (max(FLOPs / peak, bytes / bandwidth) + t₀) · exp(forest(features))
    """

    def __init__(self, trees: int = 200, leaves: int = 63, learning_rate: float = 0.15, calibration: float = 0.1,
                 seed: int = 0) -> None:  # fmt: skip
        self.trees = trees
        self.leaves = leaves
        self.learning_rate = learning_rate
        self.calibration = calibration
        """The share of rows that is left out of the fit, for the intervals."""
        self.seed = seed

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Grows a forest for each kind of layer."""
        table, roof = layer_features(X)
        target = log_ratio(y, roof)
        kinds = np.asarray(strings(X, "kind"))
        kept = np.random.default_rng(self.seed).random(len(target)) < self.calibration
        self.forests_: dict[str, Forest] = {}
        self.conformal_: dict[str, Conformal] = {}
        for kind in sorted(set(kinds)):
            fitted, rest = (kinds == kind) & ~kept, (kinds == kind) & kept
            if not rest.any():
                raise PredictionError(f"too few rows of {kind} layers to calibrate intervals: {int(fitted.sum())}")
            self.forests_[kind] = self._grow(table[fitted], target[fitted])
            self._calibrate(kind, target[rest] - self.forests_[kind].predict(table[rest]), _gpus(X)[rest])
        self.domain_ = Domain.of(_named(X), NUMBERS, NAMES)
        return self

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """Seconds for each layer."""
        self._check_fitted()
        table, roof = layer_features(X)
        kinds = np.asarray(strings(X, "kind"))
        inside = self.domain_.contains(_named(X))
        out = Estimates(roof.copy(), roof.copy(), roof.copy(), inside)
        for kind in set(kinds):
            if kind not in self.forests_:
                raise PredictionError(f"layers of kind {kind!r}; known are {', '.join(self.forests_)}")
            rows = kinds == kind
            out.value[rows] = roof[rows] * np.exp(self.forests_[kind].predict(table[rows]))
        keys = [f"{kind}/{gpu}" for kind, gpu in zip(kinds, _gpus(X), strict=True)]
        for key in set(keys):
            rows = np.asarray(keys) == key
            conformal = self.conformal_.get(key, self.conformal_[key.partition("/")[0]])
            part = conformal.around(out.value[rows], coverage, inside[rows])
            out.low[rows], out.high[rows] = part.low, part.high
        return out

    def _calibrate(self, kind: str, residuals: Floats, gpus: NDArray[np.str_]) -> None:
        """An interval for each GPU, as their hosts are not equally noisy, and one for all other GPUs."""
        self.conformal_[kind] = Conformal(residuals)
        for gpu in sorted(set(gpus)):
            if np.sum(gpus == gpu) >= FEWEST:
                self.conformal_[f"{kind}/{gpu}"] = Conformal(residuals[gpus == gpu])

    def _grow(self, table: Floats, target: Floats) -> Forest:
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        grower = HistGradientBoostingRegressor(
            max_iter=self.trees, max_leaf_nodes=self.leaves, learning_rate=self.learning_rate, min_samples_leaf=10,
            early_stopping=False, random_state=self.seed,
        )  # fmt: skip
        with threadpool_limits(1, user_api="openmp"):  # on small tables, threads cost more than they gain
            return Forest.of(grower.fit(table, target))


def _gpus(X: Columns) -> NDArray[np.str_]:  # noqa: N803
    return np.asarray(canonical(strings(X, "gpu")))


def _named(X: Columns) -> dict[str, Any]:  # noqa: N803
    columns: dict[str, Any] = {name: floats(X, name) for name in NUMBERS}
    columns |= {name: strings(X, name) for name in NAMES}
    return columns | {"gpu": _gpus(X)}


def layer_features(X: Columns) -> tuple[Floats, Floats]:  # noqa: N803
    """The features of each layer, and its roofline with the overhead in seconds."""
    batch, size, kernel, stride, ins, outs = (floats(X, name) for name in NUMBERS)
    same = floats(X, "same_padding") > 0
    gpu = rates(strings(X, "gpu"))
    optimizer, activation = strings(X, "optimizer"), strings(X, "activation")
    states = np.asarray([STATES.get(each, 2) for each in optimizer], dtype=np.float64)
    trains = np.asarray([each != "none" for each in optimizer], dtype=np.float64)
    out_size = output_size(size, kernel, stride, same)
    # "Same" padding of TensorFlow: an odd total cannot be split evenly, and then costs a copy of the input of its own.
    padding = np.where(same, np.maximum((out_size - 1) * stride + kernel - size, 0), 0)
    positions = batch * out_size**2
    flops = 2.0 * positions * outs * ins * kernel**2 * (1 + 2 * trains)
    read, written, weights = 4.0 * batch * size**2 * ins, 4.0 * positions * outs, 4.0 * kernel**2 * ins * outs
    moved = (read + written + weights) * (1 + 2 * trains) + trains * weights * (1 + 2 * states)
    roof = np.maximum(flops / gpu["flops_per_s"], moved / gpu["bytes_per_s"]) + OVERHEAD_S
    waves = np.ceil(positions / 128) * np.ceil(outs / 64) / gpu["sms"]
    columns = [
        np.log(flops / gpu["flops_per_s"]), np.log(moved / gpu["bytes_per_s"]), np.log(flops / moved), np.log(waves),
        *(np.log(part / gpu["bytes_per_s"]) for part in (read, written, weights)),
        *(np.log(part) for part in (read, written, weights, positions, kernel**2 * ins)),
        batch, size, kernel, stride, ins, outs, out_size, same, padding, padding % 2,
        ins % 4, outs % 4, np.ceil(outs / 32) * 32 / outs, np.ceil(batch / 32) * 32 / batch,
        trains, states, [list(STATES).index(each) if each in STATES else len(STATES) for each in optimizer],
        [ACTIVATIONS.index(each) if each in ACTIVATIONS else len(ACTIVATIONS) for each in activation],
        floats(X, "bias"), *gpu.values(),
    ]  # fmt: skip
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns]), roof


def output_size(size: Floats, kernel: Floats, stride: Floats, same: Bools) -> Floats:
    """Height and width of what a convolution gives, with TensorFlow's "same" or no padding."""
    plain = np.floor(np.maximum(size - kernel, 0.0) / stride) + 1.0
    return np.asarray(np.where(same, np.ceil(size / stride), plain))


class PerLayerLinear(Predictor):
    """The per-layer model of Ardagna et al.: t = β₀ + β₁ · c by layer type, direction and GPU.

    Columns: ``gpu``, ``kind`` (conv, fc, norm, pool, relu, loss, …), ``direction`` (forward, backward, train) and
    ``complexity``, the layer's operations (`gpuwise.graph.layers`) times the batch. A network's step is the sum over
    its layers in both directions. Gives seconds. ``relative`` weighs errors by the measured time, as errors are
    reported; without it the fit is plain least squares, as in the paper, which serves the slowest layers only.
    """

    def __init__(self, relative: bool = True, calibration: float = 0.1, seed: int = 0) -> None:
        self.relative = relative
        self.calibration = calibration
        self.seed = seed

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Finds both coefficients of each layer type, direction and GPU; neither is below 0."""
        times, complexity, keys = np.asarray(y, dtype=np.float64), floats(X, "complexity"), self._keys(X)
        kept = np.random.default_rng(self.seed).random(len(times)) < self.calibration
        self.coefficients_: dict[str, list[float]] = {}
        for key in sorted(set(keys)):
            rows = (np.asarray(keys) == key) & ~kept
            if rows.sum() < 2:
                raise PredictionError(f"{key}: {int(rows.sum())} layers to fit to; two are the least")
            self.coefficients_[key] = _line(complexity[rows], times[rows], self.relative)
        rest = kept if kept.any() else ~kept
        value = self._values(complexity, keys)
        self.conformal_ = Conformal.of(times[rest], value[rest])
        self.domain_ = Domain.of({"complexity": complexity[~kept]}, ("complexity",))
        return self

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """Seconds for each layer; one of a GPU or type that was not measured is refused."""
        self._check_fitted()
        keys = self._keys(X)
        unknown = sorted(set(keys) - set(self.coefficients_))
        if unknown:
            raise PredictionError(f"no layers were measured of {unknown[0]}; known are {', '.join(self.coefficients_)}")
        inside = self.domain_.contains({"complexity": floats(X, "complexity")})
        return self.conformal_.around(self._values(floats(X, "complexity"), keys), coverage, inside)

    def _values(self, complexity: Floats, keys: list[str]) -> Floats:
        table = np.asarray([self.coefficients_[key] for key in keys])
        return np.asarray(np.maximum(table[:, 0] + table[:, 1] * complexity, 1e-9))

    @staticmethod
    def _keys(X: Columns) -> list[str]:  # noqa: N803
        gpus = canonical(strings(X, "gpu"))
        return [f"{k}/{d}/{g}" for k, d, g in zip(strings(X, "kind"), strings(X, "direction"), gpus, strict=True)]


def _line(complexity: Floats, times: Floats, relative: bool) -> list[float]:
    from scipy.optimize import nnls

    weight = 1.0 / times if relative else np.ones_like(times)
    scale = float(np.max(complexity)) or 1.0
    found, _ = nnls(np.column_stack([weight, complexity / scale * weight]), times * weight)
    return [float(found[0]), float(found[1] / scale)]


def linear_columns(X: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803
    """Layers as `LayerTime` takes them, in the columns of `PerLayerLinear`; training counts both directions."""
    size, kernel, ins, outs = (floats(X, name) for name in ("input_size", "kernel", "channels_in", "channels_out"))
    positions = output_size(size, kernel, floats(X, "stride"), floats(X, "same_padding") > 0) ** 2
    trains = np.asarray([each != "none" for each in strings(X, "optimizer")])
    conv = np.asarray(strings(X, "kind")) == "conv"
    forward = kernel**2 * ins * outs
    backward = 2.0 * forward + np.where(conv, outs, 0.0)
    return {
        "gpu": strings(X, "gpu"),
        "kind": np.where(conv, "conv", "fc"),
        "direction": np.where(trains, "train", "forward"),
        "complexity": floats(X, "batch") * positions * (forward + np.where(trains, backward, 0.0)),
    }
