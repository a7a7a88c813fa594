"""What the command line makes of servers that refuse, fail, stall, break off, or are none."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from live_scripted import SILENCE, TOKEN, chunked, job, refused, reply, scripted

from gpuwise.cli.client import http as module
from gpuwise.cli.client.errors import (
    BrokenError,
    LiveError,
    NoSuchJobError,
    NotPermittedError,
    UnreachableError,
)
from gpuwise.cli.client.http import Client
from gpuwise.cli.client.target import Target

CUT_OFF = b"HTTP/1.1 200 Said\r\nContent-Length: 100\r\n\r\n{"
JOBS = reply({"jobs": [job()]})


def client(url: str, timeout_s: float = 5.0, ca: Path | None = None) -> Client:
    return Client(Target(url, TOKEN, "STATE/token", ca), timeout_s)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "BACKOFF_S", 0.005)


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_request_carries_the_token_and_what_is_asked() -> None:
    with scripted(JOBS) as server:
        answer = client(server.url).get("jobs", query={"uids": "17,18", "status": "", "before": None, "limit": 5})
    (asked,) = server.asked
    assert answer["jobs"][0]["id"] == "17"
    assert (asked.method, asked.path) == ("GET", "/v1/jobs?uids=17%2C18&limit=5")
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert asked.body == b""


def test_a_body_is_json_and_names_in_paths_are_quoted() -> None:
    with scripted(reply({"name": "a/b c"})) as server:
        client(server.url).put("queues", "a/b c", body={"weight": 2.0})
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("PUT", "/v1/queues/a%2Fb%20c")
    assert (asked.json, asked.headers["content-type"]) == ({"weight": 2.0}, "application/json")


def test_a_server_below_a_path() -> None:
    with scripted(JOBS) as server:
        client(server.url + "/gpus").get("queue")
    assert server.asked[0].path == "/gpus/v1/queue"


def test_an_answer_may_be_empty() -> None:
    with scripted(reply(None, 204)) as server:
        assert client(server.url).delete("queues", "a") is None


# -- refusals ----------------------------------------------------------------------------------------------------------

REFUSALS = {
    400: (LiveError, "what is wrong"),
    401: (NotPermittedError, "what is wrong; it came from STATE/token; an admin makes a new one"),
    403: (NotPermittedError, "what is wrong; an admin can"),
    404: (NoSuchJobError, "what is wrong"),
    409: (LiveError, "what is wrong"),
    413: (LiveError, "what is wrong; shorten the command"),
    422: (LiveError, "what is wrong"),
    429: (LiveError, "what is wrong"),
    500: (UnreachableError, "what is wrong; see the controller log"),
    503: (UnreachableError, "what is wrong; try again in 7 s"),
}


@pytest.mark.parametrize("status", REFUSALS)
def test_a_refusal_says_what_is_wrong_and_what_to_do(status: int) -> None:
    kind, told = REFUSALS[status]
    with scripted(refused(status, "what is wrong", Retry_After="7")) as server, pytest.raises(LiveError) as caught:
        client(server.url).post("jobs", "17", "cancel")
    assert type(caught.value) is kind
    assert str(caught.value).startswith(told)
    assert len(server.asked) == 1  # not sent again: it might be done twice


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503])
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error": 5}', b'{"error": {"message": 5}}'])
def test_a_refusal_without_a_word_still_has_one(status: int, body: bytes) -> None:
    with scripted(reply(body, status)) as server, pytest.raises(LiveError) as caught:
        client(server.url).post("jobs", "17", "cancel")
    told = str(caught.value)
    assert len(told) > 20
    assert "\n" not in told
    assert caught.value.exit_code == {401: 4, 403: 4, 500: 3, 502: 3, 503: 3}.get(status, 2)


def test_exit_codes_of_refusals() -> None:
    assert {kind.exit_code for kind, _ in REFUSALS.values()} == {2, 3, 4, 5}


def test_a_path_that_is_not_there_is_no_missing_job() -> None:
    with scripted(refused(404, "there is no token 'x'")) as server, pytest.raises(LiveError) as caught:
        client(server.url).delete("tokens", "x")
    assert type(caught.value) is LiveError


def test_a_redirection_is_not_followed_with_the_token() -> None:
    with (
        scripted(JOBS) as other,
        scripted(reply(None, 307, Location=other.url)) as server,
        pytest.raises(LiveError, match=f"sends us to {other.url}; give that as --server"),
    ):
        client(server.url).get("queue")
    assert other.asked == []


# -- servers that fail -------------------------------------------------------------------------------------------------


def test_no_server() -> None:
    with scripted(JOBS) as server:
        url = server.url
    with pytest.raises(UnreachableError, match=rf"no server answers at {url}; start it with: gpuwise up"):
        client(url).get("queue")


@pytest.mark.parametrize("broken", [b"", CUT_OFF, b"HTTP/1.1 200 OK\r\nContent-Le"], ids=["closed", "cut", "headers"])
def test_a_broken_connection_is_tried_again(broken: bytes) -> None:
    with scripted(broken, broken, JOBS) as server:
        assert client(server.url).get("queue")["jobs"]
    assert len(server.asked) == 3


def test_a_submission_is_sent_again_under_the_same_key() -> None:
    with scripted(
        b"", refused(503, "busy", Retry_After="3"), refused(429, "often"), reply({"jobs": []}, 201)
    ) as server:
        client(server.url).post("jobs", body={"command": ["true"]}, key="k1")
    assert [asked.headers["idempotency-key"] for asked in server.asked] == ["k1"] * 4
    assert {asked.body for asked in server.asked} == {b'{"command": ["true"]}'}


def test_a_submission_whose_server_died_is_unsure() -> None:
    with scripted(b"") as server, pytest.raises(BrokenError, match="look with gpuwise queue whether it was done"):
        client(server.url).post("jobs", body={"command": ["true"]}, key="k1")
    assert len(server.asked) == 4


def test_what_is_not_safe_is_sent_once() -> None:
    with (
        scripted(b"", JOBS) as server,
        pytest.raises(BrokenError, match=f"the connection to {server.url} broke; look with gpuwise queue"),
    ):
        client(server.url).post("jobs", "17", "cancel")
    assert len(server.asked) == 1


def test_a_server_that_always_breaks_is_given_up() -> None:
    with scripted(b"") as server, pytest.raises(BrokenError):
        client(server.url).get("queue")
    assert len(server.asked) == 4


def test_a_server_that_does_not_answer() -> None:
    with scripted(SILENCE) as server, pytest.raises(BrokenError, match=r"did not answer within 0.1 s"):
        client(server.url, timeout_s=0.1).post("jobs", "17", "cancel")


def test_a_refusal_is_not_tried_again() -> None:
    with scripted(refused(422, "wrong")) as server, pytest.raises(LiveError, match="wrong"):
        client(server.url).get("queue")
    assert len(server.asked) == 1


@pytest.mark.parametrize("said", [b"hello\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"], ids=["prose", "ssh"])
def test_what_is_no_web_server(said: bytes) -> None:
    with scripted(said) as server, pytest.raises(LiveError) as caught:
        client(server.url).get("queue")
    assert server.url in str(caught.value)


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[]", b"5", b"\xff"])
def test_what_is_a_web_server_but_not_ours(body: bytes) -> None:
    with scripted(reply(body)) as server, pytest.raises(LiveError, match="does not answer as a gpuwise server does"):
        client(server.url).get("queue")


def test_an_answer_that_lacks_something() -> None:
    with scripted(reply({"jobs": [{"id": "17"}]})) as server:
        answer = client(server.url).get("queue")
    with pytest.raises(LiveError, match="no 'status'; is it a gpuwise server, as new as this command"):
        answer["jobs"][0]["status"]
    with pytest.raises(LiveError, match="no 'nodes'"):
        answer["nodes"]


def test_a_host_that_is_not_known() -> None:
    with pytest.raises(UnreachableError, match=r"https://nowhere\.invalid: the host is not known"):
        client("https://nowhere.invalid").get("queue")


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_comes_in_pieces() -> None:
    with scripted(chunked([b"one\n", b"two\n"])) as server:
        assert b"".join(client(server.url).stream("jobs", "17", "logs", query={"follow": True})) == b"one\ntwo\n"
    assert server.asked[0].path == "/v1/jobs/17/logs?follow=true"


def test_a_stream_that_breaks_off_says_so_after_what_came() -> None:
    with scripted(chunked([b"one\n"], whole=False)) as server:
        stream = client(server.url).stream("jobs", "17", "logs")
        assert next(stream) == b"one\n"
        with pytest.raises(BrokenError):
            next(stream)


def test_a_stream_is_refused_before_it_is_read() -> None:
    with scripted(refused(404, "there is no job '17'")) as server, pytest.raises(NoSuchJobError):
        client(server.url).stream("jobs", "17", "logs")


# -- TLS ---------------------------------------------------------------------------------------------------------------


def test_a_certificate_of_an_authority_that_is_named(tls: ssl.SSLContext, certificate: tuple[Path, Path]) -> None:
    with scripted(JOBS, tls=tls) as server:
        assert client(server.url, ca=certificate[0]).get("queue")["jobs"]
    assert server.asked[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_certificate_that_is_not_trusted(tls: ssl.SSLContext) -> None:
    with (
        scripted(JOBS, tls=tls) as server,
        pytest.raises(UnreachableError, match=r"its certificate is not trusted .* GPUWISE_CA"),
    ):
        client(server.url).get("queue")
    assert server.asked == []


def test_a_server_that_does_not_speak_tls() -> None:
    with scripted(JOBS) as server, pytest.raises(UnreachableError, match="TLS"):
        client(server.url.replace("http:", "https:")).get("queue")


@pytest.mark.parametrize("content", [None, "not a certificate"])
def test_an_authority_that_is_none(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "ca.pem").write_text(content)
    with pytest.raises(LiveError, match=r"GPUWISE_CA: .*ca\.pem: .*; it must be a PEM file"):
        client("https://127.0.0.1:1", ca=tmp_path / "ca.pem").get("queue")
