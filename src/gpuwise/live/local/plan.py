"""What to do next about an attempt: a table over what is wanted and what is."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from gpuwise.core.assignments import Intent


class Goal(enum.Enum):
    """What is wanted of an attempt that is there."""

    RUN = enum.auto()
    STAND_BY = enum.auto()
    """It is the turn of another job on its devices: it shall pause, and keep its memory and its place."""
    MOVE = enum.auto()
    """Its job shall run elsewhere: by a new attempt once this one has left."""
    SUSPEND = enum.auto()
    """Its job shall leave its devices and keep what it has done."""
    END = enum.auto()
    """It shall be gone."""


class Actual(enum.Enum):
    """What an attempt does."""

    LAUNCHING = enum.auto()
    """Being started, or resumed after it was parked."""
    RUNNING = enum.auto()
    LEAVING = enum.auto()
    """Was asked to save its state and end."""
    PAUSING = enum.auto()
    """Was asked to pause before its next step."""
    PAUSED = enum.auto()
    """Waits between two steps until it may continue."""
    PARKING = enum.auto()
    PARKED = enum.auto()
    """Its processes are stopped (SIGSTOP): it uses no core and no GPU, but keeps its memory."""
    STOPPING = enum.auto()
    """Was ordered to end."""


class Action(enum.Enum):
    """What can be done about it."""

    WAIT = enum.auto()
    ASK_TO_LEAVE = enum.auto()
    """Ask the job to save its state and end."""
    PAUSE = enum.auto()
    """Ask the job to pause before its next step."""
    PARK = enum.auto()
    RESUME = enum.auto()
    """Let an attempt that is paused or parked continue where its job is wanted."""
    STOP = enum.auto()
    """End it: SIGTERM, a grace period, SIGKILL."""
    KILL = enum.auto()


class Facts(enum.Flag):
    """What is so at this moment, as far as it matters."""

    NONE = 0
    SAVES = enum.auto()
    """The job saves its state when asked."""
    EXPIRED = enum.auto()
    """What it was asked to do last has taken too long."""
    FITS = enum.auto()
    """A parked attempt may continue where its job is wanted."""
    PAUSES = enum.auto()
    """The job pauses between two steps when asked."""


PLAN: Mapping[Goal, Mapping[Actual, Action]] = {
    Goal.RUN: {
        Actual.LAUNCHING: Action.WAIT, Actual.RUNNING: Action.WAIT, Actual.LEAVING: Action.RESUME,
        Actual.PAUSING: Action.RESUME, Actual.PAUSED: Action.RESUME,
        Actual.PARKING: Action.WAIT, Actual.PARKED: Action.RESUME, Actual.STOPPING: Action.WAIT,
    },
    Goal.STAND_BY: {
        Actual.LAUNCHING: Action.WAIT, Actual.RUNNING: Action.PAUSE, Actual.LEAVING: Action.PAUSE,
        Actual.PAUSING: Action.WAIT, Actual.PAUSED: Action.WAIT,
        Actual.PARKING: Action.WAIT, Actual.PARKED: Action.WAIT, Actual.STOPPING: Action.WAIT,
    },
    Goal.MOVE: {
        Actual.LAUNCHING: Action.WAIT, Actual.RUNNING: Action.ASK_TO_LEAVE, Actual.LEAVING: Action.WAIT,
        Actual.PAUSING: Action.ASK_TO_LEAVE, Actual.PAUSED: Action.ASK_TO_LEAVE,
        Actual.PARKING: Action.WAIT, Actual.PARKED: Action.KILL, Actual.STOPPING: Action.WAIT,
    },
    Goal.SUSPEND: {
        Actual.LAUNCHING: Action.WAIT, Actual.RUNNING: Action.ASK_TO_LEAVE, Actual.LEAVING: Action.WAIT,
        Actual.PAUSING: Action.ASK_TO_LEAVE, Actual.PAUSED: Action.ASK_TO_LEAVE,
        Actual.PARKING: Action.WAIT, Actual.PARKED: Action.WAIT, Actual.STOPPING: Action.WAIT,
    },
    Goal.END: {
        Actual.LAUNCHING: Action.STOP, Actual.RUNNING: Action.STOP, Actual.LEAVING: Action.STOP,
        Actual.PAUSING: Action.STOP, Actual.PAUSED: Action.STOP,
        Actual.PARKING: Action.STOP, Actual.PARKED: Action.STOP, Actual.STOPPING: Action.WAIT,
    },
}  # fmt: skip

INSTEAD: Mapping[tuple[Goal, Actual], tuple[Facts, bool, Action]] = {
    (Goal.STAND_BY, Actual.RUNNING): (Facts.PAUSES, False, Action.PARK),
    (Goal.STAND_BY, Actual.LEAVING): (Facts.PAUSES, False, Action.PARK),
    (Goal.STAND_BY, Actual.PAUSING): (Facts.EXPIRED, True, Action.PARK),
    (Goal.MOVE, Actual.RUNNING): (Facts.SAVES, False, Action.STOP),
    (Goal.MOVE, Actual.PAUSING): (Facts.SAVES, False, Action.STOP),
    (Goal.MOVE, Actual.PAUSED): (Facts.SAVES, False, Action.STOP),
    (Goal.SUSPEND, Actual.RUNNING): (Facts.SAVES, False, Action.PARK),
    (Goal.SUSPEND, Actual.PAUSING): (Facts.SAVES, False, Action.PARK),
    (Goal.SUSPEND, Actual.PAUSED): (Facts.SAVES, False, Action.PARK),
    (Goal.MOVE, Actual.LEAVING): (Facts.EXPIRED, True, Action.STOP),
    (Goal.SUSPEND, Actual.LEAVING): (Facts.EXPIRED, True, Action.PARK),
    (Goal.MOVE, Actual.PARKED): (Facts.FITS, True, Action.RESUME),
}
"""Where it depends: if this is so, or is not so, do that instead."""

IDLE = frozenset((Actual.PAUSED, Actual.PARKED))
"""An attempt that uses neither cores nor GPUs, whatever memory it keeps."""


def next_action(goal: Goal, actual: Actual, facts: Facts = Facts.NONE) -> Action:
    """What to do next."""
    condition, expected, instead = INSTEAD.get((goal, actual), (Facts.NONE, True, Action.WAIT))
    if condition and bool(facts & condition) is expected:
        return instead
    return PLAN[goal][actual]


def goal_of(intent: Intent, newest: int, number: int) -> Goal:
    """What is wanted of attempt ``number`` of a job whose newest one is ``newest``."""
    if intent is Intent.RUN:
        return Goal.RUN if number == newest else Goal.MOVE
    return Goal.SUSPEND if intent is Intent.SUSPEND else Goal.END
