"""A log-in to the page is of no use to other users of the host, whose servers the same browser visits."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_up import Up, until
from playwright.sync_api import Page, expect

OTHER_SERVER = Path(__file__).with_name("other_server.py")
ATTACKS: list[tuple[str, str, Any]] = [
    ("GET", "/v1/status", None),
    ("GET", "/v1/jobs", None),
    ("GET", "/v1/events?follow=false", None),
    ("POST", "/v1/jobs", {"command": ["true"]}),
    ("POST", "/v1/tokens", {"user": "mallory", "role": "admin"}),
    ("POST", "/v1/session/code", None),
]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    service = Up(tmp_path)
    yield service
    service.stop()


@pytest.fixture
def url(up: Up) -> str:
    return str(json.loads((up.state / "endpoint.json").read_text())["url"])


@pytest.fixture
def other(tmp_path: Path, url: str) -> Iterator[tuple[str, Path]]:
    """The address of somebody else's server, and the file in which it keeps what it is sent."""
    record = tmp_path / "record"
    command = [sys.executable, str(OTHER_SERVER), str(record), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}", record
        process.terminate()


def logged_in(open_page: Callable[..., Page], link: str) -> Page:
    page = open_page(link)
    expect(page.get_by_text("No job runs.")).to_be_visible()
    return page


def credentials(requests: list[dict[str, Any]]) -> list[dict[str, str]]:
    """All that may pass for a log-in in what was captured, as headers."""
    words, found = set[str](), list[dict[str, str]]()
    for each in requests:
        sent = {name.lower(): value for name, value in each["headers"]}
        found += [{name: sent[name]} for name in ("cookie", "authorization") if name in sent]
        words |= {word.partition("=")[2] or word for word in sent.get("cookie", "").split("; ")}
        words |= {sent.get("referer", "").partition("#")[2], each["path"].partition("=")[2]}
        if each["path"] == "/loot":
            loot = json.loads(each["body"])
            words |= {loot["cookie"], *loot["local"].values(), *loot["session"].values(), *loot["got"]}
    secrets = {word for word in words if word and word.isascii() and "\n" not in word}
    return [{}, *found, *({"Authorization": f"Bearer {word}"} for word in sorted(secrets))]


def test_what_a_browser_shows_another_port_does_not_log_in(
    up: Up, url: str, other: tuple[str, Path], open_page: Callable[..., Page], complaints: list[str]
) -> None:
    address, record = other
    page = logged_in(open_page, up.right("page").strip())
    tokens = {each["id"] for each in up.get("tokens")["tokens"]}
    page.goto(address)
    expect(page).to_have_title("done")
    complaints.clear()  # the other page was refused a lot

    requests = [json.loads(line) for line in record.read_text().splitlines()]
    assert {"/", "/loot"} <= {each["path"] for each in requests}
    got = json.loads(next(each["body"] for each in requests if each["path"] == "/loot"))["got"]
    assert not [each for each in got if "owner" in each or "role" in each]

    forged = {"Origin": url, "Referer": f"{url}/", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    with httpx.Client(base_url=url) as attacker:
        answers = {
            (*shown, method, path): attacker.request(method, path, json=body, headers={**forged, **shown}).status_code
            for shown in credentials(requests)
            for method, path, body in ATTACKS
        }
    assert {attack: status for attack, status in answers.items() if status not in (401, 403, 429)} == {}
    assert up.get("jobs")["jobs"] == []
    assert {each["id"] for each in up.get("tokens")["tokens"]} == tokens

    page.goto(url)
    expect(page.get_by_text("No job runs.")).to_be_visible()  # the session was there all the time


def test_a_session_that_is_logged_out_ends_at_once_for_all_who_have_its_secret(
    up: Up, url: str, open_page: Callable[..., Page], complaints: list[str]
) -> None:
    link = up.right("page").strip()
    page = logged_in(open_page, link)
    assert page.context.cookies() == []
    assert link.partition("#")[2] not in page.url
    secret = page.evaluate("localStorage['gpuwise.session']")
    stolen = {"Authorization": f"Bearer {secret}"}
    opened, ended = threading.Event(), threading.Event()

    def listen() -> None:
        with httpx.stream("GET", f"{url}/v1/events", headers=stolen, timeout=60) as stream:
            for _ in stream.iter_bytes():
                opened.set()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    assert opened.wait(60)
    assert httpx.get(f"{url}/v1/status", headers=stolen).status_code == 200
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert httpx.get(f"{url}/v1/status", headers=stolen).status_code == 401
    assert ended.wait(60)
    assert page.evaluate("localStorage.length") == 0
    complaints.clear()


def test_a_link_works_once_and_a_session_in_every_tab(
    up: Up, open_page: Callable[..., Page], complaints: list[str]
) -> None:
    link = up.right("page").strip()
    page = logged_in(open_page, link)
    page.reload()
    expect(page.get_by_text("No job runs.")).to_be_visible()
    second = page.context.new_page()
    second.goto(page.url)
    expect(second.get_by_text("No job runs.")).to_be_visible()

    late = open_page(link)
    expect(late.get_by_role("alert")).to_contain_text("gpuwise page")
    expect(late.get_by_label("Token")).to_be_visible()
    assert late.evaluate("localStorage.length") == 0

    page.get_by_role("button", name="Log out").click()
    for each in (page, second):
        expect(each.get_by_label("Token")).to_be_visible()
    page.get_by_label("Token").fill((up.state / "token").read_text())
    page.get_by_role("button", name="Log in").click()
    for each in (page, second):
        expect(each.get_by_text("No job runs.")).to_be_visible()
    complaints.clear()


def test_a_link_of_another_user_asks_before_it_takes_the_place_of_a_session(
    up: Up, open_page: Callable[..., Page], complaints: list[str]
) -> None:
    page = logged_in(open_page, up.right("page").strip())
    owner = page.locator("header .soft").first.inner_text()
    bob = up.new_token("bob")
    for answer, expected in (("Keep it", owner), ("Log in as bob", "bob, user")):
        page.goto(up.right("page", GPUWISE_API_TOKEN=bob).strip())
        page.get_by_role("dialog").get_by_role("button", name=answer).click()
        until(lambda expected=expected: page.locator("header .soft").first.inner_text() == expected, "the user's name")
    complaints.clear()
