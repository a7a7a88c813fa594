"""What a minute alone on a GPU shows of a job's utilization."""

from __future__ import annotations

import json

import pytest

from builders import Timetable, cluster, engine_with, job, on
from gpuwise.core.commands import Start
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import JobRevised, JobStarted
from gpuwise.core.job.needs import Sharing
from gpuwise.engine.journal import replay
from gpuwise.service.offline.simulate import Truth, simulate

SHARED = on((0, 0), sharing=Sharing.SHARED, milli=400)


def revised(result):
    return [record for record in result.engine.journal.records if isinstance(record, JobRevised)]


def beside(draft):
    """Starts everybody who waits on the one GPU."""
    for row in draft.waiting():
        draft.start(row, SHARED)


def test_the_utilization_of_a_job_is_seen_after_a_minute_alone():
    truth = Truth(gpu_util_frac={"a": 0.7, "short": 0.4})
    result = simulate([job("a", 100.0), job("short", 59.0)], "1x2:V100", "fifo", truth=truth)
    assert [(each.at_s, each.job, each.gpu_util_frac) for each in revised(result)] == [(60.0, 0, 0.7)]
    assert result.engine.state.jobs.gpu_util_frac.item(0) == 0.7


def test_nothing_is_seen_where_nobody_looks():
    assert revised(simulate([job("a", 100.0)], "1x1:V100", "fifo")) == []


def test_a_job_that_is_not_left_alone_for_a_minute_shows_nothing_of_itself():
    jobs = [job("a", 500.0, gpu_util_frac=0.2), job("b", 500.0, at=30.0, gpu_util_frac=0.2)]
    truth = Truth(gpu_util_frac={"a": 0.3, "b": 0.3})
    assert revised(simulate(jobs, "1x1:V100", Timetable({0.0: beside, 30.0: beside}), truth=truth)) == []
    late = simulate(jobs, "1x1:V100", Timetable({0.0: beside, 60.0: beside}), truth=truth)
    assert [(each.at_s, each.job) for each in revised(late)] == [(60.0, 0)]


def test_neighbours_slow_each_other_by_what_they_truly_use_and_not_by_what_is_believed():
    jobs = [job(name, 100.0, gpu_util_frac=0.2) for name in "ab"]
    result = simulate(jobs, "1x1:V100", Timetable({0.0: beside}), truth=Truth(gpu_util_frac={"a": 0.9, "b": 0.6}))
    assert result.metrics.makespan_s == pytest.approx(150.0)


def test_a_truth_that_leaves_a_job_out_is_an_error():
    with pytest.raises(GpuwiseError, match="utilization of job 'a'"):
        simulate([job("a")], "1x1:V100", "fifo", truth=Truth(gpu_util_frac={}))


def test_a_revised_utilization_changes_what_is_believed_of_the_neighbours():
    engine = engine_with([job(name, 100.0, gpu_util_frac=0.5) for name in "ab"], cluster("1x1:V100"))
    engine.order(0.0, [Start(0, SHARED), Start(1, SHARED)])
    engine.step(0.0, [JobStarted(0.0, 0), JobStarted(0.0, 1)])
    assert engine.state.jobs.rate.item(1) == 1.0
    engine.step(10.0, [JobRevised(10.0, 0, gpu_util_frac=1.0)])
    assert engine.state.jobs.rate.item(1) == pytest.approx(1 / 1.5)
    assert engine.state.jobs.steps_done.item(1) == 10.0


def test_a_revised_utilization_is_replayed_from_the_journal_and_older_journals_are_still_read():
    result = simulate([job("a", 100.0)], "1x1:V100", "fifo", truth=Truth(gpu_util_frac={"a": 0.7}))
    lines = list(result.engine.journal.lines())
    assert replay(lines).jobs.gpu_util_frac.item(0) == 0.7

    def older(line):
        entry = json.loads(line)
        if entry.get("type") == "JobRevised":
            del entry["gpu_util_frac"]
        return json.dumps(entry)

    assert replay(map(older, lines)).jobs.finish_s.item(0) == 100.0
