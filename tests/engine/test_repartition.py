from __future__ import annotations

import math

import pytest

from builders import HALVES, Timetable, cluster, engine_with, finished, job, mig, on, run
from gpuwise.core.commands import Decision, MigSlice, Repartition
from gpuwise.core.decision.steps import DraftError
from gpuwise.core.events import WokeUp
from gpuwise.core.units import GIB
from gpuwise.engine.checks import InvalidDecisionError
from gpuwise.service.offline.simulate import Truth, simulate


def decide(engine, *actions):
    """The scripted policy does this now."""
    engine.policy.script.append(lambda draft: [action(draft) for action in actions])
    engine.step(1.0, [WokeUp(1.0)])


def cut(*slices, node=0, device=0):
    return lambda draft: draft.cut(node, device, slices)


@pytest.mark.parametrize(
    ("spec", "slices", "says"),
    {
        "overlapping": ("1x1:A100", (*HALVES, MigSlice("1g.5gb", 3, 143, 4.75 * GIB)), "cannot be partitioned into"),
        "without MIG": ("1x1:V100", HALVES, "V100 has no MIG"),
        "too large a share": ("1x1:A100", (HALVES[0]._replace(milli=900),), "429/1000"),
    }.values(),
)
def test_a_policy_may_cut_a_gpu_only_as_its_hardware_allows(spec, slices, says):
    engine = engine_with([], cluster(spec))
    with pytest.raises(InvalidDecisionError, match=says):
        decide(engine, cut(*slices))
    assert not engine.state.capacity.layouts


def test_a_device_that_is_not_there_cannot_be_cut():
    engine = engine_with([], cluster("1x1:A100"))
    engine.policy.script.append(lambda draft: Decision((Repartition(0, 1, HALVES),)))
    with pytest.raises(InvalidDecisionError, match="no device 1 on node 0"):
        engine.step(1.0, [WokeUp(1.0)])


def test_how_a_machine_is_found_to_be_cut_is_taken_as_it_is():
    engine = engine_with([], cluster("1x1:A100"))
    odd = (MigSlice("1g.5gb+me", 2, 143, 4.75 * GIB),)
    engine.order(0.0, [Repartition(0, 0, odd)])
    assert engine.state.capacity.layouts == {(0, 0): odd}


def test_stand_ins_that_no_catalogue_knows_can_be_cut():
    engine = engine_with([], cluster("1x1:cpu-core"))
    decide(engine, cut(*HALVES))
    assert engine.state.capacity.layouts == {(0, 0): HALVES}


def test_a_gpu_is_cut_only_when_it_is_empty():
    engine = engine_with([job("a")], cluster("1x1:A100"))
    decide(engine, cut(*HALVES), lambda draft: draft.start(0, mig(0, 0, 4)))
    engine.policy.script.append(lambda draft: Decision((Repartition(0, 0, ()),)))
    with pytest.raises(InvalidDecisionError, match="in use and cannot be repartitioned"):
        engine.step(2.0, [WokeUp(2.0)])


def test_a_placement_says_how_large_its_slice_is():
    engine = engine_with([job("a")], cluster("1x1:A100"))
    with pytest.raises(DraftError, match="1000/1000 of a GPU is not a slice at 4"):
        decide(engine, cut(*HALVES), lambda draft: draft.start(0, mig(0, 0, 4, milli=1000)))


def test_a_gpu_is_cut_when_those_who_leave_it_have_saved():
    def hand_over(draft):
        draft.suspend(0)
        draft.cut(0, 0, HALVES)
        draft.start(1, mig(0, 0, 4))

    jobs = [job("a", 100, suspend_s=20.0), job("b", 60, at=10.0, speeds=(("A100/3g", 1.0),))]
    actions = {
        0.0: lambda draft: draft.start(0, on((0, 0))),
        10.0: hand_over,
        95.0: lambda draft: draft.start(0, mig(0, 0, 0)),
    }
    result = simulate(jobs, "1x1:A100", Timetable(actions), truth=Truth(repartition_s=5.0))
    # saved at 30, cut at 35, b runs for 60 s; a has 90 s left, at 429/1000 of its speed
    assert finished(result) == {"a": pytest.approx(95 + 90 / 0.429), "b": 95}


class Broken:
    """Beliefs that fail."""

    def __init__(self, answer):
        self._answer = answer

    def rates(self, jobs, placements, residents):
        return [self._answer / len(jobs)] * len(jobs)


@pytest.mark.parametrize("answer", ["a string", math.nan, -1.0, math.inf])
def test_beliefs_that_fail_leave_the_engine_with_what_was_declared(answer):
    result = run([job("a", 50), job("b", 70)], "1x1:V100", "fifo", beliefs=lambda jobs, nodes: Broken(answer))
    assert finished(result) == {"a": 50, "b": 120}
    assert result.engine.state.jobs.rate[:2].tolist() == [1.0, 1.0]
