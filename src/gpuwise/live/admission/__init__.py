"""Admission: which jobs a policy may see, by dependencies, quotas, fair shares between queues, and jobs on hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuwise.core.commands import Reason, Why
from gpuwise.core.job.dependency import Until
from gpuwise.core.records import JobRecord, QueueRecord
from gpuwise.live.admission.arrays import ArrayLimits
from gpuwise.live.admission.dependencies import Dependencies
from gpuwise.live.admission.fair_share import FairShare
from gpuwise.live.admission.quotas import AdmissionError, LiveJob, Quotas, Stage, asked_milli, to_gpus, to_milli

USER, DEPENDENCY, QUOTA, SHARE, ARRAY, BEGIN = "user", "dependency", "quota", "share", "array", "begin"
NOT_YET = {Until.OK: "succeeded", Until.ANY: "ended", Until.NOT_OK: "failed"}


class Admission:
    """All live jobs: a policy orders those that are admitted, and sees no others."""

    def __init__(self, gpus: float, queues: Iterable[QueueRecord] = ()) -> None:
        self.quotas = Quotas(queues)
        self.shares = FairShare(to_milli(max(gpus, 1.0)), self.quotas)
        self.dependencies = Dependencies()
        self.begins: dict[str, float] = {}
        """Jobs that may not start before a moment, with its Unix time."""
        self._arrays = ArrayLimits()
        self._jobs: dict[str, LiveJob] = {}
        self._count = 0

    def __contains__(self, uid: object) -> bool:
        """Whether a job has not ended."""
        return uid in self._jobs

    def has_tasks(self, array: str) -> bool:
        """Whether an array has tasks that have not ended."""
        return self.dependencies.has_tasks(array)

    def check_room(self, name: str, jobs: int) -> None:
        """Refuses more jobs than a queue may have."""
        self.quotas.check_jobs(name, self.usage().get(name, (0.0, 0))[1], jobs)

    def check_resize(self, uid: str, gpus: float) -> None:
        """Refuses a job more GPUs than its queue may use."""
        job = self._jobs[uid]
        used, more = self.shares.queues[job.queue].used_milli, to_milli(gpus) - job.milli
        if more > 0 and not self.quotas.allows(job.queue, used + more):
            raise AdmissionError(
                f"queue {job.queue!r} may use {self.quotas.limit(job.queue):g} GPUs at one time and uses "
                f"{to_gpus(used):g}; job {uid} would use {gpus:g} instead of {to_gpus(job.milli):g}"
            )

    def add(self, record: JobRecord) -> None:
        """A new job; `admit` may admit it."""
        job = self._new(record, record.request.after)
        if job.array_limit and self._arrays.add(job.uid, job.array_limit):
            job.causes.add(ARRAY)
        if record.request.begin_s is not None:
            self._begin_later(job, record.request.begin_s)
        self.shares.add(job, Stage.BLOCKED if job.causes else Stage.WAITING)

    def restore(self, record: JobRecord) -> None:
        """A job that was here before the service was restarted comes to the stage it had."""
        held = record.held.split(",")
        job = self._new(record, record.request.after if DEPENDENCY in held else ())
        job.placed = record.attempts > 0
        if USER in held:
            job.causes.add(USER)
        elif job.array_limit and self._arrays.add(job.uid, job.array_limit, waits=ARRAY in held):
            job.causes.add(ARRAY)
        if BEGIN in held and record.request.begin_s is not None:
            self._begin_later(job, record.request.begin_s)
        if job.causes:
            self.shares.add(job, Stage.BLOCKED)
        else:
            self.shares.add(job, Stage.WAITING if record.held else Stage.ADMITTED)

    def restore_unrecorded(self, uid: str) -> None:
        """A job of which nothing else is known, before others that may wait for it; to be ended with `ended`."""
        self.dependencies.add(uid, ())

    def _begin_later(self, job: LiveJob, begin_s: float) -> None:
        self.begins[job.uid] = begin_s
        job.causes.add(BEGIN)

    def begin(self, unix: float) -> None:
        """Lets jobs start whose time to begin is past."""
        for uid in [uid for uid, begin_s in self.begins.items() if begin_s <= unix]:
            del self.begins[uid]
            self._unblock(self._jobs[uid], BEGIN)

    def _new(self, record: JobRecord, after: Iterable[str]) -> LiveJob:
        request, asked = record.request, asked_milli(record.request)
        self._count += 1
        limit = request.array_limit if "-" in record.uid else 0
        job = LiveJob(record.uid, request.queue, asked, asked, (-request.priority, self._count), limit)
        if self.dependencies.add(record.uid, after):
            job.causes.add(DEPENDENCY)
        self._jobs[record.uid] = job
        return job

    def placed(self, uid: str, gpus: float) -> None:
        """A job was given GPUs, or other ones."""
        self.shares.set_gpus(self._jobs[uid], to_milli(gpus), placed=True)

    def displaced(self, uid: str) -> None:
        """A job has no GPUs any more, or none yet."""
        job = self._jobs[uid]
        self.shares.set_gpus(job, job.asked_milli, placed=job.placed)

    def ended(self, uid: str, *, succeeded: bool) -> list[tuple[str, str]]:
        """A job has ended; those that wait for it and now never can start, each with the reason."""
        if uid not in self.dependencies:
            return []
        if (job := self._jobs.pop(uid, None)) is not None:
            self.shares.remove(job)
            self.begins.pop(uid, None)
            self._leave_array(job)
        outcome = self.dependencies.ended(uid, succeeded=succeeded)
        for each in outcome.free:
            self._unblock(self._jobs[each], DEPENDENCY)
        why = f"job {uid}, which it waits for, did not {'fail' if succeeded else 'succeed'}"
        return [(each, why) for each in outcome.never]

    def _leave_array(self, job: LiveJob) -> None:
        """Lets the next task of an array start in place of one that has ended or is on hold."""
        if job.array_limit:
            for each in self._arrays.remove(job.uid, job.array_limit):
                self._unblock(self._jobs[each], ARRAY)

    def hold(self, uid: str) -> None:
        """Its user puts a job on hold; what it used of its queue's quota is free for others."""
        job = self._jobs[uid]
        if USER not in job.causes:
            job.causes.add(USER)
            job.causes.discard(ARRAY)
            self.shares.move(job, Stage.BLOCKED)
            self._leave_array(job)

    def release(self, uid: str) -> None:
        """Its user lets a job continue, as soon as `admit` admits it again."""
        job = self._jobs[uid]
        if USER in job.causes:
            if job.array_limit and self._arrays.add(uid, job.array_limit):
                job.causes.add(ARRAY)
            self._unblock(job, USER)

    def set_priority(self, uid: str, priority: int) -> None:
        """A job ranks otherwise among those of its queue."""
        job = self._jobs[uid]
        self.shares.reorder(job, (-priority, job.order[1]))

    def _unblock(self, job: LiveJob, cause: str) -> None:
        job.causes.discard(cause)
        self.shares.move(job, Stage.BLOCKED if job.causes else Stage.WAITING)

    def set_gpus(self, gpus: float) -> bool:
        """The cluster has another number of GPUs; whether that is news, and `admit` may admit others."""
        before, self.shares.milli = self.shares.milli, to_milli(max(gpus, 1.0))
        return self.shares.milli != before

    def set_queue(self, queue: QueueRecord) -> None:
        """A queue gets limits, or others."""
        self.quotas.set(queue)
        self._limits_changed(queue.name)

    def remove_queue(self, name: str) -> None:
        """A queue has no limits any more."""
        self.quotas.remove(name)
        self._limits_changed(name)

    def _limits_changed(self, name: str) -> None:
        if queue := self.shares.queues.get(name):
            self.shares.changed.update(queue.waiting)

    def admit(self) -> None:
        """Admits jobs while there is quota and the backlog is short; done twice it is as if done once."""
        self.shares.admit()

    def take_changed(self) -> list[str]:
        """The jobs whose causes may have changed since this was last asked, by submission."""
        changed, self.shares.changed = self.shares.changed, set()
        return [job.uid for job in sorted(changed, key=lambda job: job.order[1])]

    def causes(self, uid: str) -> frozenset[str]:
        """Why a job is not admitted; empty if it is."""
        job = self._jobs[uid]
        if job.stage is Stage.WAITING:
            return frozenset((QUOTA if self.shares.lacks_quota(job) else SHARE,))
        return frozenset(job.causes)

    def reason(self, uid: str) -> Reason | None:
        """Why a job is not admitted, with the numbers; None if it is."""
        job, causes = self._jobs[uid], self.causes(uid)
        used, gpus = to_gpus(self.shares.queues[job.queue].used_milli), to_gpus(job.milli)
        numbers: dict[str, float | str] = {"queue": job.queue, "used": used, "gpus": gpus}
        if USER in causes:
            return Reason(Why.HELD)
        if DEPENDENCY in causes:
            until, ahead = self.dependencies.first(uid)
            return Reason(Why.AFTER, {"ahead": ahead, "status": NOT_YET[until]})
        if BEGIN in causes:
            return Reason(Why.BEGIN, {"begin_s": self.begins[uid]})
        if ARRAY in causes:
            return Reason(Why.ARRAY, {"limit": job.array_limit})
        if QUOTA in causes:
            return Reason(Why.QUOTA, {**numbers, "limit": self.quotas.limit(job.queue) or 0.0})
        return Reason(Why.SHARE, numbers) if causes else None

    def usage(self) -> Mapping[str, tuple[float, int]]:
        """Of each queue with jobs: GPUs that its admitted jobs have or ask for, and jobs."""
        return {name: (to_gpus(queue.used_milli), queue.jobs) for name, queue in self.shares.queues.items()}
