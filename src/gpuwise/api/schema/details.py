"""One job with what lists leave out."""

from __future__ import annotations

from pydantic import Field

from gpuwise.api.schema import answers, views
from gpuwise.core.job.property import HIDDEN
from gpuwise.core.records import JobRecord
from gpuwise.service.live.access import Principal


class JobDetails(answers.Job):
    """A job, with the names of its variables."""

    env: dict[str, str] = Field(description=f"Variables of its environment; each value is {HIDDEN}.")


def job_details(record: JobRecord, principal: Principal) -> views.View:
    """A job as one who asks for it may see it; values of variables may be secrets, and are for the job alone."""
    details = principal.may_see(record)
    return views.job(record, details=details) | {"env": dict.fromkeys(record.request.env, HIDDEN) if details else {}}
