"""How large a request may be, what every answer carries, and what happens when something breaks."""

from __future__ import annotations

import json
import logging
import socket
from concurrent.futures import Future
from typing import Any

import pytest

from gpuwise.api.access import middleware
from gpuwise.api.app import create_app
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.records import QueueRecord, StoreError
from gpuwise.live.inbox import BusyError, ClosedError, LimitError
from gpuwise.service.live import threads
from running import Running, Server, wait_for


def raw(running: Running, *pieces: bytes, patience_s: float = 10.0) -> bytes:
    """What the server answers to bytes that no well-behaved client would send."""
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=patience_s) as connection:
        answer = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
        except OSError:
            pass
        try:
            while part := connection.recv(65536):
                answer += part
                head, _, body = answer.partition(b"\r\n\r\n")
                if b"content-length" in head.lower() and body:
                    break
        except OSError:
            pass
        return answer


def head(running: Running, *more: str, method: str = "POST", path: str = "/v1/jobs") -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{running.server.port}",
        f"Authorization: Bearer {running.secrets['bob']}",
        "Content-Type: application/json",
        *more,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def test_a_body_that_says_it_is_too_large_is_not_read(running: Running) -> None:
    answer = raw(running, head(running, f"Content-Length: {middleware.MAX_BODY_BYTES + 1}"))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_large"


def test_a_body_that_goes_on_too_long_is_cut_off(running: Running) -> None:
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    answer = raw(running, head(running, "Transfer-Encoding: chunked"), *[piece] * 17, b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_body_of_just_the_limit_is_read(running: Running) -> None:
    body = b'{"command": ["x"], "gpus": 99}'
    answer = running.bob.call(
        "POST", "/v1/jobs", content=body.ljust(middleware.MAX_BODY_BYTES), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 409


def test_a_body_that_does_not_come_is_not_waited_for(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "BODY_TIMEOUT_S", 0.2)
    answer = raw(running, head(running, "Content-Length: 100"), b"{")
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_addresses_and_headers_have_their_limits(running: Running) -> None:
    assert running.bob.get("/v1/jobs?name=" + "x" * 9000).status_code == 414
    assert running.bob.get("/v1/jobs", headers={"X-Long": "x" * 17_000}).status_code == 431
    assert running.bob.get("/v1/jobs/%0d%0a").status_code == 400


def test_what_is_no_http_is_refused(running: Running) -> None:
    assert raw(running, b"\0\1\2\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert running.bob.get("/v1/health").status_code == 200


@pytest.mark.parametrize("path", ["/", "/v1/health", "/v1/jobs", "/v1/nothing", "/openapi.json", "/nothing"])
def test_every_answer_is_guarded(running: Running, path: str) -> None:
    headers = running.bob.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cache-Control"] == ("no-cache" if path == "/" else "no-store")
    assert "Access-Control-Allow-Origin" not in headers


def test_docs_from_elsewhere_are_not_served(running: Running) -> None:
    assert [running.bob.get(path).status_code for path in ("/docs", "/redoc", "/docs/oauth2-redirect")] == [404] * 3


def test_wrong_methods_are_told(running: Running) -> None:
    answer = running.bob.delete("/v1/jobs")
    assert answer.status_code == 405
    assert answer.json()["error"]["code"] == "method_not_allowed"
    assert set(answer.headers["Allow"].replace(" ", "").split(",")) & {"GET", "POST"}


# -- when something breaks ----------------------------------------------------------------------------------------


def failing(error: Exception) -> Any:
    def fail(*given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(error)
        return future

    return fail


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (LimitError("bob has 5 jobs"), 429, "too_many_requests"),
        (BusyError("10000 requests wait"), 503, "unavailable"),
        (ClosedError("shutting down"), 503, "unavailable"),
        (StoreError("the disk is full"), 503, "unavailable"),
        (GpuwiseError("inside the controller"), 500, "internal"),
        (QueueFullError := type("QueueFullError", (GpuwiseError,), {})("full"), 409, "conflict"),
    ],
)
def test_what_the_controller_refuses_has_its_status(
    running: Running, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    monkeypatch.setattr(running.controller, "submit", failing(error))
    answer = running.bob.post("/v1/jobs", {"command": ["true"]})
    assert answer.status_code == status
    assert answer.json() == {"error": {"code": code, "message": str(error)}}
    assert ("Retry-After" in answer.headers) == (status in (429, 503))


def test_a_store_that_cannot_be_read_is_told(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise StoreError("the disk has failed")

    monkeypatch.setattr(running.deployment.store, "jobs", fail)
    answer = running.bob.get("/v1/jobs")
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "the disk has failed")


def test_a_crash_tells_nothing_and_is_logged(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running.controller, "submit", failing(ZeroDivisionError("the secret is 42")))
    answer = running.bob.post("/v1/jobs", {"command": ["true"]})
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal"
    assert "42" not in answer.text
    assert "ZeroDivision" not in answer.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    (crash,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert crash.name == "gpuwise.api"
    assert crash.exc_info is not None
    assert running.bob.get("/v1/health").status_code == 200


def test_a_controller_that_does_not_answer_is_not_waited_for(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads.result_of, "__defaults__", (0.1,))
    monkeypatch.setattr(running.controller, "submit", lambda *given: Future())
    answer = running.bob.post("/v1/jobs", {"command": ["true"]})
    assert answer.status_code == 503
    assert "may still be carried out" in answer.text


def test_health_tells_of_trouble_but_not_which(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    assert running.nobody.get("/v1/health").json() == {"status": "ok"}
    monkeypatch.setattr(type(running.controller), "trouble", "the disk is full")
    answer = running.nobody.get("/v1/health")
    assert answer.status_code == 503
    assert "disk" not in answer.text
    assert running.bob.get("/v1/status").json()["trouble"] == "the disk is full"


def test_health_tells_of_a_controller_that_does_not_answer(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwise.service.live.overview.HEALTH_TIMEOUT_S", 0.05)
    monkeypatch.setattr(running.controller, "ask", lambda question: Future())
    wait_for(lambda: running.nobody.get("/v1/health").status_code == 503, "the health to be checked again")


def test_too_many_jobs_of_one_user_are_refused(own_running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    own_running.controller.set_queue(QueueRecord(name="small", max_jobs=1)).result(10)
    assert own_running.bob.post("/v1/jobs", {"command": ["sleep", "60"], "queue": "small"}).status_code == 201
    answer = own_running.bob.post("/v1/jobs", {"command": ["sleep", "60"], "queue": "small"})
    assert answer.status_code == 409
    assert "'small' may have 1 jobs" in answer.text


def test_streams_end_when_the_service_does(own_running: Running) -> None:
    server = Server(create_app(own_running.service))
    uid = own_running.bob.submit("sleep", "60")
    with (
        own_running.bob.stream(f"{server.url}/v1/events") as events,
        own_running.bob.stream(f"{server.url}/v1/jobs/{uid}/logs?follow=true") as log,
    ):
        own_running.service.feed.close()
        assert events.read().startswith(b"retry: ")
        assert log.read() == b""
    server.close()
