"""Rates by the interference predictor: what a job reaches beside others, at the slowest, and where it is unknown."""

from __future__ import annotations

import math

import numpy as np
import pytest

from builders import cluster, finished, job, node, on
from gpuwise.core.cluster.nodes import node_table
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.table import JobTable
from gpuwise.predict.base import Estimates, Predictor
from gpuwise.predict.rates import InterferenceRates, PredictedRates
from gpuwise.predict.registry import load
from gpuwise.predict.scaling.rates import PredictedScaling
from gpuwise.predict.sharing.interference import Interference
from gpuwise.service.offline.simulate import Truth, simulate

GPU = on((0, 0), sharing=Sharing.SHARED, milli=333)


class Fixed(Predictor):
    """Says the same of every pair, and counts how often it is asked."""

    def __init__(self, value=0.5, low=0.25):
        self.value, self.low = value, low
        self.asked = 0

    def estimate(self, columns, coverage=0.9):
        self.asked += 1
        count = len(columns["group"])
        return Estimates(np.full(count, self.value), np.full(count, self.low), np.ones(count), np.ones(count, bool))


class Failing(Predictor):
    def estimate(self, columns, coverage=0.9):
        raise RuntimeError("no such model")


def table(*jobs):
    found = JobTable()
    found.declare(jobs)
    return found


def three_jobs():
    return table(*(job(name, 100.0, gpu_util_frac=0.3, model=name, batch_per_gpu=64) for name in "abc"))


def model_of(jobs, *args):
    return InterferenceRates(jobs, node_table(cluster("1x1:V100")), *args)


def test_a_job_alone_runs_as_declared():
    model = model_of(three_jobs(), Failing())
    assert model.rates((0,), (GPU,), ((),)) == model.rates((0,), (GPU,), ((),)).lows == [1.0]
    assert model.rates((0,), (on((0, 0)),), ((),)) == [1.0]


def test_a_pair_runs_as_the_predictor_says_and_at_the_slowest_at_the_lower_end():
    model = model_of(three_jobs(), Fixed())
    assert model.rates((0, 1), (GPU, GPU), ((1,), (0,))) == [0.5, 0.5]
    assert model.rates((0, 1), (GPU, GPU), ((1,), (0,))).lows == [0.25, 0.25]


def test_beside_two_jobs_the_odds_add_up_and_at_the_slowest_each_slows_by_its_whole_factor():
    # Odds of 1 against each: 1/(1 + 1 + 1). At the lower end of 1/4, each makes it four times slower: 1/16.
    model = model_of(three_jobs(), Fixed())
    assert model.rates((0,), (GPU,), ((1, 2),)) == pytest.approx([1 / 3])
    assert model.rates((0,), (GPU,), ((1, 2),)).lows == pytest.approx([1 / 16])


def test_the_rates_beside_two_jobs_are_those_of_the_predictor_for_three():
    jobs = three_jobs()
    predictor = load("interference").predictor
    made = predictor.predict(
        {
            "group": [0] * 3,
            "gpu": ["V100"] * 3,
            "model": list("abc"),
            "batch_size": [64] * 3,
            "gpu_util_frac": [0.3] * 3,
        }
    )
    assert model_of(jobs).rates((0,), (GPU,), ((1, 2),)) == pytest.approx([made[0]])


def test_jobs_of_one_kind_are_asked_about_once():
    jobs = table(*(job(f"j{n}", 100.0, gpu_util_frac=0.3, model="m", batch_per_gpu=64) for n in range(100)))
    predictor = Fixed()
    model = model_of(jobs, predictor)
    for row in range(100):
        model.rates((row,), (GPU,), (((row + 1) % 100,),))
    assert predictor.asked == 1


def test_many_kinds_are_told_apart():
    jobs = table(*(job(f"j{n}", 100.0, gpu_util_frac=0.2 + 0.005 * n, model=f"m{n}") for n in range(150)))
    model, known = model_of(jobs), load("interference").predictor
    for row in (0, 70, 149):
        utils = [float(round(jobs.gpu_util_frac.item(each), 2)) for each in (row, 3)]
        pair = {"group": [0, 0], "gpu": ["V100"] * 2, "model": [f"m{row}", "m3"], "gpu_util_frac": utils}
        model.rates(range(150), [GPU] * 150, [(5,)] * 150)
        assert model.rates((row,), (GPU,), ((3,),)) == pytest.approx([known.predict(pair)[0]])


def test_a_utilization_that_is_found_out_changes_what_is_believed():
    jobs = three_jobs()
    model = model_of(jobs)
    before = model.rates((0,), (GPU,), ((1,),))[0]
    jobs.gpu_util_frac[1] = 0.9
    assert model.rates((0,), (GPU,), ((1,),))[0] < before


@pytest.mark.parametrize(
    "predictor", [Failing(), Fixed(math.nan, math.nan), Fixed(0.0, 0.0), Fixed(-1.0, -2.0), Fixed(7.0, 7.0)]
)
def test_where_the_predictor_fails_rates_are_as_declared_and_nobody_can_tell_the_slowest(predictor):
    model = model_of(table(*(job(name, gpu_util_frac=0.6, model=name) for name in "abc")), predictor)
    # Together two ask for 1.2 GPUs, three for 1.8.
    assert model.rates((0, 1), (GPU, GPU), ((1,), (0, 2))) == pytest.approx([1 / 1.2, 1 / 1.8])
    assert model.rates((0, 1), (GPU, GPU), ((1,), (0, 2))).lows == [0.0, 0.0]


def test_where_a_utilization_is_not_known_nobody_can_tell():
    model = model_of(table(job("a", gpu_util_frac=0.3), job("b")), Fixed())
    assert model.rates((0, 1), (GPU, GPU), ((1,), (0,))).lows == [0.0, 0.0]
    # An unknown one is taken to need the whole GPU.
    assert model.rates((0,), (GPU,), ((1,),)) == pytest.approx([1 / 1.3])


def test_a_predictor_can_be_fitted_to_pairs_of_different_models_only():
    models = ["a", "b", "c", "d"]
    pairs = [(one, other) for at, one in enumerate(models) for other in models[at + 1 :]]
    rows = [(number, model) for number, pair in enumerate(pairs) for model in pair]
    made = {
        "group": [number for number, _ in rows],
        "gpu": ["RTX2080"] * len(rows),
        "model": [model for _, model in rows],
        "gpu_util_frac": [0.2 + 0.2 * models.index(model) for _, model in rows],
    }
    speeds = [0.9 - 0.05 * number for number in range(len(rows))]
    new = {"group": [0, 0], "gpu": ["RTX2080"] * 2, "model": ["x", "y"], "gpu_util_frac": [0.5, 0.5]}
    assert np.all(Interference().fit(made, speeds).estimate(new).low > 0)


# -- how they share ----------------------------------------------------------------------------------------------------


class Remembers(Fixed):
    """Remembers the modes it was asked about."""

    def __init__(self):
        super().__init__()
        self.modes = set()

    def estimate(self, columns, coverage=0.9):
        self.modes |= set(columns["mode"])
        return super().estimate(columns, coverage)


@pytest.mark.parametrize(
    ("sharing", "shared_by", "mode"),
    [
        (Sharing.TIME_SLICE, "time_slice", "time_slice"),
        (Sharing.TIME_SLICE, "mps", "time_slice"),
        (Sharing.SHARED, "time_slice", "time_slice"),
        (Sharing.SHARED, "mps", "mps"),
    ],
)
def test_the_predictor_is_asked_for_the_mode_in_which_jobs_share(sharing, shared_by, mode):
    predictor = Remembers()
    model = InterferenceRates(three_jobs(), node_table(cluster("1x1:V100")), predictor, shared_by=shared_by)
    model.rates((0,), (GPU._replace(sharing=sharing),), ((1,),))
    assert predictor.modes == {mode}


# -- scaling -----------------------------------------------------------------------------------------------------------

ONE, TWO, EIGHT = on((0, 0)), on((0, 0), (0, 1)), on(*((0, device) for device in range(8)))
SPREAD = on(*((number, 0) for number in range(8)))


def scaled(*jobs, nodes="8x8:V100"):
    return PredictedRates(table(*jobs), node_table(cluster(nodes)))


def test_scaling_is_as_predicted_and_not_linear():
    model = scaled(job("a", 100.0, 1, steps=1000.0, max_gpus=8))
    one, two, eight = model.rates((0, 0, 0), (ONE, TWO, EIGHT), ((), (), ()))
    assert one == 10.0
    assert 10.0 < two < 20.0
    assert two < eight < 80.0


def test_the_same_gpus_over_many_nodes_are_slower_than_on_one():
    model = scaled(job("a", 100.0, 8, steps=1000.0))
    together, spread = model.rates((0, 0), (EIGHT, SPREAD), ((), ()))
    assert together == 10.0
    assert spread < 0.95 * together


def test_what_is_declared_for_eight_gpus_holds_there_and_shrinks_less_than_linearly():
    model = scaled(job("a", 100.0, 8, steps=1000.0, min_gpus=1))
    eight, one = model.rates((0, 0), (EIGHT, ONE), ((), ()))
    assert (eight, one > 10.0 / 8) == (10.0, True)


def test_the_lower_end_of_a_scaled_rate_is_below_it():
    made = scaled(job("a", 100.0, 1, steps=1000.0, max_gpus=8)).rates((0, 0), (ONE, EIGHT), ((), ()))
    assert made.lows[0] == made[0]
    assert 0 < made.lows[1] < made[1]


def test_scaling_is_linear_where_the_step_time_is_not_known():
    made = scaled(job("a", 100.0, 1, max_gpus=8)).rates((0,), (EIGHT,), ((),))
    assert made == made.lows == [8.0]


def test_scaling_is_linear_and_nobody_can_tell_the_lower_end_where_the_predictor_fails():
    jobs, nodes = table(job("a", 100.0, 1, steps=1000.0, max_gpus=8)), node_table(cluster("1x8:V100"))
    model = InterferenceRates(jobs, nodes, Fixed(), scaling=PredictedScaling(jobs, nodes, Failing(), 0.9))
    made = model.rates((0,), (EIGHT,), ((),))
    assert (made, made.lows) == ([80.0], [0.0])


def test_a_simulation_can_run_by_predicted_rates():
    jobs = [job("a", 100.0, 8, steps=1000.0)]
    spread = cluster("8x1:V100")
    truth = Truth(rates=PredictedRates)
    assert finished(simulate(jobs, spread, truth=truth, beliefs=PredictedRates))["a"] == pytest.approx(100.0)
    uneven = cluster(*(node(f"n{number}", 4 if number else 8, "V100") for number in range(3)))
    busy = [job("first", 1000.0, 8), job("b", 100.0, 8, steps=1000.0)]
    ends = finished(simulate(busy, uneven, truth=truth, beliefs=PredictedRates))
    assert ends["b"] > 100.0, "eight GPUs on two nodes where eight on one were declared"
