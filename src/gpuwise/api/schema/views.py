"""Records as the JSON that `answers` describes; plain dictionaries, since one is made for every job in every list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import Response
from pydantic_core import to_json

from gpuwise.core.job.needs import JobNeeds
from gpuwise.core.job.schema import plain
from gpuwise.core.records import AttemptRecord, AuditEntry, JobRecord, QueueRecord, TokenRecord
from gpuwise.devices.machine import STAND_IN_TYPE, Reading, Where
from gpuwise.service.live.estimates import DryRun
from gpuwise.service.live.events import FeedEvent
from gpuwise.service.live.jobs import WhyWaiting
from gpuwise.service.live.overview import DeviceShare, DeviceState, NodeState, QueueEntry
from gpuwise.service.live.usage import UsageRow

View = dict[str, Any]
MaySee = Callable[[JobRecord], bool]
_UNREAD = Reading()
FORECASTS = (
    "duration_s", "duration_low_s", "duration_high_s", "duration_source", "gpu_memory_bytes", "gpu_memory_low_bytes",
    "gpu_memory_high_bytes", "gpu_memory_source", "gpu_util_frac", "gpu_util_low_frac", "gpu_util_high_frac",
    "gpu_util_source",
)  # fmt: skip


def json_response(content: View, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response of JSON; numbers that JSON cannot express are null."""
    body = to_json(content, inf_nan_mode="null")
    return Response(body, status, dict(headers) if headers else None, "application/json")


NO_DETAILS: View = {
    "details": False, "name": "", "command": (), "workdir": "", "exit_code": None, "why_ended": "", "step": None,
    "steps": None, "loss": None, "samples_per_s": None, "peak_memory_bytes": None, "gpu_memory_bytes": 0.0,
    "gpu_memory_low_bytes": None, "gpu_memory_high_bytes": None, "gpu_util_frac": None, "gpu_util_low_frac": None,
    "gpu_util_high_frac": None, "deadline_s": None, "begin_s": None, "time_limit_s": None,
    "after": (), "needs": {},
}  # fmt: skip
"""What other users see of a job in place of its details."""


def job(record: JobRecord, *, details: bool = True) -> View:
    """A job; of another user's, only what the queue shows to all."""
    shown = _job(record)
    return shown if details else shown | NO_DETAILS


def _job(record: JobRecord) -> View:
    request = record.request
    return {
        "details": True,
        "id": record.uid,
        "name": request.name,
        "user": record.user,
        "queue": request.queue,
        "status": record.status,
        "command": request.command,
        "workdir": request.workdir,
        "gpus": request.gpus,
        "gpu_frac": request.gpu_frac,
        "priority": request.priority,
        "submitted_at": record.submitted_at,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "exit_code": record.exit_code,
        "why_ended": record.why_ended,
        "attempts": record.attempts,
        "failures": record.failures,
        "out_of_memory": record.out_of_memory,
        "held": record.held,
        "placement": record.placement,
        **{name: getattr(record, name) for name in FORECASTS},
        "step": record.step,
        "steps": record.steps,
        "loss": record.loss,
        "samples_per_s": record.samples_per_s,
        "peak_memory_bytes": record.peak_memory_bytes,
        "gpu_s": record.gpu_s,
        "preemptions": record.preemptions,
        "deadline_s": request.deadline_s,
        "begin_s": request.begin_s,
        "time_limit_s": request.time_limit_s,
        "after": request.after,
        "array_index": request.array[0] if "-" in record.uid else None,
        "needs": plain(request, JobNeeds),
    }


def queued(entry: QueueEntry, *, details: bool = True) -> View:
    """A job in the queue."""
    return job(entry.job, details=details) | {
        "held_gpus": entry.gpus,
        "estimated_start": entry.estimate.start_at,
        "estimated_finish": entry.estimate.finish_at,
        "position": entry.position,
        "why": entry.why if details else "",
    }


def dry_run(run: DryRun) -> View:
    """The forecast for a job."""
    return {
        "duration_s": run.duration.value,
        "duration_low_s": run.duration.low,
        "duration_high_s": run.duration.high,
        "duration_source": run.duration.source,
        "placement": run.placement,
        "estimated_start": run.estimate.start_at,
        "estimated_finish": run.estimate.finish_at,
        "why": run.why,
        "ahead": run.ahead,
    }


def why(waiting: WhyWaiting) -> View:
    """Why a job waits."""
    reason = waiting.reason
    return {
        "id": waiting.job.uid,
        "status": waiting.job.status,
        "why": waiting.text,
        "code": None if reason is None else reason.code.name,
        "numbers": {} if reason is None else dict(reason.numbers),
        "position": waiting.position,
        "gpu_users": [
            {
                "id": each.uid,
                "user": each.user,
                "gpus": each.gpus,
                "placement": each.placement,
                "estimated_finish": each.finish_at,
                "is_guess": each.is_guess,
            }
            for each in waiting.users
        ],
    }


def attempt(record: AttemptRecord) -> View:
    """One launch."""
    names = (
        "number", "placement", "started_at", "ended_at", "exit_code", "outcome", "detail", "peak_memory_bytes", "cpu_s",
    )  # fmt: skip
    return {name: getattr(record, name) for name in names}


def node(state: NodeState, readings: Mapping[Where, Reading], jobs: Mapping[str, JobRecord], may_see: MaySee) -> View:
    """A node; of other users' jobs, only the user is shown."""
    spec = state.spec
    return {
        "name": spec.name,
        "gpu_type": spec.gpu_type,
        "stand_in": spec.gpu_type == STAND_IN_TYPE,
        "lost": not state.up,
        "drained": not spec.schedulable,
        "labels": dict(spec.labels),
        "claimed_cpus": state.claimed_cpus,
        "claimed_memory_bytes": state.claimed_memory_bytes,
        "cpus": spec.cpus,
        "free_cpus": state.free_cpus,
        "memory_bytes": spec.memory_bytes,
        "free_memory_bytes": state.free_memory_bytes,
        "devices": [
            _device(each, spec.gpu_type, readings.get((state.row, each.index), _UNREAD))
            | {"jobs": [_share(share, jobs.get(share.uid), may_see) for share in each.jobs]}
            for each in state.devices
        ],
    }


def _device(state: DeviceState, name: str, reading: Reading) -> View:
    return {
        "index": state.index,
        "id": state.id,
        "name": name,
        "lost": not state.up,
        "claimed": state.claimed,
        "claimed_memory_bytes": state.claimed_memory_bytes,
        "sharing": state.sharing,
        "free_frac": state.free_frac,
        "memory_bytes": state.memory_bytes,
        "util_frac": reading.util_frac,
        "memory_used_bytes": reading.memory_used_bytes,
        "power_w": reading.power_w,
        "temperature_c": reading.temperature_c,
    }


def _share(share: DeviceShare, record: JobRecord | None, may_see: MaySee) -> View:
    """A job on a device; None if it has ended since."""
    user = "" if record is None else record.user
    if record is None or not may_see(record):
        return {"id": None, "user": user, "name": "", "frac": share.frac}
    return {"id": share.uid, "user": user, "name": record.request.name, "frac": share.frac}


def event(shown: FeedEvent) -> View:
    """An event."""
    return {"seq": shown.seq, "at": shown.at, "kind": shown.kind, "job": shown.job, "text": shown.text}


def queue(record: QueueRecord, usage: tuple[float, int]) -> View:
    """A queue."""
    return {
        "name": record.name,
        "max_gpus": record.max_gpus,
        "max_jobs": record.max_jobs,
        "weight": record.weight,
        "users": record.users,
        "used_gpus": usage[0],
        "jobs": usage[1],
    }


def usage(row: UsageRow, by: Sequence[str]) -> View:
    """What was used by some jobs."""
    observed = row.observed_gpu_s
    return dict(zip(by, row.key, strict=True)) | {
        "jobs": row.jobs,
        "allocated_gpu_s": row.allocated_gpu_s,
        "used_gpu_s": row.used_gpu_s if observed else None,
        "utilization_frac": row.used_gpu_s / observed if observed else None,
    }


def token(record: TokenRecord) -> View:
    """A token, without its digest."""
    names = ("id", "user", "created_at", "expires_at", "revoked_at")
    return {name: getattr(record, name) for name in names} | {"role": str(record.role)}


def audit(number: int, entry: AuditEntry) -> View:
    """Who did what."""
    names = ("at", "user", "action", "target", "outcome", "address")
    return {"id": number} | {name: getattr(entry, name) for name in names}
