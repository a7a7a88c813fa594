"""A step's time as a sum over its operators, with positive factors that have priors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import Floats, packable

Index = NDArray[np.int64]
SHARPNESS = 4.0
"""Of the passage from work that waits for the GPU to work that waits for the host."""
NOISE = 0.08
"""The error of a measurement against the model, in log space: how much data count against priors."""
STEPS = 100
GPU_SPREAD, HOST_SPREAD, LAUNCH_SPREAD = 0.25, 0.5, 0.5


@packable
class OperatorSum:
    """t = (t_gpu⁴ + t_host⁴)^¼ with t_gpu = s · Σ wₖ · partₖ and t_host = h · Σ lⱼ · countⱼ.

    Parts are seconds at peak rates, so w is one over an efficiency; counts are operators that the host starts, l its
    seconds for each. Each machine has its own s and h. All logarithms have normal priors; the fit is their most
    probable value with robust errors (soft L1) in log time.
    """

    def __init__(self, factors: Floats, launches: Floats, machines: Mapping[str, tuple[float, float]]) -> None:
        self.factors = np.asarray(factors, dtype=np.float64)
        self.launches = np.asarray(launches, dtype=np.float64)
        self.machines = {name: (float(gpu), float(host)) for name, (gpu, host) in machines.items()}

    @classmethod
    def of(
        cls, parts: Floats, counts: Floats, machine: list[str], time_s: Floats, factors: Floats, launches: Floats,
        spread: float,
    ) -> Self:  # fmt: skip
        """Fits to measured steps; ``factors`` and ``launches`` are the priors, ``spread`` that of the factors."""
        names = sorted(set(machine))
        which = np.searchsorted(names, machine).astype(np.int64)
        k, q, n = len(factors), len(launches), len(names)
        start = np.concatenate([factors, launches, np.zeros(2 * n)])
        wide = np.repeat([spread, LAUNCH_SPREAD, GPU_SPREAD, HOST_SPREAD], [k, q, n, n])
        found = _most_probable(parts, counts, which, np.log(time_s), start, wide)
        gpu, host = found[k + q : k + q + n], found[k + q + n :]
        return cls(found[:k], found[k : k + q], dict(zip(names, zip(gpu, host, strict=True), strict=True)))

    def log_times(self, parts: Floats, counts: Floats, machine: list[str]) -> Floats:
        """The logarithm of each step's seconds; an unknown machine counts as an average one."""
        return self._parts(parts, counts, machine)[-1]

    def shares(self, parts: Floats, counts: Floats, machine: list[str]) -> Floats:
        """Each part's share in the time of each step."""
        each, _, total = self._parts(parts, counts, machine)
        return np.asarray(each / np.exp(total)[:, None])

    def host_uncertainty(self, parts: Floats, counts: Floats, machine: list[str]) -> Floats:
        """How much longer each step takes, in log space, on a host e times as slow: 0 where only the GPU counts."""
        on_gpu, on_host, total = self._parts(parts, counts, machine)
        slower = on_gpu.sum(axis=1) ** SHARPNESS + (np.e * on_host.sum(axis=1)) ** SHARPNESS
        return np.asarray(np.log(slower) / SHARPNESS - total)

    def _parts(self, parts: Floats, counts: Floats, machine: list[str]) -> tuple[Floats, Floats, Floats]:
        effects = np.asarray([self.machines.get(name, (0.0, 0.0)) for name in machine]).reshape(-1, 2)
        theta = np.concatenate([self.factors, self.launches, effects[:, 0], effects[:, 1]])
        return _forward(theta, parts, counts, np.arange(len(parts)), len(parts))

    def to_document(self) -> dict[str, Any]:
        """In types of JSON."""
        return {"factors": self.factors.tolist(), "launches": self.launches.tolist(), "machines": self.machines}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `to_document`."""
        return cls(document["factors"], document["launches"], document["machines"])


def _most_probable(
    parts: Floats, counts: Floats, which: Index, measured: Floats, start: Floats, wide: Floats
) -> Floats:
    """The minimum of Σ 2(√(1 + e²) − 1) + Σ ((θ − start) / wide)², e the errors over NOISE, by Levenberg–Marquardt."""
    machines = int(which.max()) + 1

    def errors(theta: Floats) -> Floats:
        return np.asarray((_forward(theta, parts, counts, which, machines)[-1] - measured) / NOISE)

    def cost(theta: Floats) -> float:
        return float(2.0 * np.sum(np.sqrt(1.0 + errors(theta) ** 2) - 1.0) + np.sum(((theta - start) / wide) ** 2))

    theta, damping, now = start.copy(), 1e-2, cost(start)
    for _ in range(STEPS):
        error, slopes = errors(theta), _slopes(theta, parts, counts, which, machines) / NOISE
        weight = 1.0 / np.sqrt(1.0 + error**2)
        curve = slopes.T @ (slopes * weight[:, None]) + np.diag(1.0 / wide**2)
        down = slopes.T @ (weight * error) + (theta - start) / wide**2
        tried = theta - np.linalg.solve(curve + damping * np.diag(np.diag(curve)), down)
        then = cost(tried)
        if then < now:
            gained, theta, now, damping = now - then, tried, then, damping / 5.0
            if gained < 1e-6 * now:
                break
        else:
            damping *= 5.0
    return theta


def _forward(
    theta: Floats, parts: Floats, counts: Floats, which: Index, machines: int
) -> tuple[Floats, Floats, Floats]:
    """Seconds of each part on the GPU and on the host, and the logarithm of the whole."""
    k, q = parts.shape[1], counts.shape[1]
    gpu, host = theta[k + q : k + q + machines][which], theta[k + q + machines :][which]
    on_gpu = parts * np.exp(theta[:k] + gpu[:, None])
    on_host = counts * np.exp(theta[k : k + q] + host[:, None])
    both = on_gpu.sum(axis=1) ** SHARPNESS + on_host.sum(axis=1) ** SHARPNESS
    return on_gpu, on_host, np.log(np.maximum(both, 1e-60)) / SHARPNESS


def _slopes(theta: Floats, parts: Floats, counts: Floats, which: Index, machines: int) -> Floats:
    """d log t / d θ: a part's share of its side, times how much that side decides."""
    on_gpu, on_host, total = _forward(theta, parts, counts, which, machines)
    k, q, rows = parts.shape[1], counts.shape[1], np.arange(len(parts))
    made = np.zeros((len(parts), len(theta)))
    for side, start, effect in ((on_gpu, 0, k + q), (on_host, k, k + q + machines)):
        seconds = np.maximum(side.sum(axis=1), 1e-30)
        decides = (seconds / np.exp(total)) ** SHARPNESS
        made[:, start : start + side.shape[1]] = side * (decides / seconds)[:, None]
        made[rows, effect + which] = decides
    return made
