"""A job that cannot be saved is not lost: it says so and goes on."""

from __future__ import annotations

import json
import signal

import pytest
from controller_double import COUNT_UP, ControllerDouble, Processes, clean_environment, wait_until


def ends_well(controller: ControllerDouble, processes: Processes, after_step: int = 0) -> str:
    """All ranks go on, and end without a gap when they are told to; what rank 0 said on stderr."""
    controller.wait_for_step(after_step)
    controller.finish()
    ends = processes.end()
    for code, out, _ in ends:
        assert code == 0
        done = json.loads(out.splitlines()[-1])["done"]
        assert len(done) >= after_step
        assert done == list(range(len(done)))
    return ends[0][2]


FAILURES = {
    "save raises": (["--save-fails"], "RuntimeError: save does not work today"),
    "the disk is full": (["--bytes", 100_000, "--largest-file", 50_000], "OSError: [Errno 27] File too large"),
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("how", FAILURES)
def test_asked_to_leave(controller: ControllerDouble, how: str, ranks: int) -> None:
    options, reason = FAILURES[how]
    processes = controller.launch(COUNT_UP, *controller.until_told, *options, ranks=ranks)
    controller.wait_for_step(5)
    seq = controller.ask("leave")
    failed = controller.wait_for("save_failed", seq=seq)
    assert reason.startswith(failed["error"][:20])
    stderr = ends_well(controller, processes, after_step=failed["step"] + 5)
    assert "could not be saved" in stderr
    assert reason in stderr
    assert not (controller.folder / "saved.json").exists()
    assert list(controller.checkpoint.iterdir()) == []  # nothing unfinished is left behind


def test_no_room_even_for_a_note(controller: ControllerDouble) -> None:
    # With files of at most 0 bytes, neither a checkpoint nor agreed.json can be written.
    processes = controller.launch(COUNT_UP, *controller.until_told, "--largest-file", 0, ranks=2)
    controller.wait_for_step(5)
    failed = controller.wait_for("save_failed", seq=controller.ask("leave"))
    assert "could not be saved" in ends_well(controller, processes, after_step=failed["step"] + 5)


def test_the_checkpoint_before_is_still_there(controller: ControllerDouble) -> None:
    first = controller.launch(COUNT_UP, *controller.until_told)
    controller.wait_for_step(5)
    controller.ask("leave")
    assert first.codes() == [75]
    latest = controller.latest()

    second = controller.launch(COUNT_UP, *controller.until_told, "--save-fails")
    controller.wait_for_step(latest["step"] + 5)
    controller.wait_for("save_failed", seq=controller.ask("checkpoint"))
    second.kill()
    assert controller.latest() == latest
    third = controller.launch(COUNT_UP, *controller.until_told)
    assert "could not" not in ends_well(controller, third, after_step=latest["step"] + 10)
    assert controller.said("progress")[0]["step"] == latest["step"] + 1


def test_a_later_request_is_tried_again(controller: ControllerDouble) -> None:
    full = ["--bytes", 100_000, "--largest-file", 50_000]
    processes = controller.launch(COUNT_UP, *controller.until_told, *full)
    controller.wait_for_step(1)
    for _ in range(2):
        failed = controller.wait_for("save_failed", seq=controller.ask("leave"))
    ends_well(controller, processes, after_step=failed["step"] + 20)
    assert len(controller.said("save_failed")) == 2  # once for each, not at every step


def test_without_a_controller_a_second_sigterm_ends_it(tmp_path) -> None:
    options = ["--steps", 10_000, "--save-fails", "--checkpoint-dir", tmp_path]
    processes = Processes([COUNT_UP, *options], [clean_environment()])
    (process,) = processes.each
    assert process.stdout is not None
    process.stdout.readline()
    processes.signal(signal.SIGTERM)
    assert process.stderr is not None
    assert "could not be saved" in process.stderr.readline()

    def gone() -> bool:
        processes.signal(signal.SIGTERM)  # repeated ones within a second are one
        return process.poll() is not None

    wait_until(gone, "the process to end")
    assert processes.codes() == [-signal.SIGTERM]
