"""Messages: what is right comes through, what is not never does any harm."""

from __future__ import annotations

import json
import math
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from bench import SECRET, Bench
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwise.core.events import JobFinished, JobStarted
from gpuwise.live.local.attempts.folders import attempt_token
from gpuwise.live.local.attempts.messages import (
    MAX_A_POLL,
    MAX_BYTES,
    Message,
    MessageSocket,
    Notice,
    OtherProtocol,
    Progressed,
    parse,
)

TOKEN = attempt_token(SECRET, "17-3", 2)


def token_of(uid: str, number: int) -> str:
    return attempt_token(SECRET, uid, number)


def datagram(**content: Any) -> bytes:
    return json.dumps({"v": 1, "job": "17-3", "attempt": 2, "token": TOKEN, "rank": 0, **content}).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"kind": "progress", "step": 4, "steps": 10, "loss": 0.5, "samples_per_s": 9.5, "step_s": 1},
         Progressed("17-3", 2, 4.0, 10.0, 0.5, 9.5)),
        ({"kind": "progress", "step": 4}, Progressed("17-3", 2, 4.0, None, None, None)),
        ({"kind": "progress", "step": 4, "loss": "nan", "steps": [1]}, Progressed("17-3", 2, 4.0, None, None, None)),
        ({"kind": "saved", "step": 4, "seq": None}, None),  # as its files say
        ({"kind": "obeyed", "seq": 3}, Notice("17-3", 2, "obeyed", 3)),
        ({"kind": "started"}, Notice("17-3", 2, "started", 0)),
    ],
)  # fmt: skip
def test_messages(content: dict[str, Any], message: Message | None) -> None:
    assert parse(datagram(**content), token_of) == message


@pytest.mark.parametrize(
    "content",
    [
        {"kind": "news", "step": 1},
        {"kind": ["progress"], "step": 1},
        {"kind": "progress"},
        {"kind": "progress", "step": True},
        {"kind": "progress", "step": -1},
        {"kind": "progress", "step": "4"},
        {"kind": "progress", "step": 10**400},
        {"kind": "started", "token": TOKEN[:-1] + "x"},
        {"kind": "started", "token": ""},
        {"kind": "started", "token": "é" * 32},
        {"kind": "started", "token": None},
        {"kind": "started", "job": "17-4"},
        {"kind": "started", "job": "é"},
        {"kind": "started", "job": "x" * 65},
        {"kind": "started", "job": 17},
        {"kind": "started", "attempt": 3},
        {"kind": "started", "attempt": "2"},
        {"kind": "started", "attempt": 2.0},
        {"kind": "started", "attempt": True},
        {"kind": "started", "padding": "x" * MAX_BYTES},
    ],
)
def test_what_is_no_message(content: dict[str, Any]) -> None:
    assert parse(datagram(**content), token_of) is None


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 4000, b'{"v":1}', b"null", b"\xff\xfe", b'{"v":1,"step":NaN}'])
def test_what_is_no_json(data: bytes) -> None:
    assert parse(data, token_of) is None


ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(math.inf),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ("v", "job", "attempt", "token", "kind", "step", "steps", "loss", "samples_per_s", "can_suspend", "seq")


@settings(max_examples=400)
@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    assert parse(data, token_of) is None


@settings(max_examples=600)
@given(
    st.dictionaries(st.sampled_from(FIELDS), ANY_VALUE),
    st.sampled_from(["progress", "started", "obeyed"]),
)
def test_no_content_raises_and_every_number_is_finite(content: dict[str, Any], kind: str) -> None:
    message = parse(datagram(**{"kind": kind, **content}), token_of)
    if message is not None:
        assert (message.uid, message.attempt) == ("17-3", 2)
        numbers = [getattr(message, name, None) for name in ("step", "steps", "loss", "samples_per_s")]
        assert all(number is None or math.isfinite(number) for number in numbers)


def progressed(step: float) -> Progressed:
    return Progressed("17-3", 2, step, None, None, None)


def send(path: Path, *data: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for each in data:
            sender.sendto(each, socket.MSG_DONTWAIT, str(path))


def test_a_socket_takes_in_what_fits_and_drops_the_rest(tmp_path: Path) -> None:
    box = MessageSocket(tmp_path / "sdk.sock", token_of)
    try:
        assert box.take() == []
        send(
            box.path,
            b"garbage",
            datagram(kind="progress", step=1),
            b"x" * 50_000,
            b"",
            datagram(kind="progress", step=2),
        )
        assert box.take() == [progressed(1.0), progressed(2.0)]
        assert box.take() == []
    finally:
        box.close()
    assert not box.path.exists()


def test_a_flood_is_taken_in_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwise.live.local.attempts.messages.MAX_A_POLL", 3)
    box = MessageSocket(tmp_path / "sdk.sock", token_of)
    try:
        send(box.path, *(datagram(kind="progress", step=step) for step in range(5)))
        assert [message.step for message in box.take() if isinstance(message, Progressed)] == [0.0, 1.0, 2.0]
        assert [message.step for message in box.take() if isinstance(message, Progressed)] == [3.0, 4.0]
        assert MAX_A_POLL > 3
    finally:
        box.close()


def test_a_socket_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "sdk.sock"
    path.write_text("something else")
    old = MessageSocket(path, token_of)
    new = MessageSocket(path, token_of)
    send(path, datagram(kind="progress", step=1))
    assert new.take() == [progressed(1.0)]
    old.close()  # does not take away what is not its own
    send(path, datagram(kind="progress", step=2))
    assert new.take() == [progressed(2.0)]
    new.close()
    assert os.listdir(tmp_path) == []


def test_garbage_and_lies_do_not_disturb_the_executor(bench: Bench) -> None:
    row = bench.start("1", "sleep", "0.5")
    bench.expect(JobStarted, row)
    token = attempt_token(SECRET, "1", 1)
    true = {"v": 1, "job": "1", "attempt": 1, "token": token}
    lies = [
        {**true, "kind": "exited"}, {**true, "kind": "started"}, {**true, "kind": "obeyed", "seq": 2**62},
        {**true, "kind": "progress", "step": 1e300, "steps": 1e-300}, {**true, "job": "../../etc", "kind": "exited"},
    ]  # fmt: skip
    for lie in lies:
        send(bench.folder / "sdk.sock", json.dumps(lie).encode(), b"\0" * 100)
        bench.turn()
    bench.expect(JobFinished, row)


BEFORE = [
    '{"v": 1, "job": "17-3", "attempt": 2, "token": "%s", "rank": 0, "kind": "started", "seq": 0}',
    '{"v": 1, "job": "17-3", "attempt": 2, "token": "%s", "rank": 0, "kind": "hello", "can_suspend": true, "steps": 9}',
    '{"v": 1, "job": "17-3", "attempt": 2, "token": "%s", "rank": 0, "kind": "progress", "step": 3, "steps": 9, '
    '"loss": null, "samples_per_s": null, "step_s": 0.05}',
    '{"v": 1, "job": "17-3", "attempt": 2, "token": "%s", "rank": 0, "kind": "saved", "step": 4, "seq": 1}',
    '{"v": 1, "job": "17-3", "attempt": 2, "token": "%s", "rank": 0, "kind": "obeyed", "seq": 1}',
    '{"v": 1, "job": "17-3", "attempt": 2, "token": "%s", "rank": 0, "kind": "exited", "seq": 0}',
]
"""As supervisors and SDK of the version before send them."""


def test_messages_of_the_version_before_are_understood() -> None:
    assert [parse((line % TOKEN).encode(), token_of) for line in BEFORE] == [
        Notice("17-3", 2, "started", 0), None, Progressed("17-3", 2, 3.0, 9.0, None, None),
        None, Notice("17-3", 2, "obeyed", 1), Notice("17-3", 2, "exited", 0),
    ]  # fmt: skip


def test_another_protocol_is_refused_and_said_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    newer = datagram(kind="progress", step=4, v=2)
    assert parse(newer, token_of) == OtherProtocol("17-3", 2, "2")
    assert parse(newer.replace(TOKEN.encode(), b"0" * len(TOKEN)), token_of) is None  # unsigned, it does not count
    box = MessageSocket(tmp_path / "sdk.sock", token_of)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for _ in range(3):
            sender.sendto(newer, str(box.path))
    assert box.take() == []
    box.close()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("job 17-3, attempt 2: its messages are of protocol 2 and this service understands 1")
