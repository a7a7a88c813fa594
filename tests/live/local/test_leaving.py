"""Jobs that leave their devices and come back: suspended, resumed, moved, resized."""

from __future__ import annotations

import os
import signal
import time

import pytest
from bench import PYTHON, TRAINER, AttemptEnded, AttemptStarted, Bench, Progress, carriers, is_alive, state_of

from builders import on
from gpuwise.core.commands import Migrate, Rearrange, Resize, Resume, Start, Suspend
from gpuwise.core.events import JobFailed, JobFinished, JobProgressed, JobStarted, JobSuspended
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.request import Processes

COUNT = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done"


def said_hello(bench: Bench, uid: str, number: int = 1) -> bool:
    return (bench.attempt(uid, number) / "job/sdk.json").exists()


def test_a_job_that_saves_leaves_and_goes_on_elsewhere(bench: Bench) -> None:
    row = bench.start("1", *TRAINER, "40", "0.02", duration_s=100.0)
    bench.until(lambda: bench.reported(Progress, "1"))
    bench.order(Suspend(row))
    suspended = bench.expect(JobSuspended, row)
    saved = bench.json("1", "job/saved.json")
    assert saved["seq"] == 1
    assert 1 <= saved["step"] < 40
    assert suspended.steps_done == pytest.approx(saved["step"] / 40 * 100.0)
    assert not any(is_alive(pid) for pid in bench.pids("1"))
    assert bench.reported(AttemptEnded, "1")[0].outcome == "suspended"
    assert bench.reported(AttemptEnded, "1")[0].exit_code == 75
    bench.order(Resume(row, on((0, 2))))
    bench.expect(JobStarted, row)
    bench.expect(JobFinished, row)
    assert bench.output("1").splitlines() == [
        "from 0 of 40 on cpu-core-0", f"from {saved['step']} of 40 on cpu-core-2", "done",
    ]  # fmt: skip
    assert [report.number for report in bench.reported(AttemptStarted, "1")] == [1, 2]


def test_a_job_that_cannot_save_is_parked_and_goes_on_on_other_cores(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", COUNT)
    bench.expect(JobStarted, row)
    bench.until(lambda: len(bench.output("1").splitlines()) > 2)
    bench.order(Suspend(row))
    suspended = bench.expect(JobSuspended, row)
    (pid,) = bench.pids("1")
    assert {state_of(each) for each in (pid, *carriers(bench.json("1", "launch.json")["token"]))} == {"T"}
    jobs = bench.engine.state.jobs
    assert 0 < suspended.steps_done <= jobs.steps.item(row)
    counted = bench.output("1")
    assert not bench.placed
    bench.order(Resume(row, on((0, 1))))
    bench.expect(JobStarted, row)
    assert os.sched_getaffinity(pid) == set(bench.machine.cores(on((0, 1))))
    assert bench.placed == {row: on((0, 1))}
    bench.until(lambda: len(bench.output("1")) > len(counted))
    assert bench.output("1").startswith(counted)
    assert not bench.attempt("1", 2).exists()
    # Parked and resumed once more, it stands for the third placement.
    bench.order(Suspend(row))
    bench.expect(JobSuspended, row)
    bench.order(Resume(row, on((0, 0))))
    bench.expect(JobStarted, row)
    assert [report.number for report in bench.reported(AttemptStarted, "1")] == [1, 2, 3]
    assert [report.outcome for report in bench.reported(AttemptEnded, "1")] == ["suspended", "suspended"]
    os.kill(pid, signal.SIGUSR1)  # SIGKILL may also mean that this machine, where other tests run, is out of memory
    assert bench.expect(JobFailed, row).cause == f"killed by signal {signal.SIGUSR1.value} (SIGUSR1)"
    assert bench.reported(AttemptEnded, "1")[-1].number == 3


def test_everything_a_job_has_started_is_parked_with_it(bench: Bench) -> None:
    script = (
        "import os, time\nif os.fork() == 0:\n os.setsid()\nprint(os.getpid(), flush=True)\nwhile 1: time.sleep(0.01)"
    )
    row = bench.start("1", *PYTHON, "-c", script)
    bench.until(lambda: bench.attempt("1").exists() and len(bench.output("1").split()) == 2)
    pids = [int(word) for word in bench.output("1").split()]
    bench.order(Suspend(row))
    bench.expect(JobSuspended, row)
    assert [state_of(pid) for pid in pids] == ["T", "T"]
    bench.order(Resume(row, on((0, 0))))
    bench.expect(JobStarted, row)
    bench.until(lambda: all(state_of(pid) in "SR" for pid in pids))


def test_a_job_that_does_not_leave_in_time_is_parked(bench: Bench) -> None:
    row = bench.start("1", *TRAINER, "1000", "0.02", "deaf", grace_s=0.3)
    bench.until(lambda: said_hello(bench, "1"))
    began = time.monotonic()
    bench.order(Suspend(row))
    bench.expect(JobSuspended, row)
    assert time.monotonic() - began >= 0.3
    assert state_of(bench.pids("1")[0]) == "T"
    bench.order(Resume(row, on((0, 0))))
    bench.expect(JobStarted, row)
    assert bench.json("1", "control.json") == {"seq": 2, "want": "run"}


def test_a_job_that_leaves_late_after_it_was_resumed_is_started_again(bench: Bench) -> None:
    slow = TRAINER[-1]
    # One long step: it looks at what it is asked only after it has been parked and resumed, and then leaves.
    row = bench.start("1", *PYTHON, "-c", LATE, slow, grace_s=0.2)
    bench.until(lambda: said_hello(bench, "1"))
    bench.order(Suspend(row))
    bench.expect(JobSuspended, row)
    bench.order(Resume(row, on((0, 1))))
    bench.expect(JobStarted, row)
    bench.expect(JobFinished, row)
    assert bench.output("1").splitlines() == ["attempt 1", "attempt 2"]
    assert not [event for event in bench.events if isinstance(event, (JobStarted, JobFailed))]


LATE = """
import json, os, sys, time
folder, number = os.environ["GPUWISE_ATTEMPT_DIR"], os.environ["GPUWISE_ATTEMPT"]
print("attempt", number, flush=True)
def want(name):
    try: return json.load(open(f"{folder}/{name}.json"))["want"]
    except OSError: return None
if number == "1":
    json.dump({"can_suspend": True, "steps": 2}, open(f"{folder}/sdk.json", "w"))
    while want("../orders") != "run": time.sleep(0.01)
    json.dump({"seq": 1, "step": 1, "steps": 2}, open(f"{folder}/saved.json", "w"))
    sys.exit(75)
"""


def test_a_job_that_finishes_while_it_is_asked_to_leave_has_finished(bench: Bench) -> None:
    row = bench.start("1", *TRAINER, "8", "0.05", "deaf")
    bench.until(lambda: said_hello(bench, "1"))
    bench.order(Suspend(row))
    bench.expect(JobFinished, row)
    assert bench.engine.state.status(row) is Status.SUCCEEDED


def test_a_job_that_fails_while_it_is_asked_to_leave_has_failed(bench: Bench) -> None:
    script = "printf '{\"can_suspend\": true}' > $GPUWISE_ATTEMPT_DIR/sdk.json; sleep 0.3; exit 4"
    row = bench.start("1", "/bin/sh", "-c", script)
    bench.until(lambda: said_hello(bench, "1"))
    bench.order(Suspend(row))
    assert bench.expect(JobFailed, row).cause == "exited with code 4"


def test_exit_code_75_without_being_asked_is_a_failure(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "exit 75")
    assert bench.expect(JobFailed, row).cause == "exited with code 75"


def test_a_job_suspended_before_it_was_started_never_runs(bench: Bench) -> None:
    first = bench.start("1", *TRAINER, "1000", "0.02", "deaf", grace_s=0.5)
    bench.until(lambda: said_hello(bench, "1"))
    second = bench.submit("2", "/bin/sh", "-c", "echo ran")
    bench.order(Suspend(first), Start(second, on((0, 0))))
    bench.order(Suspend(second))  # while it still waits for the first to leave
    assert bench.expect(JobSuspended, second).steps_done == 0.0
    bench.expect(JobSuspended, first)
    assert not bench.attempt("2").exists()
    bench.cancel(second)
    bench.until(lambda: "2" not in bench.executor._reports._reported)


def test_a_launch_waits_until_the_job_before_has_left(bench: Bench) -> None:
    first = bench.start("1", *TRAINER, "1000", "0.02", "deaf", grace_s=0.4)
    bench.until(lambda: said_hello(bench, "1"))
    second = bench.submit("2", "/bin/sh", "-c", "echo ran")
    began = bench.clock.now_s()
    bench.order(Suspend(first), Start(second, on((0, 0))))
    suspended = bench.expect(JobSuspended, first)
    started = bench.expect(JobStarted, second)
    assert began + 0.4 <= suspended.at_s <= started.at_s


def test_a_parked_job_that_is_suspended_before_it_could_continue_is_suspended_again(bench: Bench) -> None:
    parked = bench.start("1", "sleep", "60")
    bench.expect(JobStarted, parked)
    bench.order(Suspend(parked))
    bench.expect(JobSuspended, parked)
    slow = bench.start("2", *TRAINER, "1000", "0.01", "deaf", grace_s=2.0)
    bench.expect(JobStarted, slow)
    bench.until(lambda: "from 0 of 1000" in bench.output("2"))
    bench.order(Suspend(slow), Resume(parked, on((0, 0))))  # it waits until the other has left
    bench.turn(0.2)
    bench.order(Suspend(parked))
    bench.expect(JobSuspended, parked, within_s=1.0)
    bench.expect(JobSuspended, slow)
    bench.order(Resume(parked, on((0, 0))))
    bench.expect(JobStarted, parked)
    assert len(bench.reported(AttemptEnded, "1")) == 1


def test_a_job_that_saves_is_moved(bench: Bench) -> None:
    row = bench.start("1", *TRAINER, "60", "0.02", duration_s=100.0)
    bench.expect(JobStarted, row)
    bench.until(lambda: bench.reported(Progress, "1"))
    bench.order(Migrate(row, on((0, 3))))
    bench.expect(JobStarted, row)
    saved = bench.json("1", "job/saved.json")["step"]
    assert saved >= bench.reported(Progress, "1")[0].step >= 1
    assert bench.reported(AttemptEnded, "1")[0].outcome == "moved"
    bench.expect(JobFinished, row)
    assert bench.output("1").splitlines()[1] == f"from {saved} of 60 on cpu-core-3"
    assert not [event for event in bench.events if isinstance(event, (JobSuspended, JobFailed))]


def test_a_job_that_does_not_save_begins_again_when_it_is_moved(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", f"echo on $GPUWISE_DEVICES; {COUNT}", duration_s=1.0)
    bench.expect(JobStarted, row)
    bench.until(lambda: bench.engine.state.now_s > bench.engine.state.jobs.since_s.item(row) + 0.2)
    bench.order(Migrate(row, on((0, 1))))
    bench.expect(JobStarted, row)
    assert bench.expect(JobProgressed, row).steps_done == 0.0  # the engine thought it would keep what it had done
    bench.until(lambda: bench.output("1").splitlines().count("on cpu-core-1") == 1)
    assert not is_alive(bench.pids("1", 1)[0])
    assert is_alive(bench.pids("1", 2)[0])


def test_jobs_change_places(bench: Bench) -> None:
    rows = [bench.start(uid, "/bin/sh", "-c", COUNT, device=at) for at, uid in enumerate(("1", "2"))]
    for row in rows:
        bench.expect(JobStarted, row)
    bench.order(Rearrange(((rows[0], on((0, 1))), (rows[1], on((0, 0))))))
    for row in rows:
        bench.expect(JobStarted, row)
    assert bench.placed == {rows[0]: on((0, 1)), rows[1]: on((0, 0))}
    first_end = max(bench.json(uid, "exit.json")["at"] for uid in ("1", "2"))
    assert all(bench.json(uid, "started.json", 2)["at"] >= first_end for uid in ("1", "2"))


def test_a_job_of_several_processes_is_resized(bench: Bench) -> None:
    show = "echo $GPUWISE_ATTEMPT: $RANK of $WORLD_SIZE; exec sleep 60"
    row = bench.submit("1", "/bin/sh", "-c", show, gpus=2, min_gpus=1, max_gpus=4, processes=Processes.PER_GPU)
    bench.order(Start(row, on((0, 0), (0, 1))))
    bench.expect(JobStarted, row)
    assert len(bench.pids("1")) == 2
    bench.until(lambda: len(bench.output("1").splitlines()) == 2)
    bench.order(Resize(row, on((0, 0), (0, 1), (0, 2))))
    bench.expect(JobStarted, row)
    bench.until(lambda: len(bench.output("1").splitlines()) == 5)
    assert sorted(bench.output("1").splitlines()) == [
        "1: 0 of 2", "1: 1 of 2", "2: 0 of 3", "2: 1 of 3", "2: 2 of 3",
    ]  # fmt: skip
    assert not any(is_alive(pid) for pid in bench.pids("1", 1))


def test_ranks_that_leave_one_after_the_other_do_not_end_each_other(bench: Bench) -> None:
    script = """
import json, os, sys, time
folder, rank = os.environ["GPUWISE_ATTEMPT_DIR"], os.environ["RANK"]
if rank == "0": json.dump({"can_suspend": True}, open(f"{folder}/sdk.json", "w"))
while not os.path.exists(f"{folder}/control.json"): time.sleep(0.01)
if rank == "0":
    other = json.load(open(f"{folder}/../started.json"))["pids"][1]
    while os.path.exists(f"/proc/{other}"): time.sleep(0.01)  # it saves when the other has left already
    json.dump({"seq": 1, "step": 5, "steps": 10}, open(f"{folder}/saved.json", "w"))
sys.exit(75)
"""
    row = bench.submit("1", *PYTHON, "-c", script, gpus=2, processes=Processes.PER_GPU, duration_s=100.0)
    bench.order(Start(row, on((0, 0), (0, 1))))
    bench.until(lambda: said_hello(bench, "1"))
    bench.order(Suspend(row))
    assert bench.expect(JobSuspended, row).steps_done == pytest.approx(50.0)


def test_a_parked_job_that_does_not_fit_its_new_place_begins_again(bench: Bench) -> None:
    row = bench.submit("1", "/bin/sh", "-c", "echo $GPUWISE_GPUS; exec sleep 60", gpus=1, min_gpus=1, max_gpus=2)
    bench.order(Start(row, on((0, 0))))
    bench.expect(JobStarted, row)
    bench.order(Suspend(row))
    bench.expect(JobSuspended, row)
    (pid,) = bench.pids("1")
    bench.order(Resume(row, on((0, 0), (0, 1))))
    bench.expect(JobStarted, row)
    assert not is_alive(pid)
    bench.until(lambda: bench.output("1").split() == ["1", "2"])


def test_a_job_with_the_sdk_is_suspended_and_resumed(bench: Bench) -> None:
    row = bench.start("1", *SDK, duration_s=100.0)
    bench.until(lambda: bench.reported(Progress, "1"))
    bench.order(Suspend(row))
    suspended = bench.expect(JobSuspended, row)
    step = bench.json("1", "job/saved.json")["step"]
    assert suspended.steps_done == pytest.approx(step / 40 * 100.0)
    bench.order(Resume(row, on((0, 1))))
    bench.expect(JobFinished, row)
    assert bench.output("1").splitlines() == ["from 0", f"from {step}", "done 40"]


SDK = (
    PYTHON[0],
    "-c",
    """
import time
from gpuwise import sdk
job = sdk.attach(lambda path: path.write_text("state"), lambda path: path.read_text())
print("from", job.step, flush=True)
for step in job.steps(40):
    time.sleep(0.02)
    job.report(loss=1.0)
print("done", job.step)
""",
)
