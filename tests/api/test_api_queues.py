"""Queues and the audit over the API."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from gpuwise.api.schema import answers
from running import Running


def listed(running: Running) -> dict[str, dict[str, Any]]:
    return {queue["name"]: queue for queue in running.bob.get("/v1/queues").json()["queues"]}


@pytest.mark.parametrize("name", ["night", "team/vision", "a b", "ключ", "x:y@z+1", "." * 128])
def test_a_queue_gets_limits_and_loses_them(running: Running, name: str) -> None:
    path = f"/v1/queues/{quote(name, safe='')}"
    limits = {"max_gpus": 2.5, "max_jobs": 7, "weight": 3.0, "users": ["bob", "cy"]}
    answer = running.ada.put(path, limits)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"name": name, **limits, "used_gpus": 0.0, "jobs": 0}
    assert listed(running)[name] == answer.json()
    assert set(answer.json()) == set(answers.QueueLimits.model_fields)
    assert running.ada.put(path, {}).json()["max_gpus"] is None  # all limits are given anew
    assert running.ada.delete(path).status_code == 204
    assert name not in listed(running)
    assert running.ada.delete(path).status_code == 404
    refused, done, *_ = running.audit(2)
    assert done == ("ada", "delete queue", name, "ok")
    assert refused[3].startswith("refused: ")


@pytest.mark.parametrize("name", ["%00", "-x", "%20x", "x" * 129, "a%0ab", "%2F"])
def test_wrong_names_are_refused(running: Running, name: str) -> None:
    assert running.ada.put(f"/v1/queues/{name}", {}).status_code in (400, 404, 422)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_gpus": -1},
        {"max_jobs": 1.5},
        {"weight": 0},
        {"weight": 1e7},
        {"users": ["a b"]},
        {"max_gpu": 1},
        [],
        {"weight": None},
    ],
)
def test_wrong_limits_are_refused(running: Running, limits: Any) -> None:
    answer = running.ada.put("/v1/queues/night", limits)
    assert answer.status_code == 422
    assert "night" not in listed(running)


def test_a_queue_shows_what_it_uses_and_keeps_to_its_limits(running: Running) -> None:
    running.ada.put("/v1/queues/small", {"max_gpus": 1, "users": ["bob"]})
    first, second = (running.bob.submit("sleep", "60", queue="small") for _ in range(2))
    try:
        assert (listed(running)["small"]["used_gpus"], listed(running)["small"]["jobs"]) == (1.0, 2)
        why = running.bob.get(f"/v1/jobs/{second}/why").json()
        assert (why["code"], why["numbers"]["limit"]) == ("QUOTA", 1.0)
        refused = running.cy.post("/v1/jobs", {"command": ["true"], "queue": "small"})
        assert (refused.status_code, "may not submit" in refused.text) == (409, True)
        large = running.bob.post("/v1/jobs", {"command": ["true"], "queue": "small", "gpus": 2})
        assert large.status_code == 409
    finally:
        for uid in (second, first):
            running.bob.post(f"/v1/jobs/{uid}/cancel")
        running.ada.delete("/v1/queues/small")


def test_the_audit_goes_on_page_by_page(running: Running) -> None:
    for _ in range(3):
        running.bob.post("/v1/jobs/999999/cancel")
    running.audit()
    whole = running.ada.get("/v1/audit?limit=3").json()["audit"]
    assert set(whole[0]) == set(answers.AuditLine.model_fields)
    paged, before = [], ""
    for _ in range(3):
        paged += running.ada.get(f"/v1/audit?limit=1{before}").json()["audit"]
        before = f"&before={paged[-1]['id']}"
    assert paged == whole
    assert {entry["outcome"] for entry in whole} == {"refused: there is no job '999999'"}
