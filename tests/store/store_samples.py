"""Records for tests of the store: small ones, and ones in which no field is left at its default."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from gpuwise.core.job.needs import Sharing, Source
from gpuwise.core.job.request import JobRequest, Processes
from gpuwise.core.notification import Notification
from gpuwise.core.records import (
    AttemptRecord,
    AuditEntry,
    JobRecord,
    JournalLine,
    QueueRecord,
    TokenRecord,
    UserRole,
)

ODD = "ünï 'quoted' \"text\" %s :name ? \\ \n é🙂"
"""What SQL, drivers and encodings trip over."""


def request(*command: str, **more: Any) -> JobRequest:
    """A request; ``python train.py`` unless a command is given."""
    return JobRequest(command=command or ("python", "train.py"), **more)


def job(uid: str, user: str = "ann", **more: Any) -> JobRecord:
    """A job; its request may be given, or the fields of one in ``asked``."""
    asked = more.pop("asked", {})
    return JobRecord(uid=uid, user=user, request=more.pop("request", None) or request(**asked), **more)


def ended(uid: str, at: float, status: str = "succeeded", **more: Any) -> JobRecord:
    """A job that ran for 10 s and ended at a time."""
    return job(uid, status=status, **{"started_at": at - 10, "ended_at": at, "attempts": 1} | more)


def line(sequence: int, uid: str | None = None, kind: str = "JobSubmitted") -> JournalLine:
    """A journal line."""
    return JournalLine(sequence, 1e9 + sequence / 8, kind, uid, f'{{"n":{sequence}}}')


def full_request() -> JobRequest:
    """A request in which everything is asked for but a fraction, which only one GPU can be, roles and a terminal.

    Roles have CPUs and memory of their own; a job with a terminal is one process without retries.
    """
    return JobRequest(
        command=("python", "-c", ODD, "caf\udce9", ""), workdir="/home/" + ODD, env={"LR": "0.1", "TEXT": ODD, "E": ""},
        name="res net/50:a@b+c", queue="team-a", gpus=4, min_gpus=2, max_gpus=8, gpu_memory_bytes=8e9,
        gpu_types=("A100", "H100"), sharing=frozenset({Sharing.EXCLUSIVE, Sharing.MIG}), cpus=3.5, memory_bytes=2.0**40,
        duration_s=1e-3, steps=1e12, gpu_util_frac=0.1 + 0.2, priority=-7, deadline_s=1.7e9 + 1 / 3, retries=3,
        requeue=True,
        after=("3", "4-5"), array=(5, 1, 3), processes=Processes.PER_GPU, grace_s=0.25, time_limit_s=86400.0,
        predicted_s=70.5, predicted_low_s=60.0, predicted_high_s=80 + 1 / 3, speeds={"A100": 1.5, "A100/2g": 0.25},
        gpu_memory_low_bytes=7e9, gpu_memory_high_bytes=9e9 + 1 / 3, gpu_memory_source=Source.PREDICTED,
        gpu_util_low_frac=0.2, gpu_util_high_frac=0.4, gpu_util_source=Source.OBSERVED, require={"zone": ["a", "é"]},
        prefer={"rack": ("7",)}, within="rack", model=ODD, batch_per_gpu=32, suspend_s=1.5, resume_s=2.5,
        migrate_s=3.5, resize_s=4.5, array_limit=2, begin_s=1.6e9 + 1 / 3,
        notify=("https://hooks.example.org/x?y=%20", "mailto:ann@example.org"),
    )  # fmt: skip


def full_job(uid: str = "17-3", **more: Any) -> JobRecord:
    """A job in which every field is set."""
    values: dict[str, Any] = {
        "user": "jürgen", "request": full_request(), "status": "failed", "why_ended": ODD,
        "submitted_at": 1.7e9 + 1 / 3, "started_at": 1.7e9 + 2 / 3, "ended_at": 1.8e9,
        "exit_code": 137, "attempts": 4, "failures": 2, "out_of_memory": 1,
        "held": "quota", "placement": "n0: 0, 1 " + ODD, "duration_s": 1234.5, "duration_source": "history",
        "duration_low_s": 1000.25, "duration_high_s": 1e4 / 3, "gpu_memory_low_bytes": 1e10,
        "gpu_memory_high_bytes": 2e10, "gpu_memory_source": "predicted", "gpu_util_frac": 0.5,
        "gpu_util_low_frac": 0.25, "gpu_util_high_frac": 0.75, "gpu_util_source": "observed",
        "gpu_memory_bytes": 1.6e10, "step": 12.0, "steps": 1e6, "loss": 2.25e-9, "samples_per_s": 1e5 / 3,
        "peak_memory_bytes": 2.0**34, "gpu_s": 0.1, "preemptions": 5, "idempotency_key": "key " + ODD,
    }  # fmt: skip
    return JobRecord(uid=uid, **values | more)


def full_attempt(uid: str = "17-3", number: int = 2) -> AttemptRecord:
    """An attempt in which every field is set."""
    return AttemptRecord(
        uid=uid, number=number, placement=ODD, started_at=1.7e9 + 1 / 3, ended_at=1.7e9 + 2 / 3, exit_code=75,
        outcome="suspended", detail=ODD, peak_memory_bytes=3e9, cpu_s=12.25,
    )  # fmt: skip


def full_audit(**more: Any) -> AuditEntry:
    """An audit entry in which every field is set."""
    values = {
        "at": 1.7e9 + 1 / 3,
        "user": "jürgen",
        "action": "cancel",
        "target": "17-3",
        "outcome": ODD,
        "address": "::1",
    }
    return AuditEntry(**values | more)


def full_notification() -> Notification:
    """A notification in which every field is set."""
    return Notification(
        uid="17", position=1, user="jürgen", destination="https://hooks.example.org:8443", created_at=1.7e9 + 1 / 3,
        next_at=1.7e9 + 2 / 3, tries=3, error=ODD, given_up_at=1.8e9,
    )  # fmt: skip


def full_token(**more: Any) -> TokenRecord:
    """A token in which every field is set."""
    values: dict[str, Any] = {
        "id": "t1", "digest": "ab" * 32, "user": "jürgen", "role": UserRole.VIEWER,
        "created_at": 1 / 3, "expires_at": 2 / 3, "revoked_at": 5.0,
    }  # fmt: skip
    return TokenRecord(**values | more)


def full_queue(**more: Any) -> QueueRecord:
    """A queue in which every field is set."""
    values: dict[str, Any] = {
        "name": "team-a", "max_gpus": 7.5, "max_jobs": 10**12, "weight": 1 / 3, "users": ("ann", "jürgen", ODD),
    }  # fmt: skip
    return QueueRecord(**values | more)


def left_at_default(record: Any) -> list[str]:
    """The fields of a record that still have their default, so that a test of every field stays one."""
    found = []
    for each in fields(record):
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        if default is not MISSING and getattr(record, each.name) == default:
            found.append(each.name)
    return found
