from __future__ import annotations

from dataclasses import replace

import pytest

from builders import mig
from gpuwise.core.commands import NOTHING, Decision
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.events import CAPACITY_CHANGES
from gpuwise.core.job.needs import Sharing
from gpuwise.core.units import GIB
from gpuwise.devices.mig import layout_of, slices_of
from gpuwise.policies.registry import policies
from gpuwise.sim.conformance import NotConformingError, check_policy


@pytest.mark.parametrize("name", [*policies(), "srtf?repack=true", "srsf?repack=true", "edf?preempt=false"])
def test_every_policy_conforms(name):
    check_policy(name)


class Base:
    name = "broken"
    wakes_on = CAPACITY_CHANGES

    def decide(self, view, rng):
        draft = view.draft()
        for job in draft.waiting():
            draft.start(job)
        return draft.seal()


def test_a_sound_policy_written_by_a_user_conforms():
    check_policy(Base)
    check_policy(Base())


class GivesTwice(Base):
    def decide(self, view, rng):
        decision = super().decide(view, rng)
        return Decision(decision.commands * 2)


class NeverStarts(Base):
    def decide(self, view, rng):
        return NOTHING


class TossesACoin(Base):
    tossed = 0

    def decide(self, view, rng):
        self.tossed += 1
        return super().decide(view, rng) if self.tossed % 2 else NOTHING


class WritesOnTheView(Base):
    def decide(self, view, rng):
        view.jobs.priority[0] += 1
        return super().decide(view, rng)


class TakesBehindTheJournal(Base):
    def decide(self, view, rng):
        for job in view.waiting:
            view.capacity.take(view.placer(view.capacity, view.shape(job), 1), view.shape(job))
        return super().decide(view, rng)


class GivesNoReason(Base):
    def decide(self, view, rng):
        decision = super().decide(view, rng)
        return Decision(decision.commands, reasons=lambda job: None)


class SplitsGangs(Base):
    def decide(self, view, rng):
        draft = view.draft()
        for job in draft.waiting():
            found = draft.find(job, gpus=1)
            if found is not None and view.shape(job).whole:
                draft.start(job, found)
        return draft.seal()


class LeavesOutTasks(Base):
    """Starts gangs without the tasks of their last role, by commands that no draft has seen."""

    def decide(self, view, rng):
        draft = view.draft()
        for job in draft.waiting():
            draft.start(job)
        started = [
            replace(command, placement=command.placement._replace(tasks=tasks_but_the_last(command.placement.tasks)))
            for command in draft.commands
        ]
        return Decision(tuple(started), reasons=draft.explain)


def tasks_but_the_last(tasks):
    return tuple(task for task in tasks if task.role != tasks[-1].role)


class UsesSlicesThatAreTooSlow(Base):
    """Cuts the first GPU of every A100 node into the smallest slices, on which some jobs make no progress."""

    SMALLEST = slices_of("A100", layout_of("A100", ["1g.5gb"] * 7))

    def feasible(self, capacity, shape, placer):
        return shape.gpus < 2 and placer(capacity, shape, shape.gpus) is not None

    def decide(self, view, rng):
        draft = view.draft()
        for job in draft.waiting():
            if not self.starts_on_a_slice(draft, job):
                draft.start(job)
        return draft.seal()

    def starts_on_a_slice(self, draft, job):
        shape, nodes = draft.view.shape(job), draft.view.nodes
        if Sharing.MIG not in shape.sharing or shape.gpus != 1 or not 0 < shape.gpu_memory_bytes < 5 * GIB:
            return False
        for node in (row for row, spec in nodes.present() if spec.gpu_type == "A100" and draft.capacity.up[row]):
            try:
                if (node, 0) not in draft.capacity.layouts:
                    draft.cut(node, 0, self.SMALLEST)
                for piece in draft.capacity.free_slices[node, 0][:1]:
                    draft.start(job, mig(node, 0, piece.start, piece.milli))
                    return True
            except OverAllocationError:
                continue
        return False


class WakesInThePast(Base):
    def decide(self, view, rng):
        decision = super().decide(view, rng)
        return Decision(decision.commands, wake_at=view.now_s, reasons=decision.reasons)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (GivesTwice, "another command for job"),
        (NeverStarts, "waiting for ever"),
        (TossesACoin, "two different decisions"),
        (WritesOnTheView, "tried to change the state"),
        (TakesBehindTheJournal, "tried to change the state"),
        (GivesNoReason, "no reason"),
        (SplitsGangs, "may run on"),
        (LeavesOutTasks, "0 tasks of role 'ps'"),
        (UsesSlicesThatAreTooSlow, "never end"),
        (WakesInThePast, "not later than now"),
    ],
)
def test_a_broken_policy_is_told_what_it_broke(policy, says):
    with pytest.raises(NotConformingError, match=says):
        check_policy(policy)


def test_a_policy_without_a_name_or_wakes_is_told_so():
    with pytest.raises(NotConformingError, match="must have a name"):
        check_policy(type("Nameless", (Base,), {"name": ""}))
    with pytest.raises(NotConformingError, match="wakes_on"):
        check_policy(type("Sleepy", (Base,), {"wakes_on": None}))
