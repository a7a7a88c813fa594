"""Policies that put several jobs on a GPU: who joins whom, who does not, and what is said of it."""

from __future__ import annotations

import math

import pytest

from builders import cluster, commands_of, job, node
from gpuwise.core.commands import Migrate, Why
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import JobFailed, JobRevised, JobSubmitted
from gpuwise.core.job.needs import Sharing
from gpuwise.core.rates import BoundedRates, DeclaredRates
from gpuwise.core.units import GIB
from gpuwise.engine.engine import Engine
from gpuwise.policies.placing.placement import best_fit
from gpuwise.policies.registry import make_policy
from gpuwise.service.offline.simulate import Truth, simulate
from gpuwise.sim.executor.failures import NodeFault
from gpuwise.sim.results.history import stays

ONE_GPU = cluster(node("n0", 1, gpu_memory_bytes=16 * GIB))
TWO_GPUS = cluster(node("n0", 2, gpu_memory_bytes=16 * GIB))


def small(id, util=0.3, duration_s=1000.0, **more):
    return job(id, duration_s, gpu_util_frac=util, gpu_memory_bytes=more.pop("memory", 1 * GIB), **more)


def starts(result):
    jobs = result.engine.state.jobs
    return {jobs.ids[row]: jobs.first_start_s.item(row) for row in range(len(jobs))}


def most_on_a_gpu(result):
    """The most jobs that were ever on one GPU, and the most memory that they were believed to need."""
    jobs = result.engine.state.jobs
    found = stays(result.engine.journal)
    at = sorted({begun_s for _, begun_s, _, _ in found})
    most, memory = 0, 0.0
    for now_s in at:
        on: dict[tuple[int, int], list[int]] = {}
        for row, begun_s, ended_s, placement in found:
            if begun_s <= now_s < ended_s:
                for device in placement.devices():
                    on.setdefault(device, []).append(row)
        most = max(most, *(len(here) for here in on.values()))
        memory = max(memory, *(sum(jobs.shape_of(row).gpu_memory_bytes for row in here) for here in on.values()))
    return most, memory


# -- proactive ---------------------------------------------------------------------------------------------------------


def test_proactive_packs_the_largest_first_up_to_a_whole_gpu():
    # By decreasing utilization: 60, 50, 40. 60 opens the GPU, 50 does not fit (110 %), 40 does (100 %).
    jobs = [small("c", 0.4), small("b", 0.5), small("a", 0.6)]
    began = starts(simulate(jobs, ONE_GPU, "proactive"))
    assert began["a"] == began["c"] == 0.0
    assert began["b"] == pytest.approx(1000.0)


def test_proactive_fills_a_gpu_in_use_before_it_takes_an_idle_one():
    result = simulate([small("a"), small("b")], TWO_GPUS, "proactive")
    assert len({placement.grants for _, _, _, placement in stays(result.engine.journal)}) == 1


def test_no_more_than_three_jobs_are_on_a_gpu():
    jobs = [small(f"j{number}", 0.05) for number in range(10)]
    for policy in ("proactive", "pack", "reactive"):
        assert most_on_a_gpu(simulate(jobs, TWO_GPUS, policy))[0] == 3, policy
    assert most_on_a_gpu(simulate(jobs, TWO_GPUS, "proactive?most_jobs=5"))[0] == 5


@pytest.mark.parametrize("policy", ["proactive", "reactive", "pack"])
def test_memory_is_never_believed_to_be_given_twice(policy):
    jobs = [small(f"j{number}", 0.1, 300.0 + 7 * number, memory=(2 + number % 5) * GIB) for number in range(30)]
    most, memory = most_on_a_gpu(simulate(jobs, TWO_GPUS, policy))
    assert most > 1
    assert memory <= 16 * GIB


@pytest.mark.parametrize("policy", ["proactive", "pack"])
def test_a_job_that_runs_out_of_memory_comes_again_with_a_better_estimate(policy):
    jobs = [small("a", memory=9 * GIB), small("b", memory=6 * GIB)]
    result = simulate(jobs, ONE_GPU, policy, truth=Truth(gpu_memory_bytes={"a": 9 * GIB, "b": 9 * GIB}))
    records = result.engine.journal.records
    assert [type(record) for record in records if isinstance(record, (JobFailed, JobRevised))] == [
        JobFailed,
        JobRevised,
    ]
    assert result.metrics.finished == 2
    last = [begun_s for row, begun_s, _, _ in stays(result.engine.journal) if row == 1][-1]
    assert last >= 1000.0  # it knows now that it does not fit beside a


@pytest.mark.parametrize("policy", ["proactive", "reactive", "pack"])
def test_jobs_that_may_not_share_or_need_several_gpus_have_them_for_themselves(policy):
    alone = frozenset((Sharing.EXCLUSIVE,))
    jobs = [job("gang", 100.0, 2), small("proud", sharing=alone), small("a"), job("unknown", 100.0)]
    result = simulate(jobs, TWO_GPUS, policy)
    state = result.engine.state
    by_id = {state.jobs.ids[row]: placement for row, _, _, placement in stays(result.engine.journal)}
    assert by_id["gang"].sharing is by_id["proud"].sharing is Sharing.EXCLUSIVE
    assert result.metrics.finished == 4


def test_a_job_of_unknown_utilization_is_taken_to_need_all_of_a_gpu():
    began = starts(simulate([small("a"), job("b", 100.0)], ONE_GPU, "proactive"))
    assert sorted(began.values()) == [0.0, 100.0]  # b goes first, and a waits for it


def test_who_waits_under_proactive_is_told_what_it_needs():
    engine = waiting_engine("proactive", [small("a", 0.9), small("b", 0.5)])
    reason = engine.reason(1)
    assert reason.code is Why.NO_PLACE
    assert "50% of a GPU" in str(reason)
    assert "fewer than 3 jobs" in str(reason)


# -- reactive ----------------------------------------------------------------------------------------------------------


def test_reactive_runs_each_job_alone_for_a_minute_and_then_moves_it_beside_others():
    jobs = [small("a"), small("b"), small("c", at=10.0)]
    result = simulate(jobs, TWO_GPUS, "reactive")
    moved = [record for record in result.engine.journal.records if isinstance(record, Migrate)]
    assert len(moved) == 1
    assert starts(result) == {"a": 0.0, "b": 0.0, "c": 60.0}


def test_reactive_leaves_jobs_where_they_are_while_nobody_waits():
    result = simulate([small("a"), small("b")], TWO_GPUS, "reactive")
    assert result.metrics.migrations == 0


def test_reactive_does_not_look_at_a_utilization_before_it_was_seen():
    # What is declared is wrong; what a minute alone shows is right: together they would need 140 %.
    jobs = [small("a", 0.2), small("b", 0.2), small("c", 0.2)]
    seen = Truth(gpu_util_frac={"a": 0.7, "b": 0.7, "c": 0.7})
    result = simulate(jobs, TWO_GPUS, "reactive", truth=seen)
    assert result.metrics.migrations == 0
    assert starts(result)["c"] == pytest.approx(1000.0)
    jobs = [small(name, math.nan) for name in "abc"]
    seen = Truth(gpu_util_frac={"a": 0.2, "b": 0.2, "c": 0.2})
    assert starts(simulate(jobs, TWO_GPUS, "reactive", truth=seen))["c"] == 60.0
    assert starts(simulate(jobs, TWO_GPUS, "reactive"))["c"] == pytest.approx(1000.0)  # nobody looked: never known


def test_who_waits_under_reactive_is_told_of_the_profile():
    reason = waiting_engine("reactive", [small("a"), small("b")]).reason(1)
    assert reason.code is Why.PROFILE
    assert "60 s" in str(reason)


# -- pack --------------------------------------------------------------------------------------------------------------


class Slowed(DeclaredRates):
    """Jobs that share run at so much of their speed; at the slowest, at so much."""

    beside, least = 0.8, 0.7

    def rates(self, jobs, placements, residents):
        alone = super().rates(jobs, placements, [()] * len(jobs))
        beside, least = (
            [rate * part ** len(here) for rate, here in zip(alone, residents, strict=True)]
            for part in (self.beside, self.least)
        )
        return BoundedRates(beside, least)


def slowed(least):
    return type("Slowed", (Slowed,), {"least": least})


def test_pack_shares_where_it_gains_at_the_slowest():
    # 2 × 0.7 > 1, and b is spared 1000 s of waiting for 300 s that each of the two loses of its thousand.
    jobs = [small("a"), small("b")]
    assert starts(simulate(jobs, ONE_GPU, "pack", beliefs=Slowed))["b"] == 0.0
    # 2 × 0.45 < 1: one after the other is better, if it comes to the worst.
    assert starts(simulate(jobs, ONE_GPU, "pack", beliefs=slowed(0.45)))["b"] == pytest.approx(1000.0)


def test_pack_waits_for_a_gpu_that_comes_free_soon():
    # Sharing until a ends spares b 50 s. At 0.7 it takes 71 s, of which both lose 30 %: 43 s. At 0.6, 83 s: 67 s.
    jobs = [small("a"), small("b", at=950.0)]
    assert starts(simulate(jobs, ONE_GPU, "pack", beliefs=Slowed))["b"] == 950.0
    assert starts(simulate(jobs, ONE_GPU, "pack", beliefs=slowed(0.6)))["b"] == pytest.approx(1000.0)


def test_pack_takes_an_idle_gpu_before_it_shares_one():
    result = simulate([small("a"), small("b")], TWO_GPUS, "pack", beliefs=Slowed)
    assert len({placement.grants for _, _, _, placement in stays(result.engine.journal)}) == 2


class EndsEarly(Slowed):
    """The first job is done ten times as soon as was believed."""

    def rates(self, jobs, placements, residents):
        told = super().rates(jobs, placements, residents)
        return [10 * rate if row == 0 else rate for rate, row in zip(told, jobs, strict=True)]


def test_pack_moves_jobs_apart_when_gpus_are_idle_and_nobody_waits():
    # c, which may not share, leaves its GPU idle after 300 s of 3000; a and b, which did not wait for it, share theirs.
    alone = small("c", 0.9, 3000.0, sharing=frozenset((Sharing.EXCLUSIVE,)))
    jobs = [alone, small("a", duration_s=2000.0), small("b", duration_s=2000.0)]
    early = Truth(rates=EndsEarly)
    together = simulate(jobs, TWO_GPUS, "pack?spread=false", beliefs=Slowed, truth=early)
    apart = simulate(jobs, TWO_GPUS, "pack", beliefs=Slowed, truth=early)
    assert (together.metrics.migrations, apart.metrics.migrations) == (0, 1)
    assert together.metrics.makespan_s == pytest.approx(2500.0)  # 2000 s at 0.8
    assert apart.metrics.makespan_s == pytest.approx(300.0 + 2000.0 - 0.8 * 300.0)
    dear = [alone, *(small(name, duration_s=2000.0, migrate_s=1e6) for name in "ab")]
    assert simulate(dear, TWO_GPUS, "pack", beliefs=Slowed, truth=early).metrics.migrations == 0


def test_pack_starts_the_job_first_that_would_else_be_the_last_to_end():
    # After some 100 s, six jobs of about 100 s and one of 710 s are left for two GPUs: all could be done in 700 s.
    jobs = [small(f"j{n}", 0.9, 100.0 + n) for n in range(8)]
    jobs.append(small("long", 0.9, 710.0))
    began = starts(simulate(jobs, TWO_GPUS, "pack", beliefs=slowed(0.4)))
    assert began["long"] < 210.0
    began = starts(simulate(jobs, TWO_GPUS, "pack?last_first=false", beliefs=slowed(0.4)))
    assert began["long"] > 400.0


class Broken(DeclaredRates):
    """A model that knows jobs alone, and fails on jobs that share in some way."""

    answer: float | None = None

    def rates(self, jobs, placements, residents):
        if any(residents):
            if self.answer is None:
                raise RuntimeError("no such model")
            return [self.answer] * len(jobs)
        return super().rates(jobs, placements, residents)


@pytest.mark.parametrize("answer", [None, math.nan, 0.0, -1.0, math.inf])
def test_pack_gives_everybody_a_gpu_of_their_own_if_rates_cannot_be_told_and_says_so(answer):
    broken = type("Broken", (Broken,), {"answer": answer})
    result = simulate([small("a"), small("b"), small("c")], TWO_GPUS, "pack", beliefs=broken)
    assert most_on_a_gpu(result)[0] == 1
    assert result.metrics.finished == 3
    engine = waiting_engine("pack", [small("a"), small("b")], broken)
    assert engine.reason(1).code is Why.ALONE
    assert "could not be predicted" in str(engine.reason(1))


@pytest.mark.parametrize("policy", ["proactive", "reactive", "pack"])
def test_nobody_is_placed_where_it_is_believed_to_get_nowhere(policy):
    mixed = cluster(node("n0", 1, "T4", gpu_memory_bytes=16 * GIB), node("n1", 1, gpu_memory_bytes=16 * GIB))
    nowhere = (("T4", 0.0), ("V100", 1.0))
    jobs = [
        small("a", speeds=nowhere),
        small("b", speeds=nowhere),
        small("anywhere"),
        job("gang", 10.0, speeds=nowhere),
    ]
    result = simulate(jobs, mixed, policy)
    on_t4 = {row for row, _, _, placement in stays(result.engine.journal) if placement.nodes == (0,)}
    assert on_t4 <= {2}
    assert result.metrics.finished == 4
    engine = Engine(cluster(node("n0", 1, "T4")), make_policy(policy), placer=best_fit)
    engine.state.jobs.declare([small("a", speeds=nowhere)])
    assert not engine.step(0.0, [JobSubmitted(0.0, 0)])
    assert engine.reason(0).code is Why.NO_SPEED


@pytest.mark.parametrize("policy", ["proactive", "reactive", "pack", "share", "mig", "mig-static"])
def test_a_gang_starts_on_the_type_where_it_gets_on_and_not_on_the_first(policy):
    gang = job("gang", 10.0, 2, speeds=(("T4", 0.0), ("V100", 1.0)))
    result = simulate([gang], cluster(node("n0", 2, "T4"), node("n1", 2)), policy)
    assert [placement.nodes for _, _, _, placement in stays(result.engine.journal)] == [(1,)]


@pytest.mark.parametrize("policy", ["proactive", "reactive", "pack", "share", "mig", "mig-static", "even", "gain"])
def test_a_job_that_makes_no_progress_is_told_so_and_not_that_cpus_are_short(policy):
    engine = Engine(cluster(node("n0", 1, cpus=8)), make_policy(policy), placer=best_fit)
    engine.state.jobs.declare([job("a", cpus=1, speeds=(("V100", 0.0),))])
    engine.step(0.0, [JobSubmitted(0.0, 0)])
    assert engine.reason(0).code is Why.NO_SPEED


def test_reactive_leaves_a_gang_that_may_be_shared_where_it_is():
    gang = job("gang", 500.0, 2, gpu_util_frac=0.2, sharing=frozenset((Sharing.SHARED,)))
    jobs = [gang, small("a", 0.2, 500.0), small("b", 0.2, 500.0, at=1.0)]
    result = simulate(jobs, cluster(node("n0", 3)), "reactive")
    assert starts(result)["b"] == 500


def test_who_waits_under_pack_is_told_that_sharing_does_not_pay():
    assert waiting_engine("pack", [small("a"), small("b")], slowed(0.3)).reason(1).code is Why.NO_GAIN


def test_pack_survives_a_job_that_runs_on_and_on():
    # Believed to end after 10 s, it takes 100,000: the next must not wait for it for ever.
    class Endless(DeclaredRates):
        def rates(self, jobs, placements, residents):
            told = super().rates(jobs, placements, residents)
            return [rate / 1e4 if row == 0 else rate for rate, row in zip(told, jobs, strict=True)]

    jobs = [small("endless", duration_s=10.0), *(small(f"j{n}", at=1000.0 + n) for n in range(3))]
    result = simulate(jobs, ONE_GPU, "pack", beliefs=Slowed, truth=Truth(rates=Endless))
    assert max(starts(result).values()) < 5000.0


@pytest.mark.parametrize("policy", ["proactive", "reactive", "pack"])
def test_jobs_of_a_lost_node_are_placed_again(policy):
    two_nodes = cluster(node("n0", 1, gpu_memory_bytes=16 * GIB), node("n1", 1, gpu_memory_bytes=16 * GIB))
    jobs = [small(f"j{number}", 0.2 + 0.1 * number) for number in range(6)]
    result = simulate(jobs, two_nodes, policy, faults=[NodeFault(200.0, 0, 500.0)])
    assert result.metrics.finished == 6
    assert most_on_a_gpu(result)[0] <= 3


@pytest.mark.parametrize(
    "text",
    ["pack?most_jobs=0", "pack?depth=0", "pack?candidates=0", "proactive?most_load=0", "proactive?most_jobs=-1",
     "reactive?profile_s=-1", "reactive?most_load=-1"],
)  # fmt: skip
def test_parameters_that_make_no_sense_are_refused(text):
    with pytest.raises(GpuwiseError, match="it must be"):
        make_policy(text)


def waiting_engine(policy, jobs, beliefs=DeclaredRates):
    """An engine on one GPU in the moment when two jobs were submitted and the first got it."""
    engine = Engine(ONE_GPU, make_policy(policy), placer=best_fit, beliefs=beliefs)
    engine.state.jobs.declare(jobs)
    commands = commands_of(engine, 0.0, *(JobSubmitted(0.0, row) for row in range(len(jobs))))
    assert [command.job for command in commands] == [0]
    return engine
