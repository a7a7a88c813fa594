"""Training speed with parameter servers and workers: Optimus' models, refitted as a job runs."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from gpuwise.predict.base import COVERAGE, Columns, Estimates, Floats, PredictionError, Predictor
from gpuwise.predict.columns import floats
from gpuwise.predict.intervals.conformal import Conformal
from gpuwise.predict.intervals.domain import Domain

MODES = ("sync", "async")
TERMS = {"sync": 5, "async": 4}


class ParameterServerSpeed(Predictor):
    """Steps per second of a job by its numbers of parameter servers p and workers w (Optimus, EuroSys'18).

    ``sync``: f = 1 / (θ₀·M/w + θ₁ + θ₂·w/p + θ₃·w + θ₄·p), M the global batch size;
    ``async``: f = w / (θ₀ + θ₁·w/p + θ₂·w + θ₃·p). Both are linear in θ once inverted, and θ ≥ 0, so that they are
    fitted by non-negative least squares (on relative error). Columns: ``servers``, ``workers``; measured:
    ``steps_per_s``. `observe` adds a measurement and refits; an early fit from few sizes is a guess, its interval wide.
    """

    def __init__(self, mode: str = "sync", global_batch: float = 1.0, keep: int = 500) -> None:
        self.mode = mode
        self.global_batch = global_batch
        self.keep = keep

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Learns from measured speeds."""
        if self.mode not in MODES:
            raise PredictionError(f"mode {self.mode!r}; it is one of {', '.join(MODES)}")
        return self._refit(floats(X, "servers"), floats(X, "workers"), np.asarray(y, dtype=np.float64))

    def observe(self, servers: ArrayLike, workers: ArrayLike, steps_per_s: ArrayLike) -> Self:
        """Adds one or more measurements and fits again; the oldest beyond ``keep`` are dropped."""
        new = [np.atleast_1d(np.asarray(each, dtype=np.float64)) for each in (servers, workers, steps_per_s)]
        if hasattr(self, "rows_"):
            new = [np.concatenate([old, each]) for old, each in zip(self.rows_, new, strict=True)]
        return self.fit({"servers": new[0][-self.keep :], "workers": new[1][-self.keep :]}, new[2][-self.keep :])

    def _refit(self, servers: Floats, workers: Floats, speed: Floats) -> Self:
        _positive(servers=servers, workers=workers, steps_per_s=speed)
        self.rows_ = np.stack([servers, workers, speed])
        self.theta_ = self._solved(servers, workers, speed)
        self.domain_ = Domain.of({"servers": servers, "workers": workers}, ["servers", "workers"])
        self.interval_ = Conformal(self._left_out(servers, workers, speed))
        return self

    def _terms(self, servers: Floats, workers: Floats) -> Floats:
        """What θ multiplies in 1/f (sync) or w/f (async)."""
        one = np.ones_like(workers)
        if self.mode == "async":
            return np.stack([one, workers / servers, workers, servers], axis=1)
        return np.stack([self.global_batch / workers, one, workers / servers, workers, servers], axis=1)

    def _solved(self, servers: Floats, workers: Floats, speed: Floats) -> Floats:
        from scipy.optimize import nnls

        inverse = (workers if self.mode == "async" else 1.0) / speed
        terms = self._terms(servers, workers) / inverse[:, None]
        unit = np.sqrt(np.mean(terms**2, axis=0))
        return np.asarray(nnls(terms / unit, np.ones(len(speed)))[0] / unit)

    def _left_out(self, servers: Floats, workers: Floats, speed: Floats) -> Floats:
        """log(measured / predicted) of each size, from the others; without enough of them, a factor of two."""
        sizes, index = np.unique(np.stack([servers, workers]), axis=1, return_inverse=True)
        index = np.ravel(index)
        if sizes.shape[1] <= TERMS[self.mode]:
            return np.log([0.5, 2.0])
        residuals = np.zeros(len(speed))
        for size in range(sizes.shape[1]):
            out = index == size
            theta = self._solved(servers[~out], workers[~out], speed[~out])
            residuals[out] = np.log(speed[out]) - np.log(self._speed(servers[out], workers[out], theta))
        return residuals

    def _speed(self, servers: Floats, workers: Floats, theta: Floats) -> Floats:
        inverse = np.maximum(self._terms(servers, workers) @ theta, 1e-300)
        return np.asarray((workers if self.mode == "async" else 1.0) / inverse)

    def __call__(self, servers: ArrayLike, workers: ArrayLike) -> Floats:
        """Steps per second for arrays of sizes."""
        self._check_fitted()
        pair = np.broadcast_arrays(np.asarray(servers, dtype=np.float64), np.asarray(workers, dtype=np.float64))
        return self._speed(pair[0].ravel(), pair[1].ravel(), self.theta_).reshape(pair[0].shape)

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """Steps per second, with its interval."""
        self._check_fitted()
        servers, workers = floats(X, "servers"), floats(X, "workers")
        _positive(servers=servers, workers=workers)
        return self.interval_.around(self(servers, workers), coverage, self.domain_.contains(X))


def _positive(**columns: Floats) -> None:
    for name, column in columns.items():
        if not len(column) or np.any(~(column > 0)):
            raise PredictionError(f"{name} must be above 0, and at least one row is needed")
