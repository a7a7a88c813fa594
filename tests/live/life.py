"""One life of a controller in a process of its own: it may be killed at any write, and the next life goes on."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import Batch
from gpuwise.service.live.up import LocalDeployment, Settings

DEVICES = 4
PATIENCE_S = 60.0
STEPPING = """
import os, sys
sys.path.insert(0, sys.argv[3])
from gpuwise import sdk
state = {"sum": 0}
def save(path): open(path, "w").write(str(state["sum"]))
def load(path): state["sum"] = int(open(path).read())
job = sdk.attach(save=save, load=load)
import time
for step in job.steps(int(sys.argv[1])):
    state["sum"] += step
    time.sleep(0.01)
os.write(os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND), f"{os.environ['GPUWISE_JOB_ID']} {state['sum']}\\n".encode())
"""
SOURCE = str(Path(sys.modules["gpuwise"].__file__).parent.parent)


def requests(folder: Path) -> list[JobRequest]:
    """Thirty jobs, each of which leaves one line for each time it ran to its end."""
    results = folder / "results.txt"
    results.touch()

    def echo(result: str, code: int = 0) -> tuple[str, ...]:
        return ("/bin/sh", "-c", f'echo "$GPUWISE_JOB_ID {result}" >> "$0"; exit {code}', str(results))

    jobs = [JobRequest(command=echo(f"r{number}"), duration_s=1.0 + number / 10) for number in range(20)]
    jobs += [JobRequest(command=echo("failed", 3), duration_s=2.0, retries=1) for _ in range(2)]
    jobs += [JobRequest(command=echo("shared"), duration_s=2.0, gpu_frac=0.5) for _ in range(3)]
    jobs.append(JobRequest(command=echo("last"), duration_s=0.5, after=("1", "2")))
    # Two long ones with checkpoints that shorter ones drive out, and one that asks for two devices.
    stepping = (sys.executable, "-S", "-c", STEPPING, "30", str(results), SOURCE)
    long = [JobRequest(command=stepping, duration_s=50.0, gpus=2), JobRequest(command=stepping, duration_s=60.0)]
    jobs.append(JobRequest(command=echo("two"), duration_s=1.5, gpus=2))
    jobs.append(JobRequest(command=("/bin/sleep", "600"), duration_s=600.0))
    return [*long, *jobs]


FOREVER = "30"
"""The id of the job that never ends by itself, and is cancelled in the end."""


def live(folder: Path, kill_at: int, when: str, database: str | None = None, policy: str = "srtf") -> None:
    """Runs until all jobs have ended; at write ``kill_at`` the process is killed, before or after it."""
    deployment = LocalDeployment(
        Settings(state=folder / "state", policy=policy, devices=DEVICES, database=database, coalesce_s=0.0)
    )
    counted = _Mortal(deployment.store.commit, kill_at, when)
    deployment.store.commit = counted  # type: ignore[method-assign]
    known = deployment.store.last_job_number()
    asked = [([request], "ada", f"key {number}") for number, request in enumerate(requests(folder))]
    for future in [
        deployment.controller.submit(*each) for each in asked[:known]
    ]:  # as a client that was not answered does
        future.result(PATIENCE_S)
    for each in asked[known:]:
        deployment.controller.submit(*each).result(PATIENCE_S)
    _until(lambda: [record.uid for record in deployment.controller.live_records()] in ([FOREVER], []))
    deployment.controller.cancel([FOREVER], "ada").result(PATIENCE_S)
    _until(lambda: not deployment.controller.live_records())
    _until(lambda: not deployment.controller.ask(lambda intake: deployment.executor.processes()).result(5))
    (folder / "writes").write_text(str(counted.count))
    deployment.close()
    os._exit(0)


class _Mortal:
    def __init__(self, commit: Callable[[Batch], None], kill_at: int, when: str) -> None:
        self.commit, self.kill_at, self.when, self.count = commit, kill_at, when, 0

    def __call__(self, batch: Batch) -> None:
        self.count += 1
        if self.count == self.kill_at and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        self.commit(batch)
        if self.count == self.kill_at and self.when == "after":
            os.kill(os.getpid(), signal.SIGKILL)


def _until(holds: Callable[[], object]) -> None:
    gives_up = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > gives_up:
            os._exit(3)
        time.sleep(0.005)
