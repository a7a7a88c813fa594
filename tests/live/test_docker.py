"""A job in a container of a real Docker engine is suspended, resumed and ended as any other: examples/docker_run.sh."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deployments import running, until

from gpuwise.core.job.request import JobRequest
from gpuwise.service.live.up import LocalDeployment, Settings

RUN = str(Path(__file__).resolve().parents[2] / "examples" / "docker_run.sh")
ENGINE = (
    "dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
    "--userland-proxy=false", "--storage-driver=vfs",
)  # fmt: skip
"""One of the test's own, which changes nothing of the machine's network."""
COUNTS = 'echo job $GPUWISE_JOB_ID in $PWD; trap "echo asked; exit 0" TERM; while :; do sleep 0.1; done'
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("dockerd", "docker", "busybox"))),
    reason="Docker's engine, with busybox-static, is not installed, or this is not root",
)


@pytest.fixture(scope="module")
def docker() -> Iterator[Callable[..., str]]:
    """The docker command of an engine with an image called tiny."""
    with tempfile.TemporaryDirectory(prefix="docker-") as name:  # short: it has sockets
        folder = Path(name)
        host = f"unix://{folder}/sock"
        places = (
            f"--data-root={folder}/data",
            f"--exec-root={folder}/exec",
            f"--pidfile={folder}/pid",
            f"--host={host}",
        )
        with (folder / "log").open("wb") as log:
            engine = subprocess.Popen([*ENGINE, *places], stdout=log, stderr=log)

        def run(*words: str) -> str:
            command = ["docker", "--host", host, *words]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.strip()

        def answers() -> bool:
            if engine.poll() is not None:
                pytest.skip(f"Docker's engine does not run here: {(folder / 'log').read_text()[-500:]}")
            return subprocess.run(["docker", "--host", host, "info"], capture_output=True, check=False).returncode == 0

        try:
            until(answers, "the engine to start", 120)
            _make_image(folder / "root")
            subprocess.run(["tar", "-C", folder / "root", "-cf", folder / "tiny.tar", "."], check=True)
            run("import", str(folder / "tiny.tar"), "tiny")
            run.host = host  # type: ignore[attr-defined]
            yield run
        finally:
            engine.terminate()
            engine.wait(60)


def _make_image(root: Path) -> None:
    (root / "bin").mkdir(parents=True)
    shutil.copy(str(shutil.which("busybox")), root / "bin")
    for name in ("sh", "sleep"):
        (root / "bin" / name).symlink_to("busybox")


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[LocalDeployment]:
    opened = LocalDeployment(Settings(state=tmp_path / "state", devices=2))
    yield opened
    for record in opened.controller.live_records():
        opened.controller.cancel([record.uid], "the test").result(10)
    until(lambda: not opened.controller.live_records(), "jobs to end", 60)
    opened.close()


def submit(deployment: LocalDeployment, docker: Any, folder: Path, grace_s: float) -> str:
    """A job in a container, once it prints."""
    request = JobRequest(
        command=("sh", RUN, "tiny", "sh", "-c", COUNTS), workdir=str(folder), grace_s=grace_s,
        env={"DOCKER_HOST": docker.host, "OPTIONS": "--network none"},
    )  # fmt: skip
    (job,) = deployment.controller.submit([request], "ada").result(10)
    running(deployment, job.uid)
    until(lambda: f"job {job.uid} in {folder}" in printed(deployment, job.uid), "the container to print", 120)
    return job.uid


def printed(deployment: LocalDeployment, uid: str) -> str:
    try:
        return (deployment.folder.jobs / uid / "output.log").read_text()
    except FileNotFoundError:
        return ""


def states(docker: Any) -> set[str]:
    """The states of the container's processes, as this machine sees them."""
    (container,) = docker("ps", "--quiet").split()
    pids = docker("top", container, "-o", "pid").split()[1:]
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids}


def test_a_container_is_suspended_resumed_and_asked_to_end(
    deployment: LocalDeployment, docker: Callable[..., str], tmp_path: Path
) -> None:
    uid = submit(deployment, docker, tmp_path, grace_s=60.0)
    deployment.controller.suspend([uid]).result(10)
    until(lambda: states(docker) == {"T"}, "the container to stop", 60)
    deployment.controller.resume([uid]).result(10)
    until(lambda: "T" not in states(docker), "the container to continue", 60)
    deployment.controller.cancel([uid], "the test").result(10)
    until(lambda: "asked" in printed(deployment, uid), "the container to be asked to end", 60)
    until(lambda: not docker("ps", "--all", "--quiet"), "the container to be removed", 60)


def test_a_container_is_killed_with_its_job(
    deployment: LocalDeployment, docker: Callable[..., str], tmp_path: Path
) -> None:
    uid = submit(deployment, docker, tmp_path, grace_s=0.0)
    deployment.controller.cancel([uid], "the test").result(10)
    until(lambda: not docker("ps", "--all", "--quiet"), "the container to be removed", 60)
    assert "asked" not in printed(deployment, uid)


def test_outside_of_a_job_the_script_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", RUN, "tiny", "true"], capture_output=True, text=True, cwd=tmp_path, env={}, check=False
    )
    assert (done.returncode, "gpuwise submit -- sh docker_run.sh IMAGE" in done.stderr) == (2, True)
