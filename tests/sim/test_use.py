"""How much of the GPUs is in use, whichever way jobs hold them."""

from __future__ import annotations

from typing import Any

import pytest

from builders import HALVES, Timetable, job, mig, run
from gpuwise.sim.results.course import courses, time_edges


@pytest.mark.parametrize("policy", ["fifo", "gain", "reactive", "proactive", "pack", "share", "mig"])
def test_a_job_that_is_alone_uses_as_much_under_every_policy(policy: str) -> None:
    result = run([job("a", 100, gpu_util_frac=0.5)], "1x4:V100", policy)
    assert result.metrics.gpu_util_frac == pytest.approx(0.5 / 4)


@pytest.mark.parametrize("policy", ["fifo", "reactive", "proactive", "pack"])
def test_a_whole_gpu_is_assumed_where_utilization_is_not_known(policy: str) -> None:
    assert run([job("a", 100)], "1x4:V100", policy).metrics.gpu_util_frac == pytest.approx(1 / 4)


def test_jobs_that_share_a_gpu_add_up_to_all_of_it_at_most() -> None:
    jobs = [job("a", 100, gpu_frac=0.5, gpu_util_frac=0.8), job("b", 32, gpu_frac=0.5, gpu_util_frac=0.8, at=10)]
    result = run(jobs, "1x1:V100")
    # a alone for 10 s, both for 51.2 s at full use, a alone for 58 s.
    assert result.metrics.gpu_util_frac == pytest.approx((10 * 0.8 + 51.2 + 58 * 0.8) / 119.2)
    assert result.timeline()["gpus_used"].to_list() == pytest.approx([0.8, 1.0, 0.8, 0.0])


@pytest.mark.parametrize("policy", ["pack", "proactive", "share"])
def test_the_report_shows_the_same_use_as_the_table(policy: str) -> None:
    jobs = [job(f"j{n}", 100 + 30 * n, gpu_util_frac=0.2 + 0.1 * (n % 5), at=7.0 * n) for n in range(20)]
    result = run(jobs, "1x2:V100", policy)
    (course,) = courses([result])
    assert course.used_frac(time_edges([course], 7)).mean() == pytest.approx(result.metrics.gpu_util_frac)
    work = sum(each.duration_s * each.gpu_util_frac for each in jobs)
    assert result.metrics.gpu_util_frac * 2 * result.metrics.makespan_s == pytest.approx(work)


@pytest.mark.parametrize(("speeds", "used"), [((("A100/3g", 0.9),), 0.9 * 0.3), ((), 0.3 / (0.7 + 0.3 / 0.429))])
def test_a_job_on_a_slice_uses_less_by_as_much_as_it_is_slower_there(speeds: Any, used: float) -> None:
    def cut_and_start(draft: Any) -> None:
        draft.cut(0, 0, HALVES)
        draft.start(0, mig(0, 0, 4))

    result = run([job("a", 60, gpu_util_frac=0.3, speeds=speeds)], "1x1:A100", Timetable({0.0: cut_and_start}))
    assert result.metrics.gpu_util_frac == pytest.approx(used)
