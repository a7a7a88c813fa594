"""Jobs that are ended: by their user, by their limit, by somebody else."""

from __future__ import annotations

import os
import signal
import time

import pytest
from bench import POLITE, PYTHON, TRAINER, AttemptEnded, Bench, carriers, is_alive, state_of

from builders import on
from gpuwise.core.commands import Resume, Start, Suspend
from gpuwise.core.events import JobFailed, JobStarted, JobSuspended
from gpuwise.core.job.request import Processes


def is_over(bench: Bench, uid: str) -> bool:
    return bool(bench.reported(AttemptEnded, uid))


def test_a_cancelled_job_is_asked_to_end(bench: Bench) -> None:
    row = bench.start("1", *POLITE)
    bench.until(lambda: bench.output("1") == "up\n")
    bench.cancel(row)
    bench.until(lambda: is_over(bench, "1"))
    assert bench.output("1") == "up\nbye\n"
    (ended,) = bench.reported(AttemptEnded, "1")
    assert (ended.outcome, ended.exit_code) == ("cancelled", 0)
    bench.turn()
    assert not bench.placed
    assert not list((bench.folder / "live").iterdir())


def test_a_job_that_does_not_end_when_asked_is_killed_after_its_grace(bench: Bench) -> None:
    row = bench.start("1", *TRAINER, "1000", "0.02", "stubborn", "mute", grace_s=0.4)
    bench.until(lambda: bench.output("1"))
    began = time.monotonic()
    bench.cancel(row)
    bench.until(lambda: is_over(bench, "1"))
    assert time.monotonic() - began >= 0.4
    assert bench.reported(AttemptEnded, "1")[0].exit_code == 137


def test_a_job_with_no_grace_is_killed_at_once(bench: Bench) -> None:
    row = bench.start("1", *TRAINER, "1000", "0.02", "stubborn", "mute", grace_s=0.0)
    bench.until(lambda: bench.output("1"))
    bench.cancel(row)
    bench.until(lambda: is_over(bench, "1"), within_s=5)


def test_a_parked_job_can_be_cancelled(bench: Bench) -> None:
    row = bench.start("1", *POLITE)
    bench.until(lambda: bench.output("1") == "up\n")
    bench.order(Suspend(row))
    bench.expect(JobSuspended, row)
    bench.cancel(row)
    bench.until(lambda: not bench.executor.table.runs)
    assert bench.output("1") == "up\nbye\n"


def test_a_job_cancelled_before_it_was_started_never_runs(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "echo ran")
    bench.cancel(row)
    bench.until(lambda: not bench.executor.table.runs)
    assert bench.output("1") in ("", "ran\n")  # its supervisor may have been faster
    bench.turn()
    assert not carriers(bench.json("1", "launch.json")["token"])


LEAVES_CHILDREN = """
import os, sys, time
for detached in (False, True):
    if os.fork() == 0:
        if detached:
            os.setsid()
            if os.fork(): os._exit(0)
        print(os.getpid(), flush=True)
        time.sleep(60)
while len(open(sys.argv[1]).read().split()) < 2: time.sleep(0.01)
"""


def test_what_a_job_leaves_behind_is_killed(bench: Bench) -> None:
    log = bench.folder / "jobs" / "1" / "output.log"
    bench.start("1", *PYTHON, "-c", LEAVES_CHILDREN, str(log))
    bench.until(lambda: is_over(bench, "1"))
    assert bench.reported(AttemptEnded, "1")[0].outcome == "succeeded"
    pids = [int(word) for word in bench.output("1").split()]
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)


def test_a_process_killed_from_outside(bench: Bench) -> None:
    row = bench.start("1", "sleep", "60")
    bench.expect(JobStarted, row)
    os.kill(bench.pids("1")[0], signal.SIGKILL)
    assert bench.expect(JobFailed, row).cause == "killed by signal 9 (SIGKILL)"
    (ended,) = bench.reported(AttemptEnded, "1")
    assert (ended.outcome, ended.exit_code) == ("failed", 137)


def test_a_supervisor_killed_from_outside_takes_everything_with_it(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "setsid sleep 60 & setsid sleep 60 & echo up; wait")
    bench.expect(JobStarted, row)
    bench.until(lambda: bench.output("1"))
    token = bench.json("1", "launch.json")["token"]
    assert len(carriers(token)) == 3
    os.kill(bench.supervisor("1"), signal.SIGKILL)
    assert bench.expect(JobFailed, row).cause.startswith("its supervisor was lost")
    assert not [pid for pid in carriers(token) if is_alive(pid)]
    (ended,) = bench.reported(AttemptEnded, "1")
    assert ended.outcome == "lost"


def test_a_supervisor_killed_while_nobody_watches_leaves_no_first_process(bench: Bench) -> None:
    row = bench.start("1", "sleep", "60")
    bench.expect(JobStarted, row)
    (pid,) = bench.pids("1")
    os.kill(bench.supervisor("1"), signal.SIGKILL)
    end = time.monotonic() + 5
    while is_alive(pid):  # the kernel does it; no turn is taken here
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("requeue", [False, True])
def test_a_job_lost_while_it_is_parked_is_begun_again_only_if_it_may_run_twice(bench: Bench, requeue: bool) -> None:
    row = bench.start("1", "/bin/sh", "-c", "echo up; sleep 60", requeue=requeue)
    bench.until(lambda: bench.output("1") == "up\n")
    bench.order(Suspend(row))
    bench.expect(JobSuspended, row)
    os.kill(bench.supervisor("1"), signal.SIGKILL)
    bench.until(lambda: not bench.executor.table.runs)
    bench.order(Resume(row, on((0, 0))))
    if requeue:
        bench.until(lambda: bench.output("1") == "up\nup\n")
    else:
        assert bench.expect(JobFailed, row).cause.startswith("its supervisor was lost while it was suspended")
        assert bench.output("1") == "up\n"


def test_a_supervisor_that_is_stuck_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwise.live.local.attempts.runs.OBEY_S", 0.3)
    row = bench.start("1", "sleep", "60", grace_s=0.1)
    bench.expect(JobStarted, row)
    os.kill(bench.supervisor("1"), signal.SIGSTOP)
    bench.cancel(row)
    bench.until(lambda: is_over(bench, "1"))
    assert bench.reported(AttemptEnded, "1")[0].outcome == "cancelled"
    assert not carriers(bench.json("1", "launch.json")["token"])


def test_a_supervisor_that_the_machine_shuts_down_ends_its_job_in_order(bench: Bench) -> None:
    row = bench.start("1", *POLITE)
    bench.until(lambda: bench.output("1") == "up\n")
    os.kill(bench.supervisor("1"), signal.SIGTERM)
    assert "was the machine shut down?" in bench.expect(JobFailed, row).cause
    assert bench.output("1") == "up\nbye\n"
    assert bench.reported(AttemptEnded, "1")[0].outcome == "lost"


def test_a_job_ends_at_its_time_limit(bench: Bench) -> None:
    row = bench.start("1", "sleep", "60", time_limit_s=0.5)
    started = bench.expect(JobStarted, row)
    failed = bench.expect(JobFailed, row)
    assert failed.cause == "time limit of 0.5 s reached"
    placed_s = bench.engine.state.jobs.first_start_s.item(row)
    assert placed_s + 0.5 <= failed.at_s < placed_s + 5
    assert started.at_s < failed.at_s
    assert bench.reported(AttemptEnded, "1")[0].outcome == "failed"


def test_time_in_which_a_job_has_no_gpus_does_not_count_against_its_limit(bench: Bench) -> None:
    row = bench.start("1", "sleep", "60", time_limit_s=1.0)
    bench.expect(JobStarted, row)
    bench.order(Suspend(row))
    bench.expect(JobSuspended, row)
    suspended_s = bench.clock.now_s()
    bench.until(lambda: bench.clock.now_s() > suspended_s + 1.0)
    assert state_of(bench.pids("1")[0]) == "T"
    bench.order(Resume(row, on((0, 0))))
    held_s = bench.engine.state.jobs.held_s.item(row)
    resumed_s = bench.engine.state.jobs.placed_s.item(row)
    failed = bench.expect(JobFailed, row)
    assert failed.cause == "time limit of 1 s reached"
    assert failed.at_s >= resumed_s + 1.0 - held_s


def test_a_rank_killed_from_outside_ends_the_job(bench: Bench) -> None:
    row = bench.submit("1", "sleep", "60", gpus=2, processes=Processes.PER_GPU)
    bench.order(Start(row, on((0, 0), (0, 1))))
    bench.expect(JobStarted, row)
    os.kill(bench.pids("1")[1], signal.SIGSEGV)
    assert bench.expect(JobFailed, row).cause == "killed by signal 11 (SIGSEGV)"
    assert not any(is_alive(pid) for pid in bench.pids("1"))
