"""Processes that a daemon starts for a job, as an engine of containers does, are signalled and ended with it.

The daemon here is a process of the test that starts what it is sent, in a session of its own, outside of the job's
process tree. With Docker it is tests/live/test_docker.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import AttemptEnded, Bench, is_alive, state_of

from builders import on
from gpuwise.core.commands import Resume, Suspend
from gpuwise.core.events import JobSuspended
from gpuwise.live.local.device_usage import Owners

PYTHON = (sys.executable, "-I", "-S", "-c")
DAEMON = """
import json, socket, subprocess, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
children = []
while True:
    client = listener.accept()[0]
    asked = json.loads(client.makefile().readline())
    children.append(subprocess.Popen(asked["argv"], env=asked["env"], start_new_session=True))
    client.sendall(b"%d" % children[-1].pid)
    client.close()
"""
CLIENT = """
import json, os, socket, sys, time
from pathlib import Path
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
inside = "import subprocess, sys, time; subprocess.Popen(['sleep', '1000']); time.sleep(1000)"
asked = {"argv": [sys.executable, "-I", "-S", "-c", inside], "env": {"GPUWISE_TOKEN": os.environ["GPUWISE_TOKEN"]}}
client.sendall(json.dumps(asked).encode() + b"\\n")
print(client.makefile().read(), flush=True)
while not Path(sys.argv[2]).exists():
    time.sleep(0.02)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[str]:
    address = str(tmp_path / "daemon.sock")
    process = subprocess.Popen([*PYTHON, DAEMON, address])
    yield address
    process.kill()
    process.wait()


def contained(bench: Bench) -> list[int]:
    """The process that the daemon has started for the job, and its child."""
    bench.until(lambda: bench.output("1").strip())
    first = int(bench.output("1"))
    bench.until(lambda: _children(first))
    return [first, *_children(first)]


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def all_stopped(pids: list[int]) -> bool:
    return all(state_of(pid) == "T" for pid in pids)


def none_alive(pids: list[int]) -> bool:
    return not any(map(is_alive, pids))


def test_a_container_is_parked_resumed_and_killed_with_its_job(bench: Bench, daemon: str) -> None:
    bench.until(lambda: os.path.exists(daemon))
    row = bench.start("1", *PYTHON, CLIENT, daemon, "end", grace_s=0.0)
    pids = contained(bench)
    bench.order(Suspend(row))
    bench.expect(JobSuspended, row)
    bench.until(lambda: all_stopped(pids))
    bench.order(Resume(row, on((0, 0))))
    bench.until(lambda: not any(state_of(pid) == "T" for pid in pids))
    bench.cancel(row)
    bench.until(lambda: not bench.executor.table.runs)
    assert none_alive(pids)


def test_a_container_that_is_left_behind_ends_with_its_job(bench: Bench, daemon: str) -> None:
    bench.until(lambda: os.path.exists(daemon))
    bench.start("1", *PYTHON, CLIENT, daemon, "end")
    pids = contained(bench)
    (bench.folder / "jobs/1/work/end").touch()
    bench.until(lambda: not bench.executor.table.runs)
    assert bench.reported(AttemptEnded, "1")[0].exit_code == 0
    assert none_alive(pids)


def test_a_container_is_killed_if_the_supervisor_is_lost(bench: Bench, daemon: str) -> None:
    bench.until(lambda: os.path.exists(daemon))
    bench.start("1", *PYTHON, CLIENT, daemon, "end")
    pids = contained(bench)
    (run,) = bench.executor.table.runs.values()
    assert run.supervisor is not None
    os.kill(run.supervisor.pid, signal.SIGKILL)
    bench.until(lambda: none_alive(pids))


def test_a_process_in_a_container_is_its_jobs_and_others_are_foreign(bench: Bench, daemon: str) -> None:
    bench.until(lambda: os.path.exists(daemon))
    bench.start("1", *PYTHON, CLIENT, daemon, "end")
    first, _ = contained(bench)
    (run,) = bench.executor.table.runs.values()
    owners = Owners([run])
    assert owners.run_of(first) is run
    assert owners.run_of(os.getpid()) is None
