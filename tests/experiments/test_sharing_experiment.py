"""MISO's and ITU's experiments at reduced size: what must hold whatever the exact figures are."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwise.core.job.needs import Sharing
from gpuwise.experiments.sharing import itu
from gpuwise.experiments.sharing.itu import LARGE, MEDIUM, SMALL
from gpuwise.experiments.sharing.miso import MisoJobs, jct_s, static_jct_s


@pytest.fixture(scope="module")
def trace(data_dir: Path) -> MisoJobs:
    return MisoJobs(data_dir)


def test_jobs_do_not_fit_slices_that_they_were_not_measured_on(trace: MisoJobs) -> None:
    speeds = dict(trace.measured["gnn", 512])
    assert speeds["A100/1g"] == 0
    assert speeds["A100/2g"] == pytest.approx(0.05134 / 0.12451)  # mean seconds on 7 slices and on 2
    assert [kind for kind, slices in trace.predicted.items() if dict(slices)["A100/1g"] == 0] == [
        kind for kind, slices in trace.measured.items() if dict(slices)["A100/1g"] == 0
    ]


def test_forecasts_are_of_models_that_were_left_out_and_not_far_off(trace: MisoJobs) -> None:
    assert trace.predicted != trace.measured
    assert trace.error() < 0.15


def test_draws_have_all_jobs_once_and_unmeasured_ones_are_replaced_or_left_out(trace: MisoJobs) -> None:
    drawn, measured_only = (trace.drawn(0, trace.measured, redraw) for redraw in (True, False))
    assert sorted(int(job.id) for job in drawn) == list(range(100))
    assert len(measured_only) == 100 - trace.unmeasured
    assert {job.id: job.duration_s for job in drawn} == {str(i): run_s for i, (_, run_s) in enumerate(trace.trace)}
    assert drawn == trace.drawn(0, trace.measured)
    assert drawn != trace.drawn(1, trace.measured)


def test_cut_as_jobs_come_and_go_beats_exclusive_and_every_static_partition(trace: MisoJobs) -> None:
    drawn, predicted = ([trace.drawn(seed, speeds) for seed in (0, 1)] for speeds in (trace.measured, trace.predicted))
    known, believed = jct_s(drawn, "mig"), jct_s(predicted, "mig", drawn)
    static = [static_jct_s(drawn, layout) for layout in ("3g+3g", "4g+3g", "3g+2g+2g", "4g+2g+1g")]
    assert known < min(static)
    assert believed < min(static)
    assert believed < 0.51 * jct_s(drawn, "fifo")
    assert believed == pytest.approx(known, rel=0.05)


def test_a_partition_that_cannot_hold_every_job_is_no_static_partition(trace: MisoJobs) -> None:
    assert static_jct_s([trace.drawn(0, trace.measured)], "1g+1g+1g+1g+1g+1g+1g") == float("inf")


def test_the_authors_statement_is_what_is_true_in_their_experiment() -> None:
    for job in (SMALL, MEDIUM, LARGE):
        assert job.count * job.true[job.slice] == pytest.approx(job.gain)
        assert job.true["7g.40gb"] == pytest.approx(1.0)


def test_small_jobs_gain_much_from_seven_slices_and_are_predicted_to() -> None:
    predicted = {row.metric: row for row in itu.rows([SMALL])}
    assert predicted["small, 7 × 1g.5gb: throughput against one on the whole GPU, predicted"].ours > 2
    assert predicted["small: smallest slice it fits on"].ours == 5
    assert predicted["small, 28 jobs under share: makespan, one after the other against it"].ours > 2.5
    assert predicted["small, 28 jobs under mig: makespan, one after the other against it"].ours > 2.5
    assert {Sharing.EXCLUSIVE, Sharing.MIG} == SMALL.jobs(1, SMALL.believed)[0].sharing
