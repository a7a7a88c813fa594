"""Tokens, sessions of the page, and requests that come from elsewhere."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from gpuwise.api.access.authentication import COOKIE, Rates
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
    assert brief.get("/v1/status").status_code == 200
    wait_for(lambda: brief.get("/v1/status").status_code == 401, "the token to expire")


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


# -- the page's cookie --------------------------------------------------------------------------------------------


@pytest.fixture
def browser(running: Running) -> Any:
    with httpx.Client(base_url=running.url, timeout=30) as client:
        yield client


def log_in(running: Running, browser: httpx.Client, name: str = "bob") -> None:
    answer = browser.post("/v1/session", json={"token": running.secrets[name]})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "user": name,
        "role": str(running.deployment.service.access.by_secret(running.secrets[name]).role),
    }


def own(running: Running) -> dict[str, str]:
    return {"Origin": running.url, "Sec-Fetch-Site": "same-origin"}


def test_a_link_logs_in_and_leads_to_the_page(running: Running, browser: httpx.Client) -> None:
    answer = browser.get("/login", params={"token": running.secrets["bob"]})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie.lower() for word in ("httponly", "samesite=strict", "path=/"))
    assert running.secrets["bob"] not in cookie
    assert browser.get("/v1/status").json()["user"] == "bob"
    page = browser.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")


def test_the_page_acts_with_its_cookie_and_logs_out(running: Running, browser: httpx.Client) -> None:
    log_in(running, browser)
    made = browser.post("/v1/jobs", json={"command": ["sleep", "60"]}, headers=own(running))
    assert made.status_code == 201
    uid = made.json()["jobs"][0]["id"]
    assert browser.post(f"/v1/jobs/{uid}/cancel", headers=own(running)).status_code == 200
    assert browser.delete("/v1/session", headers=own(running)).status_code == 204
    assert browser.get("/v1/status").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "{url}", "Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_from_elsewhere_cannot_act_with_the_cookie(
    running: Running, browser: httpx.Client, headers: dict[str, str]
) -> None:
    log_in(running, browser)
    uid = running.bob.submit("sleep", "60")
    sent = {name: value.format(url=running.url) for name, value in headers.items()}
    answer = browser.post(f"/v1/jobs/{uid}/cancel", headers=sent)
    running.bob.post(f"/v1/jobs/{uid}/cancel")
    assert answer.status_code == 403
    assert browser.delete("/v1/session", headers=sent).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_from_elsewhere_cannot_read_with_the_cookie(running: Running, browser: httpx.Client, site: str) -> None:
    log_in(running, browser)
    assert browser.get("/v1/jobs", headers={"Sec-Fetch-Site": site}).status_code == 403
    assert browser.get("/v1/jobs", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_pages_from_elsewhere_cannot_log_anybody_in(running: Running, browser: httpx.Client) -> None:
    secret = running.secrets["bob"]
    for elsewhere in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://x.example"},
    ):
        assert browser.get("/login", params={"token": secret}, headers=elsewhere).status_code == 403
        assert browser.post("/v1/session", json={"token": secret}, headers=elsewhere).status_code == 403
    assert not browser.cookies


def test_servers_on_two_ports_do_not_take_each_others_cookies(running: Running, browser: httpx.Client) -> None:
    other = Server(create_app(running.service))
    try:
        log_in(running, browser)
        assert browser.get(f"{other.url}/v1/status").status_code == 401
        assert browser.post(f"{other.url}/v1/session", json={"token": running.secrets["cy"]}).status_code == 200
        assert browser.get("/v1/status").json()["user"] == "bob"
        assert browser.get(f"{other.url}/v1/status").json()["user"] == "cy"
    finally:
        other.close()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_cookie_that_was_changed_is_refused(running: Running, browser: httpx.Client, place: int) -> None:
    log_in(running, browser)
    name = f"{COOKIE}_{running.server.port}"
    parts = browser.cookies[name].split(".")
    admin = next(each.id for each in running.service.access.tokens() if each.user == "ada")
    parts[place] = [admin, "99999999999", "0" * 64][place]
    browser.cookies.clear()
    answer = browser.get("/v1/status", headers={"Cookie": f"{name}={'.'.join(parts)}"})
    assert answer.status_code == 401


@pytest.mark.parametrize("cookie", ["", "x", "..", "a.b.c", "\xe9.1.2", "." * 1000])
def test_what_is_no_session_is_refused(running: Running, cookie: str) -> None:
    answer = running.client.get(
        "/v1/status", headers={"Cookie": f"{COOKIE}_{running.server.port}={cookie}".encode("latin-1")}
    )
    assert answer.status_code == 401


def test_a_session_ends_with_its_token(running: Running, browser: httpx.Client) -> None:
    made = running.ada.post("/v1/tokens", {"user": "dee"}).json()
    assert browser.post("/v1/session", json={"token": made["secret"]}).status_code == 200
    assert browser.get("/v1/status").status_code == 200
    running.ada.delete(f"/v1/tokens/{made['id']}")
    assert browser.get("/v1/status").status_code == 401


def test_a_session_ends_by_itself(running: Running, browser: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwise.service.live.sessions.SESSION_S", -1.0)
    log_in(running, browser)
    assert browser.get("/v1/status").status_code == 401
    assert running.bob.get("/v1/status").status_code == 200


# -- whom a request is for ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "", "localhost.evil"]
)
def test_other_names_for_this_server_are_refused(running: Running, host: str) -> None:
    for path in ("/v1/jobs", "/v1/health", "/", "/login?token=x"):
        answer = running.bob.get(path, headers={"Host": host.format(port=running.server.port)})
        assert answer.status_code == 400
        assert "is not called" in answer.text


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
        told = [outcome for _, _, _, outcome in running.audit(10)]
        assert len([each for each in told if "this token is not known" in each]) == 3
    finally:
        server.close()


def test_a_token_has_only_so_many_requests(running: Running) -> None:
    rates = Rates(requests=Rate(per_s=0.1, burst=3))
    server = Server(create_app(running.service, ApiSettings(rates=rates)))
    try:
        with httpx.Client(base_url=server.url) as client:
            bob, cy = (Person(client, running.secrets[name]) for name in ("bob", "cy"))
            assert [bob.get("/v1/jobs").status_code for _ in range(4)] == [200, 200, 200, 429]
            assert int(bob.get("/v1/jobs").headers["Retry-After"]) >= 1
            assert cy.get("/v1/jobs").status_code == 200
    finally:
        server.close()


def test_no_secret_is_logged(running: Running, browser: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    secret = running.secrets["bob"]
    with caplog.at_level(logging.DEBUG):
        browser.get("/login", params={"token": secret})
        browser.post("/v1/session", json={"token": secret})
        running.bob.get("/v1/status")
        browser.get("/login", params={"token": secret + "x"})
        browser.get("/login", params={"token": secret * 10})
        browser.get("/login", params={"token": secret}, headers={"Host": "evil.example"})
    told = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert any("/login" in each for each in told)
    assert not any(secret in each for each in told)
    assert not any(secret in text for entry in running.audit(10) for text in entry)
