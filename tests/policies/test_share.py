from __future__ import annotations

from collections import Counter

import pytest

from builders import cluster, engine_with, finished, job, node, run, started
from gpuwise.core.commands import Repartition, Start, Why
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.needs import Sharing
from gpuwise.core.rates import BoundedRates, DeclaredRates
from gpuwise.core.units import GIB
from gpuwise.policies.registry import make_policy
from gpuwise.service.offline.simulate import Truth, simulate

SMALL = (("A100/1g", 0.45), ("A100/2g", 0.65), ("A100/3g", 0.78), ("A100/4g", 0.86))
LARGE = (("A100/1g", 0.13), ("A100/2g", 0.27), ("A100/3g", 0.4), ("A100/4g", 0.55))
ONE_GPU = node("n", 1, "V100", gpu_memory_bytes=16 * GIB)
NOT_MIG = frozenset((Sharing.EXCLUSIVE, Sharing.SHARED, Sharing.TIME_SLICE))


def modes(result):
    """How many jobs were started in each way."""
    return Counter(each.placement.sharing for each in result.engine.journal.records if isinstance(each, Start))


def test_many_small_jobs_get_slices_and_many_large_ones_whole_gpus():
    small = simulate([job(f"s{i}", 600, speeds=SMALL) for i in range(14)], "1x1:A100", "share")
    large = simulate([job(f"l{i}", 600, speeds=LARGE) for i in range(14)], "1x1:A100", "share")
    assert modes(small) == {Sharing.MIG: 14}
    assert modes(large) == {Sharing.EXCLUSIVE: 14}
    # two rounds of seven at 0.45, against fourteen one after the other
    assert small.metrics.makespan_s == pytest.approx(2 * 600 / 0.45)
    assert large.metrics.makespan_s == 14 * 600


def test_the_more_time_is_worth_the_larger_the_share():
    hasty = simulate([job("s", 600, speeds=SMALL)], "1x1:A100", "share?time_worth=10")
    assert modes(hasty) == {Sharing.EXCLUSIVE: 1}


def test_the_less_time_is_worth_the_smaller_the_share():
    patient = simulate([job("s", 600, speeds=SMALL)], "1x1:A100", "share?time_worth=0.01")
    (start,) = [each for each in patient.engine.journal.records if isinstance(each, Start)]
    assert start.placement.milli == 143


def test_the_time_of_a_cut_is_weighed():
    jobs = [job(f"s{i}", 60, speeds=SMALL) for i in range(7)]
    assert modes(simulate(jobs, "1x1:A100", "share?repartition_s=1"))[Sharing.MIG] == 7
    assert modes(simulate(jobs, "1x1:A100", "share?repartition_s=100000"))[Sharing.MIG] == 0


def test_jobs_that_leave_room_on_a_gpu_share_it():
    jobs = [job(name, 600, gpu_util_frac=0.3, gpu_memory_bytes=4 * GIB) for name in "abc"]
    result = run(jobs, cluster(ONE_GPU), "share")
    assert modes(result) == {Sharing.SHARED: 3}
    assert finished(result) == {"a": 600, "b": 600, "c": 600}


@pytest.mark.parametrize(
    ("util", "memory_gib"), [(0.8, 4), (0.3, 9)], ids=["they would slow each other down", "no memory for both"]
)
def test_jobs_that_do_not_fit_together_run_one_after_the_other(util, memory_gib):
    jobs = [job(name, 600, gpu_util_frac=util, gpu_memory_bytes=memory_gib * GIB) for name in "ab"]
    assert finished(run(jobs, cluster(ONE_GPU), "share")) == {"a": 600, "b": 1200}


class Unsure(DeclaredRates):
    """Declared rates that could be much lower beside others."""

    def rates(self, jobs, placements, residents):
        rates = super().rates(jobs, placements, residents)
        return BoundedRates(
            rates, [rate * (0.5 if others else 1.0) for rate, others in zip(rates, residents, strict=True)]
        )


def test_the_bound_on_slowdown_goes_by_the_low_end_of_what_is_believed():
    jobs = [job(name, 600, gpu_util_frac=0.3, gpu_memory_bytes=4 * GIB) for name in "ab"]
    assert finished(run(jobs, cluster(ONE_GPU), "share", beliefs=Unsure)) == {"a": 600, "b": 1200}
    bold = run(jobs, cluster(ONE_GPU), "share?most_slowdown=0.6", beliefs=Unsure)
    assert finished(bold) == {"a": 600, "b": 600}


def test_the_cheaper_of_two_equal_gpus_is_taken():
    spec = cluster(node("dear", 1, "V100", usd_per_hour=3.0), node("cheap", 1, "V100", usd_per_hour=1.0))
    result = run([job("a", 600, sharing=NOT_MIG)], spec, "share")
    (start,) = [each for each in result.engine.journal.records if isinstance(each, Start)]
    assert start.placement.nodes == (1,)


def test_jobs_that_must_take_turns_do():
    turns = frozenset((Sharing.TIME_SLICE,))
    result = run([job(name, 600, sharing=turns) for name in "ab"], cluster(ONE_GPU), "share")
    assert modes(result) == {Sharing.TIME_SLICE: 2}
    assert finished(result) == {"a": 1200, "b": 1200}


def test_a_job_waits_for_a_gpu_of_its_own_if_that_is_soon_free():
    spec = cluster(node("n", 2, "A100"))
    alone = frozenset((Sharing.EXCLUSIVE,))
    sliced = job("sliced", 6000, speeds=SMALL, sharing=frozenset((Sharing.MIG,)))
    jobs = [job("short", 100, sharing=alone), sliced, job("large", 5000, at=90.0, speeds=LARGE)]
    assert started(run(jobs, spec, "share"))["large"] == 100
    engine = engine_with(jobs, spec, policy=make_policy("share"))
    reason = engine.reason(2)
    assert reason is not None
    assert reason.code is Why.BETTER_LATER


def test_a_cut_that_no_longer_suits_is_given_up():
    """The first jobs turn out to need more memory than seven small slices have."""
    jobs = [job(f"m{i}", 600, gpu_memory_bytes=2 * GIB, speeds=SMALL) for i in range(14)]
    truth = Truth(gpu_memory_bytes={each.id: 8 * GIB for each in jobs})
    result = simulate(jobs, "1x1:A100", "share", truth=truth)
    cuts = [each for each in result.engine.journal.records if isinstance(each, Repartition) and each.slices]
    assert len(cuts) >= 2
    assert result.metrics.makespan_s < 14 * 600


def test_jobs_that_find_a_place_pass_one_that_does_not_but_not_for_ever():
    """The large one needs a whole GPU; small ones keep coming, two at a time."""
    small = [job(f"s{i}", 300, at=50.0 * i, speeds=SMALL, gpu_memory_bytes=2 * GIB) for i in range(40)]
    large = job("large", 600, at=60.0, gpu_memory_bytes=30 * GIB, speeds=LARGE)
    result = simulate([*small, large], cluster(node("n", 1, "A100", gpu_memory_bytes=40 * GIB)), "share")
    assert started(result)["large"] < 1500


@pytest.mark.parametrize(
    "text",
    [
        "most_slowdown=1",
        "most_slowdown=-0.1",
        "time_worth=0",
        "time_worth=nan",
        "turns=0",
        "repartition_s=-1",
        "depth=0",
    ],
)
def test_parameters_out_of_range_are_refused(text):
    with pytest.raises(GpuwiseError, match="it must be"):
        make_policy(f"share?{text}")
