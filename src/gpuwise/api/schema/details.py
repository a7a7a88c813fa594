"""One job with what lists leave out."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from gpuwise.api.schema import answers, views
from gpuwise.core.job.notify import masked
from gpuwise.core.job.property import HIDDEN
from gpuwise.core.notification import Notification
from gpuwise.core.records import JobRecord
from gpuwise.service.live.access import Principal


class UnsentNotification(BaseModel):
    """A notification of a job's end that was not sent."""

    address: str = Field(description=f"As in notify: the path of a webhook is {HIDDEN}.")
    tries: int = Field(description="How often that has failed.")
    error: str = Field(description="Why it failed last; empty if it was not tried yet.")
    next_at: float | None = Field(description="When it is tried again; null if it is given up.")


class JobDetails(answers.Job):
    """A job, with the names of its variables and with what it notifies."""

    env: dict[str, str] = Field(description=f"Variables of its environment; each value is {HIDDEN}.")
    notify: list[str] = Field(description=f"Addresses that are notified of its end; the path of a webhook is {HIDDEN}.")
    unsent: list[UnsentNotification] = Field(description="Of its end or, for a task, of its array's.")


def job_details(record: JobRecord, principal: Principal, unsent: Sequence[Notification]) -> views.View:
    """A job as one who asks for it may see it; what may be a secret, as values of variables are, is masked for all."""
    details, request = principal.may_see(record), record.request
    return views.job(record, details=details) | {
        "env": dict.fromkeys(request.env, HIDDEN) if details else {},
        "notify": list(map(masked, request.notify)) if details else [],
        "unsent": [_unsent(each, request.notify) for each in unsent if each.position < len(request.notify)],
    }


def _unsent(notification: Notification, addresses: Sequence[str]) -> views.View:
    given_up = notification.given_up_at is not None
    return {
        "address": masked(addresses[notification.position]),
        "tries": notification.tries,
        "error": notification.error,
        "next_at": None if given_up else notification.next_at,
    }
