"""How fast jobs really come along, and whether that is news."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.core.observations import AttemptObserved

NEWS_FRAC = 0.25
"""A run time is revised when what is seen differs by this much from what is believed."""
LEAST_S, LEAST_STEPS = 10.0, 5.0
"""How long, and how many steps, one has to look at before it says anything."""
EVERY_S = 5.0
SHORTEST_S, LONGEST_S = 1e-3, 1e9
"""What a job says of its steps is not believed beyond this."""


@dataclass(slots=True)
class _Pace:
    first: AttemptObserved
    last: AttemptObserved
    told_s: float = 0.0


class Paces:
    """Progress of running attempts, from their first report on."""

    def __init__(self) -> None:
        self._of: dict[str, _Pace] = {}

    def note(self, seen: AttemptObserved) -> None:
        """A job tells how far it is."""
        if seen.step is None:
            return
        pace = self._of.get(seen.job)
        if pace is None or seen.attempt != pace.last.attempt or seen.step < (pace.last.step or 0.0):
            self._of[seen.job] = _Pace(seen, seen)
        else:
            pace.last = seen

    def forget(self, uid: str) -> None:
        """The attempt is over."""
        self._of.pop(uid, None)

    def surprises(self, now_s: float, state: ClusterState) -> list[tuple[str, float]]:
        """Jobs whose whole run takes another time than believed, and which; of those alone on what they asked for."""
        found = []
        for uid, pace in self._of.items():
            row = state.jobs.row_of.get(uid)
            seen_s, steps = pace.last.at_s - pace.first.at_s, (pace.last.step or 0.0) - (pace.first.step or 0.0)
            total = pace.last.steps
            if row is None or total is None or seen_s < LEAST_S or steps < LEAST_STEPS or now_s < pace.told_s + EVERY_S:
                continue
            placement = state.placed.get(row)
            if placement is None or not _alone(placement, state.jobs.shape_by_row[row].gpus):
                continue
            duration_s = total * seen_s / steps
            if not SHORTEST_S < duration_s < LONGEST_S:
                continue
            if abs(duration_s / state.jobs.duration_s.item(row) - 1) > NEWS_FRAC:
                pace.told_s = now_s
                found.append((uid, duration_s))
        return found


def _alone(placement: Placement, gpus: int) -> bool:
    return placement.sharing is Sharing.EXCLUSIVE and placement.gpus == gpus
