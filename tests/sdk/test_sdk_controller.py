"""A job under a controller, as real processes: what it tells, and what it does when asked."""

from __future__ import annotations

import json
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest
from controller_double import COUNT_UP, ControllerDouble, Processes, wait_until


def outcome(processes: Processes) -> dict:
    """What a job that ran to its end says of itself."""
    (code, out, err), *_ = processes.end()
    assert (code, err) == (0, "")
    return json.loads(out.splitlines()[-1])


def test_progress_is_told_from_first_to_last(controller: ControllerDouble) -> None:
    processes = controller.launch(COUNT_UP, "--steps", 200, "--pause", 0.005)
    assert outcome(processes)["done"] == list(range(200))
    controller.wait_for("done", step=200)

    assert controller.read("sdk.json") == {"can_suspend": True, "can_pause": True, "steps": 200}
    (hello,) = controller.said("hello")
    sender = {"v": 1, "job": "17", "attempt": 1, "token": "token-1", "rank": 0}
    assert hello == sender | {"kind": "hello", "can_suspend": True, "can_pause": True, "steps": 200}
    progress = controller.said("progress")
    assert [progress[0]["step"], progress[-1]["step"]] == [1, 200]
    assert progress[-1].keys() == sender.keys() | {"kind", "step", "steps", "loss", "samples_per_s", "step_s"}
    assert progress[-1]["loss"] == pytest.approx(1 / 200)
    assert all(each["step_s"] >= 0.005 and each["samples_per_s"] <= 8 / 0.005 for each in progress)


def test_progress_is_not_told_more_often_than_agreed(controller: ControllerDouble) -> None:
    began_s = time.monotonic()
    controller.launch(COUNT_UP, "--steps", 300, "--pause", 0.002).end()
    controller.wait_for("done")
    # One at the start, one every 0.2 s, one at the end.
    assert 3 <= len(controller.said("progress")) <= 2 + (time.monotonic() - began_s) / 0.2


def finished(controller: ControllerDouble, processes: Processes) -> dict:
    """What a job says of itself that ran until it was told to end, and did each step once."""
    controller.finish()
    said = outcome(processes)
    assert said["done"] == list(range(len(said["done"])))
    return said


def test_checkpoint_on_request_and_go_on(controller: ControllerDouble) -> None:
    processes = controller.launch(COUNT_UP, *controller.until_told)
    controller.wait_for_step(10)
    seq = controller.ask("checkpoint")
    saved = controller.wait_for("saved", seq=seq)
    latest = controller.latest()
    assert (latest["step"], latest["steps"]) == (saved["step"], 10**6)
    assert json.loads((controller.checkpoint / latest["file"] / "state").read_text()) == list(range(saved["step"]))
    controller.wait_for_step(saved["step"] + 1)
    assert len(finished(controller, processes)["done"]) > saved["step"]
    assert not (controller.folder / "saved.json").exists()


def test_leave_and_resume(controller: ControllerDouble) -> None:
    processes = controller.launch(COUNT_UP, *controller.until_told)
    controller.wait_for_step(10)
    seq = controller.ask("leave")
    ((code, out, err),) = processes.end()
    assert (code, err) == (75, "")
    assert out.splitlines()[-1] == "cleaned up"
    saved = controller.read("saved.json")
    assert saved == {"seq": seq, "step": saved["step"], "steps": 10**6}
    assert out.splitlines()[-2] == f"step {saved['step'] - 1}"  # the steps it did are those it saved
    controller.wait_for("saved", seq=seq, step=saved["step"])
    assert not controller.said("done")

    said = outcome(controller.launch(COUNT_UP, "--steps", saved["step"] + 20))
    assert (said["began_at"], said["resumed"]) == (saved["step"], True)
    assert said["done"] == list(range(saved["step"] + 20))
    assert controller.said("progress")[0]["step"] == saved["step"] + 1


def test_a_request_that_was_there_before_the_job_is_met_at_once(controller: ControllerDouble) -> None:
    controller.attempt = 1
    controller.folder.mkdir(parents=True)
    seq = controller.ask("leave")
    processes = Processes([COUNT_UP], [controller.environment(0, 1, 0)])
    assert processes.codes() == [75]
    assert controller.read("saved.json") == {"seq": seq, "step": 0, "steps": 50}


def test_leaving_is_off_if_the_controller_says_so_while_the_job_saves(controller: ControllerDouble) -> None:
    processes = controller.launch(COUNT_UP, *controller.until_told, "--save-s", 1.0)
    controller.wait_for_step(5)
    seq = controller.ask("leave")
    wait_until(lambda: list(controller.checkpoint.glob(".*/state")), "the save to begin")
    controller.ask("run")
    saved = controller.wait_for("saved", seq=seq)
    controller.wait_for_step(saved["step"] + 1)
    finished(controller, processes)
    assert not (controller.folder / "saved.json").exists()


def test_resizing_is_leaving_and_resuming_on_more(controller: ControllerDouble) -> None:
    one = controller.launch(COUNT_UP, *controller.until_told)
    controller.wait_for_step(5)
    controller.ask("leave")
    assert one.codes() == [75]
    steps = controller.read("saved.json")["step"] + 20
    said = outcome(controller.launch(COUNT_UP, "--steps", steps, ranks=2))
    assert (said["gpus"], said["world_size"]) == (2, 2)
    assert said["done"] == list(range(steps))


GARBAGE = [
    b"", b"{", b"\xff\xfe", b"null", b"[]", b"[" * 100_000, b'{"want": "leave"}', b'{"seq": null, "want": "leave"}',
    b'{"seq": "9", "want": "leave"}', b'{"seq": true, "want": "leave"}', b'{"seq": 9, "want": "explode"}',
    b'{"seq": 9, "want": ["leave"]}', b'{"seq": 9}',
]  # fmt: skip


def test_garbage_in_the_control_file_is_passed_over(controller: ControllerDouble) -> None:
    processes = controller.launch(COUNT_UP, *controller.until_told)
    for number, garbage in enumerate(GARBAGE):
        controller.wait_for_step(1)
        step = controller.said("progress")[-1]["step"]
        controller.write_control(garbage)
        controller.wait_for_step(step + 10)  # some ten steps look at it
        assert processes.each[0].poll() is None, f"garbage {number}"
    assert controller.said("saved") == []
    seq = controller.ask("checkpoint")
    controller.wait_for("saved", seq=seq)
    controller.ask("leave")
    assert processes.codes() == [75]


def test_the_same_request_is_met_once(controller: ControllerDouble) -> None:
    processes = controller.launch(COUNT_UP, *controller.until_told)
    controller.wait_for_step(1)
    seq = controller.ask("checkpoint")
    saved = controller.wait_for("saved", seq=seq)
    controller.write_control(json.dumps({"seq": seq, "want": "checkpoint"}))  # another file, the same request
    controller.wait_for_step(saved["step"] + 20)
    finished(controller, processes)
    assert len(controller.said("saved")) == 1


def test_a_controller_that_goes_away_and_comes_back(controller: ControllerDouble) -> None:
    processes = controller.launch(COUNT_UP, *controller.until_told)
    controller.wait_for_step(1)
    controller.go_away()
    heard = len(controller.messages)
    for _ in range(50):  # steps without a controller
        assert processes.each[0].stdout.readline().startswith("step ")
    controller.listen()
    wait_until(lambda: len(controller.messages) > heard, "a message after the controller is back")
    controller.ask("leave")
    assert processes.codes() == [75]


def test_without_a_controller_at_the_other_end(controller: ControllerDouble) -> None:
    controller.go_away()
    said = outcome(controller.launch(COUNT_UP, GPUWISE_ATTEMPT_DIR=str(controller.state / "nowhere")))
    assert said["done"] == list(range(50))


def test_a_controller_that_does_not_read_holds_nobody_up(controller: ControllerDouble) -> None:
    controller.go_away()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(controller.socket_path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler, suppress(BlockingIOError):
            while True:  # until its queue is full
                filler.sendto(b"x", socket.MSG_DONTWAIT, str(controller.socket_path))
        assert outcome(controller.launch(COUNT_UP))["done"] == list(range(50))


def test_a_socket_path_longer_than_an_address(tmp_path: Path) -> None:
    with ControllerDouble(tmp_path / ("long" * 30) / "state") as controller:
        assert len(str(controller.socket_path)) > 108
        outcome(controller.launch(COUNT_UP))
        controller.wait_for("done", step=50)


def test_a_cancelled_job_dies_at_once_and_saves_nothing(controller: ControllerDouble) -> None:
    processes = controller.launch(COUNT_UP, *controller.until_told)
    controller.wait_for_step(1)
    processes.signal(signal.SIGTERM)
    assert processes.codes() == [-signal.SIGTERM]
    assert not controller.checkpoint.exists()
