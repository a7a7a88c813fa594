"""The service stays reachable while hostile clients hold more connections open than it may open files."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import hostile
import pytest
from live_up import Up, until

from gpuwise.cli.client.http import Client, connect
from gpuwise.cli.client.target import Target

FILES, JOB_FILES = 1024, 500
HALF_SENT, STREAMS, TOKENS = 1500, 500, 10
ATTACKERS = 3
"""Processes with half-sent requests, so that each needs few files itself."""


class FewFiles(Up):
    """A service that can never open more than 1,024 files."""

    wrapper = ("sh", "-c", f'ulimit -Sn {JOB_FILES} && ulimit -Hn {FILES} && exec "$@"', "sh")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[FewFiles]:
    service = FewFiles(tmp_path)
    yield service
    service.stop()


@contextmanager
def attack(up: Up, count: int, *tokens: str) -> Iterator[subprocess.Popen[str]]:
    """Opens connections from another process, and ends it afterwards."""
    url = urlsplit(connect(state=up.state).target.url)
    command = [sys.executable, hostile.__file__, str(url.hostname), str(url.port), str(count), *tokens]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def left_open(process: subprocess.Popen[str]) -> list[int]:
    """How many connections of each token the server has left open."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    found: list[int] = json.loads(line_of(process))
    return found


class Listener:
    """Somebody who follows the events."""

    def __init__(self, client: Client) -> None:
        self.seen = b""
        self._pieces = client.stream("events")
        self.seen = next(self._pieces)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for piece in self._pieces:
            self.seen += piece

    def saw_end_of(self, uid: str) -> bool:
        return any(
            event["kind"] == "JobFinished" and event["job"] == uid
            for event in (json.loads(line[6:]) for line in self.seen.split(b"\n") if line.startswith(b"data: {"))
        )


def new_token(up: Up, user: str, role: str) -> str:
    return str(connect(state=up.state).post("tokens", body={"user": user, "role": role})["secret"])


def test_clients_are_answered_while_hostile_ones_hold_all_connections(up: FewFiles) -> None:
    tokens = [new_token(up, f"mallory{number}", "viewer") for number in range(TOKENS)]
    own = connect(state=up.state)
    second = Client(Target(own.target.url, new_token(up, "bea", "admin"), "this test"))
    before = Listener(own)
    with ExitStack() as attacks:
        streams = attacks.enter_context(attack(up, STREAMS, *tokens))
        half_sent = [attacks.enter_context(attack(up, HALF_SENT // ATTACKERS)) for _ in range(ATTACKERS)]
        assert [line_of(each) for each in (streams, *half_sent)] == ["all are open\n"] * (1 + ATTACKERS)

        assert up.right("queue", "-o", "json").strip() == "[]"
        after = Listener(second)  # a stream, though all are taken: bea has fewer than each of the others
        uid = up.submit("--", "sh", "-c", "ulimit -Sn")
        assert up.run("wait", uid).code == 0
        assert up.right("logs", uid).strip() == str(JOB_FILES)  # what the service has more is not passed on
        until(lambda: before.saw_end_of(uid) and after.saw_end_of(uid), "both streams to show the end of the job")

        assert resource.prlimit(up.pid, resource.RLIMIT_NOFILE) == (FILES, FILES)
        open_files = len(os.listdir(f"/proc/{up.pid}/fd"))
        assert open_files < FILES - 256, "too few files are left for jobs and the database"
        shares = left_open(streams)
        assert min(shares) >= 20, "every token keeps its share of the streams"
        assert sum(shares) <= FILES // 4
        assert all(process.poll() is None for process in (streams, *half_sent))
