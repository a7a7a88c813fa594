"""The tables: what to do next, and what an end means."""

from __future__ import annotations

import errno
import itertools

import pytest

from gpuwise.core.assignments import Intent
from gpuwise.live.local.attempts.folders import Exit
from gpuwise.live.local.attempts.outcome import Outcome, cause_of, judge
from gpuwise.live.local.plan import INSTEAD, PLAN, Action, Actual, Goal, Means, goal_of, next_action

ALL_MEANS = [Means(value) for value in range(16)]


def test_there_is_a_plan_for_everything() -> None:
    assert set(PLAN) == set(Goal)
    assert all(set(row) == set(Actual) for row in PLAN.values())
    assert all(row in itertools.product(Goal, Actual) for row in INSTEAD)


def after(action: Action, actual: Actual) -> Actual:
    """What an attempt does after an action, or by itself if there is none."""
    follows = {
        Action.ASK: Actual.LEAVING, Action.PAUSE: Actual.PAUSING, Action.PARK: Actual.PARKING,
        Action.GO_ON: Actual.LAUNCHING, Action.STOP: Actual.STOPPING, Action.KILL: Actual.STOPPING,
    }  # fmt: skip
    by_itself = {
        Actual.LAUNCHING: Actual.RUNNING, Actual.PAUSING: Actual.PAUSED, Actual.PARKING: Actual.PARKED,
    }  # fmt: skip
    return by_itself.get(actual, actual) if action is Action.WAIT else follows[action]


@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("actual", Actual)
@pytest.mark.parametrize("means", ALL_MEANS)
def test_every_way_leads_to_the_goal(goal: Goal, actual: Actual, means: Means) -> None:
    # After eight steps at most, an attempt is where it should be, or it is on its way out by itself or by force.
    where = actual
    for _ in range(8):
        where = after(next_action(goal, where, means | Means.EXPIRED), where)
    at_goal = {
        Goal.RUN: {Actual.RUNNING, Actual.STOPPING},
        Goal.STAND_BY: {Actual.PAUSED, Actual.PARKED, Actual.STOPPING},
        Goal.MOVE: {Actual.STOPPING},  # its end makes room for the next attempt
        Goal.AWAY: {Actual.PARKED, Actual.STOPPING},
        Goal.END: {Actual.STOPPING},
    }
    if goal is Goal.MOVE and means & Means.FITS and actual in (Actual.PARKING, Actual.PARKED):
        assert next_action(goal, Actual.PARKED, means) is Action.GO_ON  # and then it is where it should be
    else:
        assert where in at_goal[goal]


@pytest.mark.parametrize(
    ("goal", "actual", "means", "action"),
    [
        (Goal.RUN, Actual.RUNNING, Means.NONE, Action.WAIT),
        (Goal.RUN, Actual.PARKED, Means.NONE, Action.GO_ON),
        (Goal.RUN, Actual.PAUSING, Means.PAUSES, Action.GO_ON),
        (Goal.RUN, Actual.PAUSED, Means.PAUSES, Action.GO_ON),
        (Goal.STAND_BY, Actual.LAUNCHING, Means.PAUSES, Action.WAIT),
        (Goal.STAND_BY, Actual.RUNNING, Means.PAUSES, Action.PAUSE),
        (Goal.STAND_BY, Actual.RUNNING, Means.SAVES, Action.PARK),
        (Goal.STAND_BY, Actual.LEAVING, Means.PAUSES, Action.PAUSE),
        (Goal.STAND_BY, Actual.PAUSING, Means.PAUSES, Action.WAIT),
        (Goal.STAND_BY, Actual.PAUSING, Means.PAUSES | Means.EXPIRED, Action.PARK),
        (Goal.STAND_BY, Actual.PAUSED, Means.PAUSES, Action.WAIT),
        (Goal.STAND_BY, Actual.PARKED, Means.FITS, Action.WAIT),
        (Goal.MOVE, Actual.PAUSED, Means.SAVES, Action.ASK),
        (Goal.MOVE, Actual.PAUSED, Means.NONE, Action.STOP),
        (Goal.AWAY, Actual.PAUSED, Means.SAVES, Action.ASK),
        (Goal.AWAY, Actual.PAUSED, Means.NONE, Action.PARK),
        (Goal.END, Actual.PAUSED, Means.PAUSES, Action.STOP),
        (Goal.MOVE, Actual.RUNNING, Means.SAVES, Action.ASK),
        (Goal.MOVE, Actual.RUNNING, Means.NONE, Action.STOP),
        (Goal.MOVE, Actual.LEAVING, Means.SAVES, Action.WAIT),
        (Goal.MOVE, Actual.LEAVING, Means.SAVES | Means.EXPIRED, Action.STOP),
        (Goal.MOVE, Actual.PARKED, Means.FITS, Action.GO_ON),
        (Goal.MOVE, Actual.PARKED, Means.SAVES, Action.KILL),
        (Goal.AWAY, Actual.LAUNCHING, Means.SAVES, Action.WAIT),
        (Goal.AWAY, Actual.RUNNING, Means.SAVES, Action.ASK),
        (Goal.AWAY, Actual.RUNNING, Means.NONE, Action.PARK),
        (Goal.AWAY, Actual.LEAVING, Means.SAVES, Action.WAIT),
        (Goal.AWAY, Actual.LEAVING, Means.EXPIRED, Action.PARK),
        (Goal.AWAY, Actual.PARKED, Means.FITS, Action.WAIT),
        (Goal.END, Actual.LAUNCHING, Means.NONE, Action.STOP),
        (Goal.END, Actual.PARKED, Means.FITS, Action.STOP),
        (Goal.END, Actual.STOPPING, Means.EXPIRED, Action.WAIT),
    ],
)
def test_what_to_do_next(goal: Goal, actual: Actual, means: Means, action: Action) -> None:
    assert next_action(goal, actual, means) is action


def test_what_is_wanted_follows_from_the_assignment() -> None:
    assert (goal_of(Intent.RUN, 2, 2), goal_of(Intent.RUN, 2, 1)) == (Goal.RUN, Goal.MOVE)
    assert goal_of(Intent.SUSPEND, 2, 2) is goal_of(Intent.SUSPEND, 2, 1) is Goal.AWAY
    assert goal_of(Intent.STOP, 2, 2) is goal_of(Intent.STOP, 2, 1) is Goal.END


SIGTERM, SIGKILL = Exit(code=143, signal=15), Exit(code=137, signal=9)
LOST = Exit(code=137, signal=9, lost=True)


@pytest.mark.parametrize(
    ("ended", "goal", "more", "outcome"),
    [
        (Exit(code=0), Goal.RUN, {}, Outcome.SUCCEEDED),
        (Exit(code=0), Goal.AWAY, {}, Outcome.SUCCEEDED),
        (Exit(code=0), Goal.MOVE, {}, Outcome.SUCCEEDED),
        (Exit(code=0), Goal.END, {}, Outcome.CANCELLED),
        (Exit(code=1), Goal.RUN, {}, Outcome.FAILED),
        (Exit(code=1), Goal.AWAY, {}, Outcome.FAILED),
        (Exit(code=1), Goal.RUN, {"no_memory": True}, Outcome.OUT_OF_MEMORY),
        (Exit(code=None), Goal.RUN, {}, Outcome.FAILED),
        (Exit(code=75), Goal.RUN, {}, Outcome.FAILED),
        (Exit(code=75), Goal.AWAY, {"left_as_asked": True}, Outcome.SUSPENDED),
        (Exit(code=75), Goal.MOVE, {"left_as_asked": True}, Outcome.MOVED),
        (Exit(code=143, signal=15, asked="stop"), Goal.MOVE, {}, Outcome.MOVED),
        (Exit(code=0, asked="stop"), Goal.MOVE, {}, Outcome.MOVED),
        (Exit(code=143, signal=15, asked="stop"), Goal.AWAY, {}, Outcome.SUSPENDED),
        (Exit(code=137, signal=9, asked="kill"), Goal.MOVE, {"why": "GPU 0 was lost"}, Outcome.MOVED),
        (Exit(code=137, signal=9, asked="kill"), Goal.END, {"why": "GPU 0 was lost"}, Outcome.LOST),
        (Exit(code=137, signal=9, asked="kill"), Goal.RUN, {"why": "GPU 0 was lost"}, Outcome.LOST),
        (Exit(code=143, signal=15, asked="stop"), Goal.RUN, {"why": "time limit", "final": True}, Outcome.FAILED),
        (Exit(code=0, asked="stop"), Goal.AWAY, {"why": "time limit", "final": True}, Outcome.FAILED),
        (Exit(code=0), Goal.RUN, {"why": "time limit", "final": True}, Outcome.SUCCEEDED),  # it was faster
        (Exit(code=0, asked="shutdown"), Goal.RUN, {}, Outcome.LOST),
        (SIGTERM, Goal.RUN, {}, Outcome.FAILED),
        (LOST, Goal.RUN, {}, Outcome.LOST),
        (LOST, Goal.END, {}, Outcome.CANCELLED),
    ],
)
def test_what_an_end_means(ended: Exit, goal: Goal, more: dict[str, object], outcome: Outcome) -> None:
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
