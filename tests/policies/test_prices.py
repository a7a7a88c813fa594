"""What GPU types are worth: the transport problems against solutions worked out otherwise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpuwise.policies.gpu_types import prices
from gpuwise.policies.gpu_types.prices import added_prices, least_makespan_s, log_prices, shares


def test_two_kinds_that_each_prefer_a_type_are_done_when_the_slower_type_is():
    # Kind 1 takes 10 s on the first type, kind 2 takes 20 s on the second: 20 s with one GPU of each.
    assert least_makespan_s(((10.0, 99.0), (99.0, 20.0)), (1.0, 1.0), (1.0, 1.0)) == pytest.approx(
        # Moving part x of kind 2 to the first type: 10 + 99 x = 20 (1 - x), so x = 10 / 119.
        20 * (1 - 10 / 119)
    )


def test_the_kind_that_both_types_share_costs_the_same_on_both():
    # GPUs of the second type are done with kind 1 (2 of 10 s) when the first has 30 s of kind 2 left, which it shares.
    times = ((30.0, 10.0), (30.0, 20.0))
    first, second = log_prices(times, (2.0, 2.0), (1.0, 1.0))
    assert first + math.log(30.0) == pytest.approx(second + math.log(20.0))
    assert second + math.log(10.0) < first + math.log(30.0), "kind 1 belongs on the second type"


@pytest.mark.parametrize("seed", range(20))
def test_two_types_have_the_prices_of_the_linear_program(seed):
    rng = np.random.default_rng(seed)
    kinds = int(rng.integers(2, 9))
    times = rng.uniform(10, 100, (kinds, 2))
    times[rng.random((kinds, 2)) < 0.1] = math.inf
    times = times[np.isfinite(times).any(axis=1)]
    asked = tuple(tuple(row) for row in times.tolist()), tuple(rng.uniform(1, 9, len(times))), (3.0, 5.0)
    by_hand = prices._balance(*asked)
    solved = prices._prices(prices._transport(*asked, queued=True))
    if min(solved) > 1e-9:  # else one type is done before all others, whatever is moved
        assert by_hand == pytest.approx(math.log(solved[1] / solved[0]), abs=1e-6)


def test_types_that_nobody_competes_for_cost_nothing():
    times = ((10.0, 20.0, 30.0), (30.0, 20.0, 10.0))
    assert added_prices(times, (1.0, 1.0), (4.0, 4.0, 4.0)) == pytest.approx((0.0, 0.0, 0.0))


def test_a_type_is_worth_what_the_next_in_line_would_save_on_it():
    # One GPU of the first type, which saves the three kinds 20, 10 and 5 s over the second, which has room for all.
    times = ((10.0, 30.0, 99.0), (10.0, 20.0, 99.0), (10.0, 15.0, 99.0))
    first, second, third = added_prices(times, (1.0, 1.0, 1.0), (1.0, 9.0, 9.0))
    assert 10 <= first <= 20
    assert (second, third) == pytest.approx((0.0, 0.0))


def test_a_problem_without_a_solution_has_no_prices():
    assert added_prices(((10.0, math.inf, math.inf),), (5.0,), (1.0, 9.0, 9.0)) == ()


def test_shares_are_whole_and_nobody_is_rounded_away():
    assert shares([990.0, 9.0, 1.0]) == (50, 1, 1)
    assert shares([0.0]) == (0,)
