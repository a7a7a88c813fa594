"""Connections that are slow, silent, too many or too large."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from pathlib import Path

import httpx
import pytest

from gpuwise.api.access import connections, middleware
from gpuwise.api.access.connection_limits import ConnectionLimits, Stage
from gpuwise.api.app import ApiSettings, create_app
from gpuwise.core.records import UserRole
from running import Person, Running, Server, wait_for

PATIENCE_S = 60.0
HALF = b"GET /v1/queue HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
def serve(running: Running) -> Iterator[Callable[..., Server]]:
    """Makes servers of the same service with limits of their own."""
    with ExitStack() as servers:

        def make(files: int = 1024, tls: ssl.SSLContext | None = None) -> Server:
            limits = ConnectionLimits(files)
            server = Server(create_app(running.service, ApiSettings(max_streams=limits.max_streams)), limits, tls)
            servers.callback(server.close)
            return server

        yield make


@contextmanager
def connected(server: Server, *pieces: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as connection:
        for piece in pieces:
            connection.sendall(piece)
        yield connection


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionError:
        pass
    return found


def status_of(connection: socket.socket) -> int:
    """The status of a response, which is read to its end."""
    response = HTTPResponse(connection)
    response.begin()
    response.read()
    return response.status


def request(running: Running, path: str, *headers: str, method: str = "GET", user: str = "bob") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {running.secrets[user]}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


# -- time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", HALF], ids=["silent", "half-sent"])
def test_a_request_that_does_not_come_is_not_waited_for(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 0.2)
    with connected(serve(), sent) as connection:
        assert rest_of(connection) == b""


def test_a_second_request_is_not_waited_for_either(
    running: Running, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    with connected(server) as connection:
        wait_for(lambda: len(server.limits) == 1, "the connection")
        monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 0.2)  # from the response on
        connection.sendall(request(running, "/v1/queue") + HALF)
        assert rest_of(connection).count(b"HTTP/1.1 ") == 1


def test_a_body_that_comes_in_drops_is_not_waited_for(
    running: Running, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "BODY_TIMEOUT_S", 0.5)
    head = request(running, "/v1/jobs", "Content-Type: application/json", "Content-Length: 100000", method="POST")
    over = threading.Event()
    with connected(serve(), head) as connection:

        def drip() -> None:
            try:
                while not over.wait(0.02):
                    connection.sendall(b" ")
            except OSError:
                pass

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")
        finally:
            over.set()
            dripping.join()


def test_a_client_that_does_not_read_is_given_up(
    running: Running, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALL_TIMEOUT_S", 0.5)
    server = serve()
    uid = running.bob.submit("sh", "-c", "yes | head -c 8000000; sleep 600")
    wait_for(lambda: running.bob.get(f"/v1/jobs/{uid}/logs").headers["X-Log-Size"] == "8000000", "its output")
    with socket.socket() as connection:
        connection.settimeout(PATIENCE_S)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(request(running, f"/v1/jobs/{uid}/logs?follow=true"))
        assert connection.recv(9) == b"HTTP/1.1 "
        wait_for(lambda: len(server.limits) == 0, "the connection to be given up", PATIENCE_S)
        assert len(rest_of(connection)) < 8_000_000
    running.bob.post(f"/v1/jobs/{uid}/cancel")


# -- size ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        HALF + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n",
        HALF + b"X-Endless: " + b"x" * 1_000_000,
        b"GET /" + b"x" * 1_000_000,
        HALF + b"".join(b"X-%d: 1\r\n" % number for number in range(1000)) + b"\r\n",
    ],
    ids=["a long header", "an endless header", "an endless URL", "many headers"],
)
def test_headers_that_are_too_large_are_refused(serve: Callable[..., Server], sent: bytes) -> None:
    server = serve()
    with connected(server) as connection:
        try:
            connection.sendall(sent)
            assert connection.recv(65536).startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 414 "))
        except ConnectionError:
            pass  # closed before all of it was sent, so that the answer is lost
    wait_for(lambda: len(server.limits) == 0, "the connection to be closed")


def test_an_endless_trailer_is_cut_off(
    running: Running, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_SENT_BODY_BYTES", 100_000)
    head = request(running, "/v1/jobs", "Content-Type: application/json", "Transfer-Encoding: chunked", method="POST")
    server = serve()
    with connected(server, head, b"2\r\n{}\r\n0\r\n") as connection, pytest.raises(ConnectionError):
        connection.sendall((b"X-More: " + b"x" * 10_000 + b"\r\n") * 10_000)
    wait_for(lambda: len(server.limits) == 0, "the connection to be closed")


def test_requests_that_do_not_wait_for_answers_are_limited(running: Running, serve: Callable[..., Server]) -> None:
    server = serve()
    few = request(running, "/v1/queue") * 10 + request(running, "/v1/queue", "Connection: close")
    with connected(server, few) as connection:
        assert rest_of(connection).count(b"HTTP/1.1 200 ") == 11
    with connected(server, request(running, "/v1/queue") * 1000) as connection:
        assert rest_of(connection).count(b"HTTP/1.1 200 ") <= connections.MAX_PIPELINED + 1


# -- number -------------------------------------------------------------------------------------------------------


def test_a_newcomer_is_answered_in_place_of_the_oldest_half_sent_request(
    running: Running, serve: Callable[..., Server]
) -> None:
    server = serve(files=16)
    with ExitStack() as held:
        half_sent = [held.enter_context(connected(server, HALF)) for _ in range(20)]
        answer = running.bob.get(f"{server.url}/v1/queue", headers={"Connection": "close"})
        assert answer.status_code == 200
        assert len(server.limits) <= 8
        assert rest_of(half_sent[0]) == b""


def test_a_user_with_fewer_streams_gets_one_of_the_user_with_most(
    running: Running, serve: Callable[..., Server]
) -> None:
    server = serve(files=16)  # 8 connections, 4 of them streams
    greedy, modest = (Person(running.client, running.token(name, UserRole.VIEWER)) for name in ("greedy", "modest"))
    url = f"{server.url}/v1/events"
    with ExitStack() as held:
        streams = [held.enter_context(greedy.stream(url)) for _ in range(4)]
        with greedy.stream(url) as refused:
            assert refused.status_code == 429
        for _ in range(2):
            assert held.enter_context(modest.stream(url)).status_code == 200
        with modest.stream(url) as refused:
            assert refused.status_code == 429
        for dropped in streams[:2]:
            with pytest.raises(httpx.RemoteProtocolError):  # not the end of a whole answer
                dropped.read()
        with greedy.stream(url) as refused:
            assert refused.status_code == 429


def test_a_user_with_one_stream_fewer_does_not_take_it_from_another(
    running: Running, serve: Callable[..., Server]
) -> None:
    server = serve(files=16)  # 8 connections, 4 of them streams
    names = [f"one{number}" for number in range(5)]
    *people, newcomer = (Person(running.client, running.token(name, UserRole.VIEWER)) for name in names)
    with ExitStack() as held:
        streams = [held.enter_context(person.stream(f"{server.url}/v1/events")) for person in people]
        with newcomer.stream(f"{server.url}/v1/events") as refused:
            assert refused.status_code == 429
        for stream in streams:
            assert next(stream.iter_lines()) == "retry: 1000"


def test_one_of_the_user_with_most_is_closed_whatever_their_tokens(
    running: Running, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", PATIENCE_S)  # none is closed for being idle
    server = serve(files=16)  # 8 connections
    for name, user in {"few": "few", "many": "many", "more": "many"}.items():
        monkeypatch.setitem(running.secrets, name, running.token(user, UserRole.VIEWER))
    names = ["few"] * 3 + ["many"] * 3 + ["more"] * 2
    with ExitStack() as held:
        idle = [held.enter_context(connected(server, request(running, "/v1/queue", user=name))) for name in names]
        assert [status_of(connection) for connection in idle] == [200] * 8
        held.enter_context(connected(server))
        assert rest_of(idle.pop(3)) == b""
        for name, connection in zip(names, idle[:3], strict=False):
            connection.sendall(request(running, "/v1/queue", user=name))
            assert status_of(connection) == 200


class Held:
    """A connection that is only counted."""

    def __init__(self, limits: ConnectionLimits, stage: Stage, key: str) -> None:
        self.dropped = False
        limits.enter(self, stage, key)

    def drop(self) -> None:
        self.dropped = True


def test_half_sent_requests_are_closed_first_those_of_the_busiest_address_before() -> None:
    limits = ConnectionLimits(files=16)
    alone = Held(limits, Stage.NEW, "10.0.0.1")
    many = [Held(limits, Stage.NEW, "10.0.0.2") for _ in range(4)]
    others = [Held(limits, stage, "token") for stage in (Stage.IDLE, Stage.AT_WORK, Stage.STREAM)]
    Held(limits, Stage.NEW, "10.0.0.3")
    assert [each.dropped for each in many] == [True, False, False, False]
    assert not any(each.dropped for each in (alone, *others))
    assert len(limits) == 8


def test_newcomers_keep_a_quarter_and_streams_are_not_closed() -> None:
    limits = ConnectionLimits(files=16)
    first, second = (Held(limits, Stage.NEW, "10.0.0.1") for _ in range(2))
    streams = [Held(limits, Stage.STREAM, "a") for _ in range(4)]
    idle, at_work = Held(limits, Stage.IDLE, "a"), Held(limits, Stage.AT_WORK, "a")
    Held(limits, Stage.AT_WORK, "b")
    assert (idle.dropped, at_work.dropped) == (True, False)
    Held(limits, Stage.AT_WORK, "a")
    assert at_work.dropped
    assert not any(each.dropped for each in (first, second, *streams))


def test_a_connection_that_is_gone_does_not_count() -> None:
    limits = ConnectionLimits(files=4)
    first, second = (Held(limits, Stage.NEW, "10.0.0.1") for _ in range(2))
    limits.leave(first)
    limits.leave(first)
    Held(limits, Stage.NEW, "10.0.0.1")
    assert (len(limits), second.dropped) == (2, False)


# -- TLS ----------------------------------------------------------------------------------------------------------


def test_tls_handshakes_count_too(
    running: Running,
    serve: Callable[..., Server],
    tls: ssl.SSLContext,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = serve(files=16, tls=tls)
    with ExitStack() as held:
        silent = [held.enter_context(connected(server)) for _ in range(20)]
        trusting = ssl.create_default_context(cafile=str(certificate[0]))
        with httpx.Client(verify=trusting, headers=running.bob.headers) as client:
            assert client.get(f"{server.url}/v1/queue").status_code == 200
            assert client.post(f"{server.url}/v1/jobs", json={"command": ["true"]}).status_code == 201
        assert len(server.limits) <= 8
        assert rest_of(silent[0]) == b""
    wait_for(lambda: len(server.limits) == 0, "all connections to be closed")
    with connected(server, b"this is not TLS\r\n\r\n") as connection:
        assert b"HTTP" not in rest_of(connection)
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 0.2)
    with connected(server) as connection:
        assert rest_of(connection) == b""
