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


def settled(desk: Admission, *records: JobRecord) -> dict[str, str]:
    for record in records:
        desk.add(record)
    desk.settle()
    return {uid: ",".join(sorted(desk.causes(uid))) for uid in desk._jobs}


def test_a_queue_counts_what_is_asked_for_at_once():
    desk = admission(QueueRecord(name="default", max_jobs=3))
    desk.check_room("default", 3)
    settled(desk, job("1"))
    with pytest.raises(AdmissionError, match="may have 3 jobs at a time; it has 1, and 3 more are asked for"):
        desk.check_room("default", 3)


def test_a_job_larger_than_a_lowered_quota_is_passed_over():
    desk = admission(QueueRecord(name="default", max_gpus=4))
    assert settled(desk, job("1", 4), job("2", 4), job("3")) == {"1": "", "2": "quota", "3": "quota"}
    desk.set_queue(QueueRecord(name="default", max_gpus=2))
    assert settled(desk) == {"1": "quota", "2": "quota", "3": ""}


def test_a_quota_that_is_set_later_applies_to_those_in_line():
    desk = admission()
    assert set(settled(desk, *(job(str(each)) for each in range(6))).values()) == {""}
    desk.placed("0", 1.0)
    desk.set_queue(QueueRecord(name="default", max_gpus=2))
    assert [uid for uid, cause in settled(desk).items() if not cause] == ["0", "1"]
    desk.forget_queue("default")
    assert set(settled(desk).values()) == {""}


def test_each_queue_has_one_job_in_line_whatever_stands_there():
    desk = admission()
    held = settled(desk, job("1", 4), *(job(str(2 + each), queue="other") for each in range(3)))
    assert held == {"1": "", "2": "", "3": "share", "4": "share"}
    desk.placed("2", 1.0)
    assert settled(desk)["3"] == ""


def test_a_line_that_is_shared_stays_as_it_is():
    desk = admission()
    settled(desk, *(job(str(each), queue=f"q{each % 20}") for each in range(60)))
    desk.touched()
    desk.settle()
    assert desk.touched() == []


def test_what_its_user_holds_back_leaves_the_quota_to_others():
    desk = admission(QueueRecord(name="default", max_gpus=1))
    settled(desk, job("1"), job("2"))
    desk.placed("1", 1.0)
    desk.hold("1")
    assert settled(desk) == {"1": "user", "2": ""}
    desk.placed("2", 1.0)
    desk.release("1")
    assert settled(desk) == {"1": "quota", "2": ""}
    desk.ended("2", succeeded=True)
    assert settled(desk) == {"1": ""}
    assert desk.usage() == {"default": (1.0, 1)}


def test_a_job_may_grow_as_far_as_its_queue_may_hold():
    desk = admission(QueueRecord(name="default", max_gpus=3))
    settled(desk, job("1"), job("2"))
    desk.placed("1", 1.0)
    desk.resize("1", 2.0)
    with pytest.raises(AdmissionError, match="may hold 3 GPUs at one time and has 3; job 1 would hold 3"):
        desk.resize("1", 3.0)
    desk.set_queue(QueueRecord(name="default", max_gpus=1))
    desk.resize("1", 1.0)  # less is always possible
    desk.settle()
    assert desk.usage() == {"default": (1.0, 2)}


def test_an_array_is_waited_for_by_its_name():
    desk = admission()
    tasks = [job(f"1-{each}") for each in range(3)]
    settled(desk, *tasks, job("2", after=("1",)), job("3", after=("1-0",)))
    assert desk._jobs["2"].after == {"1"}
    desk.ended("1-0", succeeded=True)
    desk.ended("1-2", succeeded=True)
    assert (settled(desk)["2"], settled(desk)["3"]) == ("dependency", "")
    desk.ended("1-1", succeeded=True)
    assert settled(desk)["2"] == ""


def test_a_task_that_fails_dooms_who_waits_for_its_array():
    desk = admission()
    settled(desk, job("1-0"), job("1-1"), job("2", after=("1",)))
    assert desk.ended("1-1", succeeded=False) == [("2", "job 1-1, which it waits for, did not succeed")]


def test_nothing_is_kept_of_jobs_and_queues_that_are_gone():
    desk = admission()
    for each in range(5):
        settled(desk, job(f"{each}-0", queue=f"q{each}"), job(f"{each}9", queue=f"q{each}", after=(f"{each}",)))
        desk.ended(f"{each}-0", succeeded=False)
        desk.ended(f"{each}9", succeeded=False)
    assert (desk._jobs, desk._lines, desk._dependents, desk._tasks) == ({}, {}, {}, {})


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
        self.desk = Admission(GPUS)
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
            self.desk.set_queue(self.queues[name])
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
            self.desk.add(self.records[uid])

    def placed(self, uid: str) -> None:
        self.settle()
        if not self.desk.causes(uid):
            self.holding[uid] = self.asked(uid)
            self.desk.placed(uid, self.holding[uid])
            self.records[uid] = replace(self.records[uid], attempts=1)

    def displaced(self, uid: str) -> None:
        self.holding.pop(uid, None)
        self.desk.displaced(uid)

    def resize(self, uid: str) -> None:
        if uid in self.holding:
            try:
                self.desk.resize(uid, 2.0)
            except AdmissionError:
                return
            self.holding[uid] = 2.0

    def hold(self, uid: str) -> None:
        self.desk.hold(uid)
        self.displaced(uid)

    def release(self, uid: str) -> None:
        self.desk.release(uid)

    def succeeded(self, uid: str) -> None:
        assert self.desk.ended(uid, succeeded=True) == []
        self.forget(uid)

    def failed(self, uid: str) -> None:
        doomed = [(uid, "")]
        while doomed:
            uid, _ = doomed.pop()
            if uid in self.records:
                doomed += self.desk.ended(uid, succeeded=False)
                self.forget(uid)

    def forget(self, uid: str) -> None:
        del self.records[uid]
        self.holding.pop(uid, None)

    def settle(self) -> None:
        self.desk.settle()
        for uid in self.desk.touched():
            held = ",".join(sorted(self.desk.causes(uid)))
            self.records[uid] = replace(self.records[uid], held=held)
            if held:
                self.displaced(uid)  # the engine suspends what is held

    def asked(self, uid: str) -> float:
        return self.records[uid].request.gpus * self.records[uid].request.gpu_frac

    def numbers(self, desk: Admission) -> dict[str, object]:
        lines = {
            name: (line.jobs, round(line.used, 6), sorted(uid for _, uid in line.outside), line.waiting)
            for name, line in desk._lines.items()
        }
        return {"lines": lines, "backlog": round(desk._backlog, 6), "tasks": dict(desk._tasks)}

    def counted(self) -> dict[str, object]:
        """The same numbers, counted from nothing but what each job is."""
        lines: dict[str, tuple] = {}
        backlog, tasks = 0.0, {}
        for uid, record in self.records.items():
            jobs, used, outside, waiting = lines.get(record.request.queue, (0, 0.0, [], set()))
            causes, gpus = self.desk.causes(uid), self.holding.get(uid, self.asked(uid))
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
        assert model.numbers(model.desk) == model.counted()
    for name, line in model.desk._lines.items():
        limit = model.desk._limit(name)
        placed = sum(model.holding.get(uid, 0.0) for uid in model.records if model.records[uid].request.queue == name)
        assert limit is None or not line.waiting or line.used <= limit + 1e-9 or placed > limit
        first = model.desk._first(name, line)
        assert first is None or line.waiting or not model.desk._has_quota(first, line)  # nobody starves
    fresh = model.restored()
    assert model.numbers(fresh) == model.counted()
    assert {uid: fresh.causes(uid) for uid in model.records} == {uid: model.desk.causes(uid) for uid in model.records}
