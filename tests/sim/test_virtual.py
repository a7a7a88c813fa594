"""The virtual executor: faults, neighbours, costs and simultaneous events, with the arithmetic beside each."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Timetable, cluster, finished, job, node, on, run, started, stays
from gpuwise.core.assignments import Assignment, Intent, NodeRequest
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Placement
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.steps import DraftError
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import CAPACITY_CHANGES, DeviceLost, JobSubmitted, NodeAdded, NodeLost, NodeRemoved, WokeUp
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.observations import AttemptObserved, Phase
from gpuwise.core.rates import DeclaredRates
from gpuwise.engine.drive import StalledError, drive
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import Journal
from gpuwise.policies.placing.placement import first_fit
from gpuwise.policies.registry import make_policy
from gpuwise.service.offline.simulate import Truth
from gpuwise.sim.executor.attempts import ticked
from gpuwise.sim.executor.failures import NodeFault
from gpuwise.sim.executor.virtual import VirtualExecutor
from gpuwise.sim.results.history import offered


def executor_of(jobs: list[JobSpec], spec: ClusterSpec, **more: Any) -> VirtualExecutor:
    """An executor on its own, with nobody to tell it what to do."""
    state = ClusterState(spec)
    state.jobs.declare(jobs)
    return VirtualExecutor(state.jobs, state.nodes, state.beliefs, **more)


def to_run(uid: str, placement: Placement, attempt: int = 1) -> Assignment:
    return Assignment(uid, attempt, Intent.RUN, placement=placement)


def seen(at_s: float, uid: str, phase: Phase = Phase.RUNNING, attempt: int = 1, **more: Any) -> AttemptObserved:
    return AttemptObserved(at_s, uid, attempt, phase, **more)


def timed(
    jobs: list[JobSpec], spec: str | ClusterSpec, actions: dict[float, Callable[[Draft], object]], **more: Any
) -> Any:
    """A run in which a test says what is done when."""
    return run(jobs, spec, Timetable(actions), **more)


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_lost_node_costs_all_work_that_was_not_saved():
    result = run([job("a", 100)], "1x1:V100", faults=[NodeFault(30, 0, 20)])
    # 30 s of work are lost; from 50 on it takes 100 s again.
    assert stays(result) == [("a", "n0", 0, 30), ("a", "n0", 50, 150)]


def test_work_up_to_the_last_suspension_is_kept():
    jobs = [job("a", 100), job("b", 10, at=20)]
    result = run(jobs, "1x1:V100", "srtf", faults=[NodeFault(50, 0, 10)])
    # a saves 20 steps when b takes over at 20; it is back at 30 and at 40 steps when the node goes at 50. The 20 since
    # 30 are lost, and from 60 on 100 - 20 = 80 are left.
    assert stays(result) == [("a", "n0", 0, 20), ("b", "n0", 20, 30), ("a", "n0", 30, 50), ("a", "n0", 60, 140)]


def test_a_job_goes_on_elsewhere_and_a_node_that_is_lost_for_good_stays_away():
    jobs = [job("a", 100), job("b", 10, at=50)]
    result = run(jobs, "2x1:V100", placement="first-fit", faults=[NodeFault(30, 0)])
    # a begins anew on n1 at 30 and ends at 130; b finds no other node and waits for it.
    assert stays(result) == [("a", "n0", 0, 30), ("a", "n1", 30, 130), ("b", "n1", 130, 140)]


def test_a_gang_is_lost_with_any_of_its_nodes():
    result = run([job("a", 100, 2)], "2x1:V100", faults=[NodeFault(10, 1, 5)])
    assert finished(result) == {"a": 115}


def test_a_job_that_is_loading_when_its_node_is_lost_loses_no_more_than_it_had():
    jobs = [job("a", 100, resume_s=10), job("b", 10, at=20)]
    result = run(jobs, "1x1:V100", "srtf", faults=[NodeFault(35, 0, 5)])
    # a saved 20 steps at 20, is back at 30 and loads until 40; at 35 the node goes. At 40 it loads again,
    # until 50, and begins with 80 left.
    assert finished(result)["a"] == 50 + 80


def test_a_job_that_is_saving_when_its_node_is_lost_keeps_nothing_and_is_not_started_twice():
    jobs = [job("a", 100, suspend_s=10), job("b", 10, at=20)]
    result = run(jobs, "1x1:V100", "srtf", faults=[NodeFault(25, 0, 10)])
    # a leaves at 20 and would have saved at 30; at 25 the node goes, and with it the save. b, that waited for it, is
    # thrown off too; it is back at 35, for 10 s. Then a, from the beginning.
    assert finished(result) == {"b": 45, "a": 45 + 100}
    assert result.engine.state.jobs.placements[:2].tolist() == [2, 2]


def test_faults_that_overlap_keep_the_node_down_to_the_end_of_the_last():
    faults = [NodeFault(10, 0, 20), NodeFault(20, 0, 30)]
    # Down from 10 to 30 and from 20 to 50: back at 50.
    assert finished(run([job("a", 100)], "1x1:V100", faults=faults)) == {"a": 150}


def test_the_executor_says_what_runs_where_and_what_is_down():
    executor = executor_of([job("a", 100), job("b", 100)], cluster("2x1:V100"), faults=[NodeFault(5, 0)])
    executor.observe(None)
    executor.follow([to_run("a", on((0, 0))), to_run("b", on((1, 0)))])
    assert executor.placed() == {0: on((0, 0)), 1: on((1, 0))}
    assert executor.observe(None) == (0.0, [seen(0.0, "a"), seen(0.0, "b")])
    assert executor.observe(None) == (5.0, [NodeLost(5.0, "n0")])
    assert executor.placed() == {1: on((1, 0))}
    assert executor.lost_steps == 5


@pytest.mark.parametrize("event", [NodeLost(50.0, "n0"), NodeRemoved(50.0, "n0"), DeviceLost(50.0, "n0", "n0/0")])
def test_whatever_takes_a_jobs_place_costs_what_it_has_not_saved(event: Any):
    engine = Engine(cluster("2x1:V100"), make_policy("fifo"), placer=first_fit)
    engine.state.jobs.declare([job("a", 100)])
    executor = VirtualExecutor(engine.state.jobs, engine.state.nodes, engine.state.beliefs)
    executor.expect([event])
    drive(engine, executor)
    assert (engine.state.jobs.finish_s.item(0), executor.lost_steps) == (150.0, 50.0)


# -- neighbours --------------------------------------------------------------------------------------------------------


def test_neighbours_that_share_a_gpu_slow_each_other_down_while_both_are_there():
    jobs = [job("a", 100, gpu_frac=0.5, gpu_util_frac=0.8), job("b", 32, gpu_frac=0.5, gpu_util_frac=0.8, at=10)]
    result = run(jobs, "1x1:V100")
    # Alone a makes 10 steps by 10. Together they ask for 0.8 + 0.8 = 1.6 GPUs: 1 / 1.6 = 0.625 steps a second each.
    # b takes 32 / 0.625 = 51.2 s, to 61.2. a has made 10 + 32 = 42 steps by then and ends 58 s later.
    assert finished(result) == {"a": pytest.approx(119.2), "b": pytest.approx(61.2)}


def test_neighbours_that_leave_each_other_room_do_not_slow_down():
    jobs = [job("a", 100, gpu_frac=0.5, gpu_util_frac=0.4), job("b", 32, gpu_frac=0.5, gpu_util_frac=0.6, at=10)]
    assert finished(run(jobs, "1x1:V100")) == {"a": 100, "b": 42}


def test_a_third_neighbour_retimes_the_other_two():
    jobs = [job(name, 60, gpu_frac=0.3, gpu_util_frac=0.6, at=at) for name, at in (("a", 0), ("b", 0), ("c", 12))]
    result = run(jobs, "1x1:V100")
    # Two: 1.2 GPUs' worth of work, 1 / 1.2 steps a second; a and b have made 10 steps by 12. Three: 1.8, so 1 / 1.8.
    # a and b need 50 × 1.8 = 90 s more, to 102; c has made 50 by then, is alone, and ends at 112.
    assert finished(result) == {"a": pytest.approx(102), "b": pytest.approx(102), "c": pytest.approx(112)}


def test_a_neighbour_that_is_still_loading_keeps_its_start():
    jobs = [
        job("a", 100, gpu_frac=0.4, gpu_util_frac=0.3, suspend_s=0, resume_s=20),
        job("b", 10, gpu_frac=0.4, gpu_util_frac=0.3, at=45),
    ]
    actions = {
        0.0: lambda draft: draft.start(0),
        30.0: lambda draft: draft.suspend(0),
        40.0: lambda draft: draft.start(0),
        45.0: lambda draft: draft.start(1),
    }
    result = timed(jobs, "1x1:V100", actions)
    # a has 70 s left at 30, is back at 40, loads until 60, whoever joins it meanwhile, and ends at 130.
    assert finished(result) == {"a": 130, "b": 55}


def test_a_job_with_a_smaller_slice_of_time_than_it_asked_for_is_slower():
    a = job("a", 10, gpu_frac=0.5, sharing=frozenset((Sharing.TIME_SLICE,)))
    quarter = on((0, 0), sharing=Sharing.TIME_SLICE, milli=250)
    # Half of what it asked for: 10 s take 20.
    assert finished(timed([a], "1x1:V100", {0.0: lambda draft: draft.start(0, quarter)})) == {"a": 20}


def test_jobs_in_time_slices_have_their_own_share_of_the_time():
    slices = frozenset((Sharing.TIME_SLICE,))
    jobs = [job("a", 10, gpu_frac=0.5, sharing=slices), job("b", 30, gpu_frac=0.5, sharing=slices)]
    assert finished(run(jobs, "1x1:V100")) == {"a": 10, "b": 30}


def test_a_faster_gpu_type_and_a_gang_of_mixed_speed():
    spec = cluster(node("slow", 1, "T4"), node("fast", 1, "A100", speed=4.0))
    jobs = [job("a", 40, gpu_types=("A100",)), job("b", 40, max_gpus=2, at=50)]
    actions = {0.0: lambda draft: draft.start(0), 50.0: lambda draft: draft.start(1, on((0, 0), (1, 0)))}
    # a at four times the speed: 40 / 4. b on two GPUs, each no faster than the slower: 40 / 2 from 50 on.
    assert finished(timed(jobs, spec, actions)) == {"a": 10, "b": 70}


# -- costs -------------------------------------------------------------------------------------------------------------


def test_a_migration_costs_its_time_and_no_work():
    actions = {0.0: lambda draft: draft.start(0, on((0, 0))), 20.0: lambda draft: draft.move(0, on((1, 0)))}
    result = timed([job("a", 100, migrate_s=5)], "2x1:V100", actions)
    # 80 s are left at 20; it moves until 25.
    assert stays(result) == [("a", "n0", 0, 20), ("a", "n1", 20, 105)]
    assert result.metrics.migrations == 1


def test_a_resize_costs_its_time_and_changes_the_speed():
    four = on((0, 0), (0, 1), (0, 2), (0, 3))
    actions = {0.0: lambda draft: draft.start(0), 30.0: lambda draft: draft.move(0, four)}
    result = timed([job("a", 100, 2, min_gpus=1, max_gpus=4, resize_s=4)], "1x4:V100", actions)
    # 70 s are left at 30 on two GPUs; on four it makes two steps a second from 34 on: 34 + 70 / 2 = 69.
    assert finished(result) == {"a": 69}
    # 2 GPUs for 30 s, 4 for 39.
    assert result.to_frame()["gpu_s"].to_list() == [2 * 30 + 4 * 39]


def test_jobs_that_change_places_pay_each_its_own_cost():
    jobs = [job("a", 100, migrate_s=2), job("b", 100, migrate_s=7)]
    actions = {
        0.0: lambda draft: [draft.start(0, on((0, 0))), draft.start(1, on((1, 0)))],
        10.0: lambda draft: draft.rearrange({0: on((1, 0)), 1: on((0, 0))}),
    }
    # 90 s are left of each at 10: from 12 and from 17 on.
    assert finished(timed(jobs, "2x1:V100", actions)) == {"a": 102, "b": 107}


def test_a_job_waits_for_the_one_it_drives_out_to_save():
    executor = executor_of([job("a", 100, suspend_s=4), job("b", 10, resume_s=0)], cluster("1x1:V100"))
    executor.observe(None)
    executor.follow([to_run("a", on((0, 0)))])
    executor.observe(None)
    executor.observe(10.0)
    executor.follow([Assignment("a", 1, Intent.SUSPEND), to_run("b", on((0, 0)))])
    left = seen(14.0, "a", Phase.SUSPENDED, step=10.0, steps=100.0)
    assert executor.observe(None) == (14.0, [left, seen(14.0, "b")])
    assert executor.observe(None) == (24.0, [seen(24.0, "b", Phase.SUCCEEDED)])


def test_a_job_waits_for_one_that_is_still_saving_even_if_that_was_decided_earlier():
    jobs = [job("a", 100, 2, suspend_s=10), job("b", 5, at=20), job("c", 5, at=24)]
    result = run(jobs, "1x2:V100", "srtf")
    # a leaves its two GPUs at 20 and saves until 30. b gets one of them at 20 and c the other at 24, but neither makes
    # a step before 30: both end at 35. a goes on with 80 s left.
    assert finished(result) == {"b": 35, "c": 35, "a": 115}


def test_loading_comes_after_the_saving_of_others():
    executor = executor_of([job("a", 100, suspend_s=4), job("b", 10, resume_s=3)], cluster("1x2:V100"))
    executor.observe(None)
    executor.follow([to_run("a", on((0, 0))), to_run("b", on((0, 1)))])
    executor.observe(None)
    executor.observe(5.0)
    executor.follow([Assignment("b", 1, Intent.SUSPEND)])
    executor.observe(None)
    executor.observe(10.0)
    executor.follow([Assignment("a", 1, Intent.SUSPEND), to_run("b", on((0, 0)), attempt=2)])
    # Saved at 14, loaded at 14 + 3.
    assert executor.observe(None) == (14.0, [seen(14.0, "a", Phase.SUSPENDED, step=10.0, steps=100.0)])
    assert executor.observe(None) == (17.0, [seen(17.0, "b", attempt=2)])


def test_a_node_that_is_provisioned_joins_after_its_time():
    executor = executor_of([job("a", 10, at=100)], cluster("1x1:V100"), provision_s=30.0)
    new = node("new", 2)
    executor.observe(5.0)
    executor.follow([NodeRequest(new, True)])
    assert executor.observe(None) == (35.0, [NodeAdded(35.0, new)])


# -- simultaneous events -----------------------------------------------------------------------------------------------


def test_all_that_happens_at_one_time_comes_at_once_ends_before_arrivals():
    jobs = [job("a", 10), job("b", 10), job("c", 5, at=10)]
    executor = executor_of(jobs, cluster("1x2:V100"))
    assert executor.observe(None) == (0.0, [JobSubmitted(0.0, 0), JobSubmitted(0.0, 1)])
    executor.follow([to_run("a", on((0, 0))), to_run("b", on((0, 1)))])
    assert executor.observe(None) == (0.0, [seen(0.0, "a"), seen(0.0, "b")])
    ends = [seen(10.0, "a", Phase.SUCCEEDED), seen(10.0, "b", Phase.SUCCEEDED)]
    assert executor.observe(10.0) == (10.0, [*ends, JobSubmitted(10.0, 2), WokeUp(10.0)])
    assert executor.observe(None) is None


def test_simultaneous_events_are_one_decision():
    # One at 0 for two arrivals, one at 10 for two ends and an arrival, one at 15 for the last end.
    result = run([job("a", 10), job("b", 10), job("c", 5, at=10)], "1x2:V100")
    assert result.metrics.decisions == 3


def test_times_that_should_be_equal_are_equal():
    # 0.1 + 0.2 is not 0.3 in floating point, but both end at 0.3, and the gang behind them starts then.
    jobs = [job("a", 0.3), job("b", 0.1, at=0.2), job("c", 1, 2, at=0.25)]
    result = run(jobs, "1x2:V100")
    assert started(result)["c"] == 0.3
    assert finished(result)["a"] == finished(result)["b"]
    # At 0, 0.2, 0.25, 0.3 and 1.3.
    assert result.metrics.decisions == 5


def test_the_executor_wakes_the_policy_when_it_asked_to_be_woken():
    executor = executor_of([job("a", 10, at=100)], cluster("1x1:V100"))
    assert executor.observe(7.0) == (7.0, [WokeUp(7.0)])
    assert executor.observe(100.0) == (100.0, [JobSubmitted(100.0, 0), WokeUp(100.0)])


# -- belief and truth --------------------------------------------------------------------------------------------------


def error_trace() -> list[JobSpec]:
    rng = np.random.default_rng(7)
    return [job(f"j{i}", float(rng.integers(5, 200)), int(rng.integers(1, 5)), at=float(3 * i)) for i in range(60)]


def test_a_wrong_forecast_changes_what_is_believed_and_not_what_is_true():
    exact, wrong = (run(error_trace(), "2x4:V100", "fifo", forecast_error=error) for error in (0.0, 0.7))
    # FIFO does not look at run times, so everything happens as before, to the microsecond.
    assert finished(wrong) == pytest.approx(finished(exact), abs=1e-5)
    believed = wrong.engine.state.jobs.duration_s[:60]
    assert not np.allclose(believed, exact.engine.state.jobs.duration_s[:60])


def test_a_wrong_forecast_costs_a_policy_that_relies_on_it():
    exact, wrong = (run(error_trace(), "1x4:V100", "srtf", forecast_error=error).metrics for error in (0.0, 1.5))
    assert wrong.avg_jct_s > exact.avg_jct_s
    assert wrong.finished == exact.finished == 60


def test_the_error_of_a_forecast_depends_on_the_seed_only():
    one, same, other = (
        run(error_trace(), "2x4:V100", "sjf", forecast_error=0.5, seed=seed).engine.journal.digest()
        for seed in (1, 1, 2)
    )
    assert one == same != other


def test_a_negative_forecast_error_is_refused():
    with pytest.raises(GpuwiseError, match=r"a forecast error of -0\.1; it must be 0 to 10"):
        run([job("a")], "1x1:V100", forecast_error=-0.1)


# -- jobs that do not fit ----------------------------------------------------------------------------------------------


def test_a_job_larger_than_the_cluster_is_an_error_that_names_it():
    with pytest.raises(GpuwiseError, match=r"job 'big' asks for 9 GPUs.*1x8:V100 does not have even when it is empty"):
        run([job("ok", 1, 8), job("big", 1, 9)], "1x8:V100")


def test_jobs_that_do_not_fit_are_left_out_and_the_others_run_where_they_may():
    jobs = [job("big", 10, 9), job("a", 10, gpu_types=("T4",)), job("b", 10, gpu_types=("V100",))]
    result = run(jobs, "1x4:V100+1x4:T4", oversized="drop")
    assert stays(result) == [("a", "n1", 0, 10), ("b", "n0", 0, 10)]


def test_a_device_is_being_vacated_until_the_save_ends_whoever_is_given_it():
    # a saves from 10 to 110. b takes its place at 10 and is driven out at 20 by c, before either could begin: c begins
    # when a has saved.
    jobs = [job("a", 1000, suspend_s=100), job("b", 500, at=10), job("c", 5, at=20)]
    result = run(jobs, "1x1:V100", "srtf")
    assert finished(result)["c"] == 110 + 5


def test_a_long_outage_is_not_taken_for_a_standstill():
    # The only node is down from 100 to 1,000,100: 16,667 rounds of 60 s in which nothing happens. Begun anew, 200 s.
    result = run([job("a", 200)], "1x1:V100", round_s=60, faults=[NodeFault(100, 0, 1e6)])
    assert finished(result)["a"] >= 1_000_100 + 200
    many = [job(f"j{i}", 1, at=float(i)) for i in range(1, 12_001)]
    assert run(many, "1x1:V100", faults=[NodeFault(0.5, 0, 12_500)]).metrics.finished == 12_000


def test_an_elastic_job_on_fewer_gpus_is_slower_however_it_shares_them():
    for sharing in (Sharing.EXCLUSIVE, Sharing.SHARED):
        spec = job("a", 100, gpus=4, min_gpus=1, max_gpus=4, sharing=frozenset((sharing,)), gpu_util_frac=0.5)
        plan = Timetable({0.0: lambda draft, how=sharing: draft.start(0, on((0, 0), sharing=how))})
        assert finished(run([spec], "1x4:V100", plan)) == {"a": 400}  # a quarter of the GPUs


def test_gpu_time_and_price_count_a_node_while_it_was_there() -> None:
    """10 s of 2 GPUs at 3600 USD an hour, and from 4 to 7 s one of 4 GPUs at 7200: 20 + 12 GPU s; 10 + 6 USD."""
    journal = Journal(cluster(node("a", 2, usd_per_hour=3600.0)), JobTable(), "fifo", 0)
    for record in (NodeAdded(4.0, node("b", 4, usd_per_hour=7200.0)), NodeRemoved(7.0, "b"), WokeUp(9.0)):
        journal.append(record)
    assert offered(journal, 0.0, 10.0) == (32.0, 16.0)
    assert offered(journal, 5.0, 6.0) == (6.0, 3.0)


# -- what is wanted, said again ----------------------------------------------------------------------------------------


def test_what_is_wanted_may_be_said_again():
    executor = executor_of([job("a", 100, migrate_s=30), job("b", 100), job("c", 100)], cluster("1x3:V100"))
    executor.observe(None)
    wanted = [to_run(uid, on((0, device))) for device, uid in enumerate("abc")]
    executor.follow(wanted)
    executor.observe(None)
    executor.observe(20.0)
    executor.follow([Assignment("b", 1, Intent.SUSPEND)])
    executor.observe(None)
    executor.observe(30.0)
    executor.follow([wanted[0], Assignment("b", 1, Intent.SUSPEND)], complete=True)  # nobody wants c any more
    assert executor.observe(None) == (100.0, [seen(100.0, "a", Phase.SUCCEEDED)])
    assert executor.observe(None) is None


def test_a_job_that_makes_no_step_is_not_passed_over_in_silence():
    stuck = job("a", 10, speeds=(("V100", 0.0),))
    with pytest.raises(StalledError, match="1 jobs make no step and never end, 'a' the first"):
        run([stuck, job("b", 10)], "1x2:V100")


def test_a_true_rate_that_is_no_number_is_an_error():
    class Unknown(DeclaredRates):
        def rates(self, jobs: Any, placements: Any, residents: Any) -> Any:
            return [math.nan for _ in jobs]

    with pytest.raises(GpuwiseError, match="true rate of job 'a' is nan"):
        run([job("a", 10)], "1x2:V100", truth=Truth(rates=Unknown))


@given(st.one_of(st.floats(0, 1e9), st.integers(0, 10**14).map(lambda ticks: ticks / 2e6)))
def test_ticks_are_rounded_as_python_rounds(at_s: float):
    assert ticked(at_s) == round(at_s, 6)


class Autoscaler:
    """Releases the second node when nobody needs it, and asks for it again when somebody does."""

    name = "autoscaler"
    wakes_on = CAPACITY_CHANGES

    def decide(self, view: Any, rng: Any) -> Any:
        draft = view.draft()
        short = [row for row in list(draft.waiting()) if not draft.start(row)]
        here = view.nodes.row("n1") is not None
        if short and not here and not view.requested_nodes():
            draft.provision(node("n1", 4))
        elif not short and here and view.capacity.up[1] and not any(1 in at.nodes for at in view.placed.values()):
            with suppress(DraftError):
                draft.release(1)
        return draft.seal()


def test_a_node_that_was_released_may_be_asked_for_again():
    result = run([job("a", 10, 4), job("b", 10, 4, at=20), job("c", 10, 4, at=20)], "2x4:V100", Autoscaler())
    # a runs on n0 and n1 is released; b takes n0 at 20, and c the node that is asked for then, which takes no time.
    assert finished(result) == {"a": 10, "b": 30, "c": 30}
    kinds = [type(record).__name__ for record in result.engine.journal.records]
    assert kinds.count("Provision") == 1
    assert kinds.count("NodeRemoved") >= 1


def test_who_takes_over_expects_the_nodes_that_were_asked_for():
    state = ClusterState(cluster("1x1:V100"))
    state.requested["big"] = node("big", 4)
    executor = VirtualExecutor.from_state(state, state.beliefs)
    assert executor.observe(None) == (0.0, [NodeAdded(0.0, node("big", 4))])
