"""The controller: what is asked for and what happens, decided, written down, and only then done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from world import Bench, World, request

from gpuwise.core.assignments import Assignment, Intent
from gpuwise.core.events import DeviceLost, DeviceRestored
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.request import JobRequest
from gpuwise.core.observations import AttemptObserved, Cause, Details, Phase
from gpuwise.core.records import Batch, QueueRecord, Store, StoreError
from gpuwise.live import failures, recovery
from gpuwise.live.admission.quotas import AdmissionError
from gpuwise.live.inbox import LimitError, NotPossibleError
from gpuwise.live.submissions import UserLimits
from gpuwise.store.sql import SqlStore


def test_jobs_run_one_after_the_other_and_their_records_say_so(store: Store) -> None:
    bench = Bench(store, "1x1:V100")
    first, second = bench.submit(request(10.0), request(20.0))
    bench.settle()
    records = [store.job(uid) for uid in (first, second)]
    assert [record.status for record in records] == ["succeeded", "succeeded"]
    # The epoch is 1000; the second starts when the first is done after 10 s, and takes 20 s.
    assert [(record.started_at, record.ended_at) for record in records] == [(1000.0, 1010.0), (1010.0, 1030.0)]
    assert [record.gpu_s for record in records] == [10.0, 20.0]


def test_nothing_is_done_before_it_is_written(store: Store) -> None:
    bench = Bench(store)
    written: list[int] = []

    class Spy(World):
        def follow(self, desired, complete=False):
            if not complete:
                written.append(store.last_sequence())
            super().follow(desired, complete)

    bench = Bench(store, world=Spy())
    bench.submit(request())
    # JobSubmitted, JobStarted's wake-up and the start itself: the line of the command is there before it is applied.
    kinds = [line.kind for line in store.lines()]
    assert kinds.index("Start") < written[0]


def test_a_submission_that_cannot_be_written_is_refused_and_leaves_nothing_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(store)
    monkeypatch.setattr(failures, "BACK_OFF_S", (0.0,))
    good = store.commit

    def full(batch: Batch) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "commit", full)
    future = bench.controller.submit([request()], "ada")
    bench.controller.turn()
    with pytest.raises(StoreError, match="full"):
        future.result(0)
    assert bench.controller.live_records() == []
    assert bench.controller.trouble == "the disk is full"
    assert bench.world.desired == []
    monkeypatch.setattr(store, "commit", good)
    assert bench.submit(request()) == ["1"]
    bench.settle()
    assert bench.controller.trouble == ""


def test_a_controller_that_starts_again_goes_on_where_the_other_was(store: Store) -> None:
    bench = Bench(store, "1x1:V100")
    uids = bench.submit(request(10.0), request(20.0), request(5.0))
    bench.controller.turn()
    again = Bench(store, "1x1:V100", world=bench.world)
    assert {record.uid: record.status for record in again.controller.live_records()} == {
        uids[0]: "running", uids[1]: "pending", uids[2]: "pending",
    }  # fmt: skip
    again.settle()
    assert [store.job(uid).ended_at for uid in uids] == [1010.0, 1030.0, 1035.0]


def test_a_start_that_finds_nothing_to_do_writes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a controller that is killed at its first write, again and again, would never get to its second."""
    bench = Bench(store)
    (uid,) = bench.submit(request(10.0))
    bench.controller.cancel([uid], "ada")
    bench.settle()
    gone = AttemptObserved(1.0, uid, 1, Phase.STOPPED, details=Details(started_s=0.0, exit_code=143))
    bench.world.queued.append(gone)
    bench.controller.turn()
    assert [attempt.outcome for attempt in store.attempts(uid)] == ["cancelled"]
    monkeypatch.setattr(store, "commit", lambda batch: pytest.fail(f"written: {batch}"))
    again = Bench(store, world=bench.world)
    bench.world.queued.append(gone)  # told again after the start
    for _ in range(3):
        bench.world.wake()
        again.controller.turn()
    assert again.controller.trouble == ""


def test_compacting_forgets_what_has_ended_and_changes_nothing_else(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "COMPACT_LINES", 40)
    bench = Bench(store, "1x2:V100", policy="srtf")
    for _ in range(20):
        bench.submit(*(request(float(3 + i)) for i in range(3)))
        for _ in range(6):
            bench.controller.turn()
    assert len(bench.controller.engine.state.jobs) < 60
    bench.settle()
    assert all(record.status == "succeeded" for record in store.jobs(limit=100))
    assert len(store.jobs(limit=100)) == 60
    starts = [each for each in bench.world.desired if isinstance(each, Assignment) and each.intent is Intent.RUN]
    preemptions = sum(record.preemptions for record in store.jobs(limit=100))
    assert len(starts) == 60 + preemptions


def test_a_cancelled_job_is_stopped_and_those_after_it_go_with_it(store: Store) -> None:
    bench = Bench(store)
    (first,) = bench.submit(request(100.0))
    (second,) = bench.submit(request(1.0, after=(first,)))
    (third,) = bench.submit(request(1.0, after=(second,)))
    bench.controller.cancel([first], "ada")
    bench.controller.turn()
    assert Assignment(first, 1, Intent.STOP) in bench.world.desired
    assert [store.job(uid).status for uid in (first, second, third)] == ["cancelled"] * 3
    assert store.job(first).why_ended == "cancelled by ada"
    assert store.job(third).why_ended == f"job {second}, which it waits for, did not succeed"


def test_a_job_waits_for_those_it_comes_after(store: Store) -> None:
    bench = Bench(store)
    (first,) = bench.submit(request(7.0))
    (second,) = bench.submit(request(1.0, after=(first,)))
    why = bench.controller.why(second)
    bench.controller.turn()
    assert str(why.result(0)) == f"waits for job {first}, which has not succeeded yet"
    bench.settle()
    assert store.job(second).started_at == 1007.0


def test_a_job_that_waits_for_a_failure_is_cancelled_when_there_is_none(store: Store) -> None:
    bench = Bench(store)
    (first,) = bench.submit(request(7.0))
    (second,) = bench.submit(request(1.0, after=(f"afternotok:{first}",)))
    (third,) = bench.submit(request(1.0, after=(f"afterany:{first}", f"afternotok:{first}")))
    (last,) = bench.submit(request(1.0, after=(f"afternotok:{second}",)))
    bench.settle()
    assert [store.job(uid).status for uid in (first, second, third, last)] == [
        "succeeded", "cancelled", "cancelled", "succeeded",
    ]  # fmt: skip
    assert store.job(second).why_ended == f"job {first}, which it waits for, did not fail"


def test_a_record_that_cannot_be_read_ends_its_job_and_no_other(store: SqlStore) -> None:
    bench = Bench(store, "1x2:V100")
    bad, good, waiting = bench.submit(*[request(10.0)] * 3)
    (free,) = bench.submit(request(1.0, after=(f"afterany:{bad}",)))
    bench.controller.turn()
    store.database.write(lambda connection: connection.exec_driver_sql("UPDATE jobs SET request = '{' WHERE uid = '1'"))
    again = Bench(store, "1x2:V100", world=bench.world)
    again.controller.turn()
    assert sorted(each.job for each in again.controller.engine.desired()) == [good, waiting]
    again.world.queued.append(AttemptObserved(0.0, bad, 1, Phase.STOPPED, details=Details(started_s=0.0)))
    again.settle()
    assert [store.job(uid).status for uid in (good, waiting, free)] == ["succeeded"] * 3
    assert list(store.unreadable) == [f"job {bad}"]
    Bench(store, "1x2:V100", world=again.world).controller.turn()


def _damage(store: SqlStore, uid: str) -> None:
    store.database.write(
        lambda connection: connection.exec_driver_sql(f"UPDATE jobs SET request = '{{' WHERE uid = '{uid}'")
    )


@pytest.mark.parametrize("restarts", [1, 2])
def test_what_waits_for_a_job_whose_record_cannot_be_read_is_treated_as_if_that_was_cancelled(
    store: SqlStore, restarts: int
) -> None:
    bench = Bench(store, "1x2:V100")
    (bad,) = bench.submit(request(10.0))
    kinds = ("afterok", "afterany", "afternotok")
    waiting = bench.submit(*(request(1.0, after=(f"{kind}:{bad}",)) for kind in kinds))
    (last,) = bench.submit(request(1.0, after=(waiting[0],)))
    bench.controller.turn()
    _damage(store, bad)
    for _ in range(restarts):  # the second may come before any turn
        bench = Bench(store, "1x2:V100", world=bench.world)
    bench.settle()
    assert [store.job(uid).status for uid in (*waiting, last)] == ["cancelled", "succeeded", "succeeded", "cancelled"]
    assert store.job(waiting[0]).why_ended == f"job {bad}, which it waits for, did not succeed"


@pytest.mark.parametrize("restarts", [1, 2])
def test_what_waits_for_an_array_with_a_task_whose_record_cannot_be_read(store: SqlStore, restarts: int) -> None:
    bench = Bench(store, "1x4:V100")
    tasks = bench.submit(request(10.0, array=(0, 1, 2)))
    kinds = ("afterok", "afterany", "afternotok")
    waiting = bench.submit(*(request(1.0, after=(f"{kind}:1",)) for kind in kinds))
    bench.controller.turn()
    _damage(store, tasks[1])
    for _ in range(restarts):
        bench = Bench(store, "1x4:V100", world=bench.world)
    bench.settle()
    assert [store.job(uid).status for uid in (tasks[0], tasks[2], *waiting)] == [
        "succeeded", "succeeded", "cancelled", "succeeded", "succeeded",
    ]  # fmt: skip
    ok, after_any, not_ok = (store.job(uid) for uid in waiting)
    assert ok.why_ended == f"job {tasks[1]}, which it waits for, did not succeed"
    assert after_any.started_at >= store.job(tasks[2]).ended_at
    assert not_ok.started_at < store.job(tasks[2]).ended_at


@pytest.mark.parametrize("missing", ["attempts jobs", "journal", "snapshots"])
def test_records_that_contradict_each_other_are_damage_with_a_way_out(store: SqlStore, missing: str) -> None:
    bench = Bench(store)
    bench.submit(request(10.0))
    bench.controller.turn()
    for table in missing.split():
        store.database.write(lambda connection, table=table: connection.exec_driver_sql(f"DELETE FROM {table}"))  # type: ignore[misc]
    with pytest.raises(StoreError, match=r"store .*gpuwise.db: table .*gpuwise restore FILE"):
        Bench(store, world=bench.world)


def test_a_whole_array_can_be_waited_for(store: Store) -> None:
    bench = Bench(store)
    tasks = bench.submit(request(3.0, array=(0, 2, 5)))
    assert tasks == ["1-0", "1-2", "1-5"]
    (last,) = bench.submit(request(1.0, after=("1",)))
    bench.settle()
    assert store.job(last).started_at == 1003.0


def test_a_job_suspended_by_its_user_waits_until_it_is_resumed(store: Store) -> None:
    bench = Bench(store)
    (uid,) = bench.submit(request(10.0))
    bench.controller.turn()
    bench.controller.suspend([uid])
    for _ in range(3):
        bench.controller.turn()
    assert bench.controller.live(uid).status == "suspended"
    assert bench.controller.live(uid).held == "user"
    assert [each.intent for each in bench.world.desired] == [Intent.RUN, Intent.SUSPEND]
    bench.controller.resume([uid])
    bench.settle()
    assert store.job(uid).status == "succeeded"


def test_a_suspension_by_the_user_survives_a_restart(store: Store) -> None:
    bench = Bench(store)
    (uid,) = bench.submit(request(10.0))
    bench.controller.suspend([uid])
    for _ in range(3):
        bench.controller.turn()
    again = Bench(store, world=bench.world)
    for _ in range(3):
        again.controller.turn()
    assert again.controller.live(uid).held == "user"
    again.controller.resume([uid])
    again.settle()
    assert store.job(uid).status == "succeeded"


def test_quota_keeps_a_queue_to_its_gpus(store: Store) -> None:
    store.put_queue(QueueRecord(name="small", max_gpus=2))
    bench = Bench(store, "1x4:V100")
    uids = bench.submit(*(request(10.0, queue="small") for _ in range(4)))
    why = bench.controller.why(uids[3])
    bench.controller.turn()
    assert "queue small may use 2 GPUs" in str(why.result(0))
    assert bench.controller.live(uids[3]).held == "quota"
    bench.settle()
    # Two at a time: 0–10 s and 10–20 s, though four GPUs are there.
    assert [store.job(uid).started_at for uid in uids] == [1000.0, 1000.0, 1010.0, 1010.0]


def test_a_job_larger_than_its_quota_is_refused(store: Store) -> None:
    store.put_queue(QueueRecord(name="small", max_gpus=2))
    bench = Bench(store)
    with pytest.raises(AdmissionError, match="asks for 3 GPUs"):
        bench.submit(request(gpus=3, queue="small"))


def test_a_thousand_jobs_of_one_queue_do_not_stand_before_the_first_of_another(store: Store) -> None:
    bench = Bench(store, "1x2:V100")
    many = bench.submit(*(request(10.0, queue="many") for _ in range(200)))
    (other,) = bench.submit(request(10.0, queue="other"))
    bench.settle()
    # Two run at once; of the others at most two stand in line, so the one of the other queue starts at 10 s.
    assert store.job(other).started_at == 1010.0
    assert store.job(many[-1]).started_at > 1900.0


def test_weights_divide_the_cluster(store: Store) -> None:
    store.put_queue(QueueRecord(name="three", weight=3.0))
    bench = Bench(store, "1x4:V100")
    bench.submit(*(request(10.0, queue="three") for _ in range(60)))
    bench.submit(*(request(10.0, queue="one") for _ in range(60)))
    while bench.world.now_s < 100.0:
        bench.controller.turn()
    ended = store.jobs(statuses=["succeeded"], limit=200)
    of = {name: sum(record.request.queue == name for record in ended) for name in ("three", "one")}
    assert of["three"] == pytest.approx(3 * of["one"], abs=4)
    assert of["one"] >= 3


def test_a_failed_job_tries_again_as_often_as_it_may(store: Store) -> None:
    bench = Bench(store)
    (uid,) = bench.submit(request(10.0, retries=1))
    for attempt in (1, 2):
        bench.controller.turn()
        bench.world.fail(uid, attempt, text="exit code 3", exit_code=3)
        bench.controller.turn()
    record = store.job(uid)
    assert (record.status, record.failures, record.exit_code, record.why_ended) == ("failed", 2, 3, "exit code 3")
    assert [attempt.exit_code for attempt in store.attempts(uid)] == [3, 3]


def test_after_out_of_memory_a_job_asks_for_more(store: Store) -> None:
    bench = Bench(store)
    (uid,) = bench.submit(request(10.0, gpu_memory_bytes=4e9))
    bench.controller.turn()
    bench.world.fail(uid, cause=Cause.OUT_OF_MEMORY, exit_code=137, peak_memory_bytes=4e9)
    bench.settle()
    record = store.job(uid)
    assert record.status == "succeeded"
    assert record.out_of_memory == 1
    assert record.gpu_memory_bytes == 6e9


def test_a_device_that_vanishes_is_not_used_until_it_is_back(store: Store) -> None:
    bench = Bench(store, "1x2:V100")
    uids = bench.submit(request(10.0), request(10.0))
    bench.controller.turn()
    state = bench.controller.engine.state
    hit = next(job for job, placement in state.placed.items() if (0, 1) in placement.devices())
    bench.world.lose(state.jobs.ids[hit])
    bench.world.queued.append(DeviceLost(bench.world.now_s, 0, 1, ((hit, 0.0),)))
    bench.controller.turn()
    assert bench.controller.live(state.jobs.ids[hit]).status == "pending"
    bench.settle()
    assert sorted(store.job(uid).ended_at for uid in uids) == [1010.0, 1020.0]
    bench.world.queued.append(DeviceRestored(bench.world.now_s, 0, 1))
    both = bench.submit(request(5.0), request(5.0))
    bench.settle()
    assert len({store.job(uid).started_at for uid in both}) == 1


def test_the_same_key_submits_once_even_after_a_restart(store: Store) -> None:
    bench = Bench(store)
    uids = bench.submit(request(1.0, array=(0, 1)), key="abc")
    assert bench.submit(request(1.0, array=(0, 1)), key="abc") == uids
    bench.settle()
    again = Bench(store, world=bench.world)
    assert sorted(again.submit(request(1.0, array=(0, 1)), key="abc")) == uids
    assert again.submit(request(1.0), user="bob", key="abc") == ["2"]


def test_what_can_never_run_is_refused_with_the_reason(store: Store) -> None:
    bench = Bench(store, "1x4:V100")
    with pytest.raises(NotPossibleError, match="asks for 5 GPUs, and there are 4 × V100"):
        bench.submit(request(gpus=5))
    with pytest.raises(NotPossibleError, match="asks for 1 GPU, as mig only, and there are 4 × V100"):
        bench.submit(request(sharing=frozenset((Sharing.MIG,))))
    with pytest.raises(NotPossibleError, match="no job '9'"):
        bench.submit(request(after=("9",)))


def test_a_user_may_have_so_many_jobs(store: Store) -> None:
    bench = Bench(store, limits=UserLimits(jobs_per_user=2))
    bench.submit(request(), request())
    with pytest.raises(LimitError, match="ada has 2 jobs"):
        bench.submit(request())
    assert bench.submit(request(), user="bob") == ["3"]


def test_run_times_come_from_earlier_runs_of_the_same_command(store: Store) -> None:
    bench = Bench(store)
    plain = JobRequest(command=("train", "--lr", "1"))
    (unknown,) = bench.submit(plain)
    assert (bench.controller.live(unknown).duration_s, bench.controller.live(unknown).duration_source) == (
        3600.0, "default",
    )  # fmt: skip
    bench.settle()
    (known,) = bench.submit(plain)
    assert bench.controller.live(known).duration_source == "history"


def test_a_predicted_run_time_counts_until_the_job_has_run(store: Store) -> None:
    bench = Bench(store)
    predicted = JobRequest(command=("train",), predicted_s=50.0)
    (first,) = bench.submit(predicted)
    assert (store.job(first).duration_s, store.job(first).duration_source) == (50.0, "predicted")
    bench.settle()
    (second,) = bench.submit(replace(predicted, predicted_s=70.0))
    assert (store.job(second).duration_s, store.job(second).duration_source) == (50.0, "history")
    (third,) = bench.submit(replace(predicted, duration_s=20.0))
    assert (store.job(third).duration_s, store.job(third).duration_source) == (20.0, "declared")


def test_a_run_time_that_turns_out_wrong_is_revised(store: Store) -> None:
    bench = Bench(store)
    (uid,) = bench.submit(request(1000.0))
    bench.controller.turn()
    for at_s, step in ((1.0, 10), (11.0, 60)):
        bench.world.now_s = at_s
        progress = AttemptObserved(at_s, uid, 1, Phase.RUNNING, step, 100, Details(loss=0.5))
        bench.world.queued.append(progress)
        bench.controller.turn()
    # 50 steps in 10 s: all 100 take 20 s.
    assert bench.controller.live(uid).duration_s == pytest.approx(20.0)
    assert bench.controller.live(uid).duration_source == "observed"
    assert bench.controller.live(uid).loss == 0.5


def test_an_elastic_job_is_resized_when_its_user_asks(store: Store) -> None:
    bench = Bench(store, "1x4:V100")
    (uid,) = bench.submit(request(100.0, gpus=1, min_gpus=1, max_gpus=3))
    bench.controller.turn()
    done = bench.controller.resize(uid, 2)
    bench.controller.turn()
    assert done.result(0) is None
    assert bench.controller.live(uid).placement.endswith(":0,1")
    bench.settle()
    assert store.job(uid).ended_at == pytest.approx(1050.0)
    refused = bench.controller.resize(uid, 2)
    bench.controller.turn()
    with pytest.raises(NotPossibleError, match="has ended"):
        refused.result(0)


@pytest.mark.parametrize("sizes", [(2, 9), (9, 2)])
def test_each_of_two_resizes_in_one_turn_gets_its_own_answer(store: Store, sizes: tuple[int, int]) -> None:
    bench = Bench(store, "1x4:V100")
    (uid,) = bench.submit(request(100.0, gpus=1, min_gpus=1, max_gpus=4))
    bench.controller.turn()
    answers = {gpus: bench.controller.resize(uid, gpus) for gpus in sizes}
    bench.controller.turn()
    assert answers[2].result(0) is None
    with pytest.raises(NotPossibleError, match="not 9"):
        answers[9].result(0)


def test_a_policy_that_fails_is_replaced(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "BACK_OFF_S", (0.0,))
    world = World()

    def broken(spec):
        engine = world.engines("fifo")(spec)

        class Broken:
            name, wakes_on = "broken", engine.policy.wakes_on

            def decide(self, view, rng):
                raise ZeroDivisionError("no")

        engine.policy = Broken()
        return engine

    bench = Bench(store, world=world, make=broken, fallback=world.engines("fifo"))
    future = bench.controller.submit([request(3.0)], "ada")
    for _ in range(5):
        bench.controller.turn()
    with pytest.raises(Exception, match="inside the controller"):
        future.result(0)
    assert "policy 'broken' fails" in bench.controller.trouble
    (uid,) = bench.submit(request(3.0))
    bench.settle()
    assert store.job(uid).status == "succeeded"


def test_other_hardware_after_a_restart_sends_jobs_back_to_the_queue(store: Store) -> None:
    bench = Bench(store, "1x4:V100")
    uids = bench.submit(request(10.0, gpus=2), request(10.0, gpus=2))
    bench.controller.turn()
    world = World()
    again = Bench(store, "1x2:A100", world=world)
    assert {record.status for record in again.controller.live_records()} == {"running"}
    again.controller.turn()
    again.settle()
    assert [replace(store.job(uid)).status for uid in uids] == ["succeeded"] * 2


def test_while_the_store_is_away_nothing_is_done_with_what_was_never_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "BACK_OFF_S", (0.0,))
    bench = Bench(store, "1x1:V100")
    bench.submit(request(10.0))

    def away(*given: object) -> None:
        raise StoreError("the server is away")

    with monkeypatch.context() as trouble:
        trouble.setattr(store, "commit", away)
        trouble.setattr(store, "recover", away)
        refused = [bench.controller.submit([request()], "ada") for _ in range(2)]
        for _ in range(4):
            bench.controller.turn()
        for future in refused:
            with pytest.raises(StoreError, match="away"):
                future.result(0)
        assert bench.controller.trouble == "the server is away"
    assert bench.submit(request(5.0)) == ["2"]
    assert bench.controller.trouble == ""
    again = Bench(store, "1x1:V100", world=bench.world)
    again.settle()
    assert [record.status for record in store.jobs()] == ["succeeded", "succeeded"]


def test_a_resize_in_the_turn_in_which_a_job_starts_comes_after_its_start(store: Store) -> None:
    bench = Bench(store, "1x4:V100")
    (uid,) = bench.submit(request(100.0, gpus=1, min_gpus=1, max_gpus=3))
    bench.world.queued += bench.world.look_ahead(None)[1]  # its start is seen in the same turn
    done = bench.controller.resize(uid, 2)
    bench.controller.turn()
    assert done.result(0) is None
    assert [line.kind for line in store.lines() if line.uid == uid] == ["JobSubmitted", "Start", "JobStarted", "Resize"]
    bench.settle()
    assert store.job(uid).status == "succeeded"


def test_the_policy_is_asked_after_a_job_was_made_smaller(store: Store) -> None:
    bench = Bench(store, "1x4:V100")
    (large,) = bench.submit(request(100.0, gpus=4, min_gpus=1, max_gpus=4))
    (other,) = bench.submit(request(10.0, gpus=2))
    bench.controller.turn()
    bench.controller.resize(large, 1)
    bench.controller.turn()
    assert bench.controller.live(other).status == "starting"
    bench.settle()


@pytest.mark.parametrize("steps", [0.0, -1.0, 1e308])
def test_what_a_job_says_of_its_steps_is_not_believed_whatever_it_is(store: Store, steps: float) -> None:
    bench = Bench(store)
    (uid,) = bench.submit(request(1000.0))
    bench.controller.turn()
    for at_s, step in ((1.0, 10), (20.0, 60)):
        bench.world.now_s = at_s
        bench.world.queued.append(AttemptObserved(at_s, uid, 1, Phase.RUNNING, step, steps))
        bench.controller.turn()
    assert bench.controller.trouble == ""
    assert bench.controller.live(uid).duration_s == 1000.0


def test_a_journal_that_cannot_be_compacted_stops_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "COMPACT_LINES", 4)

    def broken(engine: object) -> str:
        raise ValueError("cannot be written")

    bench = Bench(store)
    monkeypatch.setattr(recovery, "to_json", broken)
    uids = bench.submit(*(request(float(10 + number)) for number in range(8)))
    bench.settle()
    assert bench.controller.trouble == ""
    assert {store.job(uid).status for uid in uids} == {"succeeded"}


def test_a_job_that_is_cancelled_while_it_saves_is_gone(store: Store) -> None:
    bench = Bench(store, "1x1:V100")
    (uid,) = bench.submit(request(100.0))
    bench.controller.turn()
    bench.controller.suspend([uid])
    bench.controller.turn()
    bench.controller.cancel([uid], "ada")
    bench.settle()
    assert store.job(uid).status == "cancelled"
