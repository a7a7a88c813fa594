"""A job's step time on a GPU that it never ran on, from its times on other GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from gpuwise.predict.base import COVERAGE, Columns, Estimates, Floats, PredictionError, Predictor, packable
from gpuwise.predict.columns import rows_where, strings, strings_or
from gpuwise.predict.intervals.conformal import Conformal, log_ratio
from gpuwise.predict.time.gpu_rates import canonical, rates

FEW = 3
SHIFTS = [step / 50 for step in range(-20, 21)]
SHARES = (0.25, 0.375, 0.5, 0.625, 0.75)
EVEN = 0.5
"""The prior share of compute: training mixes work bound by compute and by memory."""
PRIOR_COST = 0.02
"""How much smaller the mean error must be for each quarter that the share is away from even: few GPUs are measured."""


@packable
class GpuTransfer(Predictor):
    """Step time on another GPU: known times, scaled by the ratio of both GPUs' rates.

    Columns: ``gpu`` to predict for; ``measured``, for each row a mapping of GPU names to seconds of the same job there;
    optional ``precision`` (fp32, tf32, fp16, bf16; fp32 if absent).

        log t(g) = b + mean over r of [log t(r) + log S(r) − log S(g)],   S = peak^a · bandwidth^(1−a)

    with weights exp(−2 |log S(r)/S(g)|): near GPUs count more. Of three and more GPUs it is the weighted median, so
    that one on a slow host does not count. The shift b is what gives the least mean relative error for GPUs left out.
    """

    def __init__(self, nearness: float = 2.0) -> None:
        self.nearness = nearness

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Learns the share a of compute, and how wrong such estimates are for GPUs that were left out."""
        rows = {"gpu": _gpus(X), "measured": _measured(X), "precision": np.asarray(_precisions(X))}
        times = np.asarray(y, dtype=np.float64)
        self.compute_share_ = self._share(rows, times)
        predicted = self._left_out(rows, times)
        self.shift_ = _least_relative(times, predicted)
        self.conformal_ = Conformal.of(times, predicted * np.exp(self.shift_))
        self.known_ = sorted({str(gpu) for gpu in rows["gpu"]})
        return self

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """Seconds on each row's GPU. Where the GPU itself was measured, that time is given."""
        self._check_fitted()
        gpus = _gpus(X)
        measured = _measured(X)
        moved = np.asarray([gpu not in known for gpu, known in zip(gpus, measured, strict=True)])
        value = self._values(gpus, measured, _precisions(X), self.compute_share_) * np.exp(self.shift_ * moved)
        return self.conformal_.around(value, coverage, np.isin(gpus, self.known_))

    def _values(self, gpus: Any, measured: Any, precisions: Sequence[str], share: float) -> Floats:
        made = []
        for gpu, known, precision in zip(gpus, measured, precisions, strict=True):
            if not known:
                raise PredictionError(f"no measured time to transfer to {gpu}")
            if gpu in known:
                made.append(float(known[gpu]))
                continue
            distance = log_speed([*known], precision, share) - log_speed([str(gpu)], precision, share)
            weight = np.exp(-self.nearness * np.abs(distance))
            made.append(float(np.exp(_middle(np.log(list(known.values())) + distance, weight))))
        return np.asarray(made)

    def _share(self, rows: Mapping[str, Any], times: Floats) -> float:
        def cost(share: float) -> float:
            value = self._values(*_others(rows), share)
            return float(np.mean(np.abs(log_ratio(times, value)))) + PRIOR_COST * abs(share - EVEN) / 0.25

        return min(SHARES, key=cost)

    def _left_out(self, rows: Mapping[str, Any], times: Floats) -> Floats:
        """What is predicted for each GPU with the share learned from the rows of the others."""
        predicted = np.full(len(times), np.nan)
        gpus = np.asarray(rows["gpu"])
        for gpu in sorted(set(gpus)):
            out = gpus == gpu
            others = rows_where(rows, ~out)
            others["measured"] = _without(others["measured"], gpu)
            pairs = zip(others["measured"], others["gpu"], strict=True)
            able = np.asarray([bool({*known} - {each}) for known, each in pairs], dtype=np.bool_)
            share = self._share(rows_where(others, able), times[~out][able]) if able.any() else EVEN
            predicted[out] = self._values(*_others(rows_where(rows, out)), share)
        return predicted


def _middle(values: Floats, weights: Floats) -> float:
    if len(values) < FEW:
        return float(np.average(values, weights=weights))
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2.0)])


def _least_relative(measured: Floats, predicted: Floats) -> float:
    """The shift in log space after which |predicted − measured| / measured is least on average."""
    return min(SHIFTS, key=lambda shift: float(np.mean(np.abs(predicted * np.exp(shift) / measured - 1.0))))


def log_speed(gpus: Sequence[str], precision: str, share: float) -> Floats:
    """log S of each GPU: its peak FLOP/s and its memory bandwidth, weighted."""
    figures = rates(gpus, precision)
    return np.asarray(share * np.log(figures["flops_per_s"]) + (1.0 - share) * np.log(figures["bytes_per_s"]))


def known_elsewhere(job: Sequence[str], gpu: Sequence[str], time_s: ArrayLike) -> Any:
    """The column ``measured`` for rows of jobs: the mean of each job's times on every GPU other than the row's."""
    times, names = np.asarray(time_s, dtype=np.float64), canonical(gpu)
    by_job: dict[str, dict[str, list[float]]] = {}
    for each, on, time in zip(job, names, times, strict=True):
        by_job.setdefault(str(each), {}).setdefault(on, []).append(float(np.log(time)))
    column = np.empty(len(times), dtype=object)
    for row, (each, on) in enumerate(zip(job, names, strict=True)):
        column[row] = {other: float(np.exp(np.mean(logs))) for other, logs in by_job[str(each)].items() if other != on}
    return column


def _gpus(X: Columns) -> Any:  # noqa: N803
    return np.asarray(canonical(strings(X, "gpu")))


def _precisions(X: Columns) -> list[str]:  # noqa: N803
    return strings_or(X, "precision", len(strings(X, "gpu")), "fp32")


def _measured(X: Columns) -> Any:  # noqa: N803
    column = np.empty(len(X["measured"]), dtype=object)
    for row, known in enumerate(X["measured"]):
        if any(not time > 0 for time in known.values()):
            raise PredictionError(f"measured times must be above 0, and are {dict(known)}")
        column[row] = {name: float(time) for name, time in zip(canonical(list(known)), known.values(), strict=True)}
    return column


def _others(rows: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    measured = np.empty(len(rows["gpu"]), dtype=object)
    for row, (gpu, known) in enumerate(zip(rows["gpu"], rows["measured"], strict=True)):
        measured[row] = {name: time for name, time in known.items() if name != gpu}
    return rows["gpu"], measured, rows["precision"]


def _without(measured: Any, gpu: str) -> Any:
    column = np.empty(len(measured), dtype=object)
    for row, known in enumerate(measured):
        column[row] = {name: time for name, time in known.items() if name != gpu}
    return column
