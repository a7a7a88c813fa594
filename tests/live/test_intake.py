"""Job intake, in a made-up world: what users ask for and what follows from it."""

from __future__ import annotations

import pytest
from world import Bench, World, request

from counting import calls
from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.job.request import JobRequest
from gpuwise.core.observations import AttemptObserved, Cause, Details, Phase
from gpuwise.core.records import QueueRecord, Store
from gpuwise.engine.checks import InvalidDecisionError
from gpuwise.live.admission.quotas import AdmissionError
from gpuwise.live.feasibility import MOST_ANSWERS, Feasibility
from gpuwise.live.inbox import LimitError, NotPossibleError
from gpuwise.live.intake import JobIntake
from gpuwise.live.submissions import UserLimits


def turns(bench: Bench, count: int) -> None:
    for _ in range(count):
        bench.controller.turn()


def usage(intake: JobIntake) -> dict[str, tuple[float, int]]:
    return dict(intake.admission.usage())


def fails(bench: Bench, uid: str) -> None:
    bench.world.fail(uid, text="exit code 1", exit_code=1)


def succeeds(bench: Bench, uid: str) -> None:
    bench.world.succeed(uid)


@pytest.fixture
def chain(store: Store) -> tuple[Bench, list[str]]:
    """A running job and 600 others, each after the one before."""
    bench = Bench(store)
    uids = bench.submit(request(1000.0))
    turns(bench, 1)
    for _ in range(600):
        uids += bench.submit(request(1.0, after=(uids[-1],)))
    return bench, uids


def test_a_long_chain_goes_with_its_first_job(store: Store, chain: tuple[Bench, list[str]]) -> None:
    bench, uids = chain
    done = bench.controller.cancel([uids[0]], "ada")
    bench.controller.turn()
    assert done.result(0) is None
    assert bench.controller.live_records() == []
    assert store.job(uids[-1]).why_ended == f"job {uids[-2]}, which it waits for, did not succeed"


def test_a_long_chain_goes_when_its_first_job_fails(store: Store, chain: tuple[Bench, list[str]]) -> None:
    bench, uids = chain
    fails(bench, uids[0])
    bench.controller.turn()
    assert [store.job(uid).status for uid in (uids[0], uids[-1])] == ["failed", "cancelled"]


def test_a_job_after_one_that_has_just_succeeded_starts(store: Store) -> None:
    bench = Bench(store)
    (first,) = bench.submit(request(5.0))
    turns(bench, 1)
    succeeds(bench, first)
    (second,) = bench.submit(request(1.0, after=(first,)))
    assert store.job(first).status == "succeeded"
    bench.settle()
    assert store.job(second).status == "succeeded"


@pytest.mark.parametrize("array", [(), (0, 1)])
def test_a_job_after_one_that_has_just_failed_is_refused(store: Store, array: tuple[int, ...]) -> None:
    bench = Bench(store)
    first = bench.submit(request(5.0, array=array))[0]
    turns(bench, 1)
    fails(bench, first)
    with pytest.raises(NotPossibleError, match=f"job {first} has failed"):
        bench.submit(request(1.0, after=("1",)))
    with pytest.raises(NotPossibleError, match=f"job {first} has failed"):  # also when it is on disk
        bench.submit(request(1.0, after=("1",)))


def test_a_job_after_one_that_is_cancelled_in_the_same_turn_is_refused(store: Store) -> None:
    bench = Bench(store)
    (first,) = bench.submit(request(5.0))
    bench.controller.cancel([first], "ada")
    with pytest.raises(NotPossibleError, match=f"job {first} was cancelled"):
        bench.submit(request(1.0, after=(first,)))


def test_the_jobs_of_a_queue_are_counted_by_task(store: Store) -> None:
    store.put_queue(QueueRecord(name="q", max_jobs=3))
    bench = Bench(store)
    for asked in ([request(queue="q", array=(0, 1, 2, 3))], [request(queue="q", array=(0, 1))] * 2):
        with pytest.raises(AdmissionError, match="may have 3 jobs at a time; it has 0, and 4 more"):
            bench.submit(*asked)
    assert len(bench.submit(request(queue="q", array=(0, 1, 2)))) == 3


def test_a_lowered_quota_lets_smaller_jobs_pass(store: Store) -> None:
    store.put_queue(QueueRecord(name="q", max_gpus=4))
    bench = Bench(store)
    bench.submit(request(10.0, gpus=4, queue="q"))
    large, small = bench.submit(request(10.0, gpus=4, queue="q"), request(10.0, queue="q"))
    bench.controller.set_queue(QueueRecord(name="q", max_gpus=2))
    turns(bench, 10)
    assert (store.job(large).held, store.job(small).status) == ("quota", "succeeded")


def test_a_quota_that_comes_late_still_counts(store: Store) -> None:
    bench = Bench(store)
    uids = bench.submit(*(request(10.0, queue="q") for _ in range(7)))
    bench.controller.set_queue(QueueRecord(name="q", max_gpus=1))
    bench.settle()
    assert [store.job(uid).started_at for uid in uids[4:]] == [1010.0, 1020.0, 1030.0]


def test_a_job_that_finds_no_place_does_not_keep_others_from_idle_gpus(store: Store) -> None:
    bench = Bench(store, "1x4:V100+1x2:T4", policy="fifo-backfill")
    bench.submit(request(100.0, gpus=4, gpu_types=("V100",), queue="large"))
    bench.submit(*(request(100.0, gpus=4, gpu_types=("V100",), queue="large") for _ in range(3)))
    uids = bench.submit(*(request(10.0, gpu_types=("T4",), queue="small") for _ in range(2)))
    bench.settle()
    assert [store.job(uid).started_at for uid in uids] == [1000.0, 1000.0]


def test_what_its_user_suspends_leaves_its_quota_and_comes_back(store: Store) -> None:
    store.put_queue(QueueRecord(name="q", max_gpus=1))
    bench = Bench(store)
    (first,) = bench.submit(request(10.0, queue="q"))
    turns(bench, 1)
    bench.controller.suspend([first])
    turns(bench, 2)
    (second,) = bench.submit(request(20.0, queue="q"))
    turns(bench, 1)
    assert store.job(second).status == "running"
    bench.controller.resume([first])
    bench.controller.turn()
    assert store.job(first).held == "quota"
    again = Bench(store, world=bench.world)
    assert again.ask(usage) == {"q": (1.0, 2)}
    again.settle()
    assert store.job(first).status == "succeeded"


def test_a_resize_keeps_to_the_quota_and_counts(store: Store) -> None:
    store.put_queue(QueueRecord(name="q", max_gpus=2))
    bench = Bench(store)
    (uid,) = bench.submit(request(100.0, gpus=1, min_gpus=1, max_gpus=4, queue="q"))
    turns(bench, 1)
    refused, done = bench.controller.resize(uid, 4), bench.controller.resize(uid, 2)
    bench.controller.turn()
    assert isinstance(refused.exception(0), AdmissionError)
    assert done.result(0) is None
    assert bench.ask(usage) == {"q": (2.0, 1)}
    (other,) = bench.submit(request(1.0, queue="q"))
    assert store.job(other).held == "quota"
    again = Bench(store, world=bench.world)
    assert again.ask(usage) == {"q": (2.0, 2)}


def test_a_resize_that_the_engine_refuses_does_not_count(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(store)
    (uid,) = bench.submit(request(100.0, gpus=1, min_gpus=1, max_gpus=4, queue="q"))
    turns(bench, 1)

    def refuse(now_s: float, commands: object) -> None:
        raise InvalidDecisionError("not now")

    with monkeypatch.context() as refusing:
        refusing.setattr(bench.controller.engine, "order", refuse)
        refused = bench.controller.resize(uid, 4)
        bench.controller.turn()
    assert isinstance(refused.exception(0), InvalidDecisionError)
    assert bench.ask(usage) == {"q": (1.0, 1)}


def test_an_array_that_others_wait_for_is_looked_up_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(store, "1x1:V100")
    bench.submit(request(1.0, array=tuple(range(40))))
    turns(bench, 6)
    asked: list[int] = []
    jobs = store.jobs
    monkeypatch.setattr(store, "jobs", lambda **what: asked.append(what["limit"]) or jobs(**what))
    uids = bench.submit(*(request(1.0, after=("1",)) for _ in range(20)))
    assert asked == [1, 1]
    again = Bench(store, "1x1:V100", world=bench.world)
    assert asked == [1, 1]
    assert store.job(uids[0]).held == "dependency"
    again.settle()
    assert min(store.job(uid).started_at for uid in uids) == 1040.0


def test_a_key_that_was_used_gives_all_tasks_in_order(store: Store) -> None:
    bench = Bench(store, "1x1:V100")
    asked = request(5.0, array=(2, 10, 9, 1))
    uids = bench.submit(asked, request(1.0), key="k")
    turns(bench, 3)
    assert any(bench.controller.live(uid) is None for uid in uids)
    assert bench.submit(asked, request(1.0), key="k") == ["1-1", "1-2", "1-9", "1-10", "2"]


def test_records_follow_an_engine_on_other_hardware(store: Store) -> None:
    bench = Bench(store, "1x4:V100")
    (uid,) = bench.submit(request(10.0, gpus=4))
    turns(bench, 1)
    again = Bench(store, "1x2:A100", world=World())
    turns(again, 1)
    assert (store.job(uid).status, store.job(uid).placement) == ("pending", "")


def test_memory_grows_as_far_as_the_types_a_job_may_have(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    two = ClusterSpec(
        (
            NodeSpec(name="a", gpu_type="small", gpus=1, gpu_memory_bytes=8e9),
            NodeSpec(name="b", gpu_type="big", gpus=1, gpu_memory_bytes=80e9),
        )
    )
    monkeypatch.setattr(ClusterSpec, "parse", lambda text: two)
    bench = Bench(store)
    (uid,) = bench.submit(request(10.0, gpu_types=("small",), gpu_memory_bytes=7e9))
    turns(bench, 1)
    bench.world.fail(uid, cause=Cause.OUT_OF_MEMORY, exit_code=137, peak_memory_bytes=7e9)
    bench.settle()
    assert (store.job(uid).status, store.job(uid).gpu_memory_bytes) == ("succeeded", 8e9)


def test_an_attempt_that_ended_before_its_start_was_recorded_is_recorded_after_a_restart(store: Store) -> None:
    bench = Bench(store)
    bench.world.observe = lambda until_s: None  # nothing is seen of the attempt before the restart
    (uid,) = bench.submit(request(10.0, retries=1))
    bench.controller.turn()
    bench.controller.suspend([uid])
    bench.controller.turn()
    assert (store.job(uid).attempts, store.job(uid).placement, store.attempts(uid)) == (1, "", [])
    again = Bench(store)
    details = Details(started_s=0.0, exit_code=3)
    again.world.queued.append(AttemptObserved(1.0, uid, 1, Phase.FAILED, details=details))
    turns(again, 1)
    assert [attempt.exit_code for attempt in store.attempts(uid)] == [3]


def test_nothing_is_kept_of_attempts_of_jobs_that_have_ended(store: Store) -> None:
    bench = Bench(store)
    (first,) = bench.submit(request(1.0))
    turns(bench, 1)
    ended = AttemptObserved(1.0, first, 1, Phase.SUCCEEDED, details=Details(started_s=0.0, exit_code=0))
    for _ in range(2):  # reported twice
        bench.world.queued.append(ended)
        bench.settle()
    assert [attempt.outcome for attempt in store.attempts(first)] == ["succeeded"]
    assert bench.ask(lambda intake: intake.job_records._places) == {}


def test_answers_to_whether_a_job_fits_are_bounded(store: Store) -> None:
    engine, feasibility = Bench(store).controller.engine, Feasibility()
    for each in range(2 * MOST_ANSWERS + 100):
        feasibility.is_feasible(engine, request(gpu_memory_bytes=1e6 + each))
    assert len(feasibility.answers) <= MOST_ANSWERS


def test_tasks_are_as_their_array_was_asked_for(store: Store) -> None:
    bench = Bench(store)
    asked = request(10.0, gpu_memory_bytes=1e9, priority=3, env={"LR": "1"}, array=(3, 4), steps=20.0)
    for uid, index in zip(bench.submit(asked), asked.array, strict=True):
        record, row = bench.controller.live(uid), bench.controller.engine.state.jobs.row_of[uid]
        assert record.request.to_json() == asked.to_json() | {"array": [index]}
        spec = bench.controller.engine.state.jobs.spec(row)
        assert (spec.id, spec.gpu_memory_bytes, spec.priority, spec.steps) == (uid, 1e9, 3, 20.0)
        assert JobRequest.from_json(record.request.to_json()).array == (index,)


def test_large_arrays_are_checked_and_declared_once(store: Store) -> None:
    bench = Bench(store)
    intake = JobIntake(bench.controller.engine, store, bench.clock, UserLimits())
    array = request(10.0, array=tuple(range(10_000)))
    made = calls(lambda: intake.submit(0.0, [array], "ada", None)) + calls(
        lambda: intake.submit(0.0, [array] * 2, "ada", None)
    )
    assert made / 30_000 < 80  # calls per task: 68 here, several times as many if each is checked by itself


def test_a_check_refuses_what_a_submission_would(store: Store) -> None:
    store.put_queue(QueueRecord(name="hers", users=("eve",)))
    store.put_queue(QueueRecord(name="small", max_gpus=1, max_jobs=2))
    bench = Bench(store, limits=UserLimits(jobs_per_user=5))
    bench.ask(lambda intake: intake.check(request(), "ada"))
    for asked, error, why in (
        (request(queue="hers"), AdmissionError, "ada may not submit"),
        (request(gpus=2, queue="small"), AdmissionError, "asks for 2 GPUs"),
        (request(array=(1, 2, 3), queue="small"), AdmissionError, "3 more are asked for"),
        (request(gpus=9), NotPossibleError, "never run here"),
        (request(after=("7",)), NotPossibleError, "no job '7'"),
        (request(array=tuple(range(6))), LimitError, "may have 5"),
    ):
        with pytest.raises(error, match=why):
            bench.ask(lambda intake, asked=asked: intake.check(asked, "ada"))
    assert bench.controller.live_records() == []


def test_why_counts_times_from_now_and_names_what_refused_the_start(store: Store) -> None:
    bench = Bench(store)
    bench.world.now_s = 5000.0
    (uid,) = bench.submit(request(1e5))
    refused = Details(cause=Cause.BUSY, text="others compute there")
    bench.world.queued.append(AttemptObserved(5000.0, uid, 1, Phase.REFUSED, details=refused))
    bench.controller.turn()
    why = bench.controller.why(uid)
    bench.controller.turn()
    assert str(why.result(0)) == "its start was refused once (others compute there); it is tried again in 1 s"


def test_why_says_that_gpus_are_on_drained_nodes(store: Store) -> None:
    bench = Bench(store, "2x2:V100")
    bench.controller.set_schedulable("n0", False)
    bench.submit(request(1e5, gpus=2))
    (uid,) = bench.submit(request(1e5, gpus=2))
    why = bench.controller.why(uid)
    bench.controller.turn()
    assert str(why.result(0)) == (
        "needs 2 GPUs; 0 of 4 such GPUs are idle, at most 0 on one node; 2 GPUs are on drained nodes"
    )
