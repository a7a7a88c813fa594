"""Jobs with speeds of their own, jobs that run out of memory, and GPUs that take time to be cut."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

from builders import HALVES, Timetable, cluster, finished, job, mig, node, on, run, stays
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Sharing, slice_name
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.units import GIB
from gpuwise.engine.journal import job_spec, plain
from gpuwise.service.offline.simulate import Truth, simulate
from gpuwise.sim.results.result import SimulationResult

BOTH = (Sharing.SHARED, 500)


def test_a_job_runs_at_its_own_speed_on_the_type_it_gets() -> None:
    fast = job("a", 60, speeds=(("P100", 1.0), ("V100", 1.5)))
    assert finished(run([fast], "1x1:V100")) == {"a": 40}
    assert finished(run([fast], "1x1:P100")) == {"a": 60}


def test_a_type_that_is_not_named_has_the_speed_of_the_node() -> None:
    spec = cluster(node("n0", 1, "T4", speed=0.5))
    assert finished(run([job("a", 60, speeds=(("V100", 1.5),))], spec)) == {"a": 120}


def test_a_gang_over_two_types_is_as_fast_as_the_slower() -> None:
    spec = cluster(node("n0", 2, "P100"), node("n1", 2, "V100"))
    gang = job("a", 60, 2, speeds=(("P100", 1.0), ("V100", 3.0)))
    timetable = Timetable({0.0: lambda draft: draft.start(0, on((0, 0), (1, 0)))})
    result = run([gang], spec, timetable)
    assert finished(result) == {"a": 60}


@pytest.mark.parametrize(("speeds", "end_s"), [((("A100/3g", 0.5),), 120), ((), 60 / 0.429)])
def test_a_slice_has_its_speed_or_else_its_part_of_the_gpu(speeds: Any, end_s: float) -> None:
    def cut_and_start(draft: Any) -> None:
        draft.cut(0, 0, HALVES)
        draft.start(0, mig(0, 0, 4))

    result = run([job("a", 60, speeds=speeds)], "1x1:A100", Timetable({0.0: cut_and_start}))
    assert finished(result) == {"a": pytest.approx(end_s)}


@pytest.mark.parametrize("name", ["A100/9g", "A100/3g.20gb", "V100/1g"])
def test_a_slice_that_the_gpu_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(GpuwiseError, match=r"unknown MIG slice of|V100 has no MIG"):
        simulate([job("a", speeds=((name, 0.5),))], "1x1:A100", "mig")


def test_a_job_that_leaves_the_gpu_idle_loses_less_on_a_slice() -> None:
    def cut_and_start(draft: Any) -> None:
        draft.cut(0, 0, HALVES)
        draft.start(0, mig(0, 0, 4))

    result = run([job("a", 60, gpu_util_frac=0.5)], "1x1:A100", Timetable({0.0: cut_and_start}))
    # Half of its time the GPU works: 30 s stay as they are, 30 s become 30 / 0.429.
    assert finished(result) == {"a": pytest.approx(30 + 30 / 0.429)}


def test_a_trace_says_how_jobs_may_hold_a_gpu() -> None:
    frame = pl.DataFrame({"submit_s": [0.0], "duration_s": [60.0], "gpus": [1], "sharing": ["mig"]})
    assert simulate(frame, "1x1:A100", "mig").engine.state.jobs.spec(0).sharing == frozenset((Sharing.MIG,))
    with pytest.raises(GpuwiseError, match=r"sharing: .* is not at least one of exclusive"):
        simulate(frame.with_columns(sharing=pl.lit("alone")), "1x1:A100")


def test_a_gpu_that_is_being_cut_lets_nobody_begin() -> None:
    def cut_and_start(draft: Any) -> None:
        draft.cut(0, 0, HALVES)
        draft.start(0, mig(0, 0, 4))
        draft.start(1, on((0, 1)))

    jobs = [job(name, 60, speeds=(("A100/3g", 1.0),)) for name in "ab"]
    timetable = Timetable({0.0: cut_and_start})
    result = simulate(jobs, "1x2:A100", timetable, truth=Truth(repartition_s=5.0))
    assert finished(result) == {"a": 65, "b": 60}


def test_slices_are_called_by_their_compute_slices() -> None:
    assert [slice_name("A100", round(1000 * n / 7)) for n in range(1, 8)] == [f"A100/{n}g" for n in range(1, 8)]


def test_speeds_survive_the_table_the_journal_and_a_trace() -> None:
    told = job("a", 60, speeds=(("V100", 1.5), ("A100/1g", 0.25)))
    assert run([told], "1x1:V100").engine.state.jobs.spec(0).speeds == told.speeds
    assert job_spec(plain(told)).speeds == told.speeds
    written = pl.DataFrame({"submit_s": [0.0], "duration_s": [60.0], "gpus": [1], "speeds": ["Tesla V100=1.5|P100=1"]})
    assert finished(simulate(written, "1x1:V100")) == {"0": 40}


@pytest.mark.parametrize("text", ["V100", "V100=fast", "V100=-1", "V100=inf"])
def test_speeds_that_are_none_are_refused(text: str) -> None:
    frame = pl.DataFrame({"submit_s": [0.0], "duration_s": [60.0], "gpus": [1], "speeds": [text]})
    with pytest.raises(GpuwiseError, match="speed"):
        simulate(frame, "1x1:V100")


@pytest.mark.parametrize("speeds", [(("V100", -1.0),), (("V100", math.nan),), (("V100", 1.0), ("V100", 2.0))])
def test_a_job_with_impossible_speeds_is_refused(speeds: Any) -> None:
    with pytest.raises(GpuwiseError, match="speeds"):
        job("a", speeds=speeds)


# -- memory ------------------------------------------------------------------------------------------------------------


def side_by_side(believed_gib: dict[str, float], true_gib: dict[str, float], gpus: int = 1) -> SimulationResult:
    """Jobs of 100 s on halves of 16 GiB GPUs; b comes 10 s after a."""
    spec = cluster(node("n0", gpus, gpu_memory_bytes=16 * GIB))
    jobs = [
        job(name, 100, gpu_frac=0.5, gpu_util_frac=0.4, gpu_memory_bytes=gib * GIB, at=10.0 * at)
        for at, (name, gib) in enumerate(believed_gib.items())
    ]
    truth = Truth(gpu_memory_bytes={name: gib * GIB for name, gib in true_gib.items()})
    return simulate(jobs, spec, "fifo", truth=truth)


def test_who_finds_too_little_memory_fails_and_comes_again_with_a_better_estimate() -> None:
    result = side_by_side({"a": 8, "b": 8}, {"a": 8, "b": 10})
    # b runs out 30 s after it began; 12 GiB are believed of it then, so it waits until a has left.
    assert stays(result) == [("a", "n0", 0, 100), ("b", "n0", 10, 40), ("b", "n0", 100, 200)]
    assert result.engine.state.jobs.shape_of(1).gpu_memory_bytes == 12 * GIB


def test_an_estimate_far_too_low_is_corrected_to_what_was_measured() -> None:
    result = side_by_side({"a": 8, "b": 1}, {"a": 8, "b": 10})
    assert result.engine.state.jobs.shape_of(1).gpu_memory_bytes == pytest.approx(11 * GIB)


def test_with_enough_memory_nobody_fails() -> None:
    assert finished(side_by_side({"a": 8, "b": 8}, {"a": 8, "b": 8})) == {"a": 100, "b": 110}


def test_who_takes_more_than_it_said_drives_out_the_next() -> None:
    result = side_by_side({"a": 2, "b": 8}, {"a": 12, "b": 8})
    # b was right about itself; it is a that took more. b still fails, grows to 12 and then to 16, and has to wait.
    assert [name for name, *_ in stays(result)] == ["a", "b", "b", "b"]
    assert finished(result)["b"] == 200


def test_a_job_that_no_gpu_holds_fails_for_good() -> None:
    result = side_by_side({"a": 8}, {"a": 17})
    assert result.engine.state.status(0) is Status.FAILED
    assert stays(result) == [("a", "n0", 0, 30)]


TWO_SIZES = cluster(node("n0", 2, "V100", gpu_memory_bytes=16 * GIB), node("n1", 1, "A100", gpu_memory_bytes=40 * GIB))


@pytest.mark.parametrize("more", [{"gpu_types": ("V100",)}, {"gpus": 2}])
def test_a_job_that_none_of_the_gpus_it_may_have_holds_fails_for_good(more: Any) -> None:
    result = simulate([job("a", 100, **more)], TWO_SIZES, "fifo", truth=Truth(gpu_memory_bytes={"a": 20 * GIB}))
    assert result.engine.state.status(0) is Status.FAILED


def test_an_estimate_grows_no_further_than_the_gpus_that_a_job_may_have() -> None:
    asked = job("a", 100, gpu_types=("V100",), gpu_frac=0.5, gpu_memory_bytes=12 * GIB)
    other = job("b", 100, gpu_types=("V100",), gpu_frac=0.5, gpu_memory_bytes=2 * GIB)
    truth = Truth(gpu_memory_bytes={"a": 15 * GIB, "b": 2 * GIB})
    spec = cluster(node("n0", 1, "V100", gpu_memory_bytes=16 * GIB), node("n1", 1, "A100", gpu_memory_bytes=40 * GIB))
    result = simulate([other, asked], spec, "fifo", truth=truth)
    assert finished(result) == {"b": 100, "a": 200}


def test_a_neighbour_that_goes_does_not_save_a_doomed_job() -> None:
    spec = cluster(node("n0", 1, gpu_memory_bytes=16 * GIB))
    jobs = [job(name, end, gpu_frac=0.3, gpu_util_frac=0.2, at=at) for name, end, at in (("a", 35, 0), ("b", 35, 10))]
    result = simulate(jobs, spec, "fifo", truth=Truth(gpu_memory_bytes={"a": 8 * GIB, "b": 9 * GIB}))
    # b runs out at 40, though a left at 35 and b was given its new pace then; after that it has room.
    assert stays(result) == [("a", "n0", 0, 35), ("b", "n0", 10, 40), ("b", "n0", 40, 75)]


def test_a_truth_that_leaves_a_job_out_is_refused() -> None:
    with pytest.raises(GpuwiseError, match="'b'"):
        side_by_side({"a": 1, "b": 1}, {"a": 1})


def test_what_is_believed_and_what_is_true_may_be_two_models() -> None:
    class Slow:
        """Half of what is declared."""

        def __init__(self, jobs: Any, nodes: Any) -> None:
            self.jobs = jobs

        def rates(self, jobs: Any, placements: Any, residents: Any) -> list[float]:
            return [0.5 * self.jobs.steps.item(each) / self.jobs.duration_s.item(each) for each in jobs]

    jobs: list[JobSpec] = [job("a", 100)]
    assert finished(simulate(jobs, "1x1:V100", truth=Truth(rates=Slow))) == {"a": 200}
    believed = simulate(jobs, "1x1:V100", beliefs=Slow)
    assert finished(believed) == {"a": 100}
