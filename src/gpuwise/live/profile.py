"""The GPU utilization of jobs, measured while each is alone on its GPUs, and reported when it is news."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.events import PROFILE_S
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Sharing
from gpuwise.devices.machine import Reading, Where
from gpuwise.live.clock import Repeating

EVERY_S = 5.0
NEWS_FRAC = 0.1
"""A utilization is reported when it differs by this much of a GPU from the forecast, or when there is none."""

Alone = Mapping[str, tuple[Sequence[Where], float]]
"""Jobs that are alone on their devices: which these are, and the forecast of their utilization (NaN: none)."""


def alone(state: ClusterState) -> dict[str, tuple[Sequence[Where], float]]:
    """The running jobs that share no device with others."""
    found: dict[str, tuple[Sequence[Where], float]] = {}
    for job, placement in state.placed.items():
        if placement.sharing is Sharing.MIG or state.residents.neighbours(job, placement) or not placement.gpus:
            continue
        if state.status(job) is Status.RUNNING:
            found[state.jobs.ids[job]] = (placement.devices(), state.jobs.gpu_util_frac.item(job))
    return found


@dataclass(slots=True)
class _Seen:
    devices: Sequence[Where]
    since_s: float
    readings: list[float] = field(default_factory=list)


class Profiles:
    """Readings of jobs that are alone, from when they were first observed to be."""

    def __init__(self, profile_s: float = PROFILE_S) -> None:
        self._profile_s = profile_s
        self._observed: dict[str, _Seen] = {}

    def note(self, now_s: float, jobs: Alone, readings: Mapping[Where, Reading]) -> dict[str, float]:
        """Takes readings in; the utilization of jobs that have been alone for long enough, where it is news."""
        self._observed = {
            uid: seen for uid, seen in self._observed.items() if uid in jobs and jobs[uid][0] == seen.devices
        }
        news = {}
        for uid, (devices, forecast) in jobs.items():
            used = [readings[where].util_frac for where in devices if where in readings]
            now = sum(used) / len(used) if used else math.nan
            if math.isnan(now):
                continue
            seen = self._observed.setdefault(uid, _Seen(devices, now_s))
            seen.readings.append(min(max(now, 0.0), 1.0))
            if now_s - seen.since_s >= self._profile_s:
                found = sum(seen.readings) / len(seen.readings)
                self._observed[uid] = _Seen(devices, now_s)
                if not abs(found - forecast) <= NEWS_FRAC:
                    news[uid] = found
        return news


class Profiler(Repeating):
    """Looks at the devices every few seconds, in a thread of its own, and reports what is news."""

    def __init__(
        self,
        look: Callable[[], tuple[float, Alone, Mapping[Where, Reading]]],
        report: Callable[[Mapping[str, float]], object],
        every_s: float = EVERY_S,
        profile_s: float = PROFILE_S,
    ) -> None:
        profiles = Profiles(profile_s)

        def look_once() -> None:
            if news := profiles.note(*look()):
                report(news)

        super().__init__("profiler", every_s, look_once)
