"""A machine in trouble: a full disk, a supervisor that cannot be started, devices that are not what they were."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench import Bench, Stand

from gpuwise.core.events import JobFailed, JobFinished, JobStarted
from gpuwise.devices.machine import MachineError
from gpuwise.live.local.supervisor import files


def test_a_supervisor_that_cannot_be_started(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwise.live.local.attempts.runs.LOOK_AGAIN_S", 0.02)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    row = bench.start("1", "/bin/true")
    assert bench.expect(JobFailed, row).cause == "its supervisor could not be started; does /bin/false work?"
    monkeypatch.undo()
    bench.expect(JobFinished, bench.start("2", "/bin/true"))


def test_a_supervisor_that_cannot_be_made_for_a_while(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwise.live.local.reconciler.TRY_AGAIN_S", 0.1)
    spawn, failures = os.posix_spawn, [OSError(11, "no more processes")] * 2

    def fail_first(*arguments: Any, **options: Any) -> int:
        if failures:
            raise failures.pop()
        return spawn(*arguments, **options)

    monkeypatch.setattr(os, "posix_spawn", fail_first)
    row = bench.start("1", "/bin/true")
    bench.expect(JobFinished, row)
    assert not failures


class Refusing(Stand):
    """A machine that has not got what it is asked for."""

    def environment(self, placement: Any, *, memory_bytes: float = 0.0) -> dict[str, str]:
        raise MachineError("GPU 0 has no slice that starts at 4")


def test_a_place_that_is_not_there(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(machine=Refusing(2))
    row = bench.start("1", "/bin/true")
    assert bench.expect(JobFailed, row).cause == "GPU 0 has no slice that starts at 4"
    bench.turn(0.05)
    assert not bench.events


def test_launch_files_that_cannot_be_written_for_a_while(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwise.live.local.reconciler.TRY_AGAIN_S", 0.1)
    blocker = bench.folder / "jobs" / "1"
    blocker.touch()  # a file where the folder should be
    row = bench.start("1", "/bin/true")
    bench.turn(0.3)
    assert not bench.events
    blocker.unlink()
    bench.expect(JobFinished, row)


def fill(path: Path) -> None:
    """Takes all the space that is left."""
    with path.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))
    assert shutil.disk_usage(path).free < 4096


def test_a_full_disk_does_not_lose_how_a_job_ended(
    small_disk: Callable[[str], Path], make_bench: Callable[..., Bench]
) -> None:
    disk = small_disk("256k")
    bench = make_bench(folder="disk/state")
    row = bench.start("1", "/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.01; done; exit 7")
    bench.expect(JobStarted, row)
    (bench.folder / "jobs/1/work/go").touch()
    fill(disk / "ballast")
    assert bench.expect(JobFailed, row).cause == "exited with code 7"
    assert bench.json("1", "exit.json")["code"] == 7
    (disk / "ballast").unlink()


def test_a_supervisor_insists_on_writing_down_how_its_job_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "sleep", lambda seconds: (tmp_path / "exit.json").rmdir())
    (tmp_path / "exit.json").mkdir()  # cannot be replaced by a file, until it is gone
    files.reserve("exit")
    files.insist(files.commit, "exit", {"code": 3})
    assert json.loads((tmp_path / "exit.json").read_text()) == {"code": 3}
    assert os.listdir(tmp_path) == ["exit.json"]
