"""What a notification says of a job that has ended, for programs and for people."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuwise.core.notification import Notification
from gpuwise.core.records import JobRecord, Store
from gpuwise.core.units import format_duration
from gpuwise.live.job_records import how_ended
from gpuwise.service.live.notify.errors import NotSentError

MOST_REASON_CHARS = 500
STATUSES = ("failed", "cancelled", "succeeded")
"""The first of these that a task of an array has is the array's."""


@dataclass(frozen=True, slots=True)
class Message:
    """A notification in words and in facts."""

    key: str
    """Equal for every try to send the same end to the same address."""
    title: str
    text: str
    """One sentence."""
    facts: Mapping[str, Any]
    """What a webhook is sent, but for key and text."""

    def body(self) -> dict[str, Any]:
        """The JSON of a webhook."""
        return {"text": self.text, "key": self.key, **self.facts}


def message_of(store: Store, notification: Notification, deployment: str) -> tuple[str, Message]:
    """The address of a notification, and what it says."""
    records = store.jobs(uids=[notification.uid], limit=1)
    if not records or notification.position >= len(records[0].request.notify):
        raise NotSentError("its job cannot be read")
    record = records[0]
    facts = _array(store, record, notification) if "-" in record.uid else _job(store, record)
    named = f"{deployment}/{notification.uid}/{facts['attempt']}/{notification.position}"
    key = hashlib.sha256(named.encode()).hexdigest()[:32]
    return record.request.notify[notification.position], Message(key, *_words(facts), facts)


def _job(store: Store, record: JobRecord) -> dict[str, Any]:
    placement = next((each.placement for each in reversed(store.attempts(record.uid))), "")
    return {
        **_common(record, record.uid, record.status),
        "exit_code": record.exit_code,
        "reason": _printable(record.why_ended)[:MOST_REASON_CHARS],
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "attempt": record.attempts,
        "placement": placement,
    }


def _array(store: Store, record: JobRecord, notification: Notification) -> dict[str, Any]:
    """The facts of an array: of all its tasks together, which may be thousands, only how they have ended."""
    tasks = store.counts_by_array([notification.uid]).get(notification.uid, {})
    status = next((each for each in STATUSES if tasks.get(each)), record.status)
    return {
        **_common(record, notification.uid, status),
        "exit_code": None,
        "reason": "",
        "started_at": None,
        "ended_at": notification.created_at,
        "attempt": record.attempts,
        "placement": "",
        "tasks": tasks,
    }


def _common(record: JobRecord, uid: str, status: str) -> dict[str, Any]:
    request = record.request
    return {
        "id": uid,
        "name": request.name,
        "user": record.user,
        "queue": request.queue,
        "status": status,
        "gpus": request.gpus,
        "gpu_frac": request.gpu_frac,
        "submitted_at": record.submitted_at,
    }


def _words(facts: Mapping[str, Any]) -> tuple[str, str]:
    """A title and a sentence."""
    job = f"{facts['id']} ({facts['name']})" if facts["name"] else facts["id"]
    if "tasks" in facts:
        tasks = ", ".join(f"{count} {status}" for status, count in sorted(facts["tasks"].items()))
        return f"array {job}: {tasks}", f"array {job} of {facts['user']} has ended: {tasks}"
    ended = how_ended(facts["status"])
    took = "" if facts["started_at"] is None else f" after {format_duration(facts['ended_at'] - facts['started_at'])}"
    reason = f": {facts['reason']}" if facts["reason"] else ""
    title = f"job {job} {ended}"
    return title, f"job {job} of {facts['user']} {ended}{took}{reason}"


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)
