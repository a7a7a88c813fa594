"""Fair shares between queues: from which queue the next job is admitted.

With jobs of several queues, about as many GPUs' worth of jobs as the cluster has are admitted at a time, taken from the
queue that has least for its weight, and one job of each queue whatever the others have: so a thousand jobs of one queue
do not rank before the first of another, and jobs that find no place do not keep others from idle GPUs, whatever the
policy.
"""

from __future__ import annotations

from gpuwise.live.admission.quotas import ORDER, LiveJob, QueueJobs, QueueUsage, Stage


class FairShare(QueueUsage):
    """Which jobs are admitted, so that queues have GPUs in proportion to their weights."""

    def admit(self) -> None:
        """Admits jobs while there is quota and the backlog is short; done twice it is as if done once."""
        self._apply_quotas()
        self._admit_waiting()
        if len(self.queues) > 1 and self.backlog_milli > 2 * self.milli:
            self._shorten()
            self._admit_waiting()

    def _admit_waiting(self) -> None:
        while (job := self._next()) is not None:
            self.move(job, Stage.ADMITTED)

    def _next(self) -> LiveJob | None:
        """The job to be admitted next: of a queue without a backlog, then of the one that has least for its weight."""
        full = len(self.queues) > 1 and self.backlog_milli >= self.milli
        best: tuple[bool, float, str] | None = None
        found: LiveJob | None = None
        for name, queue in self.queues.items():
            if not queue.waiting or (full and queue.unplaced):
                continue
            rank = (bool(queue.unplaced), queue.used_milli / self._quotas.weight(name), name)
            if (best is None or rank < best) and (first := self._first(queue)) and self._has_quota(first, queue):
                best, found = rank, first
        return found

    def _first(self, queue: QueueJobs) -> LiveJob | None:
        """The first waiting job that its queue's quota would ever admit; larger ones are passed over."""
        return next((job for job in queue.waiting if self._quotas.allows(job.queue, job.milli)), None)

    def _has_quota(self, job: LiveJob, queue: QueueJobs) -> bool:
        return self._quotas.allows(job.queue, queue.used_milli + job.milli)

    def _apply_quotas(self) -> None:
        """Lets admitted jobs that were never placed wait again, last one first, while their queue is over its quota."""
        for name, queue in self.queues.items():
            if queue.unplaced and not self._quotas.allows(name, queue.used_milli):
                for job in sorted(queue.unplaced, key=ORDER, reverse=True):
                    if not self._quotas.allows(name, queue.used_milli):
                        self.move(job, Stage.WAITING)

    def _shorten(self) -> None:
        """Lets all but one of each queue's jobs that were never placed wait again.

        The backlog is much too long when a second queue comes while the first has all its jobs admitted.
        """
        for queue in self.queues.values():
            for job in sorted(queue.unplaced, key=ORDER)[1:]:
                self.move(job, Stage.WAITING)

    def lacks_quota(self, job: LiveJob) -> bool:
        """Whether quota keeps a job waiting: it alone asks for too much, or those before it and it do together."""
        if not self._quotas.allows(job.queue, job.milli):
            return True
        first = self._first(queue := self.queues[job.queue])
        return first is not None and not self._has_quota(first, queue)
