"""Which notifications are to be sent when jobs end; they are recorded with the ends, and sent by others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpuwise.core.job.notify import destination
from gpuwise.core.notification import Notification
from gpuwise.core.records import JobRecord


def of_ended(ended: Iterable[JobRecord], has_tasks: Callable[[str], bool], now: float) -> list[Notification]:
    """The notifications of jobs that have ended: one per address, and of an array when it has no more tasks."""
    found: dict[tuple[str, int], Notification] = {}
    for record in ended:
        array, dash, _ = record.uid.partition("-")
        if dash and has_tasks(array):
            continue
        for position, address in enumerate(record.request.notify):
            found[array, position] = Notification(
                uid=array, position=position, user=record.user, destination=destination(address), created_at=now,
                next_at=now,
            )  # fmt: skip
    return list(found.values())
