"""Run times of live jobs: forecast at submission, and revised by jobs of the same command and by their own progress."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from statistics import median

from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Placement
from gpuwise.core.events import Event, JobFinished, JobRevised
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Forecast, Sharing, Source
from gpuwise.core.job.request import UNKNOWN_DURATION_S, JobRequest
from gpuwise.core.job.table import JobTable
from gpuwise.core.observations import AttemptObserved
from gpuwise.core.records import JobRecord, Store

NEWS_FRAC = 0.25
"""A run time is revised when what is known of it differs by this much from its forecast."""
REMEMBERED = 20
"""Earlier runs that count."""
LEAST_S, LEAST_STEPS = 10.0, 5.0
"""How much of a run must have been observed before its pace says anything."""
PACE_EVERY_S = 5.0
SHORTEST_S, LONGEST_S = 1e-3, 1e9
"""What a job says of its steps is not trusted beyond this."""


def from_runs(seconds: list[float]) -> Forecast:
    """The forecast that earlier runs make: their median, between the shortest and the longest."""
    if len(seconds) < 2:
        return Forecast(seconds[0], source=Source.HISTORY)
    return Forecast(median(seconds), min(seconds), max(seconds), Source.HISTORY)


def record_fields(duration: Forecast, gpu_memory: Forecast, gpu_util: Forecast) -> dict[str, object]:
    """The fields of a job's record that say what is forecast of it; what is not known is None."""
    made: dict[str, object] = {"duration_s": duration.value, "gpu_memory_bytes": gpu_memory.value}
    made["gpu_util_frac"] = _known(gpu_util.value)
    for stem, unit, of in (
        ("duration", "s", duration), ("gpu_memory", "bytes", gpu_memory), ("gpu_util", "frac", gpu_util)
    ):  # fmt: skip
        made[f"{stem}_low_{unit}"], made[f"{stem}_high_{unit}"] = _known(of.low), _known(of.high)
        made[f"{stem}_source"] = of.source.value
    return made


def adopt(record: JobRecord, jobs: JobTable, row: int) -> None:
    """Takes over what the version before kept in a job's record only: retries, failures, the source of its run time."""
    jobs.retries[row], jobs.requeue[row] = record.request.retries, record.request.requeue
    jobs.failures[row], jobs.out_of_memory[row] = record.failures, record.out_of_memory
    if record.request.duration_s is None and jobs.duration(row).source is Source.DECLARED:
        jobs.revise_duration(row, replace(jobs.duration(row), source=Source(record.duration_source)))


def _known(number: float) -> float | None:
    return number if number == number else None


@dataclass(slots=True)
class _Runs:
    """What is known of a user's runs of one command."""

    forecast_s: float
    """The run time that was last forecast for the jobs that wait."""
    seconds: deque[float] | None = None
    """Earlier runs, newest last; None until one ends: most commands are run once."""
    waiting: dict[str, None] = field(default_factory=dict)
    """Jobs that have not ended, in the order of submission."""


class Forecasts:
    """Run times of jobs that were not declared: from earlier runs, a predictor, or a default."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: dict[tuple[str, str, tuple[str, ...]], _Runs] = {}

    def duration(self, request: JobRequest, user: str) -> Forecast:
        """The run time of a new job: declared, that of earlier runs, predicted, or a default."""
        if request.duration_s is not None:
            return Forecast(request.duration_s)
        if earlier := self._earlier(request, user):
            return from_runs(earlier)
        return request.predicted or Forecast(UNKNOWN_DURATION_S, source=Source.DEFAULT)

    def _earlier(self, request: JobRequest, user: str) -> list[float]:
        return [seconds for seconds, _ in self._store.run_times(request, user, REMEMBERED) if seconds > 0]

    def add(self, record: JobRecord) -> None:
        """A job waits; if its run time was not declared, it may learn from others."""
        if record.request.duration_s is not None:
            return
        self._runs.setdefault(_key(record), _Runs(record.duration_s)).waiting[record.uid] = None

    def remove(self, record: JobRecord) -> None:
        """A job has ended."""
        runs = self._runs.get(_key(record))
        if runs is not None and runs.waiting.pop(record.uid, runs) is None and not runs.waiting:
            del self._runs[_key(record)]

    def learn(self, state: ClusterState, event: JobFinished, record: JobRecord) -> list[Event]:
        """What the end of a job says of those of the same command that still wait."""
        runs = self._runs.get(_key(record))
        if runs is None or runs.waiting.keys() <= {record.uid}:
            return []
        if runs.seconds is None:
            runs.seconds = deque(reversed(self._earlier(record.request, record.user)), REMEMBERED)
        ran_s = state.jobs.held_s.item(event.job)
        if ran_s > 0:
            runs.seconds.append(ran_s)
        if not runs.seconds:
            return []
        found = from_runs(list(runs.seconds))
        if abs(found.value / runs.forecast_s - 1.0) <= NEWS_FRAC:
            return []
        runs.forecast_s = found.value
        return self._revised(state, event.at_s, runs, found)

    def _revised(self, state: ClusterState, at_s: float, runs: _Runs, found: Forecast) -> list[Event]:
        low, high = _known(found.low), _known(found.high)
        rows = (state.jobs.row_of[uid] for uid in runs.waiting)
        return [
            JobRevised(
                at_s, row, duration_s=found.value, duration_low_s=low, duration_high_s=high, source=Source.HISTORY
            )
            for row in rows
            if _waits(state, row)
        ]


def _key(record: JobRecord) -> tuple[str, str, tuple[str, ...]]:
    """What jobs have in common that learn from each other: the same command in the same folder, by the same user."""
    return record.user, record.request.workdir, record.request.command


def _waits(state: ClusterState, row: int) -> bool:
    """Whether a job has not started yet: one that has shows its own pace."""
    return state.status(row) is Status.PENDING and not state.jobs.placements.item(row)


@dataclass(slots=True)
class _Pace:
    first: AttemptObserved
    last: AttemptObserved
    reported_s: float = 0.0


class ObservedPaces:
    """How fast running attempts make progress, from their first report on."""

    def __init__(self) -> None:
        self._of: dict[str, _Pace] = {}

    def observe(self, seen: AttemptObserved) -> None:
        """A job reports how far it is."""
        if seen.step is None:
            return
        pace = self._of.get(seen.job)
        if pace is None or seen.attempt != pace.last.attempt or seen.step < (pace.last.step or 0.0):
            self._of[seen.job] = _Pace(seen, seen)
        else:
            pace.last = seen

    def remove(self, uid: str) -> None:
        """The attempt is over."""
        self._of.pop(uid, None)

    def news(self, now_s: float, state: ClusterState) -> list[tuple[str, float]]:
        """Jobs whose whole run takes another time than forecast, and which; of those alone on what they asked for."""
        found = []
        for uid, pace in self._of.items():
            row, duration_s = state.jobs.row_of.get(uid), _duration_s(pace)
            if row is None or duration_s is None or now_s < pace.reported_s + PACE_EVERY_S:
                continue
            placement = state.placed.get(row)
            if placement is None or not _is_alone(placement, state.jobs.shape_by_row[row].gpus):
                continue
            if abs(duration_s / state.jobs.duration_s.item(row) - 1) > NEWS_FRAC:
                pace.reported_s = now_s
                found.append((uid, duration_s))
        return found


def _duration_s(pace: _Pace) -> float | None:
    """How long a whole run takes at this pace; None if too little was observed."""
    seen_s, steps = pace.last.at_s - pace.first.at_s, (pace.last.step or 0.0) - (pace.first.step or 0.0)
    if pace.last.steps is None or seen_s < LEAST_S or steps < LEAST_STEPS:
        return None
    duration_s = pace.last.steps * seen_s / steps
    return duration_s if SHORTEST_S < duration_s < LONGEST_S else None


def _is_alone(placement: Placement, gpus: int) -> bool:
    return placement.sharing is Sharing.EXCLUSIVE and placement.gpus == gpus
