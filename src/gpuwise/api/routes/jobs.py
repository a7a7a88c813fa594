"""Routes to submit, list, show, change, cancel, suspend, resume, requeue and resize jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from gpuwise.api.access.caller import AsUser, AsViewer, Call
from gpuwise.api.errors import documented
from gpuwise.api.schema import answers, views
from gpuwise.api.schema.bodies import ResizeBody, UpdateBody
from gpuwise.api.schema.details import JobDetails, job_details
from gpuwise.api.schema.job_body import JobBody
from gpuwise.api.schema.parameters import Before, IdempotencyKey, JobId, Limit, Name, Words, statuses, uids
from gpuwise.core.records import JobRecord
from gpuwise.service.live import jobs

router = APIRouter(prefix="/jobs", tags=["jobs"])


@router.post(
    "",
    status_code=201,
    responses={
        **documented(answers.Jobs, "The new jobs: one, or one for each index of an array.", 409, status=201),
        200: {"model": answers.DryRunAnswer, "description": "The forecast for the job, with dry_run."},
    },
)
async def submit(
    call: AsUser,
    body: JobBody,
    key: IdempotencyKey = None,
    dry_run: Annotated[bool, Query(description="Only forecast; nothing is submitted.")] = False,
) -> Response:
    """Submit a job or an array of jobs."""
    request = body.request()
    if dry_run:
        return views.json_response(views.dry_run(await call.service.jobs.dry_run(call.caller, request)))
    return _jobs(call, await call.service.jobs.submit(call.caller, request, key), 201)


@router.get("", responses=documented(answers.Jobs, "Jobs, newest first."))
async def jobs_(
    call: AsViewer,
    status: Words = [],  # noqa: B006
    queue: Name = None,
    name: Name = None,
    user: Name = None,
    uids_: Annotated[Words, Query(alias="uids")] = [],  # noqa: B006
    before: Before = None,
    limit: Limit = 100,
) -> Response:
    """List the jobs of all users; the details are of one's own, and for administrators of all."""
    query = jobs.Query(
        statuses=statuses(status), queue=queue, name=name, user=user, uids=uids(uids_), before=before, limit=limit
    )
    return _jobs(call, await call.service.jobs.jobs(call.caller, query))


@router.get("/{uid}", responses=documented(JobDetails, "The job.", 404))
async def job(call: AsViewer, uid: JobId) -> Response:
    """Show one job; another user's without its details."""
    record = await call.service.jobs.any_job(uid)
    unsent = await call.service.jobs.unsent(call.caller, record)
    return views.json_response(job_details(record, call.caller.principal, unsent))


@router.get("/{uid}/why", responses=documented(answers.WhyAnswer, "Why it waits.", 404))
async def why(call: AsViewer, uid: JobId) -> Response:
    """Explain why a job waits."""
    return views.json_response(views.why(await call.service.jobs.why(call.caller, uid)))


@router.get("/{uid}/attempts", responses=documented(answers.Attempts, "Its launches.", 404))
async def attempts(call: AsViewer, uid: JobId) -> Response:
    """List a job's launches."""
    found = await call.service.jobs.attempts(call.caller, uid)
    alive = await call.service.workers.run(call.service.logs.is_alive, uid)
    return views.json_response({"attempts": [views.attempt(each) for each in found], "alive": alive})


_CHANGED = documented(answers.Jobs, "The jobs as they are now.", 404, 409)


@router.post("/{uid}/cancel", responses=_CHANGED)
async def cancel(call: AsUser, uid: JobId) -> Response:
    """Cancel a job, or all tasks of an array."""
    return _jobs(call, await call.service.jobs.cancel(call.caller, uid))


@router.post("/{uid}/suspend", responses=_CHANGED)
async def suspend(call: AsUser, uid: JobId) -> Response:
    """Put a job or an array on hold until it is resumed; running jobs are checkpointed and release their GPUs."""
    return _jobs(call, await call.service.jobs.suspend(call.caller, uid))


@router.post("/{uid}/resume", responses=_CHANGED)
async def resume(call: AsUser, uid: JobId) -> Response:
    """Resume a job or an array that was suspended."""
    return _jobs(call, await call.service.jobs.resume(call.caller, uid))


@router.post("/{uid}/hold", responses=_CHANGED)
async def hold(call: AsUser, uid: JobId) -> Response:
    """Put a job or an array on hold that has not started."""
    return _jobs(call, await call.service.jobs.hold(call.caller, uid))


@router.post("/{uid}/release", responses=_CHANGED)
async def release(call: AsUser, uid: JobId) -> Response:
    """End the hold of a job or an array; the same as resume."""
    return _jobs(call, await call.service.jobs.resume(call.caller, uid))


@router.post("/{uid}/requeue", responses=_CHANGED)
async def requeue(call: AsUser, uid: JobId) -> Response:
    """Stop a job that has GPUs and put it into the queue again; it restarts from its last checkpoint."""
    return _jobs(call, await call.service.jobs.requeue(call.caller, uid))


@router.patch("/{uid}", responses=_CHANGED)
async def update(call: AsUser, uid: JobId, body: UpdateBody) -> Response:
    """Change the priority, time limit or deadline of a job, or of all tasks of an array."""
    return _jobs(call, await call.service.jobs.update(call.caller, uid, body.wanted()))


@router.post("/{uid}/resize", responses=_CHANGED)
async def resize(call: AsUser, uid: JobId, body: ResizeBody) -> Response:
    """Change the number of GPUs of an elastic job."""
    return _jobs(call, await call.service.jobs.resize(call.caller, uid, body.gpus))


def _jobs(call: Call, records: Sequence[JobRecord], status: int = 200) -> Response:
    may_see = call.caller.principal.may_see
    return views.json_response({"jobs": [views.job(each, details=may_see(each)) for each in records]}, status)
