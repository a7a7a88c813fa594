"""Jobs that harm their own files, a full disk, a slow controller: no other job notices, and every end is reported."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench import PYTHON, SOON_S, TRAINER, Bench, is_alive, state_of, wait_for

from gpuwise.core.commands import Suspend
from gpuwise.core.events import JobFailed, JobFinished, JobStarted, JobSuspended
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.observations import Cause
from gpuwise.live.local.attempts.endings import describe, tail
from gpuwise.live.local.attempts.folders import Attempt, AttemptState, Exit, Folders, is_locked
from gpuwise.live.local.attempts.limits import Cgroups
from gpuwise.live.local.attempts.messages import MessageSocket
from gpuwise.live.local.supervisor import files, processes, supervise
from gpuwise.live.local.supervisor.files import read_json
from gpuwise.live.local.watch import SupervisorHandle, Watch

WAITS = ("/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; exit 3")
"""Ends with code 3 when it is let go."""


def let_go(bench: Bench, uid: str) -> None:
    (bench.folder / "jobs" / uid / "work" / "go").touch()


# -- files that are not what they should be --------------------------------------------------------------------------


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_folder(path: Path) -> None:
    path.mkdir()


def make_huge(path: Path) -> None:
    path.write_text('{"seq": 1, "can_suspend": true, "padding": "' + "x" * 2**17 + '"}')


@pytest.mark.parametrize("make", [make_fifo, make_endless, make_folder, make_huge])
def test_what_is_no_small_regular_file_says_nothing(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "sdk.json")
    assert read_json(tmp_path / "sdk.json") == {}


@pytest.mark.parametrize("make", [make_fifo, make_endless])
def test_what_is_no_regular_file_is_not_locked_and_printed_nothing(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "claim")
    assert is_locked(tmp_path / "claim") is None
    assert tail(tmp_path / "claim", 0) == b""


def test_output_is_read_from_where_it_ends_if_that_is_before_it_began(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_text("short")
    assert tail(tmp_path / "output.log", 10**30) == b""


@pytest.mark.parametrize("make", [make_fifo, make_endless])
def test_a_file_is_written_whatever_lies_where_it_is_prepared(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / f".orders.json.{os.getpid()}")
    attempt = Attempt("1", 1, tmp_path)
    attempt.write("orders", {"want": "stop"})
    assert attempt.read("orders") == {"want": "stop"}
    assert os.listdir(tmp_path) == ["orders.json"]


def test_a_job_that_replaces_its_files_by_pipes_stops_nobody(bench: Bench) -> None:
    row = bench.start("1", *TRAINER, "1000", "0.02", "mute")
    bench.expect(JobStarted, row)
    make_fifo(bench.attempt("1") / "job/sdk.json")
    make_endless(bench.attempt("1") / "job/saved.json")
    log = bench.folder / "jobs/1/output.log"
    log.unlink(missing_ok=True)
    make_fifo(log)
    bench.order(Suspend(row))
    bench.expect(JobSuspended, row)
    bench.expect(JobFinished, bench.start("2", "/bin/true"))
    os.kill(bench.supervisor("1"), 9)
    bench.until(lambda: "1" not in {run.uid for run in bench.executor.table.runs.values()})


@pytest.mark.parametrize("make", [make_fifo, make_endless])
def test_output_goes_to_a_regular_file_or_the_job_is_not_started(bench: Bench, make: Callable[[Path], None]) -> None:
    (bench.folder / "jobs/1").mkdir()
    make(bench.folder / "jobs/1/output.log")
    row = bench.start("1", "/bin/echo", "hello")
    assert bench.expect(JobFailed, row, within_s=5).cause.startswith("could not write its log: ")


def test_a_job_can_wait_for_room_in_its_output(bench: Bench) -> None:
    row = bench.start("1", *PYTHON, "-c", "import os; print(os.get_blocking(1), os.get_blocking(2))")
    bench.expect(JobFinished, row)
    assert bench.output("1") == "True True\n"


# -- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["x" * 300, "../kept", "/etc/passwd", "a\0b", "missing"])
def test_a_checkpoint_with_an_impossible_name_keeps_nothing(tmp_path: Path, named: str) -> None:
    folders = Folders(tmp_path)
    folders.checkpoint("1").mkdir(parents=True)
    (folders.job("1") / "kept").touch()
    latest = folders.checkpoint("1") / "latest.json"
    latest.write_text(json.dumps({"file": named, "step": 1, "steps": 2}))
    assert folders.saved_steps("1") == (0.0, None)
    (folders.checkpoint("1") / "there").touch()
    latest.write_text(json.dumps({"file": "there", "step": 1, "steps": 2}))
    assert folders.saved_steps("1") == (1.0, 2.0)


def test_the_end_of_a_job_is_reported_whatever_its_checkpoint_is_called(bench: Bench) -> None:
    latest = json.dumps({"file": "x" * 300, "step": 1, "steps": 2})
    row = bench.start("1", "/bin/sh", "-c", f"echo '{latest}' > $GPUWISE_CHECKPOINT_DIR/latest.json; exit 1")
    assert bench.expect(JobFailed, row, within_s=5).steps_kept == 0.0


# -- one job's trouble is its own ------------------------------------------------------------------------------------


def test_a_job_that_cannot_be_seen_to_does_not_stop_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gpuwise.live.local.reconciler.TRY_AGAIN_S", 0.05)
    state = Attempt.state

    def fail(attempt: Attempt) -> AttemptState:
        if attempt.uid == "1":
            raise ZeroDivisionError("unforeseen")
        return state(attempt)

    row = bench.start("1", *WAITS)
    bench.expect(JobStarted, row)
    let_go(bench, "1")
    monkeypatch.setattr(Attempt, "state", fail)
    bench.expect(JobFinished, bench.start("2", "/bin/true", device=1))
    for _ in range(5):
        bench.turn(0.1)
    assert len(caplog.records) == 1
    monkeypatch.setattr(Attempt, "state", state)
    assert bench.expect(JobFailed, row).cause == "exited with code 3"


@pytest.mark.parametrize("number", [10**30, -1, 2**40])
def test_an_error_number_that_cannot_be(number: int) -> None:
    ended = Exit.parse({"code": 126, "trouble": {"doing": "log", "errno": number}})
    assert describe(ended, Cause.ERROR, why="", limit_bytes=0, last_line="").startswith("could not write its log: ")


# -- folders that vanish ---------------------------------------------------------------------------------------------


def test_a_cancelled_job_ends_even_if_its_folder_is_gone(bench: Bench) -> None:
    row = bench.start("1", "/bin/sleep", "60")
    bench.expect(JobStarted, row)
    (pid,), supervisor = bench.pids("1"), bench.supervisor("1")
    shutil.rmtree(bench.attempt("1"))
    bench.cancel(row)
    bench.expect(JobFinished, bench.start("2", "/bin/true"), within_s=5)
    bench.until(lambda: not is_alive(pid) and not is_alive(supervisor), within_s=5)
    bench.until(lambda: not bench.executor.table.runs)


def test_a_job_whose_folder_vanishes_is_lost(bench: Bench) -> None:
    row = bench.start("1", "/bin/sleep", "60")
    bench.expect(JobStarted, row)
    (pid,), supervisor = bench.pids("1"), bench.supervisor("1")
    shutil.rmtree(bench.attempt("1"))
    os.kill(pid, 9)
    assert bench.expect(JobFailed, row, within_s=5).cause.startswith("its supervisor was lost")
    bench.until(lambda: not is_alive(supervisor), within_s=5)


# -- a slow controller, a full disk ----------------------------------------------------------------------------------


def test_a_supervisor_that_has_obeyed_survives_a_stall_of_the_controller(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("attempts.runs", "run_control"):
        monkeypatch.setattr(f"gpuwise.live.local.{module}.OBEY_S", 0.3)
    row = bench.start("1", "/bin/sh", "-c", "while :; do sleep 0.05; done")
    bench.expect(JobStarted, row)
    (pid,), ordered_s = bench.pids("1"), bench.clock.now_s()
    bench.order(Suspend(row))
    wait_for(lambda: state_of(pid) == "T" and bench.clock.now_s() > ordered_s + 0.3)  # longer than it may take
    bench.expect(JobSuspended, row, within_s=5)
    assert state_of(pid) == "T"
    assert is_alive(bench.supervisor("1"))


def no_space(*_: Any, **__: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_at_a_time_limit_is_said_once_and_the_job_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    row = bench.start("1", "/bin/sleep", "60", time_limit_s=0.5)
    bench.expect(JobStarted, row)
    (pid,) = bench.pids("1")
    with monkeypatch.context() as full:
        full.setattr("gpuwise.live.local.supervisor.files.write_json", no_space)
        end, used = time.monotonic() + 2.5, time.process_time()
        while time.monotonic() < end:
            bench.turn(0.5)
        assert time.process_time() - used < 1.0
        assert not is_alive(pid)
        assert len(caplog.records) <= 3
    assert bench.expect(JobFailed, row).cause == "time limit of 0.5 s reached"


def test_a_job_that_prints_too_much_is_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwise.live.local.run_control.LARGEST_OUTPUT_BYTES", 2**16)
    quiet = bench.start("1", "/bin/sleep", "60")
    row = bench.start("2", "/bin/sh", "-c", "while :; do head -c 65536 /dev/zero; sleep 0.1; done", device=1)
    assert bench.expect(JobFailed, row, within_s=8).cause.startswith("printed more than 64 KiB; ")
    assert bench.engine.state.status(quiet) is Status.RUNNING


# -- how a run ended -------------------------------------------------------------------------------------------------


def test_an_end_that_cannot_be_read_is_lost(tmp_path: Path) -> None:
    attempt = Folders(tmp_path).attempt("1", 1)
    attempt.folder.mkdir(parents=True)
    (attempt.folder / "claim").write_text("{}")
    (attempt.folder / "exit.json").write_bytes(b"\0" * 4096)  # the power failed before it was on disk
    assert attempt.state() is AttemptState.LOST
    (attempt.folder / "exit.json").write_text('{"code": 0}')
    assert attempt.state() is AttemptState.ENDED


def test_how_a_run_ended_is_on_disk_before_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[list[str]] = []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append(os.listdir(tmp_path)))
    files.reserve("started")
    files.commit("started", {"pids": [1]})
    assert seen == []
    files.commit("exit", {"code": 3}, lasting=True)
    assert [("exit.json" in names) for names in seen] == [False, True]


def test_a_supervisor_without_a_folder_insists_on_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    monkeypatch.setattr(time, "sleep", pytest.fail)
    (tmp_path / "gone").rmdir()
    files.insist(files.commit, "exit", {"code": 3}, lasting=True)


@pytest.mark.parametrize("make", [make_fifo, make_endless])
def test_how_a_run_ended_is_written_whatever_lies_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "exit.reserved")
    files.commit("exit", {"code": 3}, lasting=True)
    assert read_json(tmp_path / "exit.json") == {"code": 3}


# -- whose processes these are ---------------------------------------------------------------------------------------


def test_a_claim_is_made_whatever_lies_where_it_is_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious").write_text("kept")
    (tmp_path / f"claim.{os.getpid()}").symlink_to("precious")
    assert files.claim("token")
    assert (tmp_path / "precious").read_text() == "kept"
    assert read_json(tmp_path / "claim")["token"] == "token"
    assert not files.claim("another")


def test_a_job_cannot_have_others_killed_by_what_it_writes(bench: Bench) -> None:
    with subprocess.Popen(["/bin/sleep", "10"]) as bystander:
        row = bench.start("1", "/bin/sleep", "60")
        other = bench.start("2", "/bin/sleep", "60", device=1)
        bench.expect(JobStarted, row)
        bench.expect(JobStarted, other)
        group = bench.folder / "jobs/1/work"
        (group / "cgroup.procs").write_text(f"{bystander.pid}\n")
        lies = bench.json("1", "launch.json") | {"cgroup": str(group), "token": bench.json("2", "launch.json")["token"]}
        (bench.attempt("1") / "launch.json").write_text(json.dumps(lies))
        os.kill(bench.supervisor("1"), 9)
        assert bench.expect(JobFailed, row).cause.startswith("its supervisor was lost")
        assert bystander.poll() is None
        assert is_alive(bench.pids("2")[0])
        bystander.kill()


def test_a_supervisor_that_ends_is_not_mistaken_for_one_with_its_number(tmp_path: Path) -> None:
    box = MessageSocket(tmp_path / "sdk.sock", lambda uid, number: "")
    watch = Watch(box)
    with subprocess.Popen(["/bin/sleep", "10"]) as first, subprocess.Popen(["/bin/sleep", "10"]) as second:
        watch.add(SupervisorHandle(first.pid, os.pidfd_open(first.pid), tmp_path / "1"))
        watch.add(SupervisorHandle(first.pid, os.pidfd_open(second.pid), tmp_path / "2"))  # as if it had its number
        first.kill()
        assert watch.sleep(5.0).gone == [tmp_path / "1"]
        assert watch.supervisor(first.pid, tmp_path / "2") is not None
        second.kill()
    watch.close()
    box.close()


def test_a_process_that_has_the_number_of_an_ended_one_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are from a listing that is older than the process which has the number now."""
    with subprocess.Popen(["/bin/sleep", "1000"]) as stranger, subprocess.Popen(["/bin/sleep", "1000"]) as ours:
        try:
            listed = {each.pid: processes.start_time(each.pid) or 0 for each in (stranger, ours)}
            listed[stranger.pid] -= 1
            before, cores = os.sched_getaffinity(stranger.pid), [min(os.sched_getaffinity(0))]
            processes.pin(listed, cores)
            assert (os.sched_getaffinity(stranger.pid), os.sched_getaffinity(ours.pid)) == (before, set(cores))
            monkeypatch.setattr(processes, "members", lambda token: listed)
            assert processes.signal_all(signal.SIGKILL, "a token") == listed
            assert ours.wait(SOON_S) == -signal.SIGKILL
            assert stranger.poll() is None
        finally:
            stranger.kill()
            ours.kill()


def test_processes_are_moved_by_their_rank_when_one_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[tuple[int, list[int]]] = []
    monkeypatch.setattr(processes, "pin", lambda found, cores: pinned.append((next(iter(found)), cores)))
    monkeypatch.setattr(processes, "all_processes", lambda: {2**22 + rank: (1, 0) for rank in (2, 3)})
    monkeypatch.setattr(processes, "signal_all", lambda which, token: None)
    supervisor = supervise.Supervisor({"token": "a token"})
    supervisor.ranks, supervisor.alive = [2**22 + 1, 2**22 + 2, 2**22 + 3], [2**22 + 2, 2**22 + 3]
    supervisor.resume([[0], [1], [2]])
    assert pinned == [(2**22 + 2, [1]), (2**22 + 3, [2])]


def test_a_group_is_opened_to_the_cores_its_processes_are_moved_to(tmp_path: Path) -> None:
    groups = Cgroups(tmp_path, unified=True)
    (groups.group("1.1")).mkdir()
    (groups.group("1.1") / "cpuset.cpus").touch()
    groups.confine("1.1", (2, 3))
    assert (tmp_path / "1.1/cpuset.cpus").read_text() == "2,3"
