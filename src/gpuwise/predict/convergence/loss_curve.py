"""A loss over steps, fitted while the job runs: when will it reach a target?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from gpuwise.predict.base import Floats, PredictionError

LEAST_POINTS = 3
WINDOW = 5
"""Number of points around a point whose median it is compared with to find outliers."""
FAR = 4.0
"""Points further from that median than this number of typical second differences are outliers."""
FLOORS = np.concatenate([[1e-3], np.geomspace(0.01, 5.0, 30)])
"""How far below the best value the limit of a curve may lie, in units of the range seen so far."""
EXPONENTS = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0)
DECAYS = np.geomspace(0.1, 6.0, 20)


@dataclass(frozen=True, slots=True)
class Curve:
    """A fitted curve, of normalised loss."""

    at: Callable[[Floats], Floats]
    reaches: Callable[[float], float]
    """The step at which it reaches a value; infinite if never."""
    error: float
    """Root mean square of its residuals."""


@dataclass(frozen=True, slots=True)
class Normalised:
    """A curve, and how the loss it was fitted to was brought to 0…1."""

    curve: Curve
    low: float
    span: float

    def of(self, loss: float) -> float:
        """A loss as the curve has it."""
        return (loss - self.low) / self.span


def hyperbola(step: Floats, loss: Floats) -> Curve:
    """Optimus' curve l = 1/(β₀·k + β₁) + β₂: for each β₂ on a grid, β₀ and β₁ by non-negative least squares."""
    span = max(float(np.ptp(loss)), 1e-9)
    error, beta, floor = min((_above(step, loss, loss.min() - below * span) for below in FLOORS), key=_first)
    for near in (1.3, 1.04):  # the grid made finer around its best, twice
        closer = np.geomspace(1.0 / near, near, 15) * (loss.min() - floor)
        error, beta, floor = min((_above(step, loss, loss.min() - below) for below in closer), key=_first)

    def reaches(value: float) -> float:
        return np.inf if value <= floor or beta[0] == 0 else float((1.0 / (value - floor) - beta[1]) / beta[0])

    return Curve(lambda k: 1.0 / np.maximum(beta[0] * k + beta[1], 1e-12) + floor, reaches, error)


def _above(step: Floats, loss: Floats, floor: float) -> tuple[float, Floats, float]:
    """The error of the hyperbola above a given limit, its β₀ and β₁, and the limit."""
    from scipy.optimize import nnls

    height = loss - floor
    weight = height**2  # so that errors count in loss, not in its inverse
    beta, _ = nnls(np.stack([step, np.ones_like(step)], axis=1) * weight[:, None], weight / height)
    return _rms(1.0 / np.maximum(beta[0] * step + beta[1], 1e-12) + floor - loss), beta, float(floor)


def _first(fitted: tuple[float, Floats, float]) -> float:
    return fitted[0]


def power_law(step: Floats, loss: Floats) -> Curve:
    """l = β₀·k^(−α) + β₂, α from a list."""
    error, beta, alpha = _scaled(EXPONENTS, lambda alpha: step**-alpha, loss)

    def reaches(value: float) -> float:
        return np.inf if value <= beta[1] or beta[0] <= 0 else float(((value - beta[1]) / beta[0]) ** (-1.0 / alpha))

    return Curve(lambda k: beta[0] * k**-alpha + beta[1], reaches, error)


def exponential(step: Floats, loss: Floats) -> Curve:
    """l = β₀·exp(−α·k) + β₂, α on a grid."""
    rates = DECAYS / step.max()
    error, beta, alpha = _scaled(rates, lambda alpha: np.exp(-alpha * step), loss)

    def reaches(value: float) -> float:
        return np.inf if value <= beta[1] or beta[0] <= 0 else float(-np.log((value - beta[1]) / beta[0]) / alpha)

    return Curve(lambda k: beta[0] * np.exp(-alpha * k) + beta[1], reaches, error)


def logarithm(step: Floats, loss: Floats) -> Curve:
    """l = β₂ − β₀·log k: progress slows, and never ends."""
    terms = np.stack([-np.log(step), np.ones_like(step)], axis=1)
    beta = np.linalg.lstsq(terms, loss, rcond=None)[0]

    def reaches(value: float) -> float:
        return np.inf if beta[0] <= 0 else float(np.exp(min(50.0, (beta[1] - value) / beta[0])))

    return Curve(lambda k: beta[1] - beta[0] * np.log(k), reaches, _rms(terms @ beta - loss))


def _scaled(grid: ArrayLike, shape: Callable[[float], Floats], loss: Floats) -> tuple[float, Floats, float]:
    """The best of ``β₀·shape(α) + β₂`` over a grid of α, with β₀ ≥ 0."""
    found: list[tuple[float, Floats, float]] = []
    for alpha in np.asarray(grid, dtype=np.float64):
        terms = np.stack([shape(float(alpha)), np.ones_like(loss)], axis=1)
        beta = np.asarray(np.linalg.lstsq(terms, loss, rcond=None)[0], dtype=np.float64)
        if beta[0] <= 0:
            beta = np.array([0.0, float(np.mean(loss))])
        found.append((_rms(terms @ beta - loss), beta, float(alpha)))
    return min(found, key=_first)


def _rms(error: Floats) -> float:
    return float(np.sqrt(np.mean(error**2)))


FAMILIES: dict[str, Callable[[Floats, Floats], Curve]] = {
    "hyperbola": hyperbola,
    "power": power_law,
    "exponential": exponential,
    "logarithm": logarithm,
}


def without_outliers(value: Floats) -> Floats:
    """The values, with those far from the median of their neighbours moved to it (Optimus drops them likewise)."""
    if len(value) < WINDOW:
        return value
    half = WINDOW // 2
    around = np.lib.stride_tricks.sliding_window_view(np.pad(value, half, mode="edge"), WINDOW)
    middle = np.median(around, axis=1)
    rough = np.abs(np.diff(value, n=2))  # what is left of a smooth curve is noise
    return np.where(np.abs(value - middle) > FAR * np.median(rough), middle, value)


class LossCurve:
    """The loss (or a metric that rises) of one run, and when it will reach a target.

    Points come by `observe`; the curve is fitted when it is asked for. The default is Optimus' (EuroSys'18)
    l = 1/(β₀·k + β₁) + β₂ on the loss normalised to 0…1, outliers removed; ``family`` names another. ``rises`` says
    that larger is better; without it, larger is better if the target is above the first value. Say it where a target
    may have been passed before the first point.
    """

    def __init__(self, family: str = "hyperbola", rises: bool | None = None) -> None:
        if family not in FAMILIES:
            raise PredictionError(f"curve family {family!r}; it is one of {', '.join(FAMILIES)}")
        self.family = family
        self.rises = rises
        self._steps: list[float] = []
        self._values: list[float] = []
        self._fitted: dict[float, Normalised] = {}

    def observe(self, step: ArrayLike, value: ArrayLike) -> Self:
        """Adds points; steps count from 1 and need not be in order."""
        steps, values = np.atleast_1d(np.asarray(step, float)), np.atleast_1d(np.asarray(value, float))
        if steps.shape != values.shape or np.any(~(steps > 0)):
            raise PredictionError("a step above 0 is needed for each value")
        known = np.isfinite(values)  # a loss that overflowed is no point of the curve
        self._steps += steps[known].tolist()
        self._values += values[known].tolist()
        self._fitted = {}
        return self

    def __len__(self) -> int:
        return len(self._steps)

    def curve(self) -> Curve:
        """The curve through the points so far, of the loss normalised to 0…1 over the range seen."""
        return self._along(self._trend()).curve

    def _along(self, sign: float) -> Normalised:
        """The curve of ``sign`` times the values, which is taken to fall."""
        if len(self) < LEAST_POINTS:
            raise PredictionError(f"{len(self)} points; a curve needs at least {LEAST_POINTS}")
        if min(self._steps) == max(self._steps):
            raise PredictionError(f"all points are at step {self._steps[0]:g}; a curve needs two different ones")
        if sign not in self._fitted:
            order = np.argsort(self._steps, kind="stable")
            step, value = np.asarray(self._steps)[order], without_outliers(np.asarray(self._values)[order])
            low, span = float((sign * value).min()), max(float(np.ptp(value)), 1e-12)
            self._fitted[sign] = Normalised(FAMILIES[self.family](step, (sign * value - low) / span), low, span)
        return self._fitted[sign]

    def _trend(self) -> float:
        """−1 where the values rise (or ``rises`` is set), else 1."""
        if self.rises is None:
            log_step, value = np.log(self._steps), np.asarray(self._values)
            return -1.0 if len(value) and (log_step - log_step.mean()) @ (value - value.mean()) > 0 else 1.0
        return -1.0 if self.rises else 1.0

    def _towards(self, target: float) -> float:
        """−1 where the values have to rise to reach a target, else 1."""
        if not np.isfinite(target):
            raise PredictionError(f"a target of {target}; it must be a finite number")
        if self.rises is None and len(self):
            return -1.0 if target > self._values[int(np.argmin(self._steps))] else 1.0
        return self._trend()

    def predict(self, step: ArrayLike) -> Floats:
        """The value at these steps."""
        sign = self._trend()
        seen = self._along(sign)
        return np.asarray(sign * (seen.curve.at(np.asarray(step, dtype=np.float64)) * seen.span + seen.low))

    def reached_at(self, target: float) -> float:
        """The step at which the value reaches a target: measured if it has, else by the curve.

        Infinite if never, as for values that stay as they are or go away from the target.
        """
        sign = self._towards(target)
        seen = self._along(sign)
        done = sign * np.asarray(self._values) <= sign * target + 1e-12
        if done.any():
            return float(np.asarray(self._steps)[done].min())
        return max(seen.curve.reaches(seen.of(sign * target)), max(self._steps))

    def steps_left(self, target: float, coverage: float = 0.9) -> tuple[float, float, float]:
        """Steps from the last point to the target: value, and the ends of an interval; infinite means never.

        The interval is where the curve, moved up or down by what it leaves of the points, reaches the target. It
        does not include future changes (a learning rate that drops): `StepsToTarget` learns those from other runs.
        """
        sign, now = self._towards(target), max(self._steps, default=0.0)
        seen, left = self._along(sign), max(self.reached_at(target) - now, 0.0)
        if np.any(sign * np.asarray(self._values) <= sign * target + 1e-12):
            return 0.0, 0.0, 0.0  # measured: nothing to be unsure of
        goal, wide = seen.of(sign * target), seen.curve.error * _normal(coverage)
        ends = [max(seen.curve.reaches(goal + shift) - now, 0.0) for shift in (wide, -wide)]
        return left, min(left, *ends), max(left, *ends)


def _normal(coverage: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1.0 + coverage) / 2.0))
