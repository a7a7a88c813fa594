"""What others use of a GPU: foreign processes that compute, desktops, parked jobs; reported only when it changes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builders import node
from gpuwise.core.events import DevicesClaimed
from gpuwise.core.units import GIB, MIB
from gpuwise.devices.machine import Reading, Where
from gpuwise.live.local.attempts.folders import Folders
from gpuwise.live.local.attempts.runs import Run
from gpuwise.live.local.device_usage import Claims, Owner, Owners, device_use

BOX = node("box", 2, device_ids=("GPU-a", "GPU-b"))
EMPTY = {(0, device): Reading(memory_used_bytes=0.0) for device in range(2)}
OWNERS = {1: Owner.RUNNING, 2: Owner.PARKED}


def owner(pid: int) -> tuple[Owner, str]:
    return OWNERS.get(pid, Owner.FOREIGN), f"job {pid}" if pid in OWNERS else ""


def use(**processes: float) -> tuple[float, bool] | None:
    return device_use(Reading(processes={int(pid[1:]): used for pid, used in processes.items()}), owner)


def test_running_jobs_and_desktops_are_no_claim() -> None:
    assert use() is None
    assert use(p1=8.0 * GIB, p7=20.0 * MIB) is None


def test_a_notebook_computes() -> None:
    assert use(p7=1.5 * GIB) == (1.5 * GIB, True)
    assert use(p7=math.nan) == (0.0, True)  # the driver does not say how much


def test_a_parked_job_only_keeps_its_memory() -> None:
    assert use(p1=2.0 * GIB, p2=3.1 * GIB) == (3.25 * GIB, False)


def test_it_is_reported_when_it_changes() -> None:
    claims = Claims([BOX])
    notebook = {(0, 0): Reading(), (0, 1): Reading(processes={7: 1.0 * GIB})}
    reported = DevicesClaimed(1.0, "box", (("GPU-b", 1.0 * GIB, True),))
    assert claims.changes(0.0, {}, owner) == []
    assert claims.changes(1.0, notebook, owner) == [reported]
    a_little_more = {(0, 1): Reading(processes={7: 1.0 * GIB - 10 * MIB})}
    assert claims.changes(2.0, a_little_more, owner) == []
    assert claims.changes(3.0, EMPTY, owner) == [DevicesClaimed(3.0, "box")]
    claims.begin_again()
    assert claims.changes(4.0, notebook, owner) == [DevicesClaimed(4.0, "box", reported.devices)]


@pytest.mark.parametrize("readings", [{}, {(0, 1): Reading()}])
def test_a_claim_stays_while_its_device_cannot_be_read(readings: dict[Where, Reading]) -> None:
    claims = Claims([BOX])
    claims.changes(1.0, {(0, 1): Reading(processes={7: 1.0 * GIB})}, owner)
    assert claims.changes(2.0, readings, owner) == []
    assert claims.taken == {(0, 1)}
    assert claims.changes(3.0, EMPTY, owner) == [DevicesClaimed(3.0, "box")]
    assert claims.taken == set()


def test_what_a_parked_job_keeps_is_reported_as_its_own() -> None:
    claims = Claims([BOX])
    (reported,) = claims.changes(1.0, {(0, 1): Reading(processes={2: 3.1 * GIB, 7: 1.0 * GIB})}, owner)
    assert reported.devices == (("GPU-b", 4.25 * GIB, True),)
    assert reported.parked == (("job 2", "GPU-b", 3.25 * GIB),)
    assert claims.taken == {(0, 1)}


def test_that_there_is_nothing_is_reported_again_too() -> None:
    claims = Claims([BOX])
    claims.begin_again()
    assert claims.changes(1.0, {}, owner) == [DevicesClaimed(1.0, "box")]
    assert claims.changes(2.0, {}, owner) == []


def test_whose_a_process_is_is_read_once_however_many_runs_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, runs = Folders(tmp_path), []
    for number in range(1, 4):
        attempt = folders.attempt(str(number), 1)
        folders.make(attempt)
        attempt.write("launch", {"token": f"{os.getpid()} {number}", "placement": {}})
        runs.append(Run.of(attempt))
    opened: list[str] = []
    real = open

    def counted(path: Any, *arguments: Any, **options: Any) -> Any:
        opened.append(str(path))
        return real(path, *arguments, **options)

    program, token = "import sys; print(flush=True); sys.stdin.read()", f"{os.getpid()} 3"
    with subprocess.Popen(
        [sys.executable, "-c", program], env={"GPUWISE_TOKEN": token}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
    ) as contained:  # fmt: skip
        assert contained.stdout is not None
        contained.stdout.readline()
        monkeypatch.setattr("builtins.open", counted)
        owners = Owners(runs)
        assert owners.run_of(contained.pid) is runs[2]
        assert owners.run_of(os.getpid()) is None
        monkeypatch.undo()
        contained.kill()
    assert [path for path in opened if path.endswith("environ")] == [
        f"/proc/{pid}/environ" for pid in (contained.pid, os.getpid())
    ]
    assert not [path for path in opened if str(tmp_path) in path]
