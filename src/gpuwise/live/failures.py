"""Turns that fail: how long to wait, which observations are left out, and when the policy is to blame."""

from __future__ import annotations

import logging
from collections.abc import Collection

from gpuwise.core.events import Event
from gpuwise.core.observations import AttemptObserved, Phase

log = logging.getLogger("gpuwise.controller")
Key = tuple[str, int, Phase] | str
"""What makes observations the same: job, attempt and phase, or the kind of an event and what it is about."""

BACK_OFF_S = (0.05, 0.2, 1.0, 2.0)
"""How long to wait after one failed turn, two, and so on."""
PATIENCE = 3
"""After this many failures in a row a policy is replaced, and an observation left out."""
MAX_FAILING = 100
"""Observations whose failures are counted."""


class Failures:
    """Failures in a row: of turns, of the policy, and of observations that cannot be taken in."""

    def __init__(self) -> None:
        self.turns = 0
        self.policy = 0
        self._observations: dict[Key, int] = {}
        """How often each observation could not be taken in, since it last could."""

    def back_off_s(self) -> float:
        """How long to wait after a turn that failed."""
        return BACK_OFF_S[min(self.turns, len(BACK_OFF_S)) - 1]

    def is_left_out(self, seen: Event | AttemptObserved) -> bool:
        """Whether an observation has failed too often to be tried again."""
        return bool(self._observations) and self._observations.get(_key(seen), 0) >= PATIENCE

    def succeeded(self, seen: Event | AttemptObserved) -> None:
        """An observation was taken in."""
        if self._observations:
            self._observations.pop(_key(seen), None)

    def failed(self, seen: Event | AttemptObserved) -> None:
        """An observation could not be taken in."""
        key = _key(seen)
        count = self._observations[key] = self._observations.pop(key, 0) + 1
        log.error("%s cannot be taken in%s", seen, "; it is left out from now on" if count >= PATIENCE else "")
        if len(self._observations) > MAX_FAILING:
            del self._observations[next(iter(self._observations))]

    def left_out(self, live: Collection[str]) -> str:
        """Which observations are left out, for people; those of jobs that have ended do not matter any more."""
        if not self._observations:
            return ""
        self._observations = {
            key: count for key, count in self._observations.items() if isinstance(key, str) or key[0] in live
        }
        left_out = [_describe(key) for key, count in self._observations.items() if count >= PATIENCE]
        return f"cannot take in {', '.join(left_out)}; see the controller log" if left_out else ""


def _key(seen: Event | AttemptObserved) -> Key:
    """What makes two observations the same, whenever they are made."""
    if isinstance(seen, AttemptObserved):
        return seen.job, seen.attempt, seen.phase
    node = getattr(seen, "node", "")
    parts = (type(seen).__name__, getattr(node, "name", node), getattr(seen, "device", ""), getattr(seen, "job", ""))
    return " ".join(str(part) for part in parts if part != "")


def _describe(key: Key) -> str:
    if isinstance(key, str):
        return key
    job, attempt, phase = key
    return f"that attempt {attempt} of job {job} is {phase.name.lower()}"
