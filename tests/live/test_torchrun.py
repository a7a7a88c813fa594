"""A job whose workers torchrun starts is suspended by a checkpoint and resumed from it, with real processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployments import ended, running, until

from gpuwise.core.job.request import JobRequest
from gpuwise.service.live.up import LocalDeployment, Settings

pytest.importorskip("torch")
STEPS = 40
TRAINING = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import torch, torch.distributed as dist
from pathlib import Path
from gpuwise import sdk

dist.init_process_group("gloo")
go, asked = Path(sys.argv[3]), Path(os.environ["GPUWISE_ATTEMPT_DIR"], "control.json")
state = {"sum": 0}
def save(path): open(path, "w").write(str(state["sum"]))
def load(path): state["sum"] = int(open(path).read())
job = sdk.attach(save=save, load=load)
for step in job.steps(int(sys.argv[2])):
    if job.rank == 0: print("step", step, flush=True)
    one = torch.tensor([step])
    dist.all_reduce(one)
    state["sum"] += int(one)
    while step == 5 and not (go.exists() or asked.exists()): time.sleep(0.02)
if job.rank == 0: print("sum", state["sum"], flush=True)
dist.destroy_process_group()  # else its threads may abort a process that ends
"""
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
SOURCE = str(Path(sys.modules["gpuwise"].__file__ or "").parent.parent)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[LocalDeployment]:
    opened = LocalDeployment(Settings(state=tmp_path / "state", devices=2))
    yield opened
    for record in opened.controller.live_records():
        opened.controller.cancel([record.uid], "the test").result(10)
    opened.close()


def _printed(deployment: LocalDeployment, uid: str) -> list[str]:
    try:
        return (deployment.folder.jobs / uid / "output.log").read_text().splitlines()
    except FileNotFoundError:
        return []


def test_a_job_of_torchrun_that_checkpointed_and_left_is_suspended(deployment: LocalDeployment, tmp_path: Path) -> None:
    script, go = tmp_path / "train.py", tmp_path / "go"
    script.write_text(TRAINING)
    command = (*TORCHRUN, str(script), SOURCE, str(STEPS), str(go))
    (job,) = deployment.controller.submit([JobRequest(command=command, gpus=2, grace_s=60.0)], "ada").result(10)
    running(deployment, job.uid)
    until(lambda: "step 5" in _printed(deployment, job.uid), "step 5", 120)
    deployment.controller.suspend([job.uid]).result(10)
    until(lambda: (deployment.controller.live(job.uid) or job).status != "suspending", "it to leave", 120)
    until(lambda: deployment.store.attempts(job.uid)[-1].outcome, "its record")
    (first,) = deployment.store.attempts(job.uid)
    assert (first.outcome, first.exit_code) == ("suspended", 1)  # the exit code is torchrun's own
    go.touch()
    deployment.controller.resume([job.uid]).result(10)
    until(lambda: deployment.controller.live(job.uid) is None, "it to end", 120)
    printed = _printed(deployment, job.uid)
    assert ended(deployment, job.uid).status == "succeeded", "\n".join(printed)
    assert printed[-1] == f"sum {2 * sum(range(STEPS))}"
    assert [printed.count(f"step {step}") for step in range(STEPS)] == [1] * STEPS  # none was done twice
