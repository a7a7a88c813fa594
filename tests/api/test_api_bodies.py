"""Whatever is sent as a body, the answer is an error that says why, or a job."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpuwise.api.schema.job_body import JobBody
from running import Running

FIELDS = sorted(JobBody.model_fields)
QUIETLY = settings(
    max_examples=40,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
NUMBERS = st.one_of(
    st.integers(), st.integers(-(10**400), 10**400), st.floats(), st.sampled_from([0, -0.0, 2**63, 5e-324, 1.8e308])
)
TEXTS = st.one_of(st.text(max_size=20), st.text(st.characters(categories=["Cs", "Cc"]), max_size=5))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=10,
)


def sent(running: Running, body: str | bytes, path: str = "/v1/jobs?dry_run=true") -> Any:
    return running.ada.call("POST", path, content=body, headers={"Content-Type": "application/json"})


def check(answer: Any) -> None:
    assert answer.status_code in (200, 201, 400, 409, 422), answer.text
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["message"]
        assert len(answer.content) < 4000


@QUIETLY
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6))
@example({"command": ["x"], "env": {"A": "\ud800"}})
@example({"command": ["\udfff"]})
@example({"command": ["x"], "\ud800": 1})
@example({"command": ["x"], "steps": 10**400})
@example({"command": ["x"], "name": "\0"})
@example({"command": ["x"], "gpu_types": ["\0"]})
@example({"command": ["x"], "duration_s": float("nan")})
@example({"command": ["x" * 200_000]})
@example({"command": ["x"], "env": {"A" * 200_000: "x"}})
@example({"command": ["x"], "workdir": "/" + "x" * 10_000})
def test_any_values_in_the_fields_of_a_job(running: Running, body: dict[str, Any]) -> None:
    check(sent(running, json.dumps(body)))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("within", "a b", "within is 'a b'; it must be the key of a label such as zone, or node"),
        ("name", "a\nb", "it must be letters, digits and -_./:@+"),
        ("after", ["x"], "it must be the id of a job such as 17, or afterany:17"),
        ("command", ["\0"], "it must be text without NUL characters"),
    ],
)
def test_what_text_must_look_like_is_said_in_words(running: Running, field: str, value: Any, words: str) -> None:
    answer = sent(running, json.dumps({"command": ["x"], field: value}))
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]


@QUIETLY
@given(VALUES, st.sampled_from(["/v1/jobs", "/v1/tokens", "/v1/session", "/v1/jobs/1/resize"]))
def test_any_json_at_all(running: Running, body: Any, path: str) -> None:
    answer = sent(running, json.dumps(body), path)
    assert answer.status_code in (400, 401, 403, 404, 409, 422), answer.text


@QUIETLY
@given(st.binary(max_size=200))
@example(b"\xff\xfe{\x00}\x00")
@example(b"\x00")
@example(b'{"command": ["x"], "command": 1}')
@example(b'{"command": ["\\ud800"]}')
@example(b'{"gpus": ' + b"9" * 5000 + b"}")
@example(b'{"gpus": 1' + b"0" * 400_000 + b"}")
def test_any_bytes(running: Running, body: bytes) -> None:
    answer = sent(running, body)
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("opened", ["[", '{"a":', '{"command":[', '{"env":{"A":'])
@pytest.mark.parametrize("depth", [500, 100_000])
def test_deep_bodies(running: Running, opened: str, depth: int) -> None:
    body = opened * depth
    for closed in ("", ("]" if opened[-1] == "[" else "1}") * depth):
        answer = sent(running, body[:900_000] + closed[:100_000])
        assert answer.status_code in (400, 422), answer.text
    assert running.ada.get("/v1/health").status_code == 200


@QUIETLY
@given(st.text(max_size=30), st.text(max_size=30))
@example("name", "\0")
@example("uids", "1" * 5000)
@example("before", "9" * 18)
@example("status", "running," * 500)
def test_any_parameters(running: Running, name: str, value: str) -> None:
    answer = running.ada.get("/v1/jobs", params={name: value})
    assert answer.status_code in (200, 422), answer.text
