"""What was used of the cluster: GPU time allocated and used by user, queue and day, as sreport gives it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwise.core.records import AttemptUse
from gpuwise.live.controller import Controller
from gpuwise.live.job_records import gpus_of
from gpuwise.service.live.errors import InvalidError
from gpuwise.service.live.threads import WorkerPool

BY = ("user", "queue", "day")


@dataclass(slots=True)
class UsageRow:
    """What the jobs of a user, a queue or a day have used together."""

    key: tuple[str, ...]
    jobs: int = 0
    allocated_gpu_s: float = 0.0
    used_gpu_s: float = 0.0
    """Allocated time times the observed utilization, of the jobs of which that was observed."""
    observed_gpu_s: float = 0.0
    """Allocated time of those jobs."""


class Usage:
    """Reports from the records of attempts, which are kept as long as their jobs are."""

    def __init__(self, controller: Controller, workers: WorkerPool) -> None:
        self._controller = controller
        self._workers = workers

    async def report(self, since: float, until: float, by: Sequence[str]) -> list[UsageRow]:
        """A row for each value of ``by`` that has used something between two Unix times, in order."""
        for word in by:
            if word not in BY:
                raise InvalidError(f"by is {word[:60]!r}; it must be some of {', '.join(BY)}")
        found = await self._workers.run(self._controller.store.attempts_between, since, until)
        return summed(found, since, until, by)


def summed(attempts: Sequence[AttemptUse], since: float, until: float, by: Sequence[str]) -> list[UsageRow]:
    """What attempts have used between two Unix times, those that run up to the second."""
    rows: dict[tuple[str, ...], UsageRow] = {}
    jobs: dict[tuple[str, ...], set[str]] = {}
    for each in attempts:
        begin, end = max(each.started_at, since), min(until if each.ended_at is None else each.ended_at, until)
        for day, seconds in _days(begin, end) if "day" in by else [("", max(0.0, end - begin))]:
            names = {"user": each.user, "queue": each.queue, "day": day}
            key = tuple(names[word] for word in by)
            row = rows.setdefault(key, UsageRow(key))
            jobs.setdefault(key, set()).add(each.uid)
            _count(row, each, seconds * gpus_of(each.placement))
    for key, uids in jobs.items():
        rows[key].jobs = len(uids)
    return [rows[key] for key in sorted(rows)]


def _count(row: UsageRow, attempt: AttemptUse, gpu_s: float) -> None:
    row.allocated_gpu_s += gpu_s
    if attempt.gpu_util_source == "observed" and attempt.gpu_util_frac is not None:
        row.observed_gpu_s += gpu_s
        row.used_gpu_s += gpu_s * min(1.0, attempt.gpu_util_frac)


def _days(begin: float, end: float) -> Iterator[tuple[str, float]]:
    """The days of a span on this machine's clock, each with its seconds."""
    while begin < end:
        day = datetime.fromtimestamp(begin).date()
        midnight = datetime.combine(day + timedelta(days=1), datetime.min.time()).timestamp()
        yield day.isoformat(), min(end, midnight) - begin
        begin = midnight
