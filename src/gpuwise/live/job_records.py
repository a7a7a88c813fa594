"""One record per job that has not ended, kept in step with the engine and what is observed of attempts."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Placement
from gpuwise.core.job.life_cycle import ENDED, Status
from gpuwise.core.job.needs import Sharing
from gpuwise.core.observations import UNCOUNTED, AttemptObserved, Cause, Phase
from gpuwise.core.records import AttemptRecord, JobRecord
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.live.clock import Clock
from gpuwise.live.forecasts import record_fields

_SHARE = re.compile(r"\((\d+(?:\.\d+)?) %, [^)]*\)$")
"""What `describe` says last of a placement that shares its GPUs."""


class JobRecords:
    """Records of live jobs; they are immutable, so that other threads may read them at any time."""

    def __init__(self, clock: Clock, records: Iterable[JobRecord] = ()) -> None:
        self._clock = clock
        self.live: dict[str, JobRecord] = {}
        self.of_user: Counter[str] = Counter()
        self.of_key: dict[tuple[str, str], set[str]] = {}
        """Live jobs by user and idempotency key."""
        self._changed: dict[str, JobRecord] = {}
        self.ended: list[JobRecord] = []
        """Jobs that have ended, until that is written."""
        self._progressed: set[str] = set()
        self._attempts: dict[tuple[str, int], AttemptRecord] = {}
        self.requeued: set[tuple[str, int]] = set()
        """Attempts that were stopped because their jobs were requeued; not known after a restart."""
        self._places: dict[str, dict[int, str]] = {}
        """Of live jobs, where each attempt that is not known to be over was placed."""
        for record in records:
            self._insert(record)
        self.shown = dict(self.live)
        """What others may see: only what has been written."""

    def add(self, record: JobRecord) -> None:
        """A new job."""
        self._insert(record)
        self._changed[record.uid] = record

    def _insert(self, record: JobRecord) -> None:
        self.live[record.uid] = record
        self._note_place(record)
        self.of_user[record.user] += 1
        if record.idempotency_key is not None:
            self.of_key.setdefault((record.user, record.idempotency_key), set()).add(record.uid)

    def _remove(self, record: JobRecord) -> None:
        del self.live[record.uid]
        self._places.pop(record.uid, None)
        self.of_user[record.user] -= 1
        if not self.of_user[record.user]:
            del self.of_user[record.user]
        if record.idempotency_key is not None:
            uids = self.of_key[record.user, record.idempotency_key]
            uids.discard(record.uid)
            if not uids:
                del self.of_key[record.user, record.idempotency_key]

    def change(self, uid: str, **values: object) -> JobRecord:
        """Changes a live job's record."""
        record = replace(self.live[uid], **values)  # type: ignore[arg-type]
        self.live[uid] = self._changed[uid] = record
        return record

    def differs(self, state: ClusterState, job: int) -> bool:
        """Whether a job's record differs from the engine in where it is."""
        record, placement = self.live[state.jobs.ids[job]], state.placed.get(job)
        where = describe(placement, state) if placement is not None else ""
        attempts = state.jobs.placements.item(job)
        return (record.status, record.placement, record.attempts) != (state.status(job).name.lower(), where, attempts)

    def follow(self, state: ClusterState, job: int) -> None:
        """Brings a job's record in step with the engine; one that has ended is removed once that is written."""
        jobs, unix = state.jobs, self._clock.unix
        uid = jobs.ids[job]
        status = state.status(job)
        placement = state.placed.get(job)
        started_s = jobs.first_start_s.item(job)
        now: dict[str, object] = {
            "status": status.name.lower(),
            "started_at": None if math.isnan(started_s) else unix(started_s),
            "attempts": jobs.placements.item(job),
            "placement": describe(placement, state) if placement is not None else "",
            "preemptions": jobs.preemptions.item(job),
            "gpu_s": jobs.attained_gpu_s.item(job),
            "failures": jobs.failures.item(job),
            "out_of_memory": jobs.out_of_memory.item(job),
            **record_fields(jobs.duration(job), jobs.gpu_memory(job), jobs.gpu_util(job)),
        }
        record = self.live[uid]
        if any(getattr(record, name) != value for name, value in now.items()):
            record = self.change(uid, **now)
            self._note_place(record)
        if status in ENDED:
            self.ended.append(self.change(uid, ended_at=unix(jobs.finish_s.item(job)), held=""))

    def _note_place(self, record: JobRecord) -> None:
        if record.placement:
            self._places.setdefault(record.uid, {})[record.attempts] = record.placement

    def place_of(self, uid: str, number: int) -> str | None:
        """Where an attempt of a live job was placed, for people; None if that is not known any more."""
        return self._places.get(uid, {}).get(number)

    def written(self, records: Iterable[JobRecord]) -> None:
        """Shows records to others, now that the store has them, and removes the jobs that have ended."""
        for record in records:
            self.shown[record.uid] = record
        for record in self.ended:
            del self.shown[record.uid]
            self._remove(record)
        self.ended = []

    def progressed(self, seen: AttemptObserved) -> None:
        """A job reports how far it is."""
        if seen.job not in self.live or seen.step is None:
            return
        self.live[seen.job] = _with_progress(self.live[seen.job], seen)
        if seen.job in self.shown:
            self.shown[seen.job] = _with_progress(self.shown[seen.job], seen)
        self._progressed.add(seen.job)

    def attempt_started(self, seen: AttemptObserved, placement: str) -> None:
        """An attempt has started."""
        at = self._clock.unix(seen.at_s if seen.details.started_s is None else seen.details.started_s)
        started = AttemptRecord(uid=seen.job, number=seen.attempt, placement=placement, started_at=at)
        self._attempts.setdefault((seen.job, seen.attempt), started)  # its end may be known already

    def attempt_ended(self, seen: AttemptObserved, placement: str, *, cancelled: bool) -> None:
        """An attempt is over; that of a job that has ended is its last."""
        details = seen.details
        assert details.started_s is not None
        outcome = outcome_of(seen, cancelled=cancelled)
        if (seen.job, seen.attempt) in self.requeued:
            self.requeued.discard((seen.job, seen.attempt))
            outcome = "requeued" if outcome in ("lost", "moved") else outcome
        self._attempts[seen.job, seen.attempt] = AttemptRecord(
            uid=seen.job,
            number=seen.attempt,
            placement=placement,
            started_at=self._clock.unix(details.started_s),
            ended_at=self._clock.unix(seen.at_s),
            exit_code=details.exit_code,
            outcome=outcome,
            detail=details.text,
            peak_memory_bytes=details.peak_memory_bytes,
            cpu_s=details.cpu_s,
        )
        if seen.job in self.live:
            self._places.get(seen.job, {}).pop(seen.attempt, None)
            peak = max(details.peak_memory_bytes or 0.0, self.live[seen.job].peak_memory_bytes or 0.0) or None
            self.change(seen.job, exit_code=details.exit_code, peak_memory_bytes=peak)

    def take_changed(self) -> tuple[list[JobRecord], list[AttemptRecord]]:
        """The records to be written now."""
        changed, attempts = list(self._changed.values()), list(self._attempts.values())
        self._progressed -= self._changed.keys()
        self._changed, self._attempts = {}, {}
        return changed, attempts

    def take_progress(self) -> list[JobRecord]:
        """The records of which only the progress has changed; they are written now and then, not each time."""
        progressed = [self.live[uid] for uid in self._progressed if uid in self.live]
        self._progressed = set()
        return progressed

    @property
    def has_progress(self) -> bool:
        """Whether jobs have made progress since it was last written."""
        return bool(self._progressed)


def describe(placement: Placement, state: ClusterState) -> str:
    """A placement for people: ``box:0,1``, ``box:0 (50 %, shared)``, ``box:0,1 [2 worker on box, 1 ps on box]``.

    Usage is counted by this text, which `gpus_of` reads.
    """
    parts = []
    for grant in placement.grants:
        devices = ",".join(str(each) for each in range(grant.devices.bit_length()) if grant.devices >> each & 1)
        slot = f"/{grant.slice_start}" if placement.sharing is Sharing.MIG else ""
        parts.append(f"{state.nodes.names[grant.node]}:{devices}{slot}")
    where = "+".join(parts)
    if placement.tasks:
        tasks = ", ".join(f"{number} {role} on {state.nodes.names[node]}" for role, node, number in placement.tasks)
        where = f"{where} [{tasks}]"
    if placement.sharing is Sharing.EXCLUSIVE:
        return where
    how = placement.sharing.name.lower().replace("_", " ")
    return f"{where} ({100 * placement.milli / WHOLE_GPU_MILLI:g} %, {how})"


def gpus_of(text: str) -> float:
    """How many GPUs a placement has, from the text that `describe` makes of it, which is all that is recorded."""
    share = _SHARE.search(text)
    where = text.partition(" ")[0]
    devices = (part.rpartition(":")[2].partition("/")[0] for part in where.split("+"))
    count = sum(len(numbers.split(",")) for numbers in devices if numbers)
    return count * (float(share[1]) / 100 if share else 1.0)


def _with_progress(record: JobRecord, seen: AttemptObserved) -> JobRecord:
    details = seen.details
    return replace(record, step=seen.step, steps=seen.steps, loss=details.loss, samples_per_s=details.samples_per_s)


def outcome_of(seen: AttemptObserved, *, cancelled: bool = True) -> str:
    """How an attempt ended, in the words of its record; one that was stopped is lost if its job was not cancelled."""
    if seen.phase is Phase.STOPPED:
        return "cancelled" if cancelled else "lost"
    if seen.phase is Phase.FAILED and seen.details.cause is Cause.OUT_OF_MEMORY:
        return "out of memory"
    lost = seen.details.cause is Cause.LOST or seen.details.cause in UNCOUNTED
    return "lost" if seen.phase is Phase.FAILED and lost else seen.phase.name.lower()


def is_over(record: JobRecord) -> bool:
    """Whether a job has ended."""
    return Status[record.status.upper()] in ENDED


def how_ended(status: str) -> str:
    """How a job with a status has ended, for people: ``has failed``, ``was cancelled``."""
    return f"{'was' if status == Status.CANCELLED.name.lower() else 'has'} {status}"
