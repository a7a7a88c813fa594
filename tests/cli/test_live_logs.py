"""Logs are shown whole, from the right line on, and go on where they were when a connection breaks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from live_scripted import TOKEN, chunked, job, reply, scripted

from gpuwise.cli.client import http as patience
from gpuwise.cli.client.http import Client
from gpuwise.cli.client.target import Target
from gpuwise.cli.live import logs


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_S", 0.01)
    monkeypatch.setattr(logs, "PIECE_BYTES", 64)  # the search for lines begins with 4 bytes
    monkeypatch.setattr(logs, "MOST_BYTES", 4096)


def test_a_log_that_breaks_off_goes_on_where_it_was(small_pieces: None, capsysbinary: Any) -> None:
    ended = reply(job(status="succeeded"))
    cut, rest = chunked([b"one\n", b"tw"], whole=False), chunked([b"o\n"])
    with scripted(cut, rest, reply(job()), chunked([b"three\n"]), ended) as server:
        logs.follow_log(lambda: Client(Target(server.url, TOKEN, "")), "17")
    assert capsysbinary.readouterr().out == b"one\ntwo\nthree\n"
    offsets = [asked.path.partition("?")[2] for asked in server.asked if "logs" in asked.path]
    assert offsets == [f"offset={offset}&follow=true" for offset in (0, 6, 8)]  # a stream may end before its job


class LogOnly:
    """A client of a server that has one log."""

    def __init__(self, log: bytes) -> None:
        self.log = log

    def read(self, *path: str, query: dict[str, int]) -> tuple[bytes, dict[str, str]]:
        start = query["offset"] if query["offset"] >= 0 else max(0, len(self.log) + query["offset"])
        data = self.log[start : start + query["limit"]]
        return data, {"X-Log-Start": str(start), "X-Log-Size": str(len(self.log))}


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=st.text("ab\n", max_size=60).map(str.encode), tail=st.integers(0, 9))
def test_the_last_lines_of_a_log(log: bytes, tail: int, small_pieces: None) -> None:
    client: Any = LogOnly(log)
    lines = log.splitlines(keepends=True)
    assert log[logs.last_lines(client, "17", tail) :] == b"".join(
        lines[len(lines) - tail if tail < len(lines) else 0 :]
    )


def test_a_long_log_is_copied_piece_by_piece(small_pieces: None, capsysbinary: Any) -> None:
    client: Any = LogOnly(b"0123456789" * 100)
    logs.copy(client, "17")
    assert capsysbinary.readouterr().out == b"0123456789" * 100


def test_the_end_of_a_line_of_twenty_megabytes_is_found_in_small_pieces() -> None:
    asked: list[int] = []

    class Bounded(LogOnly):
        def read(self, *path: str, query: dict[str, int]) -> tuple[bytes, dict[str, str]]:
            assert query["limit"] <= 8 << 20  # what the server gives at most
            asked.append(query["limit"])
            return super().read(*path, query=query)

    line = b"x" * (20 << 20)
    client: Any = Bounded(b"first\n" + line)
    begin = logs.last_lines(client, "17", 1)
    assert len(client.log) - begin <= logs.MOST_BYTES
    assert max(asked) <= logs.PIECE_BYTES  # no more than this is in memory
    assert sum(asked) <= logs.MOST_BYTES
    client = Bounded(line + b"\nlast\n")
    assert client.log[logs.last_lines(client, "17", 1) :] == b"last\n"
