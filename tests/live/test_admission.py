"""Admission: who may stand in line, whatever happens and in whatever order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import request

from gpuwise.core.records import JobRecord, QueueRecord
from gpuwise.live.admission import Admission, AdmissionError

GPUS = 4.0


def job(uid: str, gpus: int = 1, **more) -> JobRecord:
    return JobRecord(uid=uid, user="ada", request=request(gpus=gpus, **more))


def admission(*queues: QueueRecord) -> Admission:
    return Admission(GPUS, queues)


def settled(intake: Admission, *records: JobRecord) -> dict[str, str]:
    for record in records:
        intake.add(record)
    intake.settle()
    return {uid: ",".join(sorted(intake.causes(uid))) for uid in intake._jobs}


def test_a_queue_counts_what_is_asked_for_at_once():
    intake = admission(QueueRecord(name="default", max_jobs=3))
    intake.check_room("default", 3)
    settled(intake, job("1"))
    with pytest.raises(AdmissionError, match="may have 3 jobs at a time; it has 1, and 3 more are asked for"):
        intake.check_room("default", 3)


def test_a_job_larger_than_a_lowered_quota_is_passed_over():
    intake = admission(QueueRecord(name="default", max_gpus=4))
    assert settled(intake, job("1", 4), job("2", 4), job("3")) == {"1": "", "2": "quota", "3": "quota"}
    intake.set_queue(QueueRecord(name="default", max_gpus=2))
    assert settled(intake) == {"1": "quota", "2": "quota", "3": ""}


def test_a_quota_that_is_set_later_applies_to_those_in_line():
    intake = admission()
    assert set(settled(intake, *(job(str(each)) for each in range(6))).values()) == {""}
    intake.placed("0", 1.0)
    intake.set_queue(QueueRecord(name="default", max_gpus=2))
    assert [uid for uid, cause in settled(intake).items() if not cause] == ["0", "1"]
    intake.forget_queue("default")
    assert set(settled(intake).values()) == {""}


def test_each_queue_has_one_job_in_line_whatever_stands_there():
    intake = admission()
    held = settled(intake, job("1", 4), *(job(str(2 + each), queue="other") for each in range(3)))
    assert held == {"1": "", "2": "", "3": "share", "4": "share"}
    intake.placed("2", 1.0)
    assert settled(intake)["3"] == ""


def test_a_line_that_is_shared_stays_as_it_is():
    intake = admission()
    settled(intake, *(job(str(each), queue=f"q{each % 20}") for each in range(60)))
    intake.touched()
    intake.settle()
    assert intake.touched() == []


def test_what_its_user_holds_back_leaves_the_quota_to_others():
    intake = admission(QueueRecord(name="default", max_gpus=1))
    settled(intake, job("1"), job("2"))
    intake.placed("1", 1.0)
    intake.hold("1")
    assert settled(intake) == {"1": "user", "2": ""}
    intake.placed("2", 1.0)
    intake.release("1")
    assert settled(intake) == {"1": "quota", "2": ""}
    intake.ended("2", succeeded=True)
    assert settled(intake) == {"1": ""}
    assert intake.usage() == {"default": (1.0, 1)}


def test_a_job_may_grow_as_far_as_its_queue_may_hold():
    intake = admission(QueueRecord(name="default", max_gpus=3))
    settled(intake, job("1"), job("2"))
    intake.placed("1", 1.0)
    intake.resize("1", 2.0)
    with pytest.raises(AdmissionError, match="may hold 3 GPUs at one time and has 3; job 1 would hold 3"):
        intake.resize("1", 3.0)
    intake.set_queue(QueueRecord(name="default", max_gpus=1))
    intake.resize("1", 1.0)  # less is always possible
    intake.settle()
    assert intake.usage() == {"default": (1.0, 2)}


def test_an_array_is_waited_for_by_its_name():
    intake = admission()
    tasks = [job(f"1-{each}") for each in range(3)]
    settled(intake, *tasks, job("2", after=("1",)), job("3", after=("1-0",)))
    assert intake._jobs["2"].after == {"1"}
    intake.ended("1-0", succeeded=True)
    intake.ended("1-2", succeeded=True)
    assert (settled(intake)["2"], settled(intake)["3"]) == ("dependency", "")
    intake.ended("1-1", succeeded=True)
    assert settled(intake)["2"] == ""


def test_a_task_that_fails_dooms_who_waits_for_its_array():
    intake = admission()
    settled(intake, job("1-0"), job("1-1"), job("2", after=("1",)))
    assert intake.ended("1-1", succeeded=False) == [("2", "job 1-1, which it waits for, did not succeed")]


def test_nothing_is_kept_of_jobs_and_queues_that_are_gone():
    intake = admission()
    for each in range(5):
        settled(intake, job(f"{each}-0", queue=f"q{each}"), job(f"{each}9", queue=f"q{each}", after=(f"{each}",)))
        intake.ended(f"{each}-0", succeeded=False)
        intake.ended(f"{each}9", succeeded=False)
    assert (intake._jobs, intake._lines, intake._dependents, intake._tasks) == ({}, {}, {}, {})


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


class Model:
    """An admission, and the records that a service would keep of its jobs."""

    def __init__(self) -> None:
        self.intake = Admission(GPUS)
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
            self.intake.set_queue(self.queues[name])
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
            self.intake.add(self.records[uid])

    def placed(self, uid: str) -> None:
        self.settle()
        if not self.intake.causes(uid):
            self.holding[uid] = self.asked(uid)
            self.intake.placed(uid, self.holding[uid])
            self.records[uid] = replace(self.records[uid], attempts=1)

    def displaced(self, uid: str) -> None:
        self.holding.pop(uid, None)
        self.intake.displaced(uid)

    def resize(self, uid: str) -> None:
        if uid in self.holding:
            try:
                self.intake.resize(uid, 2.0)
            except AdmissionError:
                return
            self.holding[uid] = 2.0

    def hold(self, uid: str) -> None:
        self.intake.hold(uid)
        self.displaced(uid)

    def release(self, uid: str) -> None:
        self.intake.release(uid)

    def succeeded(self, uid: str) -> None:
        assert self.intake.ended(uid, succeeded=True) == []
        self.forget(uid)

    def failed(self, uid: str) -> None:
        doomed = [(uid, "")]
        while doomed:
            uid, _ = doomed.pop()
            if uid in self.records:
                doomed += self.intake.ended(uid, succeeded=False)
                self.forget(uid)

    def forget(self, uid: str) -> None:
        del self.records[uid]
        self.holding.pop(uid, None)

    def settle(self) -> None:
        self.intake.settle()
        for uid in self.intake.touched():
            held = ",".join(sorted(self.intake.causes(uid)))
            self.records[uid] = replace(self.records[uid], held=held)
            if held:
                self.displaced(uid)  # the engine suspends what is held

    def asked(self, uid: str) -> float:
        return self.records[uid].request.gpus * self.records[uid].request.gpu_frac

    def numbers(self, intake: Admission) -> dict[str, object]:
        lines = {
            name: (line.jobs, round(line.used, 6), sorted(uid for _, uid in line.outside), line.waiting)
            for name, line in intake._lines.items()
        }
        return {"lines": lines, "backlog": round(intake._backlog, 6), "tasks": dict(intake._tasks)}

    def counted(self) -> dict[str, object]:
        """The same numbers, counted from nothing but what each job is."""
        lines: dict[str, tuple] = {}
        backlog, tasks = 0.0, {}
        for uid, record in self.records.items():
            jobs, used, outside, waiting = lines.get(record.request.queue, (0, 0.0, [], set()))
            causes, gpus = self.intake.causes(uid), self.holding.get(uid, self.asked(uid))
            if not causes:
                used += gpus
                if not record.attempts:
                    waiting, backlog = waiting | {uid}, backlog + gpus
            elif causes <= {"quota", "share"}:
                outside = sorted([*outside, uid])
            lines[record.request.queue] = (jobs + 1, round(used, 6), outside, waiting)
            if "-" in uid:
                array = uid.partition("-")[0]
                tasks[array] = tasks.get(array, 0) + 1
        return {"lines": lines, "backlog": round(backlog, 6), "tasks": tasks}

    def restored(self) -> Admission:
        fresh = Admission(GPUS, self.queues.values())
        for uid, record in self.records.items():
            fresh.restore(record)
            if uid in self.holding:
                fresh.placed(uid, self.holding[uid])
        fresh.settle()
        return fresh


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_the_numbers_are_those_that_counting_gives_and_that_a_restart_finds(steps):
    model = Model()
    for step in [*steps, ("settle",)]:
        model.do(step)
        assert model.numbers(model.intake) == model.counted()
    for name, line in model.intake._lines.items():
        limit = model.intake._limit(name)
        placed = sum(model.holding.get(uid, 0.0) for uid in model.records if model.records[uid].request.queue == name)
        assert limit is None or not line.waiting or line.used <= limit + 1e-9 or placed > limit
        first = model.intake._first(name, line)
        assert first is None or line.waiting or not model.intake._has_quota(first, line)  # nobody starves
    fresh = model.restored()
    assert model.numbers(fresh) == model.counted()
    assert {uid: fresh.causes(uid) for uid in model.records} == {uid: model.intake.causes(uid) for uid in model.records}
