"""Jobs with roles on this machine: one process per task, which live and die together."""

from __future__ import annotations

import json
from pathlib import Path

from bench import PYTHON, AttemptEnded, Bench, is_alive

from gpuwise.core.commands import Grant, Placement, Resume, Start, Suspend, TaskGrant
from gpuwise.core.events import JobFailed, JobFinished, JobStarted
from gpuwise.core.job.needs import Role
from gpuwise.live.local.attempts.launch import tasks_of

ROLES = (Role("worker", 2, gpus=1), Role("ps", 1))
SAY = (
    "import json, os\n"
    "names = ('GPUWISE_ROLE', 'GPUWISE_ROLE_INDEX', 'GPUWISE_ROLE_COUNT', 'RANK', 'LOCAL_RANK', 'WORLD_SIZE',"
    " 'LOCAL_WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')\n"
    "seen = {name: os.environ[name] for name in names} | {'cores': sorted(os.sched_getaffinity(0))}\n"
    "os.write(1, (json.dumps(seen) + chr(10)).encode())\n"
)


def start(bench: Bench, uid: str, *command: str, roles: tuple[Role, ...] = ROLES) -> int:
    gpus = sum(role.count * role.gpus for role in roles)
    row = bench.submit(uid, *command, gpus=gpus, roles=roles)
    tasks = tuple(TaskGrant(role.name, 0, role.count) for role in roles)
    bench.order(Start(row, Placement((Grant(0, (1 << gpus) - 1),), tasks=tasks)))
    return row


def test_each_task_is_a_process_that_knows_which_it_is(bench: Bench) -> None:
    row = start(bench, "1", *PYTHON, "-c", SAY)
    bench.expect(JobStarted, row)
    bench.expect(JobFinished, row)
    seen = sorted((json.loads(line) for line in bench.output("1").splitlines()), key=lambda each: int(each["RANK"]))
    assert [(each["GPUWISE_ROLE"], each["GPUWISE_ROLE_INDEX"], each["GPUWISE_ROLE_COUNT"]) for each in seen] == [
        ("worker", "0", "2"), ("worker", "1", "2"), ("ps", "0", "1")
    ]  # fmt: skip
    assert [each["RANK"] for each in seen] == ["0", "1", "2"]
    assert {(each["WORLD_SIZE"], each["LOCAL_RANK"], each["MASTER_ADDR"]) for each in seen} == {("3", "0", "127.0.0.1")}
    assert {each["LOCAL_WORLD_SIZE"] for each in seen} == {"1"}
    assert len({each["MASTER_PORT"] for each in seen}) == 1
    cores = [bench.machine.devices[0][device].cores[0] for device in (0, 1)]
    assert [each["cores"] for each in seen] == [[cores[0]], [cores[1]], sorted(set(cores))]
    (ended,) = bench.reported(AttemptEnded, "1")
    assert ended.outcome == "succeeded"


def test_if_one_task_fails_all_are_gone(bench: Bench, tmp_path: Path) -> None:
    script = (
        "import os, sys, time\n"
        f"open(os.path.join({str(tmp_path)!r}, os.environ['RANK']), 'w').write(str(os.getpid()))\n"
        f"while len(os.listdir({str(tmp_path)!r})) < 4: time.sleep(0.005)\n"  # the bench's own folder is there, too
        "if os.environ['GPUWISE_ROLE'] == 'ps': sys.exit(7)\n"
        "time.sleep(600)\n"
    )
    row = start(bench, "1", *PYTHON, "-c", script)
    failed = bench.expect(JobFailed, row)
    assert "code 7" in failed.cause
    assert not any(is_alive(int((tmp_path / rank).read_text())) for rank in "012")
    assert not bench.placed


def test_a_gang_of_tasks_without_gpus_runs(bench: Bench) -> None:
    row = start(bench, "1", *PYTHON, "-c", SAY, roles=(Role("ps", 2),))
    bench.expect(JobFinished, row)
    assert sorted(json.loads(line)["GPUWISE_ROLE_INDEX"] for line in bench.output("1").splitlines()) == ["0", "1"]


def test_a_parked_gang_goes_on_as_a_whole(bench: Bench, tmp_path: Path) -> None:
    mark = tmp_path / "go"
    script = f"import os, time\nwhile not os.path.exists({str(mark)!r}): time.sleep(0.005)"
    row = start(bench, "1", *PYTHON, "-c", script)
    bench.expect(JobStarted, row)
    held = bench.placed[row]
    bench.order(Suspend(row))
    bench.until(lambda: bench.engine.state.status(row).name == "SUSPENDED")
    elsewhere = held._replace(grants=(Grant(0, 0b1100),))
    bench.order(Resume(row, elsewhere))
    mark.touch()
    bench.expect(JobFinished, row)
    (ended,) = [each for each in bench.reported(AttemptEnded, "1") if each.outcome == "succeeded"]
    assert ended.exit_code == 0


def test_gpus_of_a_role_are_split_over_its_tasks() -> None:
    tasks = (TaskGrant("big", 0, 1), TaskGrant("worker", 0, 1), TaskGrant("worker", 1, 1), TaskGrant("ps", 1, 1))
    placement = Placement((Grant(0, 0b1101), Grant(1, 0b10)), tasks=tasks)
    made = tasks_of(placement, {"big": 2, "worker": 1, "ps": 0})
    assert [(each.role, each.index, each.count) for each in made] == [
        ("big", 0, 1), ("worker", 0, 2), ("worker", 1, 2), ("ps", 0, 1)
    ]  # fmt: skip
    assert [each.placement.devices() for each in made] == [[(0, 0), (0, 2)], [(0, 3)], [(1, 1)], []]
