"""The loop that drives an engine with an executor, until nothing will ever happen again."""

from __future__ import annotations

import math

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import WokeUp
from gpuwise.core.protocols import Executor
from gpuwise.engine.engine import Engine

IDLE_WAKEUPS = 10_000
"""Wake-ups in a row, with nothing running and nothing decided, after which nothing is expected to happen."""
TURNS_AT_ONCE = 100_000
"""Turns at one instant after which a policy is taken to undo for ever what it has just decided."""


class StalledError(GpuwiseError):
    """A run that does not come forward: nothing is decided, or the same again and again."""


def drive(engine: Engine, executor: Executor) -> None:
    """Runs until no job is left and nothing more can happen."""
    observe, follow, take_in, decide = executor.observe, executor.follow, engine.take_in, engine.decide
    idle = turns = 0
    last_s = -math.inf
    while (seen := observe(engine.wake_at)) is not None:
        now_s, happened = seen
        if now_s > last_s:
            last_s, turns = now_s, 0
        else:
            turns += 1
            if turns > TURNS_AT_ONCE:
                raise StalledError(f"policy {engine.policy.name!r} decides for ever at {now_s} s; does it undo itself?")
        desired = decide() if take_in(now_s, happened) else ()
        if desired:
            follow(desired)
            idle = 0
        elif not engine.state.placed and all(type(each) is WokeUp for each in happened):
            idle += 1
            if idle > IDLE_WAKEUPS and engine.state.waiting:
                # Wake-ups lead nowhere; only what happens by itself can help.
                idle, engine.wake_at = 0, None
    if engine.state.waiting:
        raise StalledError(_stalled(engine))
    if engine.state.placed:
        raise StalledError(_endless(engine))


def _endless(engine: Engine) -> str:
    jobs, placed = engine.state.jobs, engine.state.placed
    return (
        f"{len(placed)} jobs make no step and never end, {jobs.ids[next(iter(placed))]!r} the first of them: "
        "their true rate where they were placed is 0"
    )


def _stalled(engine: Engine) -> str:
    waiting = list(engine.state.waiting)
    job = waiting[0]
    return (
        f"policy {engine.policy.name!r} leaves {len(waiting)} jobs waiting for ever with nothing running; "
        f"the first, {engine.state.jobs.ids[job]!r}, {engine.reason(job)}"
    )
