"""With the disk full, jobs can still be listed, read and cancelled, and new ones are refused with the reason."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from live_up import Up, until

from receivers import Receiver


class Notifying(Up):
    """A service that posts to this machine."""

    options = ("--devices", "2", "--webhook-hosts", "127.0.0.1")


def _fill(path: Path) -> None:
    """Takes all space; what is given up meanwhile, too, once."""

    def write_on(file: io.RawIOBase) -> None:
        while True:
            file.write(b"x" * 4096)

    with path.open("ab", buffering=0) as file, pytest.raises(OSError, match="No space"):
        write_on(file)


def test_cancel_queue_and_logs_answer_while_the_disk_is_full(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("8m")
    up, receiver = Notifying(disk), Receiver()
    try:
        first, _ = up.begin_job("first", notify=[f"{receiver.url}/x"])
        second, go = up.begin_job("second")
        waiting, _ = up.begin_job("waiting")
        until(lambda: up.runs(first) and up.runs(second), "the jobs to run")
        _fill(disk / "filler")
        assert {job["id"] for job in up.json("queue")} == {first, second, waiting}
        assert up.right("logs", first) == "begun\n"
        up.right("cancel", first)
        until(lambda: (disk / "state/jobs" / first / "attempts/1/exit.json").exists(), "the cancelled job to be gone")
        assert up.status(first) == "cancelled"
        refused = up.run("submit", "--", "true")
        assert (refused.code, "the disk is full" in refused.err) == (3, True)
        assert "the disk is full" in up.get("status")["trouble"]
        assert {job["id"] for job in up.json("queue")} == {second, waiting}
        assert receiver.received == [], "it could not be written that it was sent"
        os.unlink(disk / "filler")
        until(lambda: receiver.received, "the end of the cancelled job to be notified of")
        until(lambda: up.get("jobs", first)["unsent"] == [], "that to be written")
        assert [each.body["status"] for each in receiver.received] == ["cancelled"]
        accepted = up.submit("--", "true")
        assert int(accepted) == int(waiting) + 1
        up.right("cancel", waiting)
        go.touch()
        until(lambda: up.status(second) == up.status(accepted) == "succeeded", "the others to end")
        assert up.get("status")["trouble"] == ""
    finally:
        up.stop()
        receiver.close()
