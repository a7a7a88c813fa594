"""The tables: what to do next, and what an end facts."""

from __future__ import annotations

import errno
import itertools

import pytest

from gpuwise.core.assignments import Intent
from gpuwise.core.observations import Cause, Phase
from gpuwise.live.local.attempts.endings import describe, judge
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
SUCCEEDED, STOPPED, SUSPENDED, MOVED = (
    (phase, Cause.ERROR) for phase in (Phase.SUCCEEDED, Phase.STOPPED, Phase.SUSPENDED, Phase.MOVED)
)
FAILED, LIMIT, NO_MEMORY, VANISHED, NO_DEVICE = (
    (Phase.FAILED, cause) for cause in (Cause.ERROR, Cause.LIMIT, Cause.OUT_OF_MEMORY, Cause.LOST, Cause.DEVICE_LOST)
)


@pytest.mark.parametrize(
    ("ended", "goal", "more", "outcome"),
    [
        (Exit(code=0), Goal.RUN, {}, SUCCEEDED),
        (Exit(code=0), Goal.SUSPEND, {}, SUCCEEDED),
        (Exit(code=0), Goal.MOVE, {}, SUCCEEDED),
        (Exit(code=0), Goal.END, {}, STOPPED),
        (Exit(code=1), Goal.RUN, {}, FAILED),
        (Exit(code=1), Goal.SUSPEND, {}, FAILED),
        (Exit(code=1), Goal.RUN, {"no_memory": True}, NO_MEMORY),
        (Exit(code=None), Goal.RUN, {}, FAILED),
        (Exit(code=75), Goal.RUN, {}, FAILED),
        (Exit(code=75), Goal.SUSPEND, {"left_as_asked": True}, SUSPENDED),
        (Exit(code=75), Goal.MOVE, {"left_as_asked": True}, MOVED),
        (Exit(code=143, signal=15, asked="stop"), Goal.MOVE, {}, MOVED),
        (Exit(code=0, asked="stop"), Goal.MOVE, {}, MOVED),
        (Exit(code=143, signal=15, asked="stop"), Goal.SUSPEND, {}, SUSPENDED),
        (Exit(code=137, signal=9, asked="kill"), Goal.MOVE, {"why": "GPU 0 was lost"}, MOVED),
        (Exit(code=137, signal=9, asked="kill"), Goal.END, {"why": "GPU 0 was lost"}, NO_DEVICE),
        (Exit(code=137, signal=9, asked="kill"), Goal.RUN, {"why": "GPU 0 was lost"}, NO_DEVICE),
        (Exit(code=143, signal=15, asked="stop"), Goal.RUN, {"why": "time limit", "final": True}, LIMIT),
        (Exit(code=0, asked="stop"), Goal.SUSPEND, {"why": "time limit", "final": True}, LIMIT),
        (Exit(code=0), Goal.RUN, {"why": "time limit", "final": True}, SUCCEEDED),  # it was faster
        (Exit(code=0, asked="shutdown"), Goal.RUN, {}, VANISHED),
        (SIGTERM, Goal.RUN, {}, FAILED),
        (LOST, Goal.RUN, {}, VANISHED),
        (LOST, Goal.END, {}, STOPPED),
    ],
)
def test_what_an_end_means(ended: Exit, goal: Goal, more: dict[str, object], outcome: tuple[Phase, Cause]) -> None:
    given = {"left_as_asked": False, "final": False, "why": "", "no_memory": False} | more
    assert judge(ended, goal, **given) == outcome  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ended", "cause", "more", "text"),
    [
        (Exit(code=2), Cause.ERROR, {"last_line": "no lr"}, "exited with code 2: no lr"),
        (Exit(code=2), Cause.ERROR, {}, "exited with code 2"),
        (SIGKILL, Cause.ERROR, {}, "killed by signal 9 (SIGKILL)"),
        (Exit(code=228, signal=100), Cause.ERROR, {}, "killed by signal 100"),
        (SIGKILL, Cause.OUT_OF_MEMORY, {"limit_bytes": 2**30}, "ran out of memory; its limit was 1 GiB"),
        (SIGKILL, Cause.OUT_OF_MEMORY, {}, "ran out of memory"),
        (Exit(), Cause.ERROR, {}, "how it ended could not be read"),
        (SIGTERM, Cause.ERROR, {"why": "time limit of 5 s reached"}, "time limit of 5 s reached"),
        (Exit(code=126, doing="confine", errno=errno.EPERM), Cause.ERROR, {},
         "could not set its limits: Operation not permitted"),
        (Exit(code=126, doing="?", errno=0), Cause.ERROR, {}, "could not start it: Success"),
    ],
)  # fmt: skip
def test_a_cause_is_for_people(ended: Exit, cause: Cause, more: dict[str, object], text: str) -> None:
    given = {"why": "", "limit_bytes": 0.0, "last_line": ""} | more
    assert describe(ended, cause, **given) == text  # type: ignore[arg-type]
