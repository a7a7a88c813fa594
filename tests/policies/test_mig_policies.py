from __future__ import annotations

import math

import numpy as np
import pytest

from builders import cluster, engine_with, finished, job, node, on, run, started
from gpuwise.core.commands import Migrate, MigSlice, Repartition, Resume, Start, Suspend, Why
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import JobStarted, JobSubmitted, JobSuspended, NodeLost, WokeUp
from gpuwise.core.job.needs import Sharing
from gpuwise.core.rates import DeclaredRates
from gpuwise.core.units import GIB
from gpuwise.devices.mig import check_slices
from gpuwise.engine.drive import StalledError
from gpuwise.policies.registry import make_policy
from gpuwise.policies.slices.mig_gpus import MigGpus
from gpuwise.policies.slices.moves import resume_suspended
from gpuwise.service.offline.simulate import Truth, simulate
from gpuwise.sim.executor.failures import NodeFault

SHARES_WELL = (("A100/1g", 0.4), ("A100/2g", 0.6), ("A100/3g", 0.8), ("A100/4g", 0.9))
NO_GAIN = (("A100/1g", 1 / 7), ("A100/2g", 2 / 7), ("A100/3g", 3 / 7), ("A100/4g", 4 / 7))
NOWHERE = tuple((f"A100/{size}g", 0.0) for size in (1, 2, 3, 4, 7))
ONLY_MIG = frozenset((Sharing.MIG,))
COSTS = {"suspend_s": 5.0, "resume_s": 5.0, "migrate_s": 5.0}
CUT_S = Truth(repartition_s=10.0)


def small(name, duration_s=1000.0, at=0.0, **more):
    return job(name, duration_s, at=at, speeds=more.pop("speeds", SHARES_WELL), **COSTS, **more)


def commands(result, *kinds):
    return [record for record in result.engine.journal.records if isinstance(record, kinds)]


def names(result, kind):
    return [result.engine.state.jobs.ids[each.job] for each in commands(result, kind)]


def test_one_job_has_the_gpu_to_itself_and_nothing_is_cut():
    result = simulate([small("a")], "1x1:A100", "mig", truth=CUT_S)
    assert finished(result) == {"a": 1000}
    assert not commands(result, Repartition)


def test_a_gpu_is_cut_for_a_second_job_and_the_first_comes_back_to_its_slice():
    result = simulate([small("a"), small("b", at=100.0)], "1x1:A100", "mig", truth=CUT_S)
    first = commands(result, Suspend, Repartition, Start, Resume)[:5]
    assert [type(each).__name__ for each in first] == ["Start", "Suspend", "Repartition", "Start", "Resume"]
    assert {piece.profile for piece in first[2].slices} == {"4g.20gb", "3g.20gb"}
    assert names(result, Suspend)[0] == "a"
    # a saves until 105, the GPU is cut until 115; both end long before they would have one after the other
    assert all(end_s < 2000 for end_s in finished(result).values())
    for command in commands(result, Repartition):
        check_slices("A100", command.slices)


def test_the_time_of_a_cut_counts():
    jobs = [small("a"), small("b", at=100.0)]
    quick, slow = (simulate(jobs, "1x1:A100", "mig", truth=Truth(repartition_s=s)) for s in (0.0, 50.0))
    # b begins when a has saved (5 s) and the GPU is cut
    begun = [result.to_frame().filter(id="b")["finish_s"][0] for result in (quick, slow)]
    assert begun[1] > begun[0] + 40
    assert slow.engine.state.jobs.overhead_gpu_s[1] > quick.engine.state.jobs.overhead_gpu_s[1]


def test_nobody_is_interrupted_where_a_cut_is_believed_to_cost_more_than_it_gains():
    jobs = [small("a"), small("b", at=100.0)]
    result = simulate(jobs, "1x1:A100", "mig?repartition_s=100000")
    assert not commands(result, Suspend)
    assert finished(result) == {"a": 1000, "b": 2000}


def test_jobs_that_gain_nothing_from_slices_run_one_after_the_other():
    result = simulate([small("a", speeds=NO_GAIN), small("b", speeds=NO_GAIN)], "1x1:A100", "mig")
    assert finished(result) == {"a": 1000, "b": 2000}
    assert not commands(result, Repartition)


def test_a_job_about_to_end_is_not_disturbed():
    result = simulate([small("a"), small("b", at=990.0)], "1x1:A100", "mig", truth=CUT_S)
    assert finished(result) == {"a": 1000, "b": 2000}


def test_a_job_that_goes_on_and_on_does_not_keep_its_gpu_to_itself():
    jobs = [small("endless", 200.0), small("b", 1000.0, at=195.0)]

    def truth(table, nodes):
        return DeclaredRates(table, nodes, np.array([1e6, 1000.0]))

    result = run(jobs, "1x1:A100", "mig", truth=Truth(rates=truth, repartition_s=10.0))
    # it should have ended at 200; then it is taken to need 200 s again, and b gets a slice beside it
    assert started(result)["b"] < 300
    assert finished(result)["b"] < 2000


def test_the_last_on_a_gpu_gets_all_of_it_again():
    result = simulate([small("a", 20000.0), small("b", 500.0, at=100.0)], "1x1:A100", "mig", truth=CUT_S)
    # alone it would take 20,000 s, on a slice of 0.9 over 22,000 s
    assert finished(result)["a"] < 20500


def test_a_job_moves_to_a_gpu_that_comes_free():
    jobs = [small("a", 300.0), small("b", 5000.0, at=1.0), small("c", 5000.0, at=2.0)]
    result = simulate(jobs, "1x2:A100", "mig", truth=CUT_S)
    assert len(commands(result, Migrate)) == 1
    assert max(finished(result).values()) < 5700


def test_a_job_is_never_put_on_a_slice_where_it_would_stand_still():
    stuck = small("b", at=100.0, speeds=tuple((f"A100/{size}g", 0.0) for size in (1, 2, 3, 4)))
    result = simulate([small("a"), stuck], "1x1:A100", "mig", truth=CUT_S)
    assert finished(result) == {"a": 1000, "b": 2000}


def test_a_job_that_would_stand_still_everywhere_is_not_started_and_says_why():
    with pytest.raises(StalledError, match="no progress"):
        simulate([small("a", speeds=(*NOWHERE, ("A100", 0.0)))], "1x1:A100", "mig")


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("policy", ["mig", "share"])
def test_a_job_that_would_stand_still_everywhere_holds_nobody_up(policy, gpus):
    stuck = job("stuck", 100.0, gpus, speeds=(*NOWHERE, ("A100", 0.0)))
    engine = engine_with([stuck, job("next", 100.0, 2)], cluster("1x2:A100"), policy=make_policy(policy))
    assert list(engine.state.placed) == [1]
    assert engine.reason(0).code is Why.NO_SPEED


@pytest.mark.parametrize("policy", ["mig", "mig-static", "share"])
def test_a_job_that_may_share_but_not_be_alone_runs_where_gpus_have_no_slices(policy):
    jobs = [job(name, 100.0, sharing=frozenset((Sharing.SHARED, Sharing.MIG))) for name in "ab"]
    assert finished(run(jobs, "1x2:V100", policy)) == {"a": 100, "b": 100}


def test_those_who_come_back_take_no_more_cpus_than_there_are():
    spec = cluster(node("n0", 2, "A100", cpus=4), node("n1", 1, "A100", cpus=4))
    engine = engine_with([job("a", 100.0, cpus=3), job("b", 100.0, cpus=3)], spec)
    engine.policy.script.append(lambda draft: [draft.start(0, on((0, 0))), draft.start(1, on((1, 0)))])
    engine.step(0.0, [WokeUp(0.0)])
    engine.policy.script.append(lambda draft: [draft.suspend(0), draft.suspend(1)])
    engine.step(1.0, [JobStarted(1.0, 0), JobStarted(1.0, 1), WokeUp(1.0)])
    engine.step(2.0, [JobSuspended(2.0, 0, 1.0), JobSuspended(2.0, 1, 1.0), NodeLost(2.0, 1, ())])
    gpus = MigGpus(engine.view.draft())
    resume_suspended(gpus)
    assert gpus.draft.started() == [0]


def test_nobody_is_suspended_for_a_job_whose_cpus_are_not_there():
    jobs = [small("a", cpus=3), small("b", cpus=3, at=100.0)]
    result = simulate(jobs, cluster(node("n0", 1, "A100", cpus=4)), "mig", truth=CUT_S)
    assert finished(result) == {"a": 1000, "b": 2000}
    assert not commands(result, Suspend)


def test_a_job_that_never_ends_is_looked_at_once_when_it_should_have():
    jobs = [small("endless", 100.0, speeds=NO_GAIN), small("b", speeds=NO_GAIN)]
    engine = engine_with(jobs, cluster("1x1:A100"), policy=make_policy("mig"))
    engine.step(0.0, [JobStarted(0.0, 0)])
    assert engine.wake_at == 101
    engine.step(101.0, [WokeUp(101.0)])
    assert engine.wake_at is None


@pytest.mark.parametrize("kind", ["A100", "cpu-core"])
@pytest.mark.parametrize("policy", ["mig", "mig-static", "share"])
def test_slices_that_only_the_machine_knows_are_used_too(policy, kind):
    engine = engine_with([], cluster(f"1x1:{kind}"), policy=make_policy(policy))
    engine.order(0.0, [Repartition(0, 0, (MigSlice("1g.5gb+me", 2, 143, 4.75 * GIB),))])
    engine.state.jobs.declare([job("a", 100.0, sharing=ONLY_MIG), job("b", 100.0, sharing=ONLY_MIG)])
    engine.step(1.0, [JobSubmitted(1.0, 0), JobSubmitted(1.0, 1)])
    assert 0 in engine.state.placed
    assert kind == "A100" or str(engine.reason(1))


def test_slices_too_small_for_a_job_are_not_for_it():
    jobs = [small(name, gpu_memory_bytes=25 * GIB) for name in "ab"]
    result = simulate(jobs, "1x1:A100", "mig")
    assert finished(result) == {"a": 1000, "b": 2000}


class Broken:
    """Beliefs that fail, or give no number."""

    def __init__(self, answer):
        self._answer = answer

    def rates(self, jobs, placements, residents):
        if self._answer is None:
            raise RuntimeError("the predictor died")
        return [self._answer] * len(jobs)


@pytest.mark.parametrize("answer", [None, math.nan, -1.0], ids=["raises", "no number", "negative"])
@pytest.mark.parametrize("policy", ["mig", "share"])
def test_where_nothing_can_be_foreseen_jobs_run_alone_and_the_others_are_told(policy, answer):
    jobs = [job("a", 100), job("b", 100)]
    result = run(jobs, "1x1:A100", policy, beliefs=lambda *_: Broken(answer), truth=CUT_S)
    assert finished(result) == {"a": 100, "b": 200}
    assert not commands(result, Repartition)


def test_a_job_that_waits_since_nothing_can_be_foreseen_says_so():
    two, broken = [job("a", 100), job("b", 100)], Broken(None)
    engine = engine_with(two, cluster("1x1:A100"), policy=make_policy("mig"), beliefs=lambda *_: broken)
    assert "could not be predicted" in str(engine.reason(1))


def test_beliefs_that_fail_leave_a_static_cut_with_the_largest_slice():
    result = run([job("a", 100)], "1x1:A100", "mig-static?layout=4g+2g+1g", beliefs=lambda *_: Broken(None))
    (start,) = commands(result, Start)
    assert start.placement.milli == 571


@pytest.mark.parametrize("policy", ["mig", "mig-static", "share"])
def test_jobs_survive_the_loss_of_a_node_that_is_cut(policy):
    jobs = [small(f"j{i}", 300.0, at=10.0 * i) for i in range(12)]
    faults = [NodeFault(200.0, 0, 300.0), NodeFault(700.0, 1, 100.0)]
    result = simulate(jobs, "2x1:A100", policy, truth=CUT_S, faults=faults)
    assert len(finished(result)) == 12
    assert all(math.isfinite(end_s) for end_s in finished(result).values())


@pytest.mark.parametrize("policy", ["mig", "share"])
def test_a_gang_gets_whole_gpus_after_they_were_cut(policy):
    jobs = [small(f"j{i}", 500.0) for i in range(8)] + [job("gang", 100.0, 2, at=50.0)]
    result = simulate(jobs, "1x2:A100", policy, truth=CUT_S)
    assert commands(result, Repartition)
    assert math.isfinite(finished(result)["gang"])


@pytest.mark.parametrize("policy", ["mig", "mig-static", "share"])
def test_a_job_that_may_only_be_on_a_slice_gets_one(policy):
    result = simulate([small("a", sharing=ONLY_MIG)], "1x1:A100", policy, truth=CUT_S)
    (start,) = commands(result, Start)
    assert start.placement.sharing is Sharing.MIG
    assert finished(result)["a"] > 1000  # the cut takes time


@pytest.mark.parametrize(("policy", "spec"), [("fifo", "1x1:A100"), ("mig", "1x1:V100"), ("share", "1x1:V100")])
def test_a_job_that_may_only_be_on_a_slice_is_refused_where_there_are_none(policy, spec):
    with pytest.raises(GpuwiseError, match="does not have even when it is empty"):
        simulate([small("a", sharing=ONLY_MIG)], spec, policy)


@pytest.mark.parametrize("policy", ["mig", "mig-static", "share"])
def test_a_job_that_may_only_be_on_a_slice_is_refused_where_no_node_has_its_cpus(policy):
    with pytest.raises(GpuwiseError, match="8 CPUs"):
        simulate([job("a", 100.0, sharing=ONLY_MIG, cpus=8)], cluster(node("n0", 1, "A100", cpus=4)), policy)


def test_a_job_that_may_only_be_on_a_slice_runs_on_all_of_the_gpu_where_nothing_is_foreseen():
    result = run([job("a", 100, sharing=ONLY_MIG)], "1x1:A100", "mig", beliefs=lambda *_: Broken(None))
    (start,) = commands(result, Start)
    assert start.placement.milli == 1000


# -- cut once ----------------------------------------------------------------------------------------------------------


def test_a_static_cut_is_made_once_and_jobs_take_the_slice_where_they_are_fastest():
    jobs = [small(name) for name in "abc"]
    result = simulate(jobs, "1x1:A100", "mig-static?layout=4g.20gb+2g.10gb+1g.5gb&promote=no", truth=CUT_S)
    assert len(commands(result, Repartition)) == 1
    # 10 s for the cut, then 1000 s at 0.9, 0.6 and 0.4
    assert finished(result) == {
        "a": pytest.approx(10 + 1000 / 0.9), "b": pytest.approx(10 + 1000 / 0.6), "c": pytest.approx(10 + 1000 / 0.4),
    }  # fmt: skip


def test_jobs_on_a_static_cut_move_up_when_nobody_waits():
    jobs = [small("a", 100.0), small("b", 5000.0)]
    kept, moved = (simulate(jobs, "1x1:A100", f"mig-static?layout=4g+1g&promote={each}") for each in ("no", "yes"))
    assert not commands(kept, Migrate)
    assert len(commands(moved, Migrate)) == 1
    assert finished(moved)["b"] < finished(kept)["b"]


def test_gpu_types_that_cannot_be_cut_so_stay_whole():
    spec = cluster(node("a", 1, "A100"), node("b", 1, "V100"))
    result = run([job("x", 100), job("y", 100)], spec, "mig-static?layout=7g")
    assert sorted(started(result).values()) == [0, 0]


def test_jobs_that_fit_no_slice_of_a_static_cut_are_refused():
    with pytest.raises(GpuwiseError, match="does not have even when it is empty"):
        simulate([small("a", gpu_memory_bytes=6 * GIB)], "1x1:A100", "mig-static?layout=1g.5gb+1g.5gb")
    with pytest.raises(GpuwiseError, match="does not have even when it is empty"):
        simulate([job("gang", 100, 2)], "1x2:A100", "mig-static")


@pytest.mark.parametrize("text", ["mig-static?layout=5g", "mig-static?layout=4g+4g", "mig-static?layout="])
def test_a_layout_that_no_gpu_allows_is_refused(text):
    with pytest.raises(GpuwiseError, match="no GPU type supports"):
        make_policy(text)


@pytest.mark.parametrize("text", ["mig?repartition_s=-1", "mig?look_at=-1", "mig?repartition_s=nan"])
def test_parameters_out_of_range_are_refused(text):
    with pytest.raises(GpuwiseError, match="must be 0 or more"):
        make_policy(text)
