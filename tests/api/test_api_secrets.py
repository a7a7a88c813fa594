"""What users put in the environment of a job is seen by the job alone."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from gpuwise.core.job.request import JobRequest
from running import Person, Running

SECRET = "hunter2-0f3a"


def everything(running: Running, person: Person, uid: str) -> str:
    """All that the API shows of a job."""
    paths = [
        "jobs", f"jobs?uids={uid}", f"jobs/{uid}", f"jobs/{uid}/why", f"jobs/{uid}/attempts", "queue", "top", "nodes",
        "events?follow=false&after=0", "status", "usage?by=user", "tables/ended?grouped=false", "tables/queue",
    ]  # fmt: skip
    answers = [person.get(f"/v1/{path}") for path in paths]
    assert {answer.status_code for answer in answers} == {200}
    return "".join(answer.text for answer in answers)


def test_the_job_gets_a_value_and_others_its_name(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    command = ("sh", "-c", 'printf "%s" "$HF_TOKEN" | tr a-z A-Z')
    with caplog.at_level(logging.DEBUG):
        uid = running.bob.submit(*command, env={"HF_TOKEN": SECRET, "LR": "0.125"})
        assert running.bob.ended(uid)["status"] == "succeeded"
    assert SECRET not in caplog.text
    assert running.bob.get(f"/v1/jobs/{uid}/logs").text == SECRET.upper()
    assert running.bob.job(uid)["env"] == {"HF_TOKEN": "***", "LR": "***"}
    for person in (running.bob, running.ada):
        assert SECRET not in everything(running, person, uid)
    assert not any(SECRET in text for entry in running.audit(1000) for text in entry)
    lines = running.deployment.store.lines(after=0, limit=100_000)
    assert any(line.uid == uid for line in lines)
    assert not any(SECRET in line.body for line in lines)
    document, _ = running.deployment.store.recover()
    assert document is not None
    assert SECRET not in document.body
    assert SECRET not in repr(JobRequest(command=command, env={"HF_TOKEN": SECRET}))


@pytest.mark.parametrize(
    "env",
    [
        {"HF_TOKEN": SECRET + "\0"},
        {"HF_TOKEN": [SECRET]},
        {"HF_TOKEN": {"value": SECRET}},
        {"HF TOKEN": SECRET},
        {"GPUWISE_X": SECRET},
        {"HF_TOKEN": SECRET * 20_000},
        [SECRET],
        SECRET,
    ],
)
@pytest.mark.parametrize("dry_run", ["", "?dry_run=true"])
def test_a_refusal_does_not_quote_a_value(running: Running, env: Any, dry_run: str) -> None:
    answer = running.bob.post(f"/v1/jobs{dry_run}", {"command": ["true"], "env": env})
    assert answer.status_code == 422
    assert "env" in answer.json()["error"]["message"]
    assert SECRET not in answer.text
    assert not any(SECRET in text for entry in running.audit(5) for text in entry)


def test_a_forecast_does_not_quote_a_value(running: Running) -> None:
    answer = running.bob.post("/v1/jobs?dry_run=true", {"command": ["true"], "env": {"HF_TOKEN": SECRET}})
    assert answer.status_code == 200
    assert SECRET not in answer.text


def test_the_schema_says_that_values_are_hidden(running: Running) -> None:
    described = running.nobody.get("/openapi.json").json()["components"]["schemas"]["JobDetails"]
    assert re.search(r"\*\*\*", json.dumps(described["properties"]["env"]))
