"""What runs survives whoever started it: a new executor takes over, and nothing is run twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from bench import SECRET, TRAINER, AttemptEnded, Bench, carriers, is_alive, state_of, wait_for

from builders import on
from gpuwise.core.commands import Migrate, Resume, Start, Suspend
from gpuwise.core.events import JobFailed, JobFinished, JobStarted, JobSuspended
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.observations import AttemptObserved, Phase
from gpuwise.live.local.attempts import starter
from gpuwise.live.local.attempts.folders import AttemptState, Folders, attempt_token
from gpuwise.live.local.supervisor import supervise


def test_a_running_job_is_taken_over(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.01; done; echo went")
    bench.expect(JobStarted, row)
    bench.new_executor()
    bench.turn(0.1)
    assert not bench.events
    assert bench.placed == {row: on((0, 0))}
    (bench.folder / "jobs" / "1" / "work" / "go").touch()
    bench.expect(JobFinished, row)
    assert bench.output("1") == "went\n"


def test_a_job_that_started_while_nobody_watched_is_reported_once(bench: Bench) -> None:
    row = bench.start("1", "sleep", "60")
    wait_for((bench.attempt("1") / "started.json").exists)
    bench.new_executor()
    bench.expect(JobStarted, row)
    bench.new_executor()
    bench.turn(0.1)
    assert not bench.events


def test_a_job_that_ended_while_nobody_watched_ended_when_it_ended(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "exit 0")
    wait_for((bench.attempt("1") / "exit.json").exists)
    ended_s = bench.clock.seconds(bench.json("1", "exit.json")["at"])
    wait_for(lambda: bench.clock.now_s() > ended_s + 0.1)
    bench.new_executor()
    bench.expect(JobStarted, row)
    assert bench.expect(JobFinished, row).at_s == pytest.approx(ended_s, abs=0.01)
    bench.new_executor()
    bench.turn(0.1)
    assert not bench.events
    assert len(bench.reported(AttemptEnded, "1")) == 1


def test_what_was_reported_but_not_written_is_reported_again(bench: Bench) -> None:
    row = bench.start("1", "/bin/true")
    wait_for((bench.attempt("1") / "exit.json").exists)
    _, seen = bench.executor.observe(None)
    assert [each.phase for each in seen if isinstance(each, AttemptObserved)] == [Phase.RUNNING, Phase.SUCCEEDED]
    bench.executor.follow(bench.engine.desired(), complete=True)  # the engine does not know of it
    bench.expect(JobStarted, row)
    bench.expect(JobFinished, row)


def test_a_placement_that_was_written_down_but_not_launched_is_launched_once(bench: Bench) -> None:
    row = bench.submit("1", "/bin/sh", "-c", "echo ran")
    now_s = bench.clock.now_s()
    bench.engine.order(now_s, (Start(row, on((0, 0))),))  # and then the controller dies
    bench.new_executor()
    bench.expect(JobFinished, row)
    assert bench.output("1") == "ran\n"


def test_a_launch_begun_by_the_dead_is_finished_by_whoever_comes_first(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "echo ran; sleep 0.2")
    bench.new_executor()  # at once: the first supervisor has not claimed the attempt yet
    bench.turn()
    bench.new_executor()
    bench.expect(JobStarted, row)
    bench.expect(JobFinished, row)
    assert bench.output("1") == "ran\n"
    assert not bench.events


def race(folder: Path, supervisors: int) -> None:
    """So many supervisors that go for one attempt at the same moment; returns when all are gone."""
    gate, opener = os.pipe()
    pids = []
    for _ in range(supervisors):
        pid = os.fork()
        if pid == 0:
            try:
                os.close(opener)
                os.read(gate, 1)
                os.setsid()
                supervise.main(str(folder))
            finally:
                os._exit(0)
        pids.append(pid)
    os.close(gate)
    os.close(opener)
    for pid in pids:
        os.waitpid(pid, 0)


def test_an_attempt_is_run_once_however_often_it_is_launched(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "echo ran")
    bench.expect(JobFinished, row)
    launch = bench.json("1", "launch.json")
    for number in range(2, 52):
        folder = bench.attempt("1", number)
        folder.mkdir()
        own = {"attempt": number, "token": attempt_token(SECRET, "1", number), "cgroup": None, "socket": "/no/where"}
        (folder / "launch.json").write_text(json.dumps(launch | own))
        race(folder, supervisors=3)
        assert bench.output("1") == "ran\n" * number
        assert sorted(path.name for path in folder.iterdir()) == ["claim", "exit.json", "launch.json", "started.json"]


def test_a_parked_job_stays_parked_and_goes_on_later(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "while :; do echo; sleep 0.01; done")
    bench.expect(JobStarted, row)
    bench.order(Suspend(row))
    bench.expect(JobSuspended, row)
    bench.new_executor()
    bench.turn(0.1)
    assert not bench.events
    (pid,) = bench.pids("1")
    assert state_of(pid) == "T"
    bench.order(Resume(row, on((0, 1))))
    bench.expect(JobStarted, row)
    bench.new_executor()  # it stands for the second placement, whoever watches
    bench.turn(0.1)
    assert not bench.events
    assert is_alive(pid)
    assert bench.placed == {row: on((0, 1))}
    assert {each.number for each in bench.reported(AttemptEnded, "1")} == {1}


def test_parked_jobs_that_change_places_both_continue(bench: Bench) -> None:
    """After a restart each is in the other's way until it is known to be parked."""
    rows = [bench.start(str(device + 1), "sleep", "60", device=device) for device in (0, 1)]
    for row in rows:
        bench.expect(JobStarted, row)
    bench.order(*(Suspend(row) for row in rows))
    for row in rows:
        bench.expect(JobSuspended, row)
    elsewhere = [Resume(rows[0], on((0, 1))), Resume(rows[1], on((0, 0)))]
    bench.engine.order(bench.clock.now_s(), elsewhere)  # written down, and then the controller dies
    os.kill(bench.supervisor("2"), signal.SIGSTOP)
    bench.new_executor()
    bench.turn(0.5)  # the first is known to be parked, the second not yet
    os.kill(bench.supervisor("2"), signal.SIGCONT)
    for row in rows:
        bench.expect(JobStarted, row)


def test_a_job_that_was_going_on_and_ended_while_nobody_watched(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.01; done")
    bench.expect(JobStarted, row)
    bench.order(Suspend(row))
    bench.expect(JobSuspended, row)
    bench.order(Resume(row, on((0, 1))))
    (bench.folder / "jobs" / "1" / "work" / "go").touch()
    wait_for((bench.attempt("1") / "exit.json").exists)
    bench.new_executor()
    bench.expect(JobStarted, row)
    bench.expect(JobFinished, row)
    assert bench.reported(AttemptEnded, "1")[-1].number == 2
    assert not bench.attempt("1", 2).exists()


def test_a_job_left_suspending_is_suspended(bench: Bench) -> None:
    row = bench.start("1", *TRAINER, "1000", "0.02")
    bench.until(lambda: (bench.attempt("1") / "job/sdk.json").exists())
    bench.order(Suspend(row))
    wait_for((bench.attempt("1") / "exit.json").exists)
    bench.new_executor()
    assert bench.expect(JobSuspended, row).steps_done >= 0
    assert bench.engine.state.status(row) is Status.SUSPENDED


def test_a_suspension_that_was_not_carried_out_yet_is(bench: Bench) -> None:
    row = bench.start("1", "sleep", "60")
    bench.expect(JobStarted, row)
    bench.engine.order(bench.clock.now_s(), (Suspend(row),))  # and then the controller dies
    bench.new_executor()
    bench.expect(JobSuspended, row)
    assert state_of(bench.pids("1")[0]) == "T"


def test_a_move_that_was_not_carried_out_yet_is(bench: Bench) -> None:
    row = bench.start("1", "sleep", "60")
    bench.expect(JobStarted, row)
    bench.engine.order(bench.clock.now_s(), (Migrate(row, on((0, 2))),))
    bench.new_executor()
    bench.expect(JobStarted, row)
    assert not is_alive(bench.pids("1", 1)[0])
    assert bench.placed == {row: on((0, 2))}


def test_an_order_that_was_written_but_not_sent_is_carried_out(bench: Bench) -> None:
    row = bench.start("1", "sleep", "60")
    bench.expect(JobStarted, row)
    (run,) = bench.executor.table.runs.values()
    bench.engine.order(bench.clock.now_s(), (Suspend(row),))
    run.attempt.order("park")  # and then the controller dies, before it tells the supervisor
    bench.new_executor()
    bench.expect(JobSuspended, row)


def test_what_nobody_knows_is_stopped(bench: Bench) -> None:
    row = bench.start("1", "sleep", "60", grace_s=0.5)
    bench.expect(JobStarted, row)
    bench.executor.follow([], complete=True)
    wait_for(lambda: bench.executor.observe(bench.clock.now_s() + 0.05) and not bench.executor.table.runs)
    assert not carriers(bench.json("1", "launch.json")["token"])


def test_rows_may_be_renumbered(bench: Bench) -> None:
    first = bench.start("1", "/bin/true")
    bench.expect(JobFinished, first)
    second = bench.start("2", "/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.01; done", device=1)
    bench.expect(JobStarted, second)
    bench.forget_ended()
    assert bench.engine.state.jobs.row_of == {"2": 0}
    (bench.folder / "jobs" / "2" / "work" / "go").touch()
    bench.expect(JobFinished, 0)
    assert len(bench.reported(AttemptEnded, "1")) == 1  # and it is not reported again


def test_a_number_that_is_another_process_now_is_left_alone(bench: Bench) -> None:
    row = bench.start("1", "sleep", "60")
    bench.expect(JobStarted, row)
    os.kill(bench.supervisor("1"), signal.SIGKILL)
    wait_for(lambda: not carriers(bench.json("1", "launch.json")["token"]))
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        claim = bench.json("1", "claim")
        (bench.attempt("1") / "claim").write_text(json.dumps(claim | {"pid": innocent.pid}))
        started = bench.json("1", "started.json")
        (bench.attempt("1") / "started.json").write_text(json.dumps(started | {"pids": [innocent.pid]}))
        attempt = Folders(bench.folder).attempt("1", 1)
        assert attempt.state() is AttemptState.LOST
        assert starter.find(attempt) is None
        bench.new_executor()
        assert bench.expect(JobFailed, row).cause.startswith("its supervisor was lost")
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_after_a_restart_of_the_machine_no_number_means_anything(bench: Bench) -> None:
    row = bench.start("1", "sleep", "60")
    bench.expect(JobStarted, row)
    os.kill(bench.supervisor("1"), signal.SIGKILL)
    wait_for(lambda: not carriers(bench.json("1", "launch.json")["token"]))
    claim = bench.json("1", "claim")
    (bench.attempt("1") / "claim").write_text(json.dumps(claim | {"boot": "another"}))
    bench.new_executor()
    assert bench.expect(JobFailed, row).cause.startswith("the machine was restarted while it ran")


def test_a_running_job_of_which_nothing_is_left_has_failed(bench: Bench, tmp_path: Path) -> None:
    row = bench.start("1", "/bin/true")
    wait_for((bench.attempt("1") / "exit.json").exists)
    now_s = bench.clock.now_s()
    bench.engine.step(now_s, [JobStarted(now_s, row)])
    (bench.folder / "jobs" / "1" / "attempts").rename(tmp_path / "away")
    (bench.folder / "live" / "1.1").unlink()
    bench.new_executor()
    assert bench.expect(JobFailed, row).cause.startswith("nothing is left of it")


@pytest.mark.parametrize("name", ["launch.json", "started.json", "exit.json", "orders.json", "control.json", "claim"])
@pytest.mark.parametrize("garbage", [b"", b"\0\xff{", b"[1]", b'{"seq": "x", "pid": -1, "code": 1e400, "at": []}'])
def test_garbage_in_a_folder_is_survived(bench: Bench, name: str, garbage: bytes) -> None:
    folder = bench.folder / "jobs" / "1" / "attempts" / "1"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(garbage)
    (bench.folder / "live" / "1.1").touch()
    (bench.folder / "live" / "garbage").touch()
    (bench.folder / "live" / ".1").touch()
    row = bench.submit("1", "/bin/sh", "-c", "echo ran")
    bench.engine.order(bench.clock.now_s(), (Start(row, on((0, 0))),))
    bench.new_executor()
    over = (Status.SUCCEEDED, Status.FAILED, Status.PENDING)  # one that was lost is tried again
    bench.until(lambda: bench.engine.state.status(row) in over)
    assert bench.output("1") in ("", "ran\n")
    if name in ("launch.json", "control.json"):
        assert bench.engine.state.status(row) is Status.SUCCEEDED


def test_a_folder_of_an_earlier_service_is_set_aside(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    row = bench.start("1", "/bin/sh", "-c", "echo old; exec sleep 60", grace_s=0.5)
    bench.expect(JobStarted, row)
    bench.until(lambda: bench.output("1"))
    (pid,) = bench.pids("1")
    # The store was deleted: there is a new engine, a new secret, and a new job with the old number.
    monkeypatch.setattr("bench.SECRET", b"another")
    bench.engine = bench.new_engine(bench.cluster)
    bench.new_executor()
    row = bench.start("1", "/bin/sh", "-c", "echo new")
    bench.expect(JobFinished, row)
    assert bench.output("1") == "new\n"
    assert not is_alive(pid)
    (aside,) = (bench.folder / "jobs").glob("1.*.old")
    assert (aside / "output.log").read_text() == "old\n"
    assert [report.outcome for report in bench.reported(AttemptEnded, "1")] == ["succeeded"]
    monkeypatch.undo()


def test_a_retry_decided_in_the_same_turn_is_started(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "test $GPUWISE_ATTEMPT = 2")
    bench.retries.add(row)
    wait_for((bench.attempt("1") / "exit.json").exists)
    _, events = bench.executor.observe(None)
    bench.step(bench.clock.now_s(), events)
    bench.order(Start(row, on((0, 0))))  # before the executor waits again
    bench.expect(JobFinished, row)
    assert not [event for event in bench.events if isinstance(event, JobFailed)]


def test_an_attempt_that_failed_before_a_crash_does_not_fail_the_next_one(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "test $GPUWISE_ATTEMPT = 2 && sleep 0.3")
    bench.retries.add(row)
    bench.expect(JobFailed, row)
    bench.engine.order(bench.clock.now_s(), (Start(row, on((0, 0))),))  # written down, and then the controller dies
    bench.new_executor()
    bench.expect(JobFinished, row)
    assert not [event for event in bench.events if isinstance(event, JobFailed)]


def test_a_job_that_a_later_version_started_is_ended_and_said_so(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """What its files mean cannot be known; left alone it would use devices that others are given."""
    row = bench.start("1", "sleep", "60")
    bench.expect(JobStarted, row)
    launch = bench.attempt("1") / "launch.json"
    launch.write_text(json.dumps(json.loads(launch.read_text()) | {"v": 99}))
    bench.new_executor()
    bench.expect(JobFailed, row)
    assert "files of format 99, this is 1" in caplog.text
