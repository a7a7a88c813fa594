"""Losses of all kinds, and what it costs to take them in."""

from __future__ import annotations

import json
import math
import socket
import threading
import weakref
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from gpuwise import sdk
from gpuwise.sdk.environment import read_environment
from gpuwise.sdk.messages import MAX_BYTES, Messages
from gpuwise.sdk.progress import as_number


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0.5, 0.5), (2, 2.0), (True, 1.0), (np.float32(0.5), 0.5), (np.int64(3), 3.0), (np.array(0.25), 0.25),
        (np.array([0.25]), 0.25), (Decimal("0.5"), 0.5), (Fraction(1, 2), 0.5), ("0.5", 0.5),
        (math.nan, None), (math.inf, None), (-math.inf, None), (np.float64("nan"), None), (np.array([1, 2]), None),
        (None, None), ("low", None), ([0.5], None), (object(), None), (10**400, None),
    ],
)  # fmt: skip
def test_what_counts_as_a_number(value: object, number: float | None) -> None:
    assert as_number(value) == number


class Receiver:
    """A socket that keeps what it gets."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(str(path))

    def messages(self) -> Iterator[dict]:
        while True:
            try:
                yield json.loads(self.socket.recv(65536))
            except BlockingIOError:
                return


@pytest.fixture
def receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("GPUWISE_SOCKET", str(tmp_path / "sdk.sock"))
    receiver = Receiver(tmp_path / "sdk.sock")
    yield receiver
    receiver.socket.close()


class TensorDouble:
    """A tensor as the SDK sees it: reading it waits for the GPU."""

    reads = 0

    def __init__(self, value: float, graph: object = None) -> None:
        self.value, self.graph = value, graph

    def detach(self) -> TensorDouble:
        return TensorDouble(self.value)

    def item(self) -> float:
        TensorDouble.reads += 1
        return self.value


def test_a_tensor_is_read_only_when_a_message_is_sent(receiver: Receiver) -> None:
    TensorDouble.reads = 0
    job = sdk.attach()
    for step in job.steps(1000):
        job.report(loss=TensorDouble(float(step)), samples=1)
    progress = [each for each in receiver.messages() if each["kind"] == "progress"]
    assert [progress[0]["step"], progress[-1]["step"]] == [1, 1000]
    assert progress[-1]["loss"] == 999.0
    assert TensorDouble.reads == len(progress) < 50


def test_without_a_controller_a_tensor_is_never_read() -> None:
    TensorDouble.reads = 0
    job = sdk.attach()
    for _ in job.steps(10):
        job.report(loss=TensorDouble(1.0))
    assert TensorDouble.reads == 0


def test_the_graph_of_a_tensor_is_not_kept(receiver: Receiver) -> None:
    job = sdk.attach()
    for _ in job.steps(1):
        loss = TensorDouble(1.0, graph=threading.Event())
        graph = weakref.ref(loss.graph)
        job.report(loss=loss)
        del loss
        assert graph() is None


def test_a_loss_that_is_no_number_is_null(receiver: Receiver) -> None:
    job = sdk.attach()
    for _ in job.steps(1):
        job.report(loss=math.nan, samples=4)
    (progress,) = (each for each in receiver.messages() if each["kind"] == "progress")
    assert progress["loss"] is None
    assert progress["samples_per_s"] > 0


def test_steps_are_told_without_a_report(receiver: Receiver) -> None:
    list(sdk.attach().steps(3))
    progress = [each for each in receiver.messages() if each["kind"] == "progress"]
    assert [each["step"] for each in progress] == [1, 3]
    assert {(each["loss"], each["samples_per_s"]) for each in progress} == {(None, None)}


def test_a_loop_that_is_left_tells_its_last_step(receiver: Receiver) -> None:
    job = sdk.attach()
    for step in job.steps():
        job.report(loss=0.5)
        if step == 6:
            break
    told = list(receiver.messages())
    assert told[-1]["kind"] == "progress"
    assert (told[-1]["step"], told[-1]["steps"]) == (7, None)


def test_time_spent_on_checkpoints_is_not_training(receiver: Receiver, tmp_path: Path, monkeypatch) -> None:
    now_s = 0.0
    for module in ("job", "progress", "saver"):
        monkeypatch.setattr(f"gpuwise.sdk.{module}.monotonic", lambda: now_s)

    def save(path: Path) -> None:
        nonlocal now_s
        now_s += 100.0
        path.write_text("x")

    job = sdk.attach(save=save, load=lambda path: None, checkpoint_dir=tmp_path / "checkpoints")
    for _ in job.steps(4, checkpoint_every_steps=2):
        now_s += 0.5
        job.report(samples=10)
    # 100 s pass between steps 2 and 3; each step takes 0.5 s nevertheless, with 10 samples.
    progress = [each for each in receiver.messages() if each["kind"] == "progress"]
    assert [(each["step_s"], each["samples_per_s"]) for each in progress] == [(0.5, 20.0)] * 4


def test_messages_that_cannot_be_sent_are_dropped(receiver: Receiver, tmp_path: Path) -> None:
    messages = Messages(read_environment({"GPUWISE_SOCKET": str(tmp_path / "sdk.sock")}))
    messages.send("progress", text="x" * MAX_BYTES)  # too long
    messages.send("progress", loss=math.nan)  # not JSON
    messages.send("done", step=1)
    assert [each["kind"] for each in receiver.messages()] == ["done"]
    messages.close()
    for path in ("/no/such/folder/sdk.sock", "/" + "long/" * 50 + "sdk.sock", "/tmp/" + "n" * 300, "nul\0byte"):
        nowhere = Messages(read_environment({"GPUWISE_SOCKET": path}))
        nowhere.send("done", step=1)
        nowhere.close()


def test_other_ranks_are_mute(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    job = sdk.attach()
    list(job.steps(3))
    assert (job.rank, job.world_size) == (1, 2)
    assert list(receiver.messages()) == []
