"""Jobs that are started and end by themselves."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import PYTHON, TRAINER, AttemptEnded, AttemptStarted, Bench, Progress, is_alive

from builders import on
from gpuwise.core.commands import Start
from gpuwise.core.events import JobFailed, JobFinished, JobProgressed, JobStarted
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.request import Processes


def test_a_job_starts_runs_and_finishes(bench: Bench) -> None:
    before = time.time()
    row = bench.start("1", "/bin/sh", "-c", "echo out; echo err >&2; sleep 0.1")
    started = bench.expect(JobStarted, row)
    finished = bench.expect(JobFinished, row)
    assert 0.1 <= finished.at_s - started.at_s < 5
    assert bench.output("1") == "out\nerr\n"
    (begun,) = bench.reported(AttemptStarted, "1")
    (ended,) = bench.reported(AttemptEnded, "1")
    assert (begun.number, begun.at_s) == (1, started.at_s)
    assert (ended.number, ended.outcome, ended.exit_code, ended.detail) == (1, "succeeded", 0, "")
    assert (ended.started_s, ended.at_s) == (started.at_s, finished.at_s)
    assert bench.clock.unix(started.at_s) >= before
    assert ended.peak_memory_bytes is not None
    assert 1e5 < ended.peak_memory_bytes < 1e8
    assert ended.cpu_s is not None
    assert 0 <= ended.cpu_s < 1


def test_events_come_once(bench: Bench) -> None:
    row = bench.start("1", "/bin/true")
    bench.until(lambda: any(isinstance(event, JobFinished) for event in bench.events))
    for _ in range(3):
        bench.turn(0.05)
    happened = [type(event) for event in bench.events if getattr(event, "job", None) == row]
    assert happened == [JobStarted, JobFinished]
    assert not bench.placed


def test_a_job_that_fails_says_how_and_shows_its_last_words(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "echo 'ValueError: lr is -1' >&2; echo; exit 3")
    failed = bench.expect(JobFailed, row)
    assert failed.cause == "exited with code 3: ValueError: lr is -1"
    assert (failed.steps_kept, failed.will_retry) == (0.0, False)
    (ended,) = bench.reported(AttemptEnded, "1")
    assert (ended.outcome, ended.exit_code) == ("failed", 3)


@pytest.mark.parametrize(
    ("command", "asked", "cause"),
    [
        (("no-such-program-anywhere",), {}, "its program was not found"),
        (("/etc/passwd",), {}, "its program may not be executed; make it executable: chmod +x"),
        (("/bin/true",), {"workdir": "/no/such/folder"}, "its working folder does not exist; create it"),
        (("/bin/true",), {"workdir": "/etc/passwd"}, "its working folder is not a folder"),
    ],
)
def test_a_job_that_cannot_be_started_says_what_to_do(
    bench: Bench, command: tuple[str, ...], asked: dict[str, str], cause: str
) -> None:
    row = bench.start("1", *command, **asked)
    failed = bench.expect(JobFailed, row)
    assert failed.cause.startswith(cause)
    assert not [event for event in bench.events if isinstance(event, JobStarted)]
    assert bench.reported(AttemptEnded, "1")[0].exit_code == 126


def test_a_program_without_an_interpreter_line(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_bytes(b"\x01\x02 not a program")
    script.chmod(0o700)
    row = bench.start("1", str(script))
    assert "unknown format" in bench.expect(JobFailed, row).cause


def test_the_environment_of_a_job_is_clean_and_right(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    row = bench.start("1", "/usr/bin/env", device=2, env={"LR": "0.1", "CUDA_VISIBLE_DEVICES": "7"})
    bench.expect(JobFinished, row)
    found = dict(line.split("=", 1) for line in bench.output("1").splitlines())
    state = bench.folder
    assert found.pop("PATH") == os.environ["PATH"]
    assert found.pop("GPUWISE_TOKEN") == bench.json("1", "launch.json")["token"]
    kept = {
        name for name in found if name in ("HOME", "LANG", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR") or "LC_" in name
    }
    assert "LC_TIME" in kept
    assert {name: value for name, value in found.items() if name not in kept | {"VIRTUAL_ENV", "LD_LIBRARY_PATH"}} == {
        "LR": "0.1", "CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void", "OMP_NUM_THREADS": "1",
        "GPUWISE_JOB_ID": "1", "GPUWISE_ATTEMPT": "1", "GPUWISE_GPUS": "1", "GPUWISE_DEVICES": "cpu-core-2",
        "GPUWISE_SOCKET": f"{state}/sdk.sock", "GPUWISE_ATTEMPT_DIR": f"{state}/jobs/1/attempts/1/job",
        "GPUWISE_CHECKPOINT_DIR": f"{state}/jobs/1/checkpoint",
    }  # fmt: skip


INSPECT = """
import os, resource, signal
print(sorted(int(name) for name in os.listdir("/proc/self/fd"))[:3])
print(len(os.listdir("/proc/self/fd")) - 1, "files")
print(os.readlink("/proc/self/fd/0"))
print(os.getcwd())
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
print(os.getsid(0) == os.getpid() == os.getpgid(0))
print(sorted(os.sched_getaffinity(0)))
ignored = int(next(line for line in open("/proc/self/status") if line.startswith("SigIgn")).split()[1], 16)
print(ignored & ~(1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1 | 0b11 << 31))  # Python's own, the C library's own
"""


def test_a_process_begins_with_nothing_inherited(bench: Bench) -> None:
    held = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(held, True)
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        row = bench.start("1", *PYTHON, "-c", INSPECT, device=1)
        bench.expect(JobFinished, row)
    finally:
        os.close(held)
        signal.signal(signal.SIGHUP, old)
    cores = sorted(bench.machine.cores(on((0, 1))))
    work = bench.folder / "jobs" / "1" / "work"
    assert bench.output("1").splitlines() == [
        "[0, 1, 2]", "3 files", "/dev/null", str(work), "set()", "True", str(cores), "0",
    ]  # fmt: skip


def test_files_of_a_job_belong_to_its_user_alone(bench: Bench) -> None:
    row = bench.start("1", "/bin/true")
    bench.expect(JobFinished, row)
    modes = {name: (bench.folder / name).stat().st_mode & 0o777 for name in (".", "jobs/1/output.log", "sdk.sock")}
    assert modes == {".": 0o700, "jobs/1/output.log": 0o600, "sdk.sock": 0o600}


def test_an_array_task_is_told_its_index(bench: Bench) -> None:
    from dataclasses import replace

    row = bench.submit("7-3", "/bin/sh", "-c", "echo $GPUWISE_JOB_ID $GPUWISE_ARRAY_INDEX")
    bench.specs["7-3"] = replace(bench.specs["7-3"], array_index=3)
    bench.order(Start(row, on((0, 0))))
    bench.expect(JobFinished, row)
    assert bench.output("7-3") == "7-3 3\n"


def test_one_process_a_gpu(bench: Bench) -> None:
    show = "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $OMP_NUM_THREADS $GPUWISE_GPUS"
    show += "; test $MASTER_PORT -gt 1023"
    row = bench.submit("1", "/bin/sh", "-c", show, gpus=3, processes=Processes.PER_GPU)
    bench.order(Start(row, on((0, 0), (0, 1), (0, 3))))
    bench.expect(JobFinished, row)
    assert sorted(bench.output("1").splitlines()) == [f"{rank} {rank} 3 3 127.0.0.1 1 3" for rank in range(3)]
    ports = {process["env"]["MASTER_PORT"] for process in bench.json("1", "launch.json")["processes"]}
    assert len(ports) == 1


def test_one_rank_that_fails_ends_the_others(bench: Bench) -> None:
    script = """
        if [ $RANK = 1 ]; then while [ ! -e ready0 ] || [ ! -e ready2 ]; do sleep 0.01; done; exit 9; fi
        trap 'echo told $RANK; exit 0' TERM; touch ready$RANK; sleep 60 & wait
    """
    row = bench.submit("1", "/bin/sh", "-c", script, gpus=3, processes=Processes.PER_GPU)
    bench.order(Start(row, on((0, 0), (0, 1), (0, 2))))
    assert bench.expect(JobFailed, row).cause.startswith("exited with code 9")
    assert sorted(bench.output("1").splitlines()) == ["told 0", "told 2"]


def test_one_rank_that_fails_ends_others_that_do_not_listen(bench: Bench) -> None:
    script = "test $RANK = 1 && exit 9; trap '' TERM; while :; do sleep 0.05; done"
    row = bench.submit("1", "/bin/sh", "-c", script, gpus=2, processes=Processes.PER_GPU, grace_s=0.3)
    bench.order(Start(row, on((0, 0), (0, 1))))
    assert bench.expect(JobFailed, row).cause == "exited with code 9"
    assert not any(is_alive(pid) for pid in bench.pids("1"))


def test_two_jobs_share_a_device(bench: Bench) -> None:
    half = on((0, 0), sharing=Sharing.SHARED, milli=500)
    rows = [bench.submit(uid, "sleep", "0.3", gpu_frac=0.5) for uid in ("1", "2")]
    bench.order(*(Start(row, half) for row in rows))
    bench.until(lambda: len(bench.placed) == 2)
    assert bench.placed == {rows[0]: half, rows[1]: half}
    assert bench.executor.processes() == {(0, 0): [*bench.pids("1"), *bench.pids("2")]}
    for row in rows:
        bench.expect(JobFinished, row)


def test_progress_is_reported_and_news_when_it_differs_from_what_is_believed(bench: Bench) -> None:
    # 10 steps of 50 ms, declared as 100 s: believed after half of it 0.25 of 100 steps, true 50.
    row = bench.start("1", *TRAINER, "10", "0.05", duration_s=100.0)
    progressed = bench.expect(JobProgressed, row)
    bench.expect(JobFinished, row)
    # The first report that differs by more than 2 of 100 steps is the first of all: 1 of 10 steps is 10 of 100.
    assert progressed.steps_done == pytest.approx(10.0)
    assert not [event for event in bench.events if isinstance(event, JobProgressed)]  # once a second at most
    reports = bench.reported(Progress, "1")
    assert [report.step for report in reports] == sorted(report.step for report in reports)
    assert {report.steps for report in reports} == {10.0}
    assert reports[-1].step == 10.0
    assert reports[-1].loss == pytest.approx(0.1)
    assert reports[-1].samples_per_s is None


def test_logs_of_attempts_follow_each_other(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "echo attempt $GPUWISE_ATTEMPT; exit 1")
    bench.retries.add(row)
    bench.expect(JobFailed, row)
    bench.order(Start(row, on((0, 1))))
    bench.expect(JobFailed, row)
    assert bench.output("1") == "attempt 1\nattempt 2\n"
    assert bench.reported(AttemptEnded, "1")[-1].number == 2


LONG = """
import json, os, socket
folder, name = os.path.split(os.environ["GPUWISE_SOCKET"])
handle = os.open(folder, os.O_PATH)
message = {"v": 1, "job": "1", "attempt": 1, "token": os.environ["GPUWISE_TOKEN"], "kind": "progress", "step": 3}
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
    sender.sendto(json.dumps(message).encode(), f"/proc/self/fd/{handle}/{name}")
"""


def test_a_service_in_a_folder_with_a_long_path(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(folder="/".join(["a-folder-with-a-long-name"] * 6))
    assert len(str(bench.folder / "sdk.sock")) > 150
    row = bench.start("1", *PYTHON, "-c", LONG)
    bench.until(lambda: bench.reported(Progress, "1"))
    bench.expect(JobFinished, row)
