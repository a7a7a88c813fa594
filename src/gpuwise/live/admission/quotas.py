"""What queues accept and how much of the cluster they may use."""

from __future__ import annotations

from collections.abc import Iterable

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import QueueRecord

EPSILON = 1e-9
"""Fractions of GPUs that are added and subtracted again do not come out even."""


class AdmissionError(GpuwiseError):
    """What a queue does not accept."""


class Quotas:
    """The limits of the queues that have any."""

    def __init__(self, queues: Iterable[QueueRecord] = ()) -> None:
        self._queues = {queue.name: queue for queue in queues}

    def set(self, queue: QueueRecord) -> None:
        """A queue gets limits, or others."""
        self._queues[queue.name] = queue

    def remove(self, name: str) -> None:
        """A queue has no limits any more."""
        self._queues.pop(name, None)

    def limit(self, name: str) -> float | None:
        """The GPUs that the jobs of a queue may use at one time; None is no limit."""
        queue = self._queues.get(name)
        return queue.max_gpus if queue is not None else None

    def weight(self, name: str) -> float:
        """The weight of a queue among the others."""
        queue = self._queues.get(name)
        return queue.weight if queue is not None else 1.0

    def allows(self, name: str, gpus: float) -> bool:
        """Whether the jobs of a queue may use this number of GPUs."""
        limit = self.limit(name)
        return limit is None or gpus <= limit + EPSILON

    def check(self, request: JobRequest, user: str) -> None:
        """Refuses a job that its queue will never accept."""
        queue = self._queues.get(request.queue)
        if queue is None:
            return
        if queue.users and user not in queue.users:
            raise AdmissionError(f"{user} may not submit to queue {queue.name!r}")
        if not self.allows(queue.name, gpus_asked(request)):
            raise AdmissionError(
                f"the job asks for {gpus_asked(request):g} GPUs; "
                f"queue {queue.name!r} may use {queue.max_gpus:g} at one time"
            )

    def check_jobs(self, name: str, has: int, more: int) -> None:
        """Refuses more jobs than a queue may have."""
        queue = self._queues.get(name)
        if queue is not None and queue.max_jobs is not None and has + more > queue.max_jobs:
            raise AdmissionError(
                f"queue {name!r} may have {queue.max_jobs} jobs at a time; it has {has}, and {more} more are asked for"
            )


def gpus_asked(request: JobRequest) -> float:
    """The GPUs that a job asks for, fractions of them counted as such."""
    return request.gpus * request.gpu_frac
