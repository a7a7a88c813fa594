"""What to do next about an attempt: a table over what is wanted and what is."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from gpuwise.core.assignments import Intent


class Goal(enum.Enum):
    """What is wanted of an attempt that is there."""

    RUN = enum.auto()
    STAND_BY = enum.auto()
    """It is the turn of another job on its devices: it shall stand still, and keep its memory and its place."""
    MOVE = enum.auto()
    """Its job shall run elsewhere: by a new attempt once this one has left."""
    AWAY = enum.auto()
    """Its job shall leave its devices and keep what it has done."""
    END = enum.auto()
    """It shall be gone."""


class Actual(enum.Enum):
    """What an attempt does."""

    LAUNCHING = enum.auto()
    """Being started, or going on after it was parked."""
    RUNNING = enum.auto()
    LEAVING = enum.auto()
    """Was asked to save its state and leave."""
    PAUSING = enum.auto()
    """Was asked to stand still before its next step."""
    PAUSED = enum.auto()
    """Stands still between two steps, and looks whether it may go on."""
    PARKING = enum.auto()
    PARKED = enum.auto()
    """Stopped where it is: it uses no core and no GPU, but keeps its memory."""
    STOPPING = enum.auto()
    """Was told to end."""


class Action(enum.Enum):
    """What can be done about it."""

    WAIT = enum.auto()
    ASK = enum.auto()
    """Ask the job to save its state and leave."""
    PAUSE = enum.auto()
    """Ask the job to stand still before its next step."""
    PARK = enum.auto()
    GO_ON = enum.auto()
    """Let an attempt that stands still go on where its job is wanted."""
    STOP = enum.auto()
    """End it: SIGTERM, a grace period, SIGKILL."""
    KILL = enum.auto()


class Means(enum.Flag):
    """What is so at this moment, as far as it matters."""

    NONE = 0
    SAVES = enum.auto()
    """The job saves its state when asked."""
    EXPIRED = enum.auto()
    """What it was asked to do last has taken too long."""
    FITS = enum.auto()
    """A parked attempt may go on where its job is wanted."""
    PAUSES = enum.auto()
    """The job stands still between two steps when asked."""


PLAN: Mapping[Goal, Mapping[Actual, Action]] = {
    Goal.RUN: {
        Actual.LAUNCHING: Action.WAIT, Actual.RUNNING: Action.WAIT, Actual.LEAVING: Action.GO_ON,
        Actual.PAUSING: Action.GO_ON, Actual.PAUSED: Action.GO_ON,
        Actual.PARKING: Action.WAIT, Actual.PARKED: Action.GO_ON, Actual.STOPPING: Action.WAIT,
    },
    Goal.STAND_BY: {
        Actual.LAUNCHING: Action.WAIT, Actual.RUNNING: Action.PAUSE, Actual.LEAVING: Action.PAUSE,
        Actual.PAUSING: Action.WAIT, Actual.PAUSED: Action.WAIT,
        Actual.PARKING: Action.WAIT, Actual.PARKED: Action.WAIT, Actual.STOPPING: Action.WAIT,
    },
    Goal.MOVE: {
        Actual.LAUNCHING: Action.WAIT, Actual.RUNNING: Action.ASK, Actual.LEAVING: Action.WAIT,
        Actual.PAUSING: Action.ASK, Actual.PAUSED: Action.ASK,
        Actual.PARKING: Action.WAIT, Actual.PARKED: Action.KILL, Actual.STOPPING: Action.WAIT,
    },
    Goal.AWAY: {
        Actual.LAUNCHING: Action.WAIT, Actual.RUNNING: Action.ASK, Actual.LEAVING: Action.WAIT,
        Actual.PAUSING: Action.ASK, Actual.PAUSED: Action.ASK,
        Actual.PARKING: Action.WAIT, Actual.PARKED: Action.WAIT, Actual.STOPPING: Action.WAIT,
    },
    Goal.END: {
        Actual.LAUNCHING: Action.STOP, Actual.RUNNING: Action.STOP, Actual.LEAVING: Action.STOP,
        Actual.PAUSING: Action.STOP, Actual.PAUSED: Action.STOP,
        Actual.PARKING: Action.STOP, Actual.PARKED: Action.STOP, Actual.STOPPING: Action.WAIT,
    },
}  # fmt: skip

INSTEAD: Mapping[tuple[Goal, Actual], tuple[Means, bool, Action]] = {
    (Goal.STAND_BY, Actual.RUNNING): (Means.PAUSES, False, Action.PARK),
    (Goal.STAND_BY, Actual.LEAVING): (Means.PAUSES, False, Action.PARK),
    (Goal.STAND_BY, Actual.PAUSING): (Means.EXPIRED, True, Action.PARK),
    (Goal.MOVE, Actual.RUNNING): (Means.SAVES, False, Action.STOP),
    (Goal.MOVE, Actual.PAUSING): (Means.SAVES, False, Action.STOP),
    (Goal.MOVE, Actual.PAUSED): (Means.SAVES, False, Action.STOP),
    (Goal.AWAY, Actual.RUNNING): (Means.SAVES, False, Action.PARK),
    (Goal.AWAY, Actual.PAUSING): (Means.SAVES, False, Action.PARK),
    (Goal.AWAY, Actual.PAUSED): (Means.SAVES, False, Action.PARK),
    (Goal.MOVE, Actual.LEAVING): (Means.EXPIRED, True, Action.STOP),
    (Goal.AWAY, Actual.LEAVING): (Means.EXPIRED, True, Action.PARK),
    (Goal.MOVE, Actual.PARKED): (Means.FITS, True, Action.GO_ON),
}
"""Where it depends: if this is so, or is not so, do that instead."""

STANDS_STILL = frozenset((Actual.PAUSED, Actual.PARKED))
"""What an attempt does that uses neither cores nor GPUs, whatever memory it keeps."""


def next_action(goal: Goal, actual: Actual, means: Means = Means.NONE) -> Action:
    """What to do next."""
    condition, holds, instead = INSTEAD.get((goal, actual), (Means.NONE, True, Action.WAIT))
    if condition and bool(means & condition) is holds:
        return instead
    return PLAN[goal][actual]


def goal_of(intent: Intent, newest: int, number: int) -> Goal:
    """What is wanted of attempt ``number`` of a job whose newest one is ``newest``."""
    if intent is Intent.RUN:
        return Goal.RUN if number == newest else Goal.MOVE
    return Goal.AWAY if intent is Intent.SUSPEND else Goal.END
