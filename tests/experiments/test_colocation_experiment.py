"""The co-location experiment at a reduced size: what must hold whatever the figures are."""

from __future__ import annotations

import numpy as np
import pytest

from builders import on
from gpuwise.core.cluster.nodes import node_table
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.table import JobTable
from gpuwise.experiments.colocation import experiment
from gpuwise.experiments.colocation.experiment import PACK, PROACTIVE, REACTIVE, SLOT, Figures, figures
from gpuwise.experiments.colocation.world import (
    GPU_BYTES,
    Errors,
    TrueRates,
    cluster,
    draw,
    even_growth,
    knee,
    measured_pairs,
    straight,
    workloads,
)

SEEDS = (0, 1)


@pytest.fixture(scope="module")
def got() -> dict[str, Figures]:
    return {policy: figures(policy, SEEDS) for policy in (SLOT, REACTIVE, PROACTIVE, PACK)}


def test_workloads_are_as_the_paper_says():
    known = workloads()
    utils = [each.gpu_util_frac for each in known]
    assert (min(utils), max(utils)) == (0.2, 0.9)
    assert max(each.memory_bytes for each in known) < GPU_BYTES
    assert {each.batch for each in known} == {16, 32, 64, 128, 256, 512}
    run = draw(3)
    assert len(run.jobs) == 100
    assert all(120 <= job.duration_s <= 7200 for job in run.jobs)


def test_a_run_is_drawn_again_the_same_and_errors_change_nothing_but_what_is_believed():
    exact, wrong = draw(1, errors=Errors(0.0, 0.0)), draw(1, errors=Errors(0.4, 0.4))
    assert draw(1, errors=Errors(0.4, 0.4)) == wrong
    assert (exact.utilization, exact.memory_bytes, exact.sensitivity) == (
        wrong.utilization, wrong.memory_bytes, wrong.sensitivity
    )  # fmt: skip
    assert [job.duration_s for job in exact.jobs] == [job.duration_s for job in wrong.jobs]
    assert all(job.gpu_util_frac == exact.utilization[job.id] for job in exact.jobs)
    off = np.log([job.gpu_util_frac / wrong.utilization[job.id] for job in wrong.jobs])
    assert 0.2 < np.std(off) < 0.5


@pytest.mark.parametrize("curve", [even_growth, knee, straight])
def test_slowdown_grows_from_a_tenth_to_twice(curve):
    assert curve(0.4) == pytest.approx(0.1)
    assert curve(1.8) == pytest.approx(2.0)
    loads = np.linspace(0.2, 2.7, 30)
    assert np.all(np.diff([curve(load) for load in loads]) >= 0)


def test_truth_knows_true_utilizations_and_belief_only_measured_pairs():
    run = draw(0)
    jobs = JobTable()
    jobs.declare(run.jobs)
    truth = TrueRates(jobs, node_table(cluster()), run)
    shared = on((0, 0), sharing=Sharing.SHARED, milli=333)
    alone, beside = truth.rates((0, 0), (shared, shared), ((), (1,)))
    load = run.utilization["j0"] + run.utilization["j1"]
    assert alone == 1.0
    assert beside == pytest.approx(1 / (1 + even_growth(load) * run.sensitivity[run.jobs[0].model]))
    fitted = measured_pairs(run, 0)
    assert len(fitted.traits_.models) == 23


def test_pack_ends_sooner_than_slot_and_proactive_and_jobs_wait_less(got):
    assert got[PACK].makespan_s < 0.8 * got[SLOT].makespan_s
    assert got[PACK].makespan_s < got[PROACTIVE].makespan_s < got[SLOT].makespan_s
    assert got[PACK].jct_s < 0.8 * got[SLOT].jct_s
    assert got[PACK].jct_s < got[PROACTIVE].jct_s


def test_sharing_uses_the_gpus_more_and_makes_jobs_run_longer(got):
    for policy in (REACTIVE, PROACTIVE, PACK):
        assert got[SLOT].util_pct < got[policy].util_pct <= 100.0
        assert got[SLOT].run_s < got[policy].run_s


def test_memory_that_is_believed_too_small_runs_jobs_out_of_it_and_all_still_end():
    wrong = figures(PACK, (0, 1, 2), errors=Errors(0.0, 0.4))
    assert wrong.out_of_memory > 0
    assert figures(PACK, (0, 1, 2), errors=Errors(0.0, 0.0)).out_of_memory == 0


def test_intervals_that_are_too_wide_keep_jobs_apart():
    shipped = figures(PACK, (0,), shipped=0.9)
    assert shipped.run_s == pytest.approx(figures(SLOT, (0,)).run_s, rel=0.02)


def test_rows_say_what_the_paper_has_and_what_it_has_not():
    rows = experiment.published((0,))
    assert {row.experiment for row in rows} == {"colocation"}
    assert [row.paper for row in rows if row.metric.endswith("GPU utilization")] == [43.1, 47.1, 69.6]
    assert all(row.note for row in rows)
    assert [row.met for row in rows if row.paper is None] == [None] * 3
