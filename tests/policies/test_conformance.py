from __future__ import annotations

import pytest

from gpuwise.core.commands import NOTHING, Decision
from gpuwise.core.events import CAPACITY_CHANGES
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
