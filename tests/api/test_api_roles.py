"""Who may call what: every endpoint by everybody."""

from __future__ import annotations

from typing import Any

import pytest

from running import Running, wait_for

# method, path, body; then the answers to: nobody, a viewer, another user, the job's user, an administrator
ENDPOINTS: list[tuple[str, str, Any, tuple[int, int, int, int, int]]] = [
    ("POST", "/v1/jobs", {"command": ["true"]}, (401, 403, 201, 201, 201)),
    ("POST", "/v1/jobs?dry_run=true", {"command": ["true"]}, (401, 403, 200, 200, 200)),
    ("GET", "/v1/jobs", None, (401, 200, 200, 200, 200)),
    ("GET", "/v1/jobs/{uid}", None, (401, 200, 200, 200, 200)),
    ("GET", "/v1/jobs/{uid}/why", None, (401, 404, 404, 200, 200)),
    ("GET", "/v1/jobs/{uid}/attempts", None, (401, 404, 404, 200, 200)),
    ("GET", "/v1/jobs/{uid}/logs", None, (401, 404, 404, 200, 200)),
    ("GET", "/v1/jobs/{uid}/logs?follow=true", None, (401, 404, 404, 0, 0)),
    ("POST", "/v1/jobs/{uid}/suspend", None, (401, 403, 404, 200, 200)),
    ("POST", "/v1/jobs/{uid}/resume", None, (401, 403, 404, 200, 200)),
    ("POST", "/v1/jobs/{uid}/release", None, (401, 403, 404, 200, 200)),
    ("POST", "/v1/jobs/{uid}/hold", None, (401, 403, 404, 0, 0)),
    ("POST", "/v1/jobs/{uid}/requeue", None, (401, 403, 404, 0, 0)),
    ("PATCH", "/v1/jobs/{uid}", {"priority": 3}, (401, 403, 404, 200, 200)),
    ("POST", "/v1/jobs/{uid}/resize", {"gpus": 2}, (401, 403, 404, 409, 409)),
    ("POST", "/v1/jobs/{uid}/cancel", None, (401, 403, 404, 200, 200)),
    ("GET", "/v1/jobs/{uid}/terminal", None, (401, 403, 404, 409, 409)),
    ("GET", "/v1/terminals", None, (401, 403, 200, 200, 200)),
    ("GET", "/v1/tables/waiting", None, (401, 200, 200, 200, 200)),
    ("GET", "/v1/arrays/17", None, (401, 404, 404, 404, 404)),
    ("GET", "/v1/queue", None, (401, 200, 200, 200, 200)),
    ("GET", "/v1/usage", None, (401, 200, 200, 200, 200)),
    ("GET", "/v1/nodes", None, (401, 200, 200, 200, 200)),
    ("POST", "/v1/nodes/nobody/drain", None, (401, 403, 403, 403, 404)),
    ("POST", "/v1/nodes/nobody/undrain", None, (401, 403, 403, 403, 404)),
    ("GET", "/v1/top", None, (401, 200, 200, 200, 200)),
    ("GET", "/v1/events?follow=false", None, (401, 200, 200, 200, 200)),
    ("GET", "/v1/status", None, (401, 200, 200, 200, 200)),
    ("GET", "/v1/queues", None, (401, 200, 200, 200, 200)),
    ("PUT", "/v1/queues/night", {"max_gpus": 2}, (401, 403, 403, 403, 200)),
    ("DELETE", "/v1/queues/night", None, (401, 403, 403, 403, 204)),
    ("GET", "/v1/tokens", None, (401, 200, 200, 200, 200)),
    ("POST", "/v1/tokens", {"user": "dee"}, (401, 403, 403, 403, 201)),
    ("DELETE", "/v1/tokens/{token}", None, (401, 403, 403, 403, 200)),
    ("POST", "/v1/tokens/{token}/rotate", {}, (401, 404, 404, 404, 201)),
    ("GET", "/v1/audit", None, (401, 403, 403, 403, 200)),
    ("GET", "/v1/health", None, (200, 200, 200, 200, 200)),
    ("POST", "/v1/session", {"token": "wrong"}, (401, 401, 401, 401, 401)),
    ("DELETE", "/v1/session", None, (401, 422, 422, 422, 422)),
    ("POST", "/v1/session/code", None, (401, 201, 201, 201, 201)),
    ("GET", "/v1/nothing", None, (401, 404, 404, 404, 404)),
    ("GET", "/openapi.json", None, (200, 200, 200, 200, 200)),
]


@pytest.mark.parametrize(("method", "path", "body", "expected"), ENDPOINTS, ids=lambda each: str(each)[:40])
def test_everybody_gets_the_answer_of_their_role(
    running: Running, method: str, path: str, body: Any, expected: tuple[int, ...]
) -> None:
    callers = (running.nobody, running.vi, running.cy, running.bob, running.ada)
    for caller, status in zip(callers, expected, strict=True):
        if status:
            uid = running.bob.submit("sleep", "60") if "{uid}" in path else ""
            token = running.ada.post("/v1/tokens", {"user": "eve"}).json()["id"] if "{token}" in path else ""
            answer = caller.call(method, path.format(uid=uid, token=token), json=body)
            assert answer.status_code == status, answer.text
            if status >= 400:
                assert set(answer.json()["error"]) == {"code", "message"}
            if status == 401:
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            if uid:
                running.bob.post(f"/v1/jobs/{uid}/cancel")


def test_no_endpoint_is_left_out(running: Running) -> None:
    known = {(method, path.partition("?")[0]) for method, path, _, _ in ENDPOINTS}
    known = {(method, path.replace("{token}", "{token_id}").replace("night", "{name}")) for method, path in known}
    known = {
        (method, path.replace("nobody", "{node}").replace("waiting", "{table}").replace("/17", "/{array}"))
        for method, path in known
    }
    documented = running.nobody.get("/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, methods in documented.items() for method in methods} <= known


def test_all_users_see_the_queue_and_the_details_of_their_own(running: Running) -> None:
    own = running.bob.submit("sleep", "60", name="own-list")
    secret = {"LR": "s3cret"}
    others = running.cy.submit("sleep", "60", name="own-list", env=secret, workdir="/tmp", deadline_s=4e9, steps=7.0)
    try:
        seen = [job["id"] for job in running.bob.get("/v1/jobs?name=own-list").json()["jobs"]]
        assert seen == [own]  # a name is a detail
        assert running.bob.get("/v1/jobs?user=cy&name=own-list").json()["jobs"] == []
        (shown,) = [job for job in running.bob.get("/v1/jobs?user=cy").json()["jobs"] if job["id"] == others]
        (queued,) = [job for job in running.vi.get("/v1/queue?user=cy").json()["jobs"] if job["id"] == others]
        for job in (shown, queued, running.bob.job(others)):
            assert (job["user"], job["queue"], job["gpus"], job["details"]) == ("cy", "default", 1, False)
            assert job["status"] in ("pending", "starting", "running")
            assert (job["name"], job["command"], job["workdir"], job["needs"], job["steps"]) == ("", [], "", {}, None)
            assert job.keys() >= running.cy.job(others).keys() - {"env", "notify", "unsent"}  # of one job alone
            assert job.get("env", {}) == {}
        assert running.cy.job(others)["name"] == "own-list"
        assert running.cy.job(others)["env"] == running.ada.job(others)["env"] == {"LR": "***"}
        assert not [each for each in running.cy.get("/v1/queue?user=cy").json()["jobs"] if each["user"] != "cy"]
        assert "s3cret" not in running.ada.get(f"/v1/jobs/{others}").text + running.cy.get(f"/v1/jobs/{others}").text
        assert {own, others} <= {job["id"] for job in running.ada.get("/v1/jobs?name=own-list").json()["jobs"]}
        assert {own, others} <= {job["id"] for job in running.ada.get("/v1/queue").json()["jobs"]}
        wait_for(lambda: running.cy.job(others)["placement"], "a device")
        residents = [
            resident
            for node in running.bob.get("/v1/nodes").json()["nodes"]
            for device in node["devices"]
            for resident in device["jobs"]
        ]
        assert own in [resident["id"] for resident in residents]
        assert others not in [resident["id"] for resident in residents]
        assert any(resident["id"] is None and resident["name"] == "" for resident in residents)
    finally:
        running.bob.post(f"/v1/jobs/{own}/cancel")
        running.cy.post(f"/v1/jobs/{others}/cancel")


def test_jobs_of_others_cannot_be_waited_for(running: Running) -> None:
    others = running.cy.submit("sleep", "60")
    answer = running.bob.post("/v1/jobs", {"command": ["true"], "after": [others]})
    unknown = running.bob.post("/v1/jobs", {"command": ["true"], "after": ["999999"]})
    running.cy.post(f"/v1/jobs/{others}/cancel")
    assert (answer.status_code, unknown.status_code) == (409, 409)
    assert answer.json()["error"]["message"].replace(others, "999999") == unknown.json()["error"]["message"]


def test_what_is_done_and_what_is_refused_is_noted(running: Running) -> None:
    uid = running.bob.submit("sleep", "60")
    running.cy.post(f"/v1/jobs/{uid}/cancel")
    running.vi.post(f"/v1/jobs/{uid}/cancel")
    running.bob.post(f"/v1/jobs/{uid}/cancel")
    running.nobody.get(f"/v1/jobs/{uid}")
    missing, ok, no_role, others, submitted = running.audit(5)
    assert submitted == ("bob", "submit", uid, "ok")
    assert others[:3] == ("cy", "cancel", uid)
    assert others[3].startswith(f"refused: job {uid} is another user's")
    assert no_role[:3] == ("vi", "POST", f"/v1/jobs/{uid}/cancel")
    assert no_role[3].startswith("refused: needs the role user")
    assert ok == ("bob", "cancel", uid, "ok")
    assert missing[:3] == ("", "GET", f"/v1/jobs/{uid}")
    assert missing[3].startswith("refused: a token is missing")
    assert running.ada.get("/v1/audit?limit=1").json()["audit"][0]["address"] == "127.0.0.1"
