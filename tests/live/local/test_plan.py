"""The tables: what to do next, and what an end facts."""

from __future__ import annotations

import errno
import itertools

import pytest

from gpuwise.core.assignments import Intent
from gpuwise.live.local.attempts.endings import Outcome, cause_of, judge
from gpuwise.live.local.attempts.folders import Exit
from gpuwise.live.local.plan import INSTEAD, PLAN, Action, Actual, Facts, Goal, goal_of, next_action

ALL_FACTS = [Facts(value) for value in range(16)]


def test_there_is_a_plan_for_everything() -> None:
    assert set(PLAN) == set(Goal)
    assert all(set(row) == set(Actual) for row in PLAN.values())
    assert all(row in itertools.product(Goal, Actual) for row in INSTEAD)


def after(action: Action, actual: Actual) -> Actual:
    """What an attempt does after an action, or by itself if there is none."""
    follows = {
        Action.ASK_TO_LEAVE: Actual.LEAVING, Action.PAUSE: Actual.PAUSING, Action.PARK: Actual.PARKING,
        Action.RESUME: Actual.LAUNCHING, Action.STOP: Actual.STOPPING, Action.KILL: Actual.STOPPING,
    }  # fmt: skip
    by_itself = {
        Actual.LAUNCHING: Actual.RUNNING, Actual.PAUSING: Actual.PAUSED, Actual.PARKING: Actual.PARKED,
    }  # fmt: skip
    return by_itself.get(actual, actual) if action is Action.WAIT else follows[action]


@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("actual", Actual)
@pytest.mark.parametrize("facts", ALL_FACTS)
def test_every_way_leads_to_the_goal(goal: Goal, actual: Actual, facts: Facts) -> None:
    # After eight steps at most, an attempt is where it should be, or it is on its way out by itself or by force.
    where = actual
    for _ in range(8):
        where = after(next_action(goal, where, facts | Facts.EXPIRED), where)
    at_goal = {
        Goal.RUN: {Actual.RUNNING, Actual.STOPPING},
        Goal.STAND_BY: {Actual.PAUSED, Actual.PARKED, Actual.STOPPING},
        Goal.MOVE: {Actual.STOPPING},  # its end makes room for the next attempt
        Goal.SUSPEND: {Actual.PARKED, Actual.STOPPING},
        Goal.END: {Actual.STOPPING},
    }
    if goal is Goal.MOVE and facts & Facts.FITS and actual in (Actual.PARKING, Actual.PARKED):
        assert next_action(goal, Actual.PARKED, facts) is Action.RESUME  # and then it is where it should be
    else:
        assert where in at_goal[goal]


@pytest.mark.parametrize(
    ("goal", "actual", "facts", "action"),
    [
        (Goal.RUN, Actual.RUNNING, Facts.NONE, Action.WAIT),
        (Goal.RUN, Actual.PARKED, Facts.NONE, Action.RESUME),
        (Goal.RUN, Actual.PAUSING, Facts.PAUSES, Action.RESUME),
        (Goal.RUN, Actual.PAUSED, Facts.PAUSES, Action.RESUME),
        (Goal.STAND_BY, Actual.LAUNCHING, Facts.PAUSES, Action.WAIT),
        (Goal.STAND_BY, Actual.RUNNING, Facts.PAUSES, Action.PAUSE),
        (Goal.STAND_BY, Actual.RUNNING, Facts.SAVES, Action.PARK),
        (Goal.STAND_BY, Actual.LEAVING, Facts.PAUSES, Action.PAUSE),
        (Goal.STAND_BY, Actual.PAUSING, Facts.PAUSES, Action.WAIT),
        (Goal.STAND_BY, Actual.PAUSING, Facts.PAUSES | Facts.EXPIRED, Action.PARK),
        (Goal.STAND_BY, Actual.PAUSED, Facts.PAUSES, Action.WAIT),
        (Goal.STAND_BY, Actual.PARKED, Facts.FITS, Action.WAIT),
        (Goal.MOVE, Actual.PAUSED, Facts.SAVES, Action.ASK_TO_LEAVE),
        (Goal.MOVE, Actual.PAUSED, Facts.NONE, Action.STOP),
        (Goal.SUSPEND, Actual.PAUSED, Facts.SAVES, Action.ASK_TO_LEAVE),
        (Goal.SUSPEND, Actual.PAUSED, Facts.NONE, Action.PARK),
        (Goal.END, Actual.PAUSED, Facts.PAUSES, Action.STOP),
        (Goal.MOVE, Actual.RUNNING, Facts.SAVES, Action.ASK_TO_LEAVE),
        (Goal.MOVE, Actual.RUNNING, Facts.NONE, Action.STOP),
        (Goal.MOVE, Actual.LEAVING, Facts.SAVES, Action.WAIT),
        (Goal.MOVE, Actual.LEAVING, Facts.SAVES | Facts.EXPIRED, Action.STOP),
        (Goal.MOVE, Actual.PARKED, Facts.FITS, Action.RESUME),
        (Goal.MOVE, Actual.PARKED, Facts.SAVES, Action.KILL),
        (Goal.SUSPEND, Actual.LAUNCHING, Facts.SAVES, Action.WAIT),
        (Goal.SUSPEND, Actual.RUNNING, Facts.SAVES, Action.ASK_TO_LEAVE),
        (Goal.SUSPEND, Actual.RUNNING, Facts.NONE, Action.PARK),
        (Goal.SUSPEND, Actual.LEAVING, Facts.SAVES, Action.WAIT),
        (Goal.SUSPEND, Actual.LEAVING, Facts.EXPIRED, Action.PARK),
        (Goal.SUSPEND, Actual.PARKED, Facts.FITS, Action.WAIT),
        (Goal.END, Actual.LAUNCHING, Facts.NONE, Action.STOP),
        (Goal.END, Actual.PARKED, Facts.FITS, Action.STOP),
        (Goal.END, Actual.STOPPING, Facts.EXPIRED, Action.WAIT),
    ],
)
def test_what_to_do_next(goal: Goal, actual: Actual, facts: Facts, action: Action) -> None:
    assert next_action(goal, actual, facts) is action


def test_what_is_wanted_follows_from_the_assignment() -> None:
    assert (goal_of(Intent.RUN, 2, 2), goal_of(Intent.RUN, 2, 1)) == (Goal.RUN, Goal.MOVE)
    assert goal_of(Intent.SUSPEND, 2, 2) is goal_of(Intent.SUSPEND, 2, 1) is Goal.SUSPEND
    assert goal_of(Intent.STOP, 2, 2) is goal_of(Intent.STOP, 2, 1) is Goal.END


SIGTERM, SIGKILL = Exit(code=143, signal=15), Exit(code=137, signal=9)
LOST = Exit(code=137, signal=9, lost=True)


@pytest.mark.parametrize(
    ("ended", "goal", "more", "outcome"),
    [
        (Exit(code=0), Goal.RUN, {}, Outcome.SUCCEEDED),
        (Exit(code=0), Goal.SUSPEND, {}, Outcome.SUCCEEDED),
        (Exit(code=0), Goal.MOVE, {}, Outcome.SUCCEEDED),
        (Exit(code=0), Goal.END, {}, Outcome.CANCELLED),
        (Exit(code=1), Goal.RUN, {}, Outcome.FAILED),
        (Exit(code=1), Goal.SUSPEND, {}, Outcome.FAILED),
        (Exit(code=1), Goal.RUN, {"no_memory": True}, Outcome.OUT_OF_MEMORY),
        (Exit(code=None), Goal.RUN, {}, Outcome.FAILED),
        (Exit(code=75), Goal.RUN, {}, Outcome.FAILED),
        (Exit(code=75), Goal.SUSPEND, {"left_as_asked": True}, Outcome.SUSPENDED),
        (Exit(code=75), Goal.MOVE, {"left_as_asked": True}, Outcome.MOVED),
        (Exit(code=143, signal=15, asked="stop"), Goal.MOVE, {}, Outcome.MOVED),
        (Exit(code=0, asked="stop"), Goal.MOVE, {}, Outcome.MOVED),
        (Exit(code=143, signal=15, asked="stop"), Goal.SUSPEND, {}, Outcome.SUSPENDED),
        (Exit(code=137, signal=9, asked="kill"), Goal.MOVE, {"why": "GPU 0 was lost"}, Outcome.MOVED),
        (Exit(code=137, signal=9, asked="kill"), Goal.END, {"why": "GPU 0 was lost"}, Outcome.LOST),
        (Exit(code=137, signal=9, asked="kill"), Goal.RUN, {"why": "GPU 0 was lost"}, Outcome.LOST),
        (Exit(code=143, signal=15, asked="stop"), Goal.RUN, {"why": "time limit", "final": True}, Outcome.FAILED),
        (Exit(code=0, asked="stop"), Goal.SUSPEND, {"why": "time limit", "final": True}, Outcome.FAILED),
        (Exit(code=0), Goal.RUN, {"why": "time limit", "final": True}, Outcome.SUCCEEDED),  # it was faster
        (Exit(code=0, asked="shutdown"), Goal.RUN, {}, Outcome.LOST),
        (SIGTERM, Goal.RUN, {}, Outcome.FAILED),
        (LOST, Goal.RUN, {}, Outcome.LOST),
        (LOST, Goal.END, {}, Outcome.CANCELLED),
    ],
)
def test_what_an_end_facts(ended: Exit, goal: Goal, more: dict[str, object], outcome: Outcome) -> None:
    given = {"left_as_asked": False, "final": False, "why": "", "no_memory": False} | more
    assert judge(ended, goal, **given) is outcome  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ended", "outcome", "more", "cause"),
    [
        (Exit(code=2), Outcome.FAILED, {"last_line": "no lr"}, "exited with code 2: no lr"),
        (Exit(code=2), Outcome.FAILED, {}, "exited with code 2"),
        (SIGKILL, Outcome.FAILED, {}, "killed by signal 9 (SIGKILL)"),
        (Exit(code=228, signal=100), Outcome.FAILED, {}, "killed by signal 100"),
        (SIGKILL, Outcome.OUT_OF_MEMORY, {"limit_bytes": 2**30}, "ran out of memory; its limit was 1 GiB"),
        (SIGKILL, Outcome.OUT_OF_MEMORY, {}, "ran out of memory"),
        (Exit(), Outcome.FAILED, {}, "how it ended could not be read"),
        (SIGTERM, Outcome.FAILED, {"why": "time limit of 5 s reached"}, "time limit of 5 s reached"),
        (Exit(code=126, doing="confine", errno=errno.EPERM), Outcome.FAILED, {},
         "could not set its limits: Operation not permitted"),
        (Exit(code=126, doing="?", errno=0), Outcome.FAILED, {}, "could not start it: Success"),
    ],
)  # fmt: skip
def test_a_cause_is_for_people(ended: Exit, outcome: Outcome, more: dict[str, object], cause: str) -> None:
    given = {"why": "", "limit_bytes": 0.0, "last_line": ""} | more
    assert cause_of(ended, outcome, **given) == cause  # type: ignore[arg-type]
