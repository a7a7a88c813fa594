"""Admission: which jobs a policy may see, whatever happens and in whatever order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import request

from gpuwise.core.records import JobRecord, QueueRecord
from gpuwise.live.admission import Admission
from gpuwise.live.admission.quotas import AdmissionError, LiveJob, to_milli

GPUS = 4.0
UIDS = (*range(60), *(f"1-{task}" for task in range(3)))


def job(uid: str, gpus: int = 1, **more) -> JobRecord:
    return JobRecord(uid=uid, user="ada", request=request(gpus=gpus, **more))


def empty(*queues: QueueRecord) -> Admission:
    return Admission(GPUS, queues)


def settled(admission: Admission, *records: JobRecord) -> dict[str, str]:
    for record in records:
        admission.add(record)
    admission.admit()
    return {uid: ",".join(sorted(admission.causes(uid))) for uid in map(str, UIDS) if uid in admission}


def test_a_queue_counts_what_is_asked_for_at_once():
    admission = empty(QueueRecord(name="default", max_jobs=3))
    admission.check_room("default", 3)
    settled(admission, job("1"))
    with pytest.raises(AdmissionError, match="may have 3 jobs at a time; it has 1, and 3 more are asked for"):
        admission.check_room("default", 3)


def test_a_job_larger_than_a_lowered_quota_is_passed_over():
    admission = empty(QueueRecord(name="default", max_gpus=4))
    assert settled(admission, job("1", 4), job("2", 4), job("3")) == {"1": "", "2": "quota", "3": "quota"}
    admission.set_queue(QueueRecord(name="default", max_gpus=2))
    assert settled(admission) == {"1": "quota", "2": "quota", "3": ""}


def test_a_quota_that_is_set_later_applies_to_those_that_are_admitted():
    admission = empty()
    assert set(settled(admission, *(job(str(each)) for each in range(6))).values()) == {""}
    admission.placed("0", 1.0)
    admission.set_queue(QueueRecord(name="default", max_gpus=2))
    assert [uid for uid, cause in settled(admission).items() if not cause] == ["0", "1"]
    admission.remove_queue("default")
    assert set(settled(admission).values()) == {""}


def test_one_job_of_each_queue_is_admitted_whatever_the_others_have():
    admission = empty()
    held = settled(admission, job("1", 4), *(job(str(2 + each), queue="other") for each in range(3)))
    assert held == {"1": "", "2": "", "3": "share", "4": "share"}
    admission.placed("2", 1.0)
    assert settled(admission)["3"] == ""


def test_jobs_of_many_queues_stay_as_they_are():
    admission = empty()
    settled(admission, *(job(str(each), queue=f"q{each % 20}") for each in range(60)))
    admission.take_changed()
    admission.admit()
    assert admission.take_changed() == []


def test_a_job_on_hold_leaves_the_quota_to_others():
    admission = empty(QueueRecord(name="default", max_gpus=1))
    settled(admission, job("1"), job("2"))
    admission.placed("1", 1.0)
    admission.hold("1")
    assert settled(admission) == {"1": "user", "2": ""}
    admission.placed("2", 1.0)
    admission.release("1")
    assert settled(admission) == {"1": "quota", "2": ""}
    admission.ended("2", succeeded=True)
    assert settled(admission) == {"1": ""}
    assert admission.usage() == {"default": (1.0, 1)}


def test_a_job_may_grow_as_far_as_its_queue_has_quota():
    admission = empty(QueueRecord(name="default", max_gpus=3))
    settled(admission, job("1"), job("2"))
    admission.placed("1", 1.0)
    admission.check_resize("1", 2.0)
    admission.placed("1", 2.0)
    with pytest.raises(AdmissionError, match="may use 3 GPUs at one time and uses 3; job 1 would use 3 instead of 2"):
        admission.check_resize("1", 3.0)
    admission.set_queue(QueueRecord(name="default", max_gpus=1))
    admission.check_resize("1", 1.0)  # less is always possible
    admission.placed("1", 1.0)
    admission.admit()
    assert admission.usage() == {"default": (1.0, 2)}


def test_an_array_is_waited_for_by_its_name():
    admission = empty()
    tasks = [job(f"1-{each}") for each in range(3)]
    settled(admission, *tasks, job("2", after=("1",)), job("3", after=("1-0",)))
    assert admission.reason("2").numbers == {"ahead": "1", "status": "succeeded"}
    admission.ended("1-0", succeeded=True)
    admission.ended("1-2", succeeded=True)
    assert (settled(admission)["2"], settled(admission)["3"]) == ("dependency", "")
    admission.ended("1-1", succeeded=True)
    assert settled(admission)["2"] == ""


def test_after_a_task_that_fails_no_job_can_start_that_waits_for_its_array():
    admission = empty()
    settled(admission, job("1-0"), job("1-1"), job("2", after=("1",)))
    assert admission.ended("1-1", succeeded=False) == [("2", "job 1-1, which it waits for, did not succeed")]


def test_nothing_is_kept_of_jobs_and_queues_that_are_gone():
    admission = empty()
    for each in range(5):
        settled(admission, job(f"{each}-0", queue=f"q{each}"), job(f"{each}9", queue=f"q{each}", after=(f"{each}",)))
        admission.ended(f"{each}-0", succeeded=False)
        admission.ended(f"{each}9", succeeded=False)
    assert admission.usage() == {}
    dependencies = admission.dependencies
    assert (admission._jobs, dependencies._after, dependencies._dependents, dependencies._tasks) == ({}, {}, {}, {})


# -- whatever happens -------------------------------------------------------------------------------------------------

QUEUES = ("a", "b", "c")
LIMITS = st.sampled_from([None, 0.5, 1.0, 2.0, 4.0])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"), st.sampled_from(QUEUES), st.sampled_from([1, 2, 4]), st.sampled_from([0.25, 1.0]),
            st.integers(-1, 1), st.integers(0, 3), st.lists(st.integers(0, 30), max_size=2),
        ),
        st.tuples(st.sampled_from(["placed", "displaced", "hold", "release", "succeeded", "failed", "resize"]),
                  st.integers(0, 30)),
        st.tuples(st.just("queue"), st.sampled_from(QUEUES), LIMITS, st.sampled_from([1.0, 3.0])),
        st.tuples(st.just("settle")),
    ),
    min_size=20, max_size=60,
)  # fmt: skip


def uids(jobs: Iterable[LiveJob]) -> list[str]:
    return sorted(job.uid for job in jobs)


class Model:
    """An admission, and the records that a service would keep of its jobs."""

    def __init__(self) -> None:
        self.admission = Admission(GPUS)
        self.queues: dict[str, QueueRecord] = {}
        self.records: dict[str, JobRecord] = {}
        self.holding: dict[str, float] = {}
        self.number = 0

    def do(self, step: tuple) -> None:
        kind, *rest = step
        if kind == "add":
            self.add(*rest)
        elif kind == "queue":
            name, limit, weight = rest
            self.queues[name] = QueueRecord(name=name, max_gpus=limit, weight=weight)
            self.admission.set_queue(self.queues[name])
        elif kind == "settle":
            self.settle()
        elif self.records:
            uid = list(self.records)[rest[0] % len(self.records)]
            getattr(self, kind)(uid)

    def add(self, queue, gpus, frac, priority, tasks, after) -> None:
        self.number += 1
        live = list(self.records)
        names = [live[each % len(live)] for each in after if live]
        names = tuple(each.partition("-")[0] if at % 2 else each for at, each in enumerate(names))
        asked = request(
            gpus=gpus if frac == 1.0 else 1, gpu_frac=frac, queue=queue, priority=priority, after=names
        )  # fmt: skip
        for uid in [f"{self.number}-{each}" for each in range(tasks)] or [str(self.number)]:
            self.records[uid] = JobRecord(uid=uid, user="ada", request=asked)
            self.admission.add(self.records[uid])

    def placed(self, uid: str) -> None:
        self.settle()
        if not self.admission.causes(uid):
            self.holding[uid] = self.asked(uid)
            self.admission.placed(uid, self.holding[uid])
            self.records[uid] = replace(self.records[uid], attempts=1)

    def displaced(self, uid: str) -> None:
        self.holding.pop(uid, None)
        self.admission.displaced(uid)

    def resize(self, uid: str) -> None:
        if uid in self.holding:
            try:
                self.admission.check_resize(uid, 2.0)
            except AdmissionError:
                return
            self.admission.placed(uid, 2.0)
            self.holding[uid] = 2.0

    def hold(self, uid: str) -> None:
        self.admission.hold(uid)
        self.displaced(uid)

    def release(self, uid: str) -> None:
        self.admission.release(uid)

    def succeeded(self, uid: str) -> None:
        assert self.admission.ended(uid, succeeded=True) == []
        self.forget(uid)

    def failed(self, uid: str) -> None:
        doomed = [(uid, "")]
        while doomed:
            uid, _ = doomed.pop()
            if uid in self.records:
                doomed += self.admission.ended(uid, succeeded=False)
                self.forget(uid)

    def forget(self, uid: str) -> None:
        del self.records[uid]
        self.holding.pop(uid, None)

    def settle(self) -> None:
        self.admission.admit()
        for uid in self.admission.take_changed():
            held = ",".join(sorted(self.admission.causes(uid)))
            self.records[uid] = replace(self.records[uid], held=held)
            if held:
                self.displaced(uid)  # the engine suspends what is held

    def asked(self, uid: str) -> float:
        return self.records[uid].request.gpus * self.records[uid].request.gpu_frac

    def milli(self, uid: str) -> int:
        return to_milli(self.holding.get(uid, self.asked(uid)))

    def numbers(self, admission: Admission) -> dict[str, object]:
        queues = {
            name: (queue.jobs, queue.used_milli, uids(queue.waiting), uids(queue.unplaced))
            for name, queue in admission.shares.queues.items()
        }
        tasks = dict(admission.dependencies._tasks)
        return {"queues": queues, "backlog": admission.shares.backlog_milli, "tasks": tasks}

    def counted(self) -> dict[str, object]:
        """The same numbers, counted from nothing but what each job is."""
        queues: dict[str, tuple] = {}
        backlog, tasks = 0, {}
        for uid, record in self.records.items():
            jobs, used, waiting, unplaced = queues.get(record.request.queue, (0, 0, [], []))
            causes, gpus = self.admission.causes(uid), self.milli(uid)
            if not causes:
                used += gpus
                if not record.attempts:
                    unplaced, backlog = sorted([*unplaced, uid]), backlog + gpus
            elif causes <= {"quota", "share"}:
                waiting = sorted([*waiting, uid])
            queues[record.request.queue] = (jobs + 1, used, waiting, unplaced)
            if "-" in uid:
                array = uid.partition("-")[0]
                tasks[array] = tasks.get(array, 0) + 1
        return {"queues": queues, "backlog": backlog, "tasks": tasks}

    def restored(self) -> Admission:
        fresh = Admission(GPUS, self.queues.values())
        for uid, record in self.records.items():
            fresh.restore(record)
            if uid in self.holding:
                fresh.placed(uid, self.holding[uid])
        fresh.admit()
        return fresh


@given(STEPS)
@settings(max_examples=300)
def test_the_numbers_are_those_that_counting_gives_and_that_a_restart_finds(steps):
    model = Model()
    for step in [*steps, ("settle",)]:
        model.do(step)
        assert model.numbers(model.admission) == model.counted()
    quotas = model.admission.quotas
    for name, queue in model.admission.shares.queues.items():
        placed = sum(model.milli(uid) for uid in model.holding if model.records[uid].request.queue == name)
        assert not queue.unplaced or quotas.allows(name, queue.used_milli) or not quotas.allows(name, placed)
        first = next((job for job in queue.waiting if quotas.allows(name, job.milli)), None)
        assert (
            first is None or queue.unplaced or not quotas.allows(name, queue.used_milli + first.milli)
        )  # no queue starves
    fresh = model.restored()
    assert model.numbers(fresh) == model.counted()
    for uid in model.records:
        assert fresh.causes(uid) == model.admission.causes(uid)
