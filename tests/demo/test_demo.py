"""The demo: its scripts learn and can be interrupted, its waves are as meant, and it runs under a real scheduler."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gpuwise.core.job.request import JobRequest, Processes
from gpuwise.core.records import AttemptRecord, JobRecord
from gpuwise.demo import submissions as demo
from gpuwise.demo.submissions import describe, submit_demo
from gpuwise.service.live.up import LocalDeployment, Settings

NUMPY = {
    "logistic": 60,
    "linear": 40,
    "kmeans": 30,
    "spirals": 250,
    "factorise": 320,
    "digits": 60,
    "data_parallel": 40,
}
TORCH = {"shapes": 30, "autoencoder": 40}
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
SCRIPTS = [*NUMPY.items(), *(pytest.param(*each, marks=needs_torch, id=each[0]) for each in TORCH.items())]
PACKAGE = "gpuwise.demo.jobs."
PATIENCE_S = 60.0


class Bench:
    """Runs scripts as a controller would: with folders for an attempt and for checkpoints, and a socket to talk to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempt = folder / "attempt"
        self.attempt.mkdir()
        self.sent: list[dict[str, Any]] = []
        """What jobs told."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "sdk.sock"))
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        """The kernel keeps a few messages only; one who reads late misses the others."""
        while message := self._socket.recv(4096):
            self.sent.append(json.loads(message))

    def close(self) -> None:
        """Stops listening."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", str(self.folder / "sdk.sock"))
        self._listener.join(PATIENCE_S)
        self._socket.close()

    def environment(self, job: str) -> dict[str, str]:
        """What a controller tells a job."""
        return {
            "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "GPUWISE_JOB_ID": job, "GPUWISE_TOKEN": "t",
            "GPUWISE_ATTEMPT": "1", "GPUWISE_SOCKET": str(self.folder / "sdk.sock"),
            "GPUWISE_ATTEMPT_DIR": str(self.attempt), "GPUWISE_CHECKPOINT_DIR": str(self.folder / f"checkpoint-{job}"),
            "GPUWISE_GPUS": "1",
        }  # fmt: skip

    def start(self, script: str, *arguments: object, job: str = "1", **more: object) -> subprocess.Popen[str]:
        """Starts a script."""
        environment = self.environment(job) | {name: str(value) for name, value in more.items()}
        command = [sys.executable, "-m", PACKAGE + script, *(str(each) for each in arguments)]
        return subprocess.Popen(command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, text=True)

    def run(self, script: str, *arguments: object, job: str = "1", **more: object) -> str:
        """Runs a script to its end; what it printed. Those with PyTorch run in this process, which imports it once."""
        if script in TORCH:
            return self._run_here(script, *arguments, job=job)
        process = self.start(script, *arguments, job=job, **more)
        printed, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        return printed

    def _run_here(self, script: str, *arguments: object, job: str) -> str:
        printed = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", [script, *(str(each) for each in arguments)])
            for name, value in self.environment(job).items():
                patch.setenv(name, value)
            runpy.run_module(PACKAGE + script, run_name="__main__")
        return printed.getvalue()

    def results(self, job: str = "1") -> dict[str, float]:
        """The numbers a job left."""
        found: dict[str, float] = json.loads((self.folder / "results" / f"{job}.json").read_text())
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


# -- the scripts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("script", "steps"), SCRIPTS)
def test_each_training_learns_and_goes_on_from_a_checkpoint(bench: Bench, script: str, steps: int) -> None:
    printed = bench.run(script, "--steps", steps, job="1")
    _until(lambda: bench.sent[-1]["kind"] == "done")
    assert (bench.sent[0]["kind"], bench.sent[0]["can_suspend"]) == ("hello", True)
    progress = [message for message in bench.sent if message["kind"] == "progress"]
    assert (progress[-1]["step"], progress[-1]["steps"]) == (steps, steps)
    assert progress[-1]["samples_per_s"] > 0
    whole = bench.results("1")
    assert progress[0]["step"] == 1
    assert whole["loss"] < 0.9 * progress[0]["loss"]
    assert printed.count("step ") == 10

    bench.run(script, "--steps", steps // 2, job="2")
    assert bench.results("2")["loss"] > whole["loss"]
    went_on = bench.run(script, "--steps", steps, job="2")
    assert went_on.startswith(f"step {steps // 2:5d} of {steps}")
    assert bench.results("2") == whole


def test_a_training_leaves_when_it_is_asked_to(bench: Bench) -> None:
    process = bench.start("spirals", "--steps", 10**6)
    _until(lambda: bench.sent and bench.sent[-1]["kind"] == "progress")
    (bench.attempt / ".control").write_text('{"seq": 4, "want": "leave"}')
    (bench.attempt / ".control").rename(bench.attempt / "control.json")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 75
    saved = json.loads((bench.attempt / "saved.json").read_text())
    assert saved["seq"] == 4
    assert 0 < saved["step"] < 10**6
    assert not (bench.folder / "results").exists()


def test_two_processes_learn_what_one_learns(bench: Bench) -> None:
    bench.run("data_parallel", "--steps", 20, job="1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GPUWISE_GPUS": 2}
    ranks = [bench.start("data_parallel", "--steps", 20, job="2", RANK=rank, **where) for rank in (0, 1)]
    printed = [rank.communicate(timeout=PATIENCE_S)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert "done" in printed[0]
    assert printed[1] == ""
    alone, together = bench.results("1"), bench.results("2")
    assert together.pop("processes") == 2 * alone.pop("processes")
    assert together == pytest.approx(alone, rel=1e-9)


def test_an_array_tries_learning_rates_and_the_best_is_found(bench: Bench) -> None:
    for index in range(3):
        bench.run("logistic", "--steps", 30, job=f"7-{index}", GPUWISE_ARRAY_INDEX=index)
    rates = [bench.results(f"7-{index}")["learning_rate"] for index in range(3)]
    assert rates == sorted(set(rates))
    printed = bench.run("compare", "7-0", "7-1", "7-2", job="8")
    losses = {f"7-{index}": bench.results(f"7-{index}")["loss"] for index in range(3)}
    best = min(losses, key=losses.__getitem__)
    assert f"best: job {best}\n" in printed
    assert bench.results("8") == bench.results(best)


def test_a_comparison_without_results_fails(bench: Bench) -> None:
    process = bench.start("compare", "1", "2")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0


# -- the waves --------------------------------------------------------------------------------------------------------


class JobIntake:
    """Takes requests and gives them numbers, as a controller does."""

    def __init__(self) -> None:
        self.waves: list[list[JobRecord]] = []
        self.pauses: list[float] = []

    def submit(self, requests: Sequence[JobRequest]) -> list[JobRecord]:
        made = []
        first = sum(len(wave) for wave in self.waves) + 1
        for number, request in enumerate(requests, start=first):
            indexes = request.array or (None,)
            made += [_record(str(number) if i is None else f"{number}-{i}", request) for i in indexes]
        self.waves.append(made)
        return made


def _record(uid: str, request: JobRequest, **known: Any) -> JobRecord:
    return JobRecord(uid=uid, user="ada", request=request, **known)


def test_short_jobs_come_after_long_ones_and_one_waits_for_an_array(tmp_path: Path) -> None:
    intake = JobIntake()
    records = submit_demo(intake.submit, "python", tmp_path / "new", pause=intake.pauses.append)
    assert records == [record for wave in intake.waves for record in wave]
    assert intake.pauses == [demo.PAUSE_S, demo.PAUSE_S]
    assert 12 <= len(records) <= 16
    long, short, last = intake.waves
    lasts_s = {record.uid: record.request.duration_s or 0.0 for record in records}
    assert min(lasts_s[each.uid] for each in long) > max(lasts_s[each.uid] for each in (*short, *last))
    assert len(long) == demo.DEVICES
    assert sum(each.request.gpu_frac == 0.5 for each in short) == 2
    rates = tuple(each.uid for each in short if each.request.array)
    assert len(rates) == 3
    compare = last[0].request
    assert compare.after == rates == compare.command[-3:]
    [gang] = [each.request for each in last if each.request.gpus == 2]
    assert (gang.processes, gang.min_gpus, gang.max_gpus) == (Processes.PER_GPU, 1, 2)


def test_every_job_is_a_script_that_is_there_in_one_folder(tmp_path: Path) -> None:
    records = submit_demo(JobIntake().submit, "/usr/bin/python9", tmp_path, pause=lambda _: None)
    for request in (record.request for record in records):
        assert request.command[:2] == ("/usr/bin/python9", "-m")
        assert find_spec(request.command[2]) is not None
        assert request.workdir == str(tmp_path)


@pytest.mark.parametrize("torch", [True, False])
def test_without_pytorch_its_jobs_are_left_out(tmp_path: Path, torch: bool) -> None:
    *_, last = demo.waves("python", tmp_path, torch=torch)
    names = {request.name for request in last([])}
    assert {training.name for training in demo.WITH_TORCH} <= names or not torch
    assert len(names) == 2 + torch * len(demo.WITH_TORCH)


def test_the_table_tells_what_became_of_them(tmp_path: Path) -> None:
    request = JobRequest(command=("python",), name="spirals", workdir=str(tmp_path), gpus=2)
    record = _record(
        "1",
        request,
        status="succeeded",
        submitted_at=100.0,
        started_at=101.0,
        ended_at=130.0,
        gpu_s=40.0,
        preemptions=1,
    )
    attempts = [
        AttemptRecord(uid="1", number=1, placement="box:0,1 (50 %, shared)", started_at=101.0, ended_at=109.0),
        AttemptRecord(uid="1", number=2, placement="box:0,1", started_at=119.5, ended_at=130.0),
    ]
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "1.json").write_text('{"loss": 0.12345, "accuracy": 0.98765}')
    unknown = _record(
        "2", replace(request, name="other"), status="failed", submitted_at=100.0, ended_at=104.0, loss=2.5
    )
    heading, first, second = describe([record, unknown], {"1": attempts, "2": []}.__getitem__).splitlines()
    # 8 s and 10.5 s of the 30 s on devices; 11.5 s without.
    told = " ".join(first.split())
    assert told == "1 spirals succeeded 11.5s 18.5s 1 × loss 0.123, accuracy 0.988 box:0,1 → box:0,1"
    assert " ".join(second.split()) == "2 other failed 4.0s 0.0s - loss 2.5 -"
    assert heading.index("where") == first.index("box:0,1")
    # Without attempts: 40 GPU-seconds on 2 devices are 20 s.
    assert "10.0s 20.0s" in " ".join(describe([record]).splitlines()[1].split())


# -- the whole of it --------------------------------------------------------------------------------------------------


def test_long_jobs_are_driven_out_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "WITH_TORCH", ())
    for name in ("SWEEP", "PARALLEL"):
        monkeypatch.setattr(demo, name, replace(getattr(demo, name), steps=60))
    for name, steps in (("SHORT", 60), ("LONG", 1200)):
        monkeypatch.setattr(demo, name, tuple(replace(training, steps=steps) for training in getattr(demo, name)))
    deployment = LocalDeployment(Settings(state=tmp_path / "state", policy="srtf", devices=demo.DEVICES))
    try:
        records = submit_demo(
            lambda requests: deployment.controller.submit(requests, "ada").result(10),
            sys.executable,
            tmp_path / "work",
            pause=lambda _: _until(
                lambda: all(each.step for each in deployment.controller.live_records() if each.placement)
            ),
        )
        _until(lambda: not deployment.controller.live_records())
        ended = [job for record in records if (job := deployment.store.job(record.uid)) is not None]
        told = describe(ended, deployment.store.attempts)
    finally:
        deployment.close()
    assert [(job.request.name, job.status) for job in ended if job.status != "succeeded"] == []
    for job in ended[: len(demo.LONG)]:
        assert job.preemptions >= 1, told
        assert (job.step, job.loss is not None) == (job.steps, True)
    for training, line in zip(demo.LONG, told.splitlines()[1:], strict=False):
        assert training.name in line
        assert "→" in line


def _until(holds: Any) -> None:
    gives_up = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < gives_up, "that took too long"
        time.sleep(0.05)
