"""Tokens, sessions of the page, and requests that come from elsewhere."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from gpuwise.api.access.authentication import Rates
from gpuwise.api.access.limits import Rate
from gpuwise.api.app import ApiSettings, create_app
from gpuwise.core.records import UserRole
from running import Person, Running, Server, wait_for


def test_tokens_are_made_listed_and_revoked(running: Running) -> None:
    answer = running.ada.post("/v1/tokens", {"user": "dee", "role": "viewer", "expires_in_s": 3600})
    assert answer.status_code == 201
    made = answer.json()
    dee = Person(running.client, made["secret"])
    assert dee.get("/v1/status").json()["user"] == "dee"
    assert made["expires_at"] - made["created_at"] == pytest.approx(3600)
    listed = running.ada.get("/v1/tokens").json()["tokens"]
    (entry,) = [each for each in listed if each["id"] == made["id"]]
    assert entry == {name: value for name, value in made.items() if name != "secret"}
    assert running.ada.delete(f"/v1/tokens/{made['id']}").json()["revoked_at"] is not None
    assert dee.get("/v1/status").status_code == 401
    assert running.ada.delete(f"/v1/tokens/{made['id']}").status_code == 200
    assert running.ada.delete("/v1/tokens/abcdef").status_code == 404
    done = [(action, target, outcome) for _, action, target, outcome in running.audit(5)]
    assert ("add viewer token", "dee", "ok") in done
    assert ("revoke token", made["id"], "ok") in done


def test_a_secret_is_not_kept(running: Running) -> None:
    made = running.ada.post("/v1/tokens", {"user": "dee"}).json()
    kept = b"".join(path.read_bytes() for path in running.deployment.folder.path.glob("gpuwise.db*"))
    assert made["id"].encode() in kept
    assert made["secret"].encode() not in kept


def test_a_token_expires(running: Running) -> None:
    brief = Person(running.client, running.token("brief", UserRole.USER, expires_in_s=0.3))
    wait_for(lambda: brief.get("/v1/status").status_code == 401, "the token to expire")
    assert "this token expired at 20" in brief.get("/v1/status").text


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"user": ""},
        {"user": "a b"},
        {"user": "a\n"},
        {"user": "x" * 65},
        {"user": "dee", "role": "root"},
        {"user": "dee", "role": None},
        {"user": "dee", "expires_in_s": 0},
        {"user": "dee", "expires_in_s": 1e300},
        {"user": "dee", "admin": True},
    ],
)
def test_wrong_tokens_are_not_made(running: Running, body: dict[str, Any]) -> None:
    assert running.ada.post("/v1/tokens", body).status_code == 422


def test_the_last_administrator_stays(own_running: Running) -> None:
    tokens = own_running.ada.get("/v1/tokens").json()["tokens"]
    admins = [each["id"] for each in tokens if each["role"] == "admin"]
    own = next(each["id"] for each in tokens if each["user"] == "ada")
    for other in admins:
        if other != own:
            assert own_running.ada.delete(f"/v1/tokens/{other}").status_code == 200
    answer = own_running.ada.delete(f"/v1/tokens/{own}")
    assert answer.status_code == 409
    assert "last token of an administrator" in answer.text


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer x", "Basic YWRhOmFkYQ==", "Token {secret}", "{secret}", "Bearer {secret}x", "bearer"],
)
def test_what_is_no_token_is_refused(running: Running, header: str) -> None:
    shown = header.format(secret=running.secrets["bob"])
    answer = running.client.get("/v1/jobs", headers={"Authorization": shown})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="gpuwise"'


def test_the_word_bearer_may_be_written_as_one_likes(running: Running) -> None:
    assert (
        running.client.get("/v1/jobs", headers={"Authorization": f"bEARER  {running.secrets['bob']}"}).status_code
        == 200
    )


def test_a_token_in_the_address_is_no_token(running: Running) -> None:
    assert running.client.get(f"/v1/jobs?token={running.secrets['ada']}").status_code == 401


# -- rotation -------------------------------------------------------------------------------------------------------


def test_users_see_and_rotate_their_own_tokens(running: Running) -> None:
    dora = Person(running.client, running.token("dora", UserRole.USER, expires_in_s=3600))
    (own,) = dora.get("/v1/tokens").json()["tokens"]
    made = dora.post(f"/v1/tokens/{own['id']}/rotate", {}).json()
    assert (made["user"], made["role"], made["expires_at"]) == ("dora", "user", own["expires_at"])
    assert made["id"] != own["id"]
    answer = dora.get("/v1/status")
    assert (answer.status_code, "was revoked" in answer.text) == (401, True)
    again = Person(running.client, made["secret"])
    assert again.get("/v1/status").json()["user"] == "dora"
    assert {each["user"] for each in again.get("/v1/tokens").json()["tokens"]} == {"dora"}
    assert again.post(f"/v1/tokens/{own['id']}/rotate", {}).status_code == 409
    assert again.post(f"/v1/tokens/{made['id']}/rotate", {"expires_in_s": 7200}).status_code == 403
    for other in running.ada.get("/v1/tokens").json()["tokens"]:
        if other["user"] != "dora":
            assert again.post(f"/v1/tokens/{other['id']}/rotate", {}).status_code == 404
    assert ("dora", "rotate token", own["id"], "ok") in running.audit(50)


def test_a_token_that_is_rotated_with_grace_stays_valid_for_a_while(running: Running) -> None:
    dee = Person(running.client, running.token("dana", UserRole.VIEWER))
    (own,) = dee.get("/v1/tokens").json()["tokens"]
    made = running.ada.post(f"/v1/tokens/{own['id']}/rotate", {"grace_s": 3600, "expires_in_s": 7200}).json()
    assert made["expires_at"] - made["created_at"] == pytest.approx(7200)
    assert dee.get("/v1/status").status_code == 200
    (old,) = [each for each in running.ada.get("/v1/tokens").json()["tokens"] if each["id"] == own["id"]]
    assert old["revoked_at"] - made["created_at"] == pytest.approx(3600, abs=600)  # its end: tests/service
    assert Person(running.client, made["secret"]).get("/v1/status").json()["role"] == "viewer"


@pytest.mark.parametrize("body", [{"grace_s": -1}, {"grace_s": 1e9}, {"expires_in_s": 0}, {"expires": 1}])
def test_wrong_rotations_are_refused(running: Running, body: dict[str, Any]) -> None:
    own = running.bob.get("/v1/tokens").json()["tokens"][0]["id"]
    assert running.bob.post(f"/v1/tokens/{own}/rotate", body).status_code == 422


def test_the_owners_token_in_the_state_folder_is_rotated_too(own_running: Running) -> None:
    owner = Person(own_running.client, own_running.deployment.token)
    user = owner.get("/v1/status").json()["user"]
    (own,) = [each["id"] for each in owner.get("/v1/tokens").json()["tokens"] if each["user"] == user]
    made = owner.post(f"/v1/tokens/{own}/rotate", {}).json()
    kept = own_running.deployment.folder.path / "token"
    assert kept.read_text() == made["secret"] + "\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert own_running.deployment.token == made["secret"]
    again = Person(own_running.client, made["secret"])
    other = own_running.bob.get("/v1/tokens").json()["tokens"][0]["id"]
    assert again.post(f"/v1/tokens/{other}/rotate", {}).status_code == 201
    assert kept.read_text() == made["secret"] + "\n"


# -- sessions of the page --------------------------------------------------------------------------------------------


def log_in(running: Running, name: str = "bob") -> Person:
    answer = running.nobody.post("/v1/session", {"token": running.secrets[name]})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["user"] == name
    assert found["role"] == str(running.service.access.by_token(running.secrets[name]).role)
    assert running.secrets[name] not in answer.text
    assert "set-cookie" not in answer.headers
    return Person(running.client, found["secret"])


def test_a_session_acts_for_its_user_until_it_is_logged_out(running: Running) -> None:
    page = log_in(running)
    uid = page.submit("sleep", "60")
    assert page.job(uid)["user"] == "bob"
    assert page.post(f"/v1/jobs/{uid}/cancel").status_code == 200
    other = log_in(running)
    assert page.delete("/v1/session").status_code == 204
    answer = page.get("/v1/status")
    assert (answer.status_code, "log in again" in answer.text) == (401, True)
    assert page.delete("/v1/session").status_code == 401
    assert other.get("/v1/status").status_code == 200
    done = [(user, action) for user, action, _, _ in running.audit(20)]
    assert {("bob", "log in"), ("bob", "log out")} <= set(done)


@pytest.mark.parametrize("end", ["log out", "revoke", "rotate"])
def test_the_end_of_a_session_ends_its_streams(running: Running, end: str) -> None:
    made = running.ada.post("/v1/tokens", {"user": "dee"}).json()
    secret = running.nobody.post("/v1/session", {"token": made["secret"]}).json()["secret"]
    page = Person(running.client, secret)
    uid = page.submit("sh", "-c", "echo begun; sleep 60")
    with page.stream("/v1/events") as events, page.stream(f"/v1/jobs/{uid}/logs?follow=true") as log:
        received, lines = events.iter_bytes(), log.iter_bytes()
        next(received)
        assert next(lines) == b"begun\n"
        if end == "log out":
            assert page.delete("/v1/session").status_code == 204
        elif end == "revoke":
            assert running.ada.delete(f"/v1/tokens/{made['id']}").status_code == 200
        else:
            assert running.ada.post(f"/v1/tokens/{made['id']}/rotate", {}).status_code == 201
        assert b"".join(lines) == b""
        assert all(b"data:" in each or each.startswith(b":") for each in received)  # it ends
    assert page.get("/v1/status").status_code == 401
    assert running.ada.post(f"/v1/jobs/{uid}/cancel").status_code == 200


def test_a_code_logs_in_once(running: Running) -> None:
    made = running.bob.post("/v1/session/code")
    assert made.status_code == 201
    code = made.json()["code"]
    answer = running.nobody.post("/v1/session", {"code": code})
    assert answer.json()["user"] == "bob"
    assert Person(running.client, answer.json()["secret"]).get("/v1/status").json()["user"] == "bob"
    again = running.nobody.post("/v1/session", {"code": code})
    assert (again.status_code, "gpuwise page" in again.text) == (401, True)
    assert Person(running.client, code).get("/v1/status").status_code == 401


def test_a_code_that_many_send_at_once_logs_in_one_of_them(running: Running) -> None:
    code = running.bob.post("/v1/session/code").json()["code"]
    with ThreadPoolExecutor(8) as senders:
        sent = [senders.submit(httpx.post, f"{running.url}/v1/session", json={"code": code}) for _ in range(8)]
    assert sorted(each.result().status_code for each in sent) == [200] + 7 * [401]


def test_a_code_ends_with_its_token(running: Running) -> None:
    made = running.ada.post("/v1/tokens", {"user": "dee"}).json()
    code = Person(running.client, made["secret"]).post("/v1/session/code").json()["code"]
    running.ada.delete(f"/v1/tokens/{made['id']}")
    assert running.nobody.post("/v1/session", {"code": code}).status_code == 401


def test_a_session_is_no_way_to_more_than_itself(running: Running) -> None:
    page = log_in(running)
    secret = page.headers["Authorization"].removeprefix("Bearer ")
    own = page.get("/v1/tokens").json()["tokens"][0]["id"]
    assert page.post("/v1/session/code").status_code == 403
    assert page.post(f"/v1/tokens/{own}/rotate", {}).status_code == 403
    for body in ({"token": secret}, {"code": secret}):
        assert running.nobody.post("/v1/session", body).status_code == 401
    assert running.bob.delete("/v1/session").status_code == 422  # a token is not logged out


def test_an_administrators_session_makes_no_token(running: Running) -> None:
    page = log_in(running, "ada")
    before = running.ada.get("/v1/tokens").json()
    answer = page.post("/v1/tokens", {"user": "ada", "role": "admin"})
    assert (answer.status_code, "a page cannot make tokens; use a token" in answer.text) == (403, True)
    assert running.ada.get("/v1/tokens").json() == before
    assert ("ada", "add admin token", "ada") in [entry[:3] for entry in running.audit(5)]


@pytest.mark.parametrize("body", [{}, {"token": "x", "code": "y"}, {"token": None}, {"token": 1}, {"secret": "x"}])
def test_a_log_in_needs_a_token_or_a_code(running: Running, body: dict[str, Any]) -> None:
    assert running.nobody.post("/v1/session", body).status_code == 422


@pytest.mark.parametrize("name", ["gpuwise_session", "gpuwise_session_{port}", "session", "token", "Authorization"])
def test_nothing_in_a_cookie_logs_in(running: Running, name: str) -> None:
    page = log_in(running)
    name = name.format(port=running.server.port)
    for secret in (running.secrets["bob"], page.headers["Authorization"].removeprefix("Bearer ")):
        answer = running.client.get("/v1/status", headers={"Cookie": f"{name}={secret}"})
        assert answer.status_code == 401


def test_a_session_ends_by_itself(own_running: Running) -> None:
    expires_at = own_running.nobody.post("/v1/session", {"token": own_running.secrets["bob"]}).json()["expires_at"]
    assert expires_at - time.time() == pytest.approx(24 * 3600, abs=600)
    brief = own_running.token("brief", UserRole.USER, expires_in_s=5)
    expires_at = own_running.nobody.post("/v1/session", {"token": brief}).json()["expires_at"]
    assert expires_at <= time.time() + 5  # no longer than its token


# -- whom a request is for ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "", "localhost.evil"]
)
def test_other_names_for_this_server_are_refused(running: Running, host: str) -> None:
    for path in ("/v1/jobs", "/v1/health", "/"):
        answer = running.bob.get(path, headers={"Host": host.format(port=running.server.port)})
        assert answer.status_code == 400
        assert "is not called" in answer.text
        assert "--allow-host" in answer.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8787", "192.168.7.7:8787"])
def test_its_own_names_and_addresses_are_not(running: Running, host: str) -> None:
    assert running.bob.get("/v1/health", headers={"Host": host}).status_code == 200


def test_a_name_can_be_allowed(running: Running) -> None:
    server = Server(create_app(running.service, ApiSettings(hosts=frozenset({"GPUs.example"}))))
    try:
        answer = httpx.get(f"{server.url}/v1/health", headers={"Host": "gpus.example"})
        assert answer.status_code == 200
    finally:
        server.close()


# -- guesses ------------------------------------------------------------------------------------------------------


def test_guesses_must_wait_and_others_need_not(running: Running) -> None:
    rates = Rates(failures=Rate(per_s=0.1, burst=3))
    server = Server(create_app(running.service, ApiSettings(rates=rates)))
    try:
        with httpx.Client(base_url=server.url) as client:
            guesser, bob = Person(client, "guess"), Person(client, running.secrets["bob"])
            assert [guesser.get("/v1/jobs").status_code for _ in range(5)] == [401, 401, 401, 429, 429]
            answer = guesser.post("/v1/session", {"token": "another guess"})
            assert answer.status_code == 429
            assert 1 <= int(answer.headers["Retry-After"]) <= 10
            assert bob.get("/v1/jobs").status_code == 200
            assert Person(client, None).get("/v1/jobs").status_code == 401  # a page must see that it is logged out
        logged = [outcome for _, _, _, outcome in running.audit(10)]
        assert len([each for each in logged if "this token is not known" in each]) == 3
    finally:
        server.close()


def test_a_user_has_only_so_many_requests_with_all_tokens(running: Running) -> None:
    rates = Rates(requests=Rate(per_s=0.1, burst=3))
    server = Server(create_app(running.service, ApiSettings(rates=rates)))
    try:
        with httpx.Client(base_url=server.url) as client:
            bob, cy = (Person(client, running.secrets[name]) for name in ("bob", "cy"))
            again = Person(client, running.token("bob", UserRole.VIEWER))
            assert [bob.get("/v1/jobs").status_code for _ in range(4)] == [200, 200, 200, 429]
            assert int(bob.get("/v1/jobs").headers["Retry-After"]) >= 1
            assert again.get("/v1/jobs").status_code == 429
            assert cy.get("/v1/jobs").status_code == 200
    finally:
        server.close()


def test_no_secret_is_logged(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    secrets = [running.secrets["bob"]]
    with caplog.at_level(logging.DEBUG):
        page = log_in(running)
        code = running.bob.post("/v1/session/code").json()["code"]
        running.nobody.post("/v1/session", {"code": code})
        running.nobody.post("/v1/session", {"code": code})
        running.nobody.post("/v1/session", {"token": secrets[0] + "x"})
        page.delete("/v1/session")
        page.get("/v1/status")
        secrets += [code, page.headers["Authorization"].removeprefix("Bearer ")]
    logged = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert any("/v1/session" in each for each in logged)
    assert not any(secret in each for each in logged for secret in secrets)
    assert not any(secret in text for entry in running.audit(10) for text in entry for secret in secrets)
