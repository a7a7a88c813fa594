"""What a GPU of each type is worth to jobs that compete for it: the dual prices of two transport problems.

Jobs of kind j need g_j GPUs in all and t_jk seconds on type k; y_jk is how many of the g_j go to type k.

- While some jobs are left waiting, GPUs are busy all the time, and the makespan counts:
  min T,  sum_k y_jk = g_j,  sum_j t_jk y_jk <= T G_k.  A job belongs where price_k · t_jk is least.
- When all fit at once, the GPU time they take counts:
  min sum_jk t_jk y_jk,  sum_k y_jk = g_j,  sum_j y_jk <= G_k.  A job belongs where t_jk + price_k is least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

LEAST_PRICE = 1e-9
FINENESS = 50
"""Prices hardly change with the queue: counted in fiftieths of all jobs, most are in the cache."""

Times = tuple[tuple[float, ...], ...]
"""Kinds of jobs × GPU types; infinite where a kind cannot run."""
Numbers = tuple[float, ...]


def shares(gpus: Sequence[float]) -> Numbers:
    """The share of each kind in all GPUs that are asked for."""
    total = sum(gpus) or 1.0
    return tuple(math.ceil(FINENESS * each / total) for each in gpus)


@lru_cache(maxsize=4096)
def log_prices(times_s: Times, gpus: Numbers, room: Numbers) -> Numbers:
    """Logarithms of what time on each GPU type is worth while jobs queue."""
    if len(room) == 2:
        return 0.0, _balance(times_s, gpus, room)
    return tuple(math.log(max(price, LEAST_PRICE)) for price in _prices(_transport(times_s, gpus, room, queued=True)))


def added_prices(times_s: Times, gpus: Numbers, room: Numbers) -> Numbers:
    """Seconds that a GPU of each type is worth when there is one for every job."""
    return _prices(_transport(times_s, gpus, room, queued=False))


def least_makespan_s(times_s: Times, gpus: Numbers, room: Numbers) -> float:
    """A lower bound of the makespan: as if jobs could be divided at will."""
    return float(_transport(times_s, gpus, room, queued=True).fun)


def _balance(times_s: Times, gpus: Numbers, room: Numbers) -> float:
    """The logarithm of the second type's price over the first's.

    With two types the solution is known: the second takes kinds in the order of what they gain there, until both are
    done at the same time; the kind at which that happens costs the same on either.
    """
    first_s = sum(each * slow for (slow, _), each in zip(times_s, gpus, strict=True) if slow < math.inf)
    second_s = sum(each * fast for (slow, fast), each in zip(times_s, gpus, strict=True) if slow == math.inf)
    either = [(slow / fast, slow, fast, each) for (slow, fast), each in zip(times_s, gpus, strict=True)
              if slow < math.inf and fast < math.inf]  # fmt: skip
    last = 1.0
    for ratio, slow, fast, each in sorted(either, reverse=True):
        last = ratio
        first_s -= each * slow
        second_s += each * fast
        if second_s * room[0] >= first_s * room[1]:
            break
    return math.log(last)


def _transport(times_s: Times, gpus: Numbers, room: Numbers, queued: bool) -> Any:
    """The solution of either problem; the last variable is T, which the second does not use."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    times = np.asarray(times_s)
    kinds, types = times.shape
    usable = np.isfinite(times).ravel()
    seconds = np.where(usable, times.ravel(), 0.0)
    pairs, codes = np.arange(kinds * types), np.arange(types)
    spent = np.append(seconds if queued else np.ones_like(seconds), -np.asarray(room) if queued else np.zeros(types))
    where = np.append(pairs % types, codes), np.append(pairs, np.full(types, kinds * types))
    return linprog(
        np.append(np.zeros_like(seconds) if queued else seconds, 1.0),
        A_ub=coo_array((spent, where), shape=(types, kinds * types + 1)),
        b_ub=np.zeros(types) if queued else np.asarray(room),
        A_eq=coo_array((np.ones_like(seconds), (pairs // types, pairs)), shape=(kinds, kinds * types + 1)),
        b_eq=np.asarray(gpus),
        bounds=[(0.0, None if may else 0.0) for may in (*usable, True)],
        method="highs",
    )


def _prices(found: Any) -> Numbers:
    """The prices of the types' capacities; nothing where there is no solution."""
    types = len(found.ineqlin.residual) if found.status == 0 else 0
    return tuple(-float(found.ineqlin.marginals[code]) for code in range(types))
