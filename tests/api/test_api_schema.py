"""The API does what its schema says, whatever it is sent."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi import checks as openapi_checks

from gpuwise.api.access.authentication import Rates
from gpuwise.api.access.limits import Rate
from gpuwise.api.app import ApiSettings, create_app
from running import Running

CHECKS = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.response_headers_conformance,
]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with jobs of all kinds, to be sent anything."""
    many = Rate(per_s=1e6, burst=1e6)
    service = Running(tmp_path_factory.mktemp("fuzzed"), ApiSettings(rates=Rates(requests=many, failures=many)))
    for command in ("true", "false"):
        service.ada.ended(service.ada.submit(command))
    service.ada.submit("sleep", "600", gpus=4)
    service.ada.post("/v1/jobs", {"command": ["true"], "array": [1, 2]})
    service.ada.put("/v1/queues/night", {"max_gpus": 2})
    yield service
    service.close()


def operations() -> list[Any]:
    """All that the schema describes; that needs no service."""
    document = shorter(create_app(cast(Any, None)).openapi())
    return [found.ok() for found in schemathesis.openapi.from_dict(document).get_all_operations()]


def shorter(schema: Any) -> Any:
    """A schema with lower upper limits, so that examples are quickly made; the limits have tests of their own."""
    if isinstance(schema, list):
        return [shorter(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: shorter(value) for name, value in schema.items()}
    for name, most in (("maxItems", 5), ("maxLength", 50)):
        if isinstance(found.get(name), int):
            found[name] = min(found[name], most)
    return found


def sorts() -> Iterator[Any]:
    """Each operation with what the schema allows, and, if anything can be wrong with it, with what it does not."""
    for operation in operations():
        yield pytest.param(operation, GenerationMode.POSITIVE, id=f"{operation.label} good")
        if operation.body or list(operation.iter_parameters()):
            yield pytest.param(operation, GenerationMode.NEGATIVE, id=f"{operation.label} bad")


KNOWN = itertools.cycle(["1", "2", "4-1", "4"])
TURN = itertools.cycle([True, False])


@pytest.mark.parametrize(("operation", "mode"), list(sorts()))
def test_every_answer_is_one_that_the_schema_names(fuzzed: Running, operation: Any, mode: GenerationMode) -> None:
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=20,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def send(case: Any) -> None:
        harmless(case)
        case.call_and_validate(base_url=fuzzed.url, headers=fuzzed.ada.headers, checks=CHECKS)

    send()


def harmless(case: Any) -> None:
    """Jobs of any shape, but they only do what harms nobody; known jobs now and then; streams that end."""
    if isinstance(case.body, dict) and isinstance(case.body.get("command"), list):
        case.body["command"][:1] = ["true"]
    if next(TURN) and "uid" in (case.path_parameters or {}):
        case.path_parameters["uid"] = next(KNOWN)
    if case.path in ("/v1/events", "/v1/jobs/{uid}/logs"):
        case.query = {**(case.query or {}), "follow": "false"}


def test_errors_and_bodies_are_described() -> None:
    document = create_app(cast(Any, None)).openapi()
    described = document["components"]["schemas"]["JobBody"]
    assert all("description" in each for each in described["properties"].values())
    assert described["additionalProperties"] is False
    assert described["examples"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert {"400", "422", "429", "500", "503"} <= operation["responses"].keys()
            assert ("security" in operation) == (path not in ("/v1/health", "/v1/session"))
