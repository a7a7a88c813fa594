"""Tokens that are rotated and expire, names of the server, and variables of jobs: commands against a real service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from live_up import Up, until


class NamedUp(Up):
    """A service that is also called gpus.example."""

    options = ("--devices", "2", "--allow-host", "GPUs.example", "--allow-host", "other.example")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamedUp]:
    service = NamedUp(tmp_path_factory.mktemp("up"))
    yield service
    service.stop()


def owners_id(up: Up) -> str:
    """The id of the owner's valid token."""
    user = up.get("status")["user"]
    return str(
        next(each["id"] for each in up.get("tokens")["tokens"] if each["user"] == user and not each["revoked_at"])
    )


def test_a_user_rotates_their_token(up: Up) -> None:
    old = {"GPUWISE_API_TOKEN": up.new_token("bob", "--expires", "1h")}
    (token,) = json.loads(up.right("tokens", "list", "-o", "json", **old))
    new = {"GPUWISE_API_TOKEN": up.right("tokens", "rotate", token["id"], "--grace", "1h", **old).strip()}
    for each in (old, new):
        assert "bob (user)" in up.right("status", "-o", "table", **each)
    rows = {row["id"]: row for row in json.loads(up.right("tokens", "list", "-o", "json", **new))}
    (fresh,) = [row for row in rows.values() if row["id"] != token["id"]]
    assert fresh["expires_at"] == token["expires_at"]
    _, text = up.on_terminal("tokens", "list", width=120)
    assert [line.split()[-1] for line in text.splitlines() if token["id"] in line] == ["rotated"]
    last = {"GPUWISE_API_TOKEN": up.right("tokens", "rotate", fresh["id"], **new).strip()}
    refused = up.run("queue", **new)
    assert (refused.code, "was revoked" in refused.err) == (4, True)
    assert up.run("tokens", "rotate", owners_id(up), **last).code == 2
    assert up.right("queue", "-o", "json", **last).strip() == "[]"


def test_a_token_that_expired_is_refused_with_the_time(up: Up) -> None:
    brief = {"GPUWISE_API_TOKEN": up.new_token("cy", "--expires", "1s")}
    until(lambda: up.run("queue", **brief).code == 4, "the token to expire")
    refused = up.run("queue", **brief)
    assert "this token expired at 20" in refused.err
    assert "GPUWISE_API_TOKEN" in refused.err
    _, text = up.on_terminal("tokens", "list", width=120)
    assert [line.split()[-1] for line in text.splitlines() if " cy " in line] == ["expired"]


def test_the_owners_token_is_replaced_in_the_state_folder(up: Up) -> None:
    kept = up.state / "token"
    before = kept.read_text()
    secret = up.right("tokens", "rotate", owners_id(up)).strip()
    assert kept.read_text().strip() == secret != before.strip()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert up.run("queue", GPUWISE_API_TOKEN=before.strip()).code == 4
    assert "(admin)" in up.right("status", "-o", "table")
    answer = up.run("tokens", "revoke", owners_id(up))
    assert (answer.code, "last token of an administrator" in answer.err) == (2, True)


def test_a_service_whose_owners_token_expired_makes_another_when_it_starts(up: Up) -> None:
    kept = up.state / "token"
    up.right("tokens", "rotate", owners_id(up), "--expires", "1s")
    expired = kept.read_text()
    until(lambda: up.run("queue").code == 4, "the token to expire")
    up.kill()
    up.start()
    assert kept.read_text() != expired
    assert "(admin)" in up.right("status", "-o", "table")


def test_names_may_be_allowed(up: Up) -> None:
    url = urlsplit(json.loads((up.state / "endpoint.json").read_text())["url"])
    found = {}
    for host in ("gpus.example", "other.example:443", "GPUS.example", "localhost", "evil.example", "x.gpus.example"):
        connection = HTTPConnection(url.hostname or "", url.port, timeout=60)
        connection.request("GET", "/v1/health", headers={"Host": host})
        answer = connection.getresponse()
        found[host] = (answer.status, "--allow-host" in answer.read().decode())
        connection.close()
    refused = {"evil.example", "x.gpus.example"}
    assert found == {host: (400, True) if host in refused else (200, False) for host in found}


@pytest.mark.parametrize("name", ["https://gpus.example", "gpus.example:8787", "a b", "", "*"])
def test_what_is_no_name_is_refused(up: Up, name: str) -> None:
    answer = up.run("up", "--port", "0", "--state", str(up.home / "unused"), "--allow-host", name)
    assert (answer.code, "--allow-host" in answer.err) == (2, True)


def test_values_of_variables_are_for_the_job_alone(up: Up) -> None:
    secret = "hunter2-77aa"
    uid = up.submit(
        "--env-from", "none", "--env", f"HF_TOKEN={secret}", "--", "sh", "-c", "test -n $HF_TOKEN; env | wc -l"
    )
    until(lambda: up.status(uid) == "succeeded", "the job to end")
    _, text = up.on_terminal("show", uid, width=200)
    assert "HF_TOKEN=***" in text
    assert up.json("show", uid)[0]["env"] == {"HF_TOKEN": "***"}
    verbs = (
        f"show {uid}", f"show {uid} -o csv", "queue -a -o json", "queue -a -o wide", f"why {uid}",
        f"logs {uid}", "events --after 0 -o json", "audit -o json", "top -o json", "status -o json",
    )  # fmt: skip
    for verb in verbs:
        assert secret not in up.right(*verb.split()), verb
    dry = up.run("submit", "--dry-run", "--env", f"HF_TOKEN={secret}", "--duration", "1m", "--", "true")
    assert (dry.code, secret in dry.out + dry.err) == (0, False)
    assert secret not in (up.state.parent / "up.log").read_text()
