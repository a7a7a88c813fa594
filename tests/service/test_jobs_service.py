"""The use cases on jobs, called as the API calls them, on a service that really runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from builders import on
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.commands import COMMAND_TYPES, MigSlice, Rearrange, TaskGrant
from gpuwise.core.events import EVENT_TYPES, JobFailed, JobRevised
from gpuwise.core.job.request import JobRequest
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.records import UserRole
from gpuwise.engine.journal import encode
from gpuwise.live.inbox import NotPossibleError
from gpuwise.service.live.access import Caller, Principal
from gpuwise.service.live.errors import NoAnswerError, NotFoundError
from gpuwise.service.live.jobs import Query
from gpuwise.service.live.journal_text import NOT_SHOWN, describe_record
from gpuwise.service.live.threads import WorkerPool, result_of
from gpuwise.service.live.up import LocalDeployment, Settings
from running import await_in_thread as wait

ADA, BOB, CY = (
    Caller(Principal(user, role, user), "127.0.0.1")
    for user, role in (("ada", UserRole.ADMIN), ("bob", UserRole.USER), ("cy", UserRole.USER))
)
SLEEP = JobRequest(command=("sleep", "60"))


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[LocalDeployment]:
    opened = LocalDeployment(Settings(state=tmp_path / "state", devices=2, policy="fifo"))
    yield opened
    opened.controller.cancel([record.uid for record in opened.controller.live_records()], "the test").result(30)
    opened.close()


def submit(deployment: LocalDeployment, caller: Caller, request: JobRequest = SLEEP, key: str | None = None) -> str:
    uid: str = wait(deployment.service.jobs.submit(caller, request, key))[0].uid
    return uid


def test_only_ones_own_jobs_can_be_looked_into_and_changed(deployment: LocalDeployment) -> None:
    uid = submit(deployment, BOB)
    jobs = deployment.service.jobs
    for doing in (jobs.job, jobs.why, jobs.attempts, jobs.cancel, jobs.suspend, jobs.resume):
        with pytest.raises(NotFoundError, match=f"job {uid} is another user's"):
            wait(doing(CY, uid))
    with pytest.raises(NotFoundError):
        wait(jobs.resize(CY, uid, 1))
    assert wait(jobs.job(BOB, uid)).status in ("pending", "starting", "running")
    assert [record.uid for record in wait(jobs.jobs(ADA, Query()))] == [uid]
    assert [each.uid for each in wait(jobs.jobs(CY, Query(user="bob")))] == [uid]
    assert wait(jobs.jobs(CY, Query(name="x"))) == wait(jobs.jobs(CY, Query(user="bob", name="x"))) == []
    assert wait(jobs.cancel(ADA, uid))[0].why_ended == "cancelled by ada"


def test_what_is_known_now_goes_before_what_is_written(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = submit(deployment, BOB)
    (stored,) = deployment.store.jobs()
    newer = {uid: replace(stored, step=7.0, status="suspending")}
    monkeypatch.setattr(deployment.controller, "live", newer.get)
    assert wait(deployment.service.jobs.job(BOB, uid)).step == 7.0
    assert wait(deployment.service.jobs.jobs(BOB, Query()))[0].step == 7.0
    assert wait(deployment.service.jobs.jobs(BOB, Query(statuses=[stored.status]))) == []


def test_an_array_can_be_cancelled_when_parts_of_it_have_ended(deployment: LocalDeployment) -> None:
    records = wait(deployment.service.jobs.submit(BOB, replace(SLEEP, array=(1, 2, 3)), None))
    assert [record.uid for record in records] == ["1-1", "1-2", "1-3"]
    wait(deployment.service.jobs.cancel(BOB, "1-2"))
    before = deployment.store.job("1-2")
    after = wait(deployment.service.jobs.cancel(BOB, "1"))
    assert [(record.uid, record.status) for record in after] == [(f"1-{each}", "cancelled") for each in (1, 2, 3)]
    assert after[1] == before
    with pytest.raises(NotPossibleError, match="job 1 has ended already"):
        wait(deployment.service.jobs.suspend(BOB, "1"))
    assert deployment.service.jobs.is_over("1-1")
    assert deployment.service.jobs.is_over("99")


def test_a_key_is_for_one_request(deployment: LocalDeployment) -> None:
    first = submit(deployment, BOB, SLEEP, "key")
    assert submit(deployment, BOB, JobRequest(command=("sleep", "60")), "key") == first
    with pytest.raises(NotPossibleError, match="used for another job"):
        submit(deployment, BOB, replace(SLEEP, gpus=2), "key")
    assert submit(deployment, CY, replace(SLEEP, gpus=2), "key") != first
    array = replace(SLEEP, array=(1, 2))
    assert submit(deployment, BOB, array, "array") == submit(deployment, BOB, array, "array")
    for other in (SLEEP, replace(SLEEP, array=(1, 2, 3)), replace(SLEEP, array=(1,))):
        with pytest.raises(NotPossibleError, match="used for another job"):
            submit(deployment, BOB, other, "array")


def test_everything_done_is_noted_with_its_outcome(deployment: LocalDeployment) -> None:
    uid = submit(deployment, BOB)
    array = wait(deployment.service.jobs.submit(BOB, replace(SLEEP, array=(1, 2)), None))
    with pytest.raises(NotPossibleError):
        submit(deployment, BOB, replace(SLEEP, gpus=3, name="big"))
    with pytest.raises(NotFoundError):
        wait(deployment.service.jobs.resize(CY, uid, 2))
    wait(deployment.service.jobs.suspend(BOB, uid))
    deployment.controller.ask(lambda _: None).result(10)
    noted = [
        (entry.user, entry.action, entry.target, entry.outcome, entry.address) for _, entry in deployment.store.audit()
    ]
    assert noted[::-1] == [
        ("bob", "submit", uid, "ok", "127.0.0.1"),
        ("bob", "submit", f"{array[0].uid.partition('-')[0]} (2 tasks)", "ok", "127.0.0.1"),
        ("bob", "submit", "big", noted[2][3], "127.0.0.1"),
        ("cy", "resize to 2", uid, noted[1][3], "127.0.0.1"),
        ("bob", "suspend", uid, "ok", "127.0.0.1"),
    ]
    assert noted[2][3].startswith("refused: the job can never run here")


def test_an_answer_that_does_not_come_is_given_up() -> None:
    async def ask() -> None:
        await result_of(Future(), 0.01)

    with pytest.raises(NoAnswerError, match=r"no answer within 0\.01 s"):
        wait(ask())


def test_workers_call_in_another_thread_and_raise_its_errors() -> None:
    workers = WorkerPool("test", 1)

    def fail() -> None:
        raise ValueError("no")

    async def ask() -> int:
        with pytest.raises(ValueError, match="no"):
            await workers.run(fail)
        return await workers.run(int, "17", base=8)

    assert wait(ask()) == 15
    workers.close()


# -- lines of the journal in words --------------------------------------------------------------------------------

NODE = NodeSpec(name="box", gpu_type="V100", gpus=2)
VALUES: dict[str, Any] = {
    "column": "seen", "value": 1.0, "kind": "error", "parked": (), "until_s": 60.0, "avoid": ("n0",),
    "at_s": 5.0, "job": 0, "steps_done": 3.0, "steps_kept": 3.0, "cause": "exited with code 1", "will_retry": False,
    "duration_s": 90.0, "steps": None, "gpu_memory_bytes": 2.0**30, "gpu_util_frac": None, "node": 0,
    "duration_low_s": None, "duration_high_s": None, "source": "observed", "priority": None, "deadline_s": None,
    "interrupted": ((0, 1.0),), "device": 1, "devices": (("GPU-1", 2.0**30, True),), "cpus": 1.0, "memory_bytes": 0.0,
    "placement": on((0, 0), (0, 1)), "moves": ((0, on((0, 1))),), "slices": (MigSlice("1g", 0, 143, 5e9),),
}  # fmt: skip


def line_of(kind: type[Any], /, **changes: Any) -> tuple[str, dict[str, Any]]:
    """A line of the journal as it is read back."""
    import json

    jobs = JobTable()
    jobs.declare([JobSpec(id="17", duration_s=1.0)])
    given = {each.name: VALUES[each.name] for each in fields(kind)} | changes
    if kind.__name__ in ("NodeAdded", "NodeChanged", "Provision"):
        given["node"] = NODE
    return kind.__name__, json.loads(encode(kind(**given), 5.0, jobs))


@pytest.mark.parametrize("kind", [*EVENT_TYPES, *COMMAND_TYPES], ids=lambda kind: kind.__name__)
def test_every_line_has_words(kind: type[Any]) -> None:
    name, body = line_of(kind)
    told = describe_record(name, body, ["box"])
    assert name in NOT_SHOWN or (told != name and "{" not in told and "None" not in told)


@pytest.mark.parametrize(
    ("kind", "changes", "told"),
    [
        (JobFailed, {}, "failed: exited with code 1"),
        (JobFailed, {"will_retry": True}, "failed: exited with code 1; it will be retried"),
        (JobRevised, {}, "has a new forecast: run time 1m30s, memory 1 GiB"),
        (
            JobRevised,
            {"duration_s": None, "gpu_memory_bytes": None, "gpu_util_frac": 0.4},
            "has a new forecast: 40% of a GPU's time",
        ),
        (
            JobRevised,
            {"duration_s": None, "gpu_memory_bytes": None, "priority": 7, "deadline_s": math.inf},
            "has priority 7 now, has no deadline now",
        ),
        (JobFailed, {"kind": "requeued", "cause": "requeued by ada", "will_retry": True}, "was requeued by ada"),
        (Rearrange, {}, "1 job is moved"),
    ],
)
def test_words_have_the_numbers(kind: type[Any], changes: dict[str, Any], told: str) -> None:
    assert describe_record(*line_of(kind, **changes), ["box"]) == told


def test_places_are_named() -> None:
    kinds = {kind.__name__: kind for kind in (*EVENT_TYPES, *COMMAND_TYPES)}
    assert describe_record(*line_of(kinds["Start"]), ["box"]) == "starts on box:0, box:1"
    assert describe_record(*line_of(kinds["DeviceLost"]), ["box"]) == "device 1 of node box is lost"
    assert describe_record(*line_of(kinds["NodeLost"], node=7), ["box"]) == "node node 7 is lost"
    claimed = describe_record(*line_of(kinds["DevicesClaimed"], node="box"), ["box"])
    assert claimed == "foreign processes use 1 GiB of device GPU-1, 1 CPUs on node box"
    assert describe_record(*line_of(kinds["NodeChanged"]), ["box"]) == "node box is now 2 × V100"
    gang = on((0, 0))._replace(tasks=(TaskGrant("worker", 0, 1), TaskGrant("ps", 1, 2)))
    told = describe_record(*line_of(kinds["Start"], placement=gang), ["box", "host"])
    assert told == "starts on box:0, 1 worker on box, 2 ps on host"
    without_gpus = gang._replace(grants=())
    told = describe_record(*line_of(kinds["Start"], placement=without_gpus), ["box", "host"])
    assert told == "starts on 1 worker on box, 2 ps on host"
    assert describe_record("SomethingNew", {}, []) == "SomethingNew"
