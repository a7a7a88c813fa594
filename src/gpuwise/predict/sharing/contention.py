"""How jobs on one GPU slow each other, by what is known of each alone: the odds of waiting for a neighbour.

A job that shares a GPU runs at speed 1/(1 + Σ odds) of its solo speed. The odds against a neighbour are the time lost
to it for each second of own progress. Where a GPU serves its processes' kernels in turn, a job that keeps the GPU busy
for a share u of its time, with kernels of length k, loses to a neighbour

    odds = u · u' · k'/k

because each of its kernels waits for one of the neighbour's, whenever that has one. Lengths of kernels are seldom
known; short steps are made of short kernels, so k is taken as t/(t + t0) of the step's time t. Powers are learned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import Floats, PredictionError

TIME_SLICE, MPS, MIG = "time_slice", "mps", "mig"
MODES = (TIME_SLICE, MPS, MIG)
LEAST_SPEED, MOST_SPEED = 0.03, 0.99
"""Measured speeds are clipped to these."""
_LEAST_UTIL = 0.05
_NOISE = 0.05  # of a speed: where the loss turns from squares to absolute values
# log t0 in seconds; powers of k', k, u' and u. Priors are weak and near the formula above: there are thousands of rows.
_START = np.array([np.log(0.06), 1.0, 1.0, 1.0, 1.0])
_STRENGTH = np.array([0.01, 0.1, 0.1, 0.1, 0.1])
_LOWER = np.array([np.log(1e-3), 0.0, 0.0, 0.0, 0.0])
_UPPER = np.array([np.log(10.0), 3.0, 3.0, 3.0, 3.0])


def log_odds(speed: Floats) -> Floats:
    """log((1 − s)/s) of a speed s as a fraction of the solo speed."""
    kept = np.clip(speed, LEAST_SPEED, MOST_SPEED)
    return np.asarray(np.log((1.0 - kept) / kept))


def expected(powers: Floats, own: Floats, other: Floats) -> Floats:
    """log odds of jobs against neighbours, but for the constant of the GPU; columns: step time in seconds, u."""
    size, of_other, of_own, busy_other, busy_own = powers
    kernel, kernel_other = (np.log(time / (time + np.exp(size))) for time in (own[:, 0], other[:, 0]))
    used, used_other = (np.log(np.clip(util, _LEAST_UTIL, 1.0)) for util in (own[:, 1], other[:, 1]))
    return np.asarray(of_other * kernel_other - of_own * kernel + busy_other * used_other + busy_own * used)


def fitted(own: Floats, other: Floats, gpu: NDArray[Any], speed: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """The powers of `expected` and the constant of each GPU that suit measured speeds best; ``noise`` is relative."""
    from scipy.optimize import least_squares

    count = int(gpu.max()) + 1  # a GPU without rows here keeps a constant of 0
    start = np.concatenate([_START, np.zeros(count)])
    strength = np.concatenate([_STRENGTH, np.zeros(count)]) * np.sqrt(len(speed))
    lower = np.concatenate([_LOWER, np.full(count, -5.0)])
    upper = np.concatenate([_UPPER, np.full(count, 5.0)])

    def misfit(at: Floats) -> Floats:
        odds = np.exp(expected(at[:5], own, other) + at[5:][gpu])
        return np.concatenate([(1.0 / (1.0 + odds) - speed) / (_NOISE * noise), (at - start) * strength])

    found = least_squares(misfit, start, bounds=(lower, upper), loss="soft_l1").x
    return np.asarray(found[:5]), np.asarray(found[5:])


def crowding(mode: str, group: NDArray[Any], gpu_util: Floats, mem_util: Floats) -> Floats:
    """The part of the odds that is left in a sharing mode, for each row; ``group`` numbers the GPUs that rows share.

    Time slices: all of it. MIG: none. MPS lets kernels of several processes run side by side, so jobs only collide
    where together they ask for more than there is: with demands d that sum to D, (D − 1)/(D − max d), for compute and
    for memory bandwidth, whichever is more. This is 0 up to D = 1, 1 where each asks for the whole, and any load adds.
    """
    if mode == MIG:
        return np.zeros(len(group))
    if mode == TIME_SLICE:
        return np.ones(len(group))
    if mode != MPS:
        raise PredictionError(f"no sharing mode {mode!r}; there are {', '.join(MODES)}")
    worst = np.maximum(_excess(group, gpu_util), _excess(group, mem_util))
    return np.asarray(worst[group])


def _excess(group: NDArray[Any], demand: Floats) -> Floats:
    asked = np.clip(demand, 0.0, 1.0)
    total = np.bincount(group, weights=asked)
    largest = np.zeros(len(total))
    np.maximum.at(largest, group, asked)
    rest = total - largest
    return np.asarray(np.clip((total - 1.0) / np.where(rest > 0, rest, 1.0), 0.0, 1.0))
