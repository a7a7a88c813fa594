"""One rate: parts that compose, unknown and stalled as values, and the time that is left."""

from __future__ import annotations

import math

import pytest

from builders import cluster, engine_with, job, mig, node, on
from gpuwise.core.cluster.nodes import node_table
from gpuwise.core.events import JobProgressed, JobStarted, WokeUp
from gpuwise.core.job.needs import Forecast, Sharing, Source
from gpuwise.core.job.table import JobTable
from gpuwise.core.rates import (
    BoundedRates,
    ComposedRates,
    DeclaredRates,
    DeclaredSharing,
    LinearScaling,
    believed,
    progresses,
    time_left_s,
)
from gpuwise.engine.engine import Engine
from gpuwise.policies.fifo import EasyBackfill
from gpuwise.policies.registry import make_policy

HALF = on((0, 0), sharing=Sharing.TIME_SLICE, milli=500)


def rates_of(*jobs, nodes="2x4:V100", switch_s=0.0):
    table, there = JobTable(), node_table(cluster(nodes))
    table.declare(jobs)
    sharing = DeclaredSharing(table, there, switch_s=switch_s)
    return ComposedRates(table, there, LinearScaling(table), sharing, sure=True)


@pytest.mark.parametrize(
    ("left", "pace", "time_s"),
    [(10.0, 2.0, 5.0), (0.0, 2.0, 0.0), (-1.0, 2.0, 0.0), (10.0, 0.0, math.inf), (10.0, math.nan, math.inf),
     (0.0, 0.0, 0.0)],
)  # fmt: skip
def test_time_left_is_a_number_whatever_the_pace(left, pace, time_s):
    assert time_left_s(left, pace) == time_s


def test_a_job_of_which_nothing_is_known_is_not_taken_to_stand_still():
    assert [progresses(rate) for rate in (1.0, math.nan, 0.0)] == [True, True, False]


def test_the_parts_multiply():
    # 400 steps in 100 s on 2 GPUs: 4 a second; twice as fast here, on twice the GPUs, half of the time: 8 a second.
    nodes = node("n", 4, "A100", speed=2.0)
    table, there = JobTable(), node_table(cluster(nodes))
    table.declare([job("a", 100.0, 2, steps=400.0)])
    four = on((0, 0), (0, 1), (0, 2), (0, 3), sharing=Sharing.TIME_SLICE, milli=500)
    assert DeclaredRates(table, there).rates((0,), (four,), ((),)) == [8.0]


def test_turns_cost_what_switching_takes_of_them():
    # Half of the time, and 3 s of each turn of 30 s go to switching: 0.5 × 0.9.
    a = job("a", 100.0)
    assert rates_of(a, switch_s=3.0).rates((0,), (HALF._replace(quantum_s=30.0),), ((),)) == pytest.approx([0.45])
    assert rates_of(a, switch_s=3.0).rates((0,), (HALF,), ((),)) == [0.5]
    assert rates_of(a).rates((0,), (HALF._replace(quantum_s=30.0),), ((),)) == [0.5]
    assert rates_of(a, switch_s=60.0).rates((0,), (HALF._replace(quantum_s=30.0),), ((),)) == [0.0]


def test_declared_rates_are_their_own_lower_ends():
    told = rates_of(job("a", 100.0)).rates((0, 0), (on((0, 0)), HALF), ((), ()))
    assert told == told.lows == [1.0, 0.5]


class Odd:
    """A model that says what it is told to, or fails."""

    def __init__(self, answer):
        self.answer = answer

    def rates(self, jobs, placements, residents):
        if self.answer is None:
            raise RuntimeError("no such model")
        return self.answer


@pytest.mark.parametrize("answer", [None, [math.nan], [-1.0], [math.inf], ["fast"]])
def test_what_a_model_cannot_tell_is_unknown_and_no_exception(answer):
    told = believed(Odd(answer), (0,), (on((0, 0)),), ((),))
    assert all(math.isnan(rate) for rate in (*told, *told.lows))


def test_what_a_model_says_is_kept_with_its_lower_ends():
    told = believed(Odd(BoundedRates([2.0, 0.0], [1.0, 0.0])), (0, 1), (on((0, 0)),) * 2, ((), ()))
    assert (told, told.lows) == ([2.0, 0.0], [1.0, 0.0])


# -- what policies make of it ------------------------------------------------------------------------------------------


def test_backfill_survives_jobs_that_make_no_progress():
    """The live default divided by a rate of 0."""
    jobs = [
        job("stalled", 10.0, 1, speeds=(("V100", 0.0),)), job("head", 10.0, 3, at=1.0),
        job("stalled too", 10.0, 1, at=2.0, speeds=(("V100", 0.0),)), job("short", 5.0, 1, at=3.0),
    ]  # fmt: skip
    engine = engine_with(jobs, cluster("1x3:V100"), policy=EasyBackfill())
    assert set(engine.state.placed) == {0, 2, 3}, "nobody leaves, so the first in line has no reservation to keep"
    assert engine.reason(1) is not None


@pytest.mark.parametrize("policy", ["fifo", "fifo-backfill", "sjf", "srtf", "srsf", "las", "edf", "tetris", "drf"])
def test_no_policy_dies_of_a_job_that_stands_still(policy):
    jobs = [job("stalled", 10.0, 1, speeds=(("V100", 0.0),)), job("a", 10.0, 2), job("b", 10.0, 1)]
    engine = engine_with(jobs, cluster("1x2:V100"), policy=make_policy(policy))
    started = [JobStarted(1.0, row) for row in list(engine.state.placed)]
    engine.step(1.0, started)
    engine.step(2.0, [WokeUp(2.0)])


def test_time_left_on_a_placement_where_a_job_stands_still_is_endless():
    engine = engine_with([job("stalled", 10.0, 2, speeds=(("V100", 0.0),))], cluster("1x2:V100"))
    assert engine.view.time_left_s(0, on((0, 0), (0, 1))) == math.inf
    assert engine.view.time_left_s(0) == 10.0


def running(engine: Engine) -> Engine:
    engine.policy.script = [lambda draft: [draft.start(row) for row in range(len(engine.state.jobs))]]
    engine.step(0.0, [WokeUp(0.0)])
    engine.step(0.0, [JobStarted(0.0, row) for row in engine.state.placed])
    return engine


def test_a_view_has_the_observed_rate_beside_the_forecast_one():
    engine = running(engine_with([job("a", 100.0, steps=400.0)], cluster("1x2:V100")))
    assert engine.view.forecast_rate(0) == 4.0
    assert math.isnan(engine.view.observed_rate(0))
    engine.step(10.0, [JobProgressed(10.0, 0, 20.0)])
    assert math.isnan(engine.view.observed_rate(0)), "one report is not a rate"
    engine.step(20.0, [JobProgressed(20.0, 0, 50.0)])
    assert engine.view.observed_rate(0) == 3.0


def test_a_policy_sees_forecasts_with_their_ends_and_source():
    spec = job("a", 100.0, duration_low_s=90.0, duration_high_s=120.0, duration_source=Source.PREDICTED)
    view = engine_with([spec], cluster("1x2:V100")).view
    assert view.jobs.duration(0) == Forecast(100.0, 90.0, 120.0, Source.PREDICTED)


def test_a_view_knows_residents_and_neighbours():
    shared = [job(name, gpu_frac=0.5, sharing=frozenset((Sharing.SHARED,))) for name in "ab"]
    engine = running(engine_with([*shared, job("c")], cluster("1x2:A100")))
    view = engine.view
    assert (view.residents(0, 0), view.residents(0, 1)) == ((0, 1), (2,))
    assert (view.neighbours(0), view.neighbours(1), view.neighbours(2)) == ((1,), (0,), ())
    assert view.neighbours(2, on((0, 0), sharing=Sharing.SHARED, milli=100)) == (0, 1)
    assert view.neighbours(2, mig(0, 0, 0)) == ()


@pytest.mark.parametrize("answer", [[], [None], ["fast"], [math.nan], [-1.0]])
def test_a_belief_that_makes_no_sense_is_as_declared(answer: list[object]):
    class Odd(DeclaredRates):
        def rates(self, jobs, placements, residents):
            return answer

    engine = running(engine_with([job("a", 100.0, steps=400.0)], cluster("1x2:V100"), beliefs=Odd))
    assert engine.state.jobs.rate.item(0) == 4.0
