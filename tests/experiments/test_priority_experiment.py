"""GPU priority assignment: the paper's table, sums that can be checked by hand, and the policies against both."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from gpuwise.experiments.priority import by_hand, experiment, mlperf
from gpuwise.experiments.priority.by_hand import ByCount, balanced_reduced_percent, by_ratio, by_seconds
from gpuwise.experiments.priority.mlperf import BENCHMARKS, EIGHT, NINE, PUBLISHED, seconds
from gpuwise.policies.gpu_types.prices import least_makespan_s


def test_the_nine_jobs_have_the_published_ratios():
    printed = {"IC": 0.66, "SSD": 0.98, "OD": 0.81, "RM": 1.01, "SA": 0.76, "RT": 0.68, "TL": 0.67, "SR": 0.72}
    for name, ratio in {**printed, "RF": 0.93}.items():
        # IC's 0.6636 and SA's 0.7653, RT's 0.6856 and RF's 0.9386 are cut off in the paper, others rounded.
        assert 1 / BENCHMARKS[name].gain == pytest.approx(ratio, abs=0.01)


def test_the_published_table_agrees_with_itself_once_two_digits_are_swapped():
    by_metric = {row.metric: row for row in by_hand.published()}
    assert all(row.met is not False for row in by_metric.values())
    assert by_metric["10000 jobs: even assignment"].ours == pytest.approx(4059.5417, abs=1e-4)
    printed = seconds("4509:32:33")
    assert 100 * (1 - seconds(PUBLISHED[10_000][0]) / printed) == pytest.approx(17.4, abs=0.05)


@pytest.mark.parametrize("names", [EIGHT, NINE[:6]])
def test_halves_by_seconds_saved_take_the_least_time_of_all_halves(names):
    kinds = [BENCHMARKS[name] for name in names]
    even = sum(kind.p100_s + kind.v100_s for kind in kinds) / 2
    best = min(
        sum(kind.v100_s if number in chosen else kind.p100_s for number, kind in enumerate(kinds))
        for chosen in combinations(range(len(kinds)), len(kinds) // 2)
    )
    ours = ByCount(names, np.ones(len(names))).total_reduced_percent()
    assert ours == pytest.approx(100 * (1 - best / even))


def test_the_published_reduction_lies_between_equal_parts_without_and_with_speech_recognition():
    eight, nine = (ByCount(names, np.ones(len(names))).total_reduced_percent()[0] for names in (EIGHT, NINE))
    assert eight == pytest.approx(7.903, abs=0.001)
    assert nine == pytest.approx(9.984, abs=0.001)
    assert eight < 8.241 < nine


def test_ratios_cost_total_time_against_seconds():
    equal = np.ones(len(NINE))
    by = {order: ByCount(NINE, equal, order).total_reduced_percent()[0] for order in (by_seconds, by_ratio)}
    assert by[by_ratio] < by[by_seconds]


def test_mixes_of_one_benchmark_leave_nothing_to_choose():
    mixes = np.eye(len(NINE))
    assert ByCount(NINE, mixes).total_reduced_percent() == pytest.approx(np.zeros(len(NINE)), abs=1e-9)


def test_the_published_figure_is_placed_among_random_mixes():
    rows = by_hand.random_mixes(draws=2000)
    percentiles = {row.metric: row.ours for row in rows}
    assert len(rows) == 8
    assert all(0 <= each <= 100 for each in percentiles.values())
    likely = [each for metric, each in percentiles.items() if "each mix as likely" in metric]
    assert all(10 < each < 90 for each in likely)


@pytest.mark.parametrize("names", [EIGHT, NINE])
def test_the_policy_shares_a_gpu_for_each_job_as_well_as_it_can_be_shared(names):
    count = 48 * len(names)
    jobs = mlperf.jobs(mlperf.in_blocks(names, count))
    where = f"{count // 8}x4:P100+{count // 8}x4:V100"
    even, ours = (experiment.run(jobs, where, policy).total_s for policy in ("even", "gain"))
    assert 100 * (1 - ours / even) == pytest.approx(ByCount(names, np.ones(len(names))).total_reduced_percent()[0])


@pytest.mark.parametrize("names", [EIGHT, NINE])
def test_the_policies_on_a_queue_come_to_what_is_worked_out_by_hand(names):
    jobs = mlperf.jobs(mlperf.shuffled(names, 1440))
    even, ours = (experiment.run(jobs, experiment.QUEUE, policy) for policy in ("even", "gain"))
    times = tuple((BENCHMARKS[name].p100_s, BENCHMARKS[name].v100_s) for name in names)
    bound_s = least_makespan_s(times, (1440 / len(names),) * len(names), (10.0, 10.0))
    # The GPUs are all busy until the last jobs run out; what is beyond the bound is that tail.
    assert bound_s <= ours.makespan_s < 1.04 * bound_s
    assert ours.total_s == pytest.approx(20 * bound_s, rel=0.01)
    assert 100 * (1 - ours.total_s / even.total_s) == pytest.approx(balanced_reduced_percent(names), abs=0.5)


def test_what_is_believed_decides_and_what_is_true_counts():
    jobs = mlperf.jobs(mlperf.shuffled(EIGHT, 400))
    even = experiment.run(jobs, experiment.QUEUE, "even").total_s
    upside_down = mlperf.believing({name: 1 / kind.gain for name, kind in BENCHMARKS.items()})
    right = mlperf.believing({name: kind.gain for name, kind in BENCHMARKS.items()})
    assert experiment.run(jobs, experiment.QUEUE, "gain", beliefs=upside_down).total_s > 1.05 * even
    assert experiment.run(jobs, experiment.QUEUE, "gain", beliefs=right).total_s < 0.95 * even
    assert experiment.run(jobs, experiment.QUEUE, "gain").total_s < 0.95 * even


def test_a_bound_on_passes_is_kept_and_costs_less_than_half_of_what_is_saved():
    rows = experiment.fairness(count=600, bounds=(20,))
    assert [row.metric.split(", ")[2].split(":")[0] for row in rows] == ["gain", "gain-fair?passes=20"] * 2
    for free, fair in (rows[:2], rows[2:]):
        assert int(free.note.split()[2]) > 300
        assert int(fair.note.split()[2]) <= 40
        assert fair.ours > free.ours / 2


def test_utilization_alone_saves_time_but_less_than_speeds_do(monkeypatch):
    monkeypatch.setattr(experiment, "find_spec", lambda name: None)
    experiment.sources_of_gains.cache_clear()
    by_metric = {row.metric: row.ours for row in experiment.signals(count=600)}
    experiment.sources_of_gains.cache_clear()
    assert len(by_metric) == 12
    for metric, ours in by_metric.items():
        if "total time" in metric and "utilization" in metric:
            assert 0 < ours <= by_metric[metric.replace("by utilization alone", "measured")] + 1e-9


def test_gangs_on_three_types_end_near_the_bound():
    total, makespan, above = (row.ours for row in experiment.three_types(count=1000))
    assert total > 5
    assert makespan > 5
    assert 0 < above < 6


def test_networks_that_only_look_things_up_are_predicted_to_gain_least():
    pytest.importorskip("torch")
    from gpuwise.experiments.priority import networks as models
    from gpuwise.predict import registry
    from gpuwise.predict.time.step_time import step_columns

    predictor = registry.load("step_time").predictor

    def gain(build, batch):
        p100_s, v100_s = predictor.estimate(step_columns(models._traced(build, batch), ["P100", "V100"])).value
        return p100_s / v100_s

    filter, classifier = gain(models._collaborative_filter, 2048), gain(models._sentence_classifier, 100)
    assert 1 < filter < classifier < 2
