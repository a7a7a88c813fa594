"""The newest GPUs for those who gain most: who gets which, how often others are passed, and what if beliefs fail."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from builders import cluster, engine_with, finished, job, node, run, started, stays
from gpuwise.core.commands import Start, Why
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import JobFinished, JobSubmitted
from gpuwise.core.job.needs import Sharing
from gpuwise.core.rates import DeclaredRates, alone_rates
from gpuwise.policies.gpu_types.prices import least_makespan_s
from gpuwise.policies.registry import make_policy
from gpuwise.service.offline.simulate import Truth
from gpuwise.sim.conformance import check_policy
from gpuwise.sim.executor.failures import NodeFault

BOTH = "1x1:P100+1x1:V100"


def gains(id, gain, p100_s=100.0, **more):
    """A job that takes so long on a P100, and is so many times as fast on a V100."""
    return job(id, p100_s, speeds=(("P100", 1.0), ("V100", gain)), **more)


def types(result):
    """The GPU type that each job ran on; nodes n0, n1, … are P100s in the first half and V100s in the second."""
    half = len(result.engine.state.nodes) // 2
    return {name: "V100" if int(where[1:]) >= half else "P100" for name, where, _, _ in stays(result)}


@pytest.mark.parametrize("name", ["gain?signal=utilization", "gain?passes=1", "gain-fair?passes=3"])
def test_variants_conform(name):
    check_policy(name)


# -- who gets which ----------------------------------------------------------------------------------------------------


def test_the_job_that_gains_most_gets_the_new_gpu():
    result = run([gains("little", 1.1), gains("much", 2.0)], BOTH, "gain")
    assert types(result) == {"little": "P100", "much": "V100"}


def test_a_job_that_an_older_gpu_is_faster_for_goes_there():
    assert types(run([gains("loses", 0.9)], BOTH, "gain")) == {"loses": "P100"}


def test_while_jobs_queue_the_ratio_counts_and_otherwise_the_seconds():
    # long saves 200 of 1200 s (1.2 times as fast), short 50 of 100 s (twice as fast).
    pair = [gains("long", 1.2, 1200.0), gains("short", 2.0, 100.0)]
    assert types(run(pair, BOTH, "gain"))["long"] == "V100"
    queued = run([*pair, gains("rest", 1.0)], BOTH, "gain")
    assert types(queued)["short"] == "V100"
    assert started(queued) == {"long": 50.0, "short": 0.0, "rest": 0.0}, "long is between them, and waits for the first"


def test_a_queue_is_worked_off_from_both_ends():
    # The P100 takes g0, g1 and, at 200 s, g2; the V100 takes g5, g4 and, at 66.7 + 71.4 s, g3.
    result = run([gains(f"g{gain}", 1 + gain / 10) for gain in (3, 1, 4, 2, 5, 0)], BOTH, "gain")
    on = types(result)
    assert [name for name in sorted(on) if on[name] == "P100"] == ["g0", "g1", "g2"]
    assert [name for name in sorted(on) if on[name] == "V100"] == ["g3", "g4", "g5"]


def test_of_jobs_that_gain_the_same_the_first_goes_first():
    result = run([gains(f"j{number}", 1.5) for number in range(6)], "1x2:V100+1x1:P100", "gain")
    starts = started(result)
    assert [starts[f"j{number}"] for number in range(6)] == sorted(starts.values())


def test_new_gpus_that_are_all_idle_are_anybodys():
    assert types(run([gains("little", 1.05)], BOTH, "gain")) == {"little": "V100"}


def test_the_last_new_gpus_are_left_to_those_who_gain_more_while_old_ones_are_idle():
    # Three that gain much run on the V100s; the mix is theirs, so a job that gains 5 % is better off on a P100.
    jobs = [*(gains(f"much{number}", 2.0) for number in range(3)), gains("little", 1.05, at=1.0)]
    assert types(run(jobs, "4x1:P100+4x1:V100", "gain"))["little"] == "P100"


@pytest.mark.parametrize("seed", range(12))
def test_two_types_are_shared_as_well_as_can_be(seed):
    # Against every way to give three P100s and three V100s to six jobs that come at once.
    rng = np.random.default_rng(seed)
    jobs = [gains(f"j{n}", float(rng.uniform(0.8, 2.5)), float(rng.uniform(50, 500))) for n in range(6)]
    slow = [each.duration_s for each in jobs]
    fast = [each.duration_s / dict(each.speeds)["V100"] for each in jobs]
    best = min(sum(slow[j] for j in order[:3]) + sum(fast[j] for j in order[3:]) for order in permutations(range(6)))
    assert sum(finished(run(jobs, "3x1:P100+3x1:V100", "gain")).values()) == pytest.approx(best)


def test_three_types_and_gangs_are_shared_almost_as_well_as_the_transport_problem_can():
    rng = np.random.default_rng(5)
    jobs, times = [], []
    for number in range(240):
        speeds = sorted(rng.uniform(1, 4, 3).tolist())
        speeds = [speeds[k] for k in ((0, 1, 2), (0, 2, 1), (1, 0, 2))[number % 3]]  # some are better on the middle one
        gpus = int(rng.choice((1, 2, 4)))
        jobs.append(job(f"j{number}", 100.0, gpus, speeds=tuple(zip(("P100", "V100", "A100"), speeds, strict=True))))
        times.append(tuple(100.0 / speed for speed in speeds))
    bound_s = least_makespan_s(tuple(times), tuple(float(each.gpus) for each in jobs), (8.0, 8.0, 8.0))
    made = {name: run(jobs, "2x4:P100+2x4:V100+2x4:A100", name).metrics.makespan_s for name in ("gain", "even")}
    assert bound_s <= made["gain"] < 1.1 * bound_s < made["even"]


def test_a_queue_of_many_kinds_is_read_at_both_ends():
    jobs = [gains(f"j{number}", 1 + number / 1000) for number in np.random.default_rng(0).permutation(500).tolist()]
    first = [name for name, at in started(run(jobs, BOTH, "gain")).items() if at == 0]
    assert sorted(first) == ["j0", "j499"]


def test_no_gpu_is_idle_while_a_job_waits():
    rng = np.random.default_rng(1)
    jobs = [gains(f"j{n}", float(rng.uniform(0.9, 2)), at=float(at)) for n, at in enumerate(rng.uniform(0, 900, 80))]
    for policy in ("gain", "gain-fair?passes=5", "even"):
        course = run(jobs, "3x1:P100+3x1:V100", policy).timeline()
        assert not course.filter((course["waiting"] > 0) & (course["gpus_allocated"] < 6)).height


def test_jobs_that_may_run_on_one_type_only_have_it_before_others():
    jobs = [gains("any", 2.0), gains("only", 1.0, gpu_types=("V100",))]
    assert types(run(jobs, BOTH, "gain")) == {"any": "P100", "only": "V100"}


# -- even --------------------------------------------------------------------------------------------------------------


def test_even_gives_each_type_half_of_the_jobs_whatever_they_gain():
    result = run([gains(f"j{number}", 2.0 if number < 4 else 1.0) for number in range(8)], "4x1:P100+4x1:V100", "even")
    on = types(result)
    assert [on[f"j{number}"] for number in range(8)] == ["P100", "V100"] * 4


def test_even_lets_nobody_wait_for_one_that_needs_another_type():
    on_v100 = (("P100", 0.0), ("V100", 1.0))
    jobs = [job("a", 100.0, speeds=on_v100), job("b", 100.0, speeds=on_v100), job("c", 100.0)]
    assert started(run(jobs, "1x1:P100+1x1:V100", "even")) == {"a": 0, "b": 100, "c": 0}


def test_even_starts_jobs_in_order():
    result = run([gains(f"j{number}", 2.0) for number in range(9)], BOTH, "even")
    starts = [started(result)[f"j{number}"] for number in range(9)]
    assert starts == sorted(starts)


# -- fair --------------------------------------------------------------------------------------------------------------


def passed(result):
    """How many later jobs started before each did."""
    starts = result.to_frame()["start_s"].to_list()
    return [sum(later < start for later in starts[number + 1 :]) for number, start in enumerate(starts)]


def test_a_job_is_passed_only_so_often():
    rng = np.random.default_rng(3)
    jobs = [gains(f"j{number}", float(gain)) for number, gain in enumerate(rng.choice((1.0, 1.2, 1.5, 2.0), 300))]
    where = "3x1:P100+3x1:V100"
    assert max(passed(run(jobs, where, "gain"))) > 100
    for bound in (5, 20):
        # A job becomes due when the bound is reached, which may be by several that start in the same moment.
        assert max(passed(run(jobs, where, f"gain?passes={bound}"))) < bound + 6


def test_being_fair_costs_little():
    rng = np.random.default_rng(3)
    jobs = [gains(f"j{number}", float(gain)) for number, gain in enumerate(rng.choice((1.0, 1.2, 1.5, 2.0), 400))]
    made = {name: run(jobs, "3x1:P100+3x1:V100", name).metrics.makespan_s for name in ("even", "gain", "gain-fair")}
    assert made["gain-fair"] < made["even"] - 0.8 * (made["even"] - made["gain"])


def test_a_gang_that_was_passed_too_often_keeps_gpus_free_until_it_fits():
    # Single jobs of uneven length come all the time, so that two GPUs are never idle at once by themselves.
    singles = [gains(f"s{number}", 1.0, 70.0 + 13 * (number % 5), at=10.0 * number) for number in range(60)]
    gang = gains("gang", 1.0, gpus=2, at=5.0)
    where = cluster(node("n0", 2, "V100"))
    assert started(run([*singles, gang], where, "gain"))["gang"] > 1000
    fair = run([*singles, gang], where, "gain?passes=3")
    assert started(fair)["gang"] < 400


def test_while_gpus_are_kept_for_a_gang_others_run_elsewhere():
    # The gang gets node a when both jobs on it end, at 50 s; node b is not kept, and singles follow each other.
    jobs = [
        *(job(f"long{number}", 50.0 if number < 2 else 500.0) for number in range(3)),
        job("gang", 10.0, 2, at=1.0),
        *(job(f"s{number}", 10.0, at=2.0) for number in range(5)),
    ]
    result = run(jobs, cluster(node("a", 2), node("b", 2)), "gain?passes=1", placement="first-fit")
    starts = started(result)
    assert starts["gang"] == 50.0
    assert [starts[f"s{number}"] for number in range(5)] == [2.0, 12.0, 22.0, 32.0, 42.0]


def test_those_behind_a_gang_that_is_due_are_told_so():
    jobs = [job("first", 100.0), job("gang", 10.0, 2), *(job(f"s{number}", 100.0, at=0.0) for number in range(3))]
    engine = engine_with(jobs[:1], cluster(node("n0", 2, "V100")), policy=make_policy("gain?passes=1"))
    rows = engine.state.jobs.declare(jobs[1:])
    engine.step(1.0, [JobSubmitted(1.0, row) for row in rows])  # the gang does not fit; s0 passes it
    assert [row for row in rows if row in engine.state.placed] == [rows[1]]
    engine.step(50.0, [JobFinished(50.0, 0)])
    assert rows[2] not in engine.state.placed, "the GPU is kept for the gang"
    reason = engine.reason(rows[2])
    assert reason.code is Why.RESERVED
    assert "gang" in str(reason)


def test_a_job_that_is_due_but_whose_host_is_lost_holds_nobody_up():
    hosts = cluster(node("large", 1, cpus=64.0), node("small", 1, cpus=8.0))
    jobs = [job("demanding", 10.0, at=1.0, cpus=32.0), *(job(f"r{number}", 10.0, at=2.0) for number in range(6))]
    ends = finished(run(jobs, hosts, "gain?passes=1", faults=[NodeFault(0.5, 0, 1000.0)]))
    assert max(ends[f"r{number}"] for number in range(6)) < 100 < 1000 < ends["demanding"]


def test_a_job_that_is_due_but_whose_nodes_are_lost_holds_nobody_up():
    only = gains("only", 1.0, at=1.0, gpu_types=("V100",))
    rest = [gains(f"r{number}", 1.0, 10.0, at=2.0) for number in range(6)]
    faults = [NodeFault(0.5, 1, 1000.0)]
    result = run([only, *rest], BOTH, "gain?passes=1", faults=faults)
    ends = finished(result)
    assert max(ends[each.id] for each in rest) < 100
    assert ends["only"] > 1000


# -- what tells the gain -----------------------------------------------------------------------------------------------


def test_utilization_alone_sends_the_busiest_to_the_new_gpus():
    jobs = [gains("idle", 2.0, gpu_util_frac=0.2), gains("busy", 1.0, gpu_util_frac=0.9)]
    assert types(run(jobs, BOTH, "gain?signal=utilization")) == {"idle": "P100", "busy": "V100"}


def test_a_job_of_unknown_utilization_is_taken_to_be_usual():
    jobs = [job("unknown", 100.0), job("idle", 100.0, gpu_util_frac=0.1)]
    assert types(run(jobs, BOTH, "gain?signal=utilization")) == {"unknown": "V100", "idle": "P100"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gain?signal=guess", "signal of policy 'gain'"),
        ("gain?passes=-1", "passes is -1"),
        ("gain-fair?passes=x", "must be a whole number"),
        ("even?passes=3", "no parameters"),
    ],
)
def test_wrong_parameters_are_named(text, says):
    with pytest.raises(GpuwiseError, match=says):
        make_policy(text)


# -- when beliefs fail -------------------------------------------------------------------------------------------------


class Failing(DeclaredRates):
    """A rate model that says something else of jobs whose id begins with ``bad``, on V100s at least."""

    def __init__(self, jobs, nodes, says, everywhere=False):
        super().__init__(jobs, nodes)
        self.ids, self.types, self.says, self.everywhere = jobs.ids, nodes, says, everywhere

    def rates(self, jobs, placements, residents):
        found = super().rates(jobs, placements, residents)
        for at, (row, placement) in enumerate(zip(jobs, placements, strict=True)):
            on_new = self.types.types[self.types.type_of[placement.grants[0].node]] == "V100"
            if self.ids[row].startswith("bad") and (on_new or self.everywhere):
                if self.says is None:
                    raise RuntimeError("no prediction")
                found[at] = self.says
        return found


def failing(says, everywhere=False):
    return lambda jobs, nodes: Failing(jobs, nodes, says, everywhere)


@pytest.mark.parametrize("says", [None, math.nan, math.inf, -1.0])
@pytest.mark.parametrize("policy", ["gain", "gain?passes=2", "even"])
def test_jobs_are_placed_although_their_speed_cannot_be_had(says, policy):
    jobs = [gains(f"{kind}{number}", 1.5) for number in range(6) for kind in ("bad", "good")]
    truth = Truth(rates=lambda table, nodes: DeclaredRates(table, nodes))
    result = run(jobs, BOTH, policy, beliefs=failing(says), truth=truth)
    assert result.metrics.finished == 12


def test_a_job_of_unknown_speed_is_told_so():
    engine = engine_with([], cluster("1x1:P100"), policy=make_policy("gain"))
    rows = engine.state.jobs.declare([gains("good", 1.0), gains("bad", 1.0)])
    engine.state.beliefs = Failing(engine.state.jobs, engine.state.nodes, None, everywhere=True)
    engine.state.believed_alone = alone_rates(engine.state.beliefs)
    object.__setattr__(engine.view, "rates", engine.state.beliefs)
    engine.step(0.0, [JobSubmitted(0.0, rows[0])])
    engine.step(0.0, [JobSubmitted(0.0, rows[1])])
    reason = engine.reason(rows[1])
    assert reason.code is Why.UNFORESEEN


def test_a_part_of_a_gpu_becomes_a_whole_one_for_a_job_of_unknown_speed():
    jobs = [gains("good", 1.0, gpu_frac=0.5), gains("bad", 1.0, gpu_frac=0.5)]
    result = run(jobs, "1x2:P100", "gain", beliefs=failing(None, everywhere=True), truth=Truth())
    starts = [each for each in result.engine.journal.records if isinstance(each, Start)]
    shared = {result.engine.state.jobs.ids[each.job]: each.placement.sharing for each in starts}
    assert shared == {"bad": Sharing.EXCLUSIVE, "good": Sharing.SHARED}


def test_a_job_is_never_placed_where_it_would_make_no_progress():
    jobs = [gains(f"bad{number}", 1.5) for number in range(4)]
    result = run(jobs, "2x1:P100+2x1:V100", "gain", beliefs=failing(0.0))
    assert set(types(result).values()) == {"P100"}
    assert result.metrics.finished == 4


def test_a_job_without_progress_anywhere_waits_and_is_told_why_and_others_run():
    engine = engine_with([], cluster(BOTH), policy=make_policy("gain-fair?passes=1"))
    rows = engine.state.jobs.declare([gains("bad", 1.0), *(gains(f"good{n}", 1.0) for n in range(3))])
    object.__setattr__(engine.view, "rates", Failing(engine.state.jobs, engine.state.nodes, 0.0, everywhere=True))
    engine.step(0.0, [JobSubmitted(0.0, row) for row in rows])
    assert sorted(engine.state.placed) == [rows[1], rows[2]]
    engine.step(9.0, [JobFinished(9.0, rows[1])])
    assert rows[3] in engine.state.placed, "one that cannot run holds nobody up, however often it is passed"
    reason = engine.reason(rows[0])
    assert reason.code is Why.NO_SPEED


def test_a_waiting_job_is_told_what_it_gains():
    engine = engine_with([gains("a", 2.0), gains("b", 1.0), gains("c", 1.5)], cluster(BOTH), policy=make_policy("gain"))
    reason = engine.reason(2)
    assert "1.50 times as fast on V100 as on P100" in str(reason)


def test_a_lost_node_and_a_job_that_never_ends_are_survived():
    jobs = [gains(f"j{number}", 1.5, at=float(number)) for number in range(20)] + [gains("endless", 3.0)]
    slow = {"endless": 1e-6}

    class Truthful(DeclaredRates):
        def rates(self, rows, placements, residents):
            found = super().rates(rows, placements, residents)
            return [each * slow.get(self._jobs.ids[row], 1.0) for each, row in zip(found, rows, strict=True)]

    truth = Truth(rates=lambda table, nodes: Truthful(table, nodes))
    result = run(jobs, "2x1:P100+2x1:V100", "gain", truth=truth, faults=[NodeFault(50.0, 3, 200.0)])
    ends = finished(result)
    assert max(ends[f"j{number}"] for number in range(20)) < 2000 < ends["endless"]


def test_speeds_decide_and_not_the_order_in_which_the_cluster_names_its_types():
    jobs = [gains("little", 1.1), gains("much", 2.0), gains("middle", 1.5)]
    forward = started(run(jobs, BOTH, "gain"))
    backward = started(run([replace(each) for each in jobs], "1x1:V100+1x1:P100", "gain"))
    assert forward == backward
