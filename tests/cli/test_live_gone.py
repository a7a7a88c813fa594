"""``cancel`` and ``wait`` return when the processes of a job are gone, not when that was ordered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_up import Up, until

STUBBORN = 'trap "" TERM; echo $$ > "$0"; while :; do sleep 0.05; done'


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    service = Up(tmp_path)
    yield service
    service.stop()


def _is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize("suspended", [False, True])
def test_cancel_returns_when_the_process_is_gone(up: Up, tmp_path: Path, suspended: bool) -> None:
    pid_file = tmp_path / "pid"
    uid = up.submit("--grace", "1s", "--", "sh", "-c", STUBBORN, str(pid_file))
    pid = int(until(lambda: pid_file.exists() and pid_file.read_text().strip(), "the job to run"))
    until(lambda: up.runs(uid), "that to be known")
    if suspended:  # by SIGSTOP
        up.right("suspend", uid)
        until(lambda: up.status(uid) == "suspended", "it to be suspended")
    assert _is_there(pid)
    up.right("cancel", uid)
    assert not _is_there(pid)


def test_wait_returns_when_the_process_of_a_cancelled_job_is_gone(up: Up, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    uid = up.submit("--grace", "6s", "--", "sh", "-c", STUBBORN, str(pid_file))
    pid = int(until(lambda: pid_file.exists() and pid_file.read_text().strip(), "the job to run"))
    until(lambda: up.runs(uid), "that to be known")
    waiting, cancelling = up.begin("wait", uid), up.begin("cancel", uid)
    assert waiting.wait(60) != 0
    assert not _is_there(pid)
    assert cancelling.wait(60) == 0
    for process in (waiting, cancelling):
        process.communicate()
