"""The bodies of responses."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class ErrorDetail(BaseModel):
    """What is wrong."""

    code: str = Field(description="A word for programs.", examples=["not_found"])
    message: str = Field(description="What is wrong and what to do next.", examples=["there is no job '17'"])
    field: str | None = Field(None, description="The field of the body that is wrong; null is none in particular.")


class Problem(BaseModel):
    """The shape of every error."""

    error: ErrorDetail


class Job(BaseModel):
    """A job: its request and its state. Times are Unix times. Details of other users' jobs are empty or null."""

    details: bool = Field(description="Whether its details are shown: it is the caller's, or they are an admin.")
    id: str = Field(description="17, or 17-3 for the task with index 3 of array 17.", examples=["17"])
    name: str
    user: str
    queue: str
    status: str = Field(
        description="pending, starting, running, suspending, suspended, succeeded, failed or cancelled.",
        examples=["running"],
    )
    command: list[str]
    workdir: str
    gpus: int
    gpu_frac: float
    priority: int
    submitted_at: float
    started_at: float | None = Field(description="When it was first started.")
    ended_at: float | None
    exit_code: int | None = Field(description="Of its last attempt; a signal is 128 and its number.")
    why_ended: str = Field(description="Why it failed or was cancelled.")
    attempts: int
    failures: int
    out_of_memory: int
    held: str = Field(description="Why it may not start: user (on hold), dependency, begin, array, quota, share.")
    placement: str = Field(description="Where it runs; empty while it does not.", examples=["box:0,1"])
    duration_s: float = Field(description="Forecast of its run time.")
    duration_low_s: float | None = Field(description="Lower bound of its interval; null is not known.")
    duration_high_s: float | None
    duration_source: str = Field(description="declared, history, predicted, observed or default.")
    gpu_memory_bytes: float = Field(description="Forecast of its memory on each GPU; 0 is not known.")
    gpu_memory_low_bytes: float | None
    gpu_memory_high_bytes: float | None
    gpu_memory_source: str
    gpu_util_frac: float | None = Field(description="Forecast of the utilization of its GPUs while not shared.")
    gpu_util_low_frac: float | None
    gpu_util_high_frac: float | None
    gpu_util_source: str
    step: float | None
    steps: float | None
    loss: float | None
    samples_per_s: float | None
    peak_memory_bytes: float | None
    gpu_s: float = Field(description="GPU time it has used.")
    preemptions: int
    deadline_s: float | None
    begin_s: float | None = Field(description="When it may start at the earliest; null is at once.")
    time_limit_s: float | None = Field(description="How long it may have GPUs in all; null is no limit.")
    after: list[str]
    array_index: int | None
    needs: dict[str, Any] = Field(description="Its request as in the body, without defaults.")


class Jobs(BaseModel):
    """Several jobs."""

    jobs: list[Job]


class QueuedJob(Job):
    """A job that has not ended, with its estimates."""

    held_gpus: int | None = Field(description="GPUs allocated to it, which a resize changes; null if there are none.")
    estimated_start: float | None
    estimated_finish: float | None
    position: int | None = Field(description="Its position in the queue, from 1.")
    why: str = Field(description="Why it waits; empty if it does not.")


class Queue(BaseModel):
    """Jobs that have not ended: those on GPUs, then the queue, then those that may not start yet."""

    jobs: list[QueuedJob]


class DryRunAnswer(BaseModel):
    """The forecast for a job."""

    duration_s: float
    duration_low_s: float | None
    duration_high_s: float | None
    duration_source: str
    placement: str = Field(description="Where it would start; empty if that is not known.")
    estimated_start: float | None
    estimated_finish: float | None
    why: str = Field(description="Why it would not start at once; empty if it would.")
    ahead: int = Field(description="Jobs in the queue now.")


class GpuUser(BaseModel):
    """A job, of any user, that has GPUs for which another job waits."""

    id: str
    user: str
    gpus: float
    placement: str
    estimated_finish: float | None
    is_guess: bool = Field(description="Whether its run time is only assumed.")


class WhyAnswer(BaseModel):
    """Why a job waits."""

    id: str
    status: str
    why: str
    code: str | None = Field(description="The reason for programs; null if it does not wait.", examples=["NO_ROOM"])
    numbers: dict[str, float | str | None]
    position: int | None
    gpu_users: list[GpuUser] = Field(description="Jobs that have GPUs it could use; the first to end is first.")


class Attempt(BaseModel):
    """One launch of a job."""

    number: int
    placement: str
    started_at: float
    ended_at: float | None
    exit_code: int | None
    outcome: str = Field(
        description="succeeded, failed, out of memory, suspended, moved, requeued, cancelled, lost; empty: runs."
    )
    detail: str
    peak_memory_bytes: float | None
    cpu_s: float | None


class Attempts(BaseModel):
    """A job's launches, oldest first."""

    attempts: list[Attempt]
    alive: bool = Field(description="Whether processes of the job may still be there, also after it has ended.")


class Resident(BaseModel):
    """A job on a device."""

    id: str | None = Field(description="null for a job of another user.")
    user: str
    name: str
    frac: float = Field(description="Its share of the device.")


class Device(BaseModel):
    """A device, the jobs on it, and what was measured there."""

    index: int
    name: str
    lost: bool
    id: str = Field(description="Its UUID; if that is not known, made of the node's name and its index.")
    claimed: bool = Field(description="Whether foreign processes compute on it.")
    claimed_memory_bytes: float = Field(description="Memory that foreign processes and parked jobs use.")
    sharing: str
    free_frac: float
    memory_bytes: float | None
    util_frac: float | None
    memory_used_bytes: float | None
    power_w: float | None
    temperature_c: float | None
    jobs: list[Resident]


class Node(BaseModel):
    """A node with its devices; null is not known or without limit."""

    name: str
    gpu_type: str
    stand_in: bool = Field(description="Whether CPU cores stand in for GPUs.")
    lost: bool
    drained: bool = Field(description="Whether no more jobs are started on it.")
    labels: dict[str, str]
    claimed_cpus: float = Field(description="CPUs that foreign processes use.")
    claimed_memory_bytes: float
    cpus: float | None
    free_cpus: float | None
    memory_bytes: float | None
    free_memory_bytes: float | None
    devices: list[Device]


class Nodes(BaseModel):
    """All nodes."""

    nodes: list[Node]


class Top(BaseModel):
    """What is measured now, and the progress of the caller's jobs on GPUs."""

    nodes: list[Node]
    jobs: list[Job]


class Event(BaseModel):
    """An event."""

    seq: int
    at: float
    kind: str
    job: str | None
    text: str


class Events(BaseModel):
    """Events, in order."""

    events: list[Event]
    last: int = Field(description="Continue with the events after this one.")


class QueueLimits(BaseModel):
    """A queue: what its jobs may use together, and what they use."""

    name: str
    max_gpus: float | None
    max_jobs: int | None
    weight: float
    users: list[str]
    used_gpus: float
    jobs: int


class Queues(BaseModel):
    """All queues with limits or with jobs, by name."""

    queues: list[QueueLimits]


class UsageOf(BaseModel):
    """What the jobs of a user, a queue or a day have used; fields that were not asked for are left out."""

    user: str | None = None
    queue: str | None = None
    day: str | None = Field(None, description="On the server's clock.", examples=["2030-01-31"])
    jobs: int
    allocated_gpu_s: float = Field(description="GPUs times the time for which they were allocated.")
    used_gpu_s: float | None = Field(description="Of that, what was used by jobs whose utilization was observed.")
    utilization_frac: float | None = Field(description="The observed utilization of those jobs; null is not known.")


class Usage(BaseModel):
    """What was used of the cluster."""

    usage: list[UsageOf]


class Token(BaseModel):
    """A token, without its secret."""

    id: str
    user: str
    role: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None


class Tokens(BaseModel):
    """All tokens."""

    tokens: list[Token]


class NewToken(Token):
    """A new token."""

    secret: str = Field(description="Shown once, and not stored.")


class AuditLine(BaseModel):
    """Who did what to what."""

    id: int
    at: float
    user: str
    action: str
    target: str
    outcome: str
    address: str


class AuditLines(BaseModel):
    """Who did what, newest first."""

    audit: list[AuditLine]


class Health(BaseModel):
    """Whether the service is healthy."""

    status: str = Field(examples=["ok"])


class Status(BaseModel):
    """The service at a glance."""

    version: str
    policy: str
    placement: str
    store: str
    started_at: float
    uptime_s: float
    counts: dict[str, int] = Field(description="Jobs that have not ended, by status.")
    trouble: str = Field(description="What is wrong now; empty if nothing is.")
    notes: list[str]
    account: str = Field(description="The account that the service runs as.")
    jobs_run_as: str = Field(description="The account that jobs run as; submitter: that of their user.")
    switches: int = Field(description="Number of switches between jobs that share a device by time slices.")
    switching_s: float = Field(description="Time lost by switching, in all.")
    user: str
    role: str
