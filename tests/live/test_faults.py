"""What can go wrong around a running service: a full disk, killed jobs, a vanished device, too little memory."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deployments import ended, running, until

from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import StoreError
from gpuwise.service.live.up import LocalDeployment, Settings


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[LocalDeployment]:
    opened = LocalDeployment(Settings(state=tmp_path / "state", devices=2, policy="srtf"))
    yield opened
    for record in opened.controller.live_records():
        opened.controller.cancel([record.uid], "the test").result(10)
    opened.close()


def _processes(deployment: LocalDeployment) -> list[int]:
    running = deployment.controller.ask(lambda _: deployment.executor.processes()).result(5)
    return [pid for pids in running.values() for pid in pids]


def test_a_job_killed_from_outside_has_failed_and_says_so(deployment: LocalDeployment) -> None:
    (job,) = deployment.controller.submit([JobRequest(command=("/bin/sleep", "60"))], "ada").result(10)
    running(deployment, job.uid)
    (pid,) = until(lambda: _processes(deployment))
    os.kill(pid, signal.SIGKILL)
    record = ended(deployment, job.uid)
    assert (record.status, record.exit_code) == ("failed", 137)
    assert "signal 9" in record.why_ended or "SIGKILL" in record.why_ended


def test_a_job_killed_from_outside_is_tried_again_if_it_may_be(deployment: LocalDeployment, tmp_path: Path) -> None:
    script = f'if [ -e "{tmp_path}/second" ]; then exit 0; fi; touch "{tmp_path}/second"; exec sleep 60'
    (job,) = deployment.controller.submit([JobRequest(command=("/bin/sh", "-c", script), retries=1)], "ada").result(10)
    running(deployment, job.uid)
    until(lambda: (tmp_path / "second").exists())
    (pid,) = _processes(deployment)
    os.kill(pid, signal.SIGKILL)
    record = ended(deployment, job.uid)
    assert (record.status, record.attempts, record.failures) == ("succeeded", 2, 1)


def test_a_device_that_vanishes_interrupts_its_job_which_goes_on_elsewhere(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = deployment.controller.submit([JobRequest(command=("/bin/sleep", "1.5"), duration_s=2)], "ada").result(10)
    record = running(deployment, job.uid)
    device = int(record.placement.split(":")[1])
    monkeypatch.setattr(deployment.machine, "lost", lambda: frozenset({(0, device)}))
    moved = until(
        lambda: (
            (found := deployment.controller.live(job.uid)) and found.placement not in ("", record.placement) and found
        )
    )
    assert moved.attempts == 2
    assert ended(deployment, job.uid).status == "succeeded"
    monkeypatch.setattr(deployment.machine, "lost", frozenset)
    both = deployment.controller.submit([JobRequest(command=("/bin/true",), gpus=2)], "ada").result(10)
    assert ended(deployment, both[0].uid).status == "succeeded"


EATER = "import sys; data = bytearray(int(sys.argv[1]) << 20); print(sum(data[::4096]))"


def test_a_job_that_runs_out_of_memory_is_tried_again_with_more(deployment: LocalDeployment) -> None:
    command = (sys.executable, "-S", "-c", EATER, "150")
    (job,) = deployment.controller.submit([JobRequest(command=command, gpu_memory_bytes=120 << 20)], "ada").result(10)
    record = ended(deployment, job.uid)
    assert record.status == "succeeded", record.why_ended
    assert record.out_of_memory == 1
    assert record.gpu_memory_bytes >= 1.5 * (120 << 20)


def _fill(file: int) -> None:
    while True:
        os.write(file, b"x" * 4096)


def _submit_many(deployment: LocalDeployment) -> None:
    """What is left of the last page of the database may take a few."""
    for _ in range(200):
        deployment.controller.submit([JobRequest(command=("/bin/true",), name="x" * 100)], "ada").result(10)


def test_a_full_disk_stops_nothing_that_runs_and_loses_nothing(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("4m")
    deployment = LocalDeployment(Settings(state=disk / "state", devices=2))
    go = disk / "go"
    waits = ("/bin/sh", "-c", f'while [ ! -e "{go}" ]; do sleep 0.05; done')
    (first,) = deployment.controller.submit([JobRequest(command=waits)], "ada").result(10)
    running(deployment, first.uid)
    go.touch()
    os.rename(go, disk / "not yet")
    filler = disk / "filler"
    file = os.open(filler, os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="No space"):
        _fill(file)
    os.close(file)
    with pytest.raises(StoreError, match=r"full|space"):
        _submit_many(deployment)
    accepted = {record.uid for record in deployment.controller.live_records()}
    until(lambda: deployment.controller.trouble, "the trouble to show")
    os.rename(disk / "not yet", go)  # the first job ends while nothing can be written
    filler.unlink()
    records = [ended(deployment, uid) for uid in sorted(accepted, key=int)]
    assert {record.status for record in records} == {"succeeded"}
    (last,) = deployment.controller.submit([JobRequest(command=("/bin/true",))], "ada").result(10)
    assert ended(deployment, last.uid).status == "succeeded"
    until(lambda: not deployment.controller.trouble)
    deployment.close()
