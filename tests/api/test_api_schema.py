"""The API does what its schema says, whatever it is sent."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi import checks as openapi_checks

from gpuwise.api.access.authentication import Rates
from gpuwise.api.access.limits import Rate
from gpuwise.api.app import ApiSettings, create_app
from gpuwise.core.records import UserRole
from gpuwise.service.live.notify.settings import NotifySettings
from running import Person, Running

EXAMPLES = 10
"""For each endpoint, of those that the schema allows and of those that it does not; each is sent by every role."""

CHECKS = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.response_headers_conformance,
]


KNOWN = itertools.cycle(["1", "2", "4-1", "4"])
TURN = itertools.cycle([True, False])


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    """A service with jobs of all kinds, to be sent anything."""
    many = Rate(per_s=1e6, burst=1e6)
    settings = ApiSettings(rates=Rates(requests=many, failures=many))
    silent = NotifySettings(hosts=frozenset())  # webhooks of any form, but no host is posted to
    service = Fuzzed(tmp_path_factory.mktemp("fuzzed"), settings, devices=16, notify=silent)
    try:
        service.prepare()
        yield service
    finally:
        service.close()


class Fuzzed(Running):
    """A service, and of each role somebody who sends anything; what they need is not for the others to break."""

    senders: dict[UserRole | None, Person]
    own_tokens: frozenset[str]
    jobs: dict[tuple[str, UserRole], str]
    """For each path and role a job with which it succeeds, once."""
    array: str

    def prepare(self) -> None:
        for command in ("true", "false"):
            self.ada.ended(self.ada.submit(command))
        self.ada.submit("sleep", "600", gpus=4)
        self.array = self.ada.submit("true", array=[1, 2]).partition("-")[0]
        self.senders = {None: self.nobody, UserRole.VIEWER: self.vi, UserRole.USER: self.bob, UserRole.ADMIN: self.ada}
        self.own_tokens = frozenset(each["id"] for each in self.ada.get("/v1/tokens").json()["tokens"])
        self.jobs = {}
        for role, user in ((UserRole.VIEWER, "vi"), (UserRole.USER, "bob"), (UserRole.ADMIN, "ada")):
            owner = Person(self.client, self.token(user, UserRole.USER))
            for operation in operations():
                if "{uid}" in operation.path:
                    self.jobs[operation.label, role] = job_for(operation.path, owner)

    def token_to_lose(self) -> str:
        return str(self.ada.post("/v1/tokens", {"user": "eve"}).json()["id"])

    @property
    def node(self) -> str:
        return str(self.ada.get("/v1/nodes").json()["nodes"][0]["name"])


def job_for(path: str, owner: Person) -> str:
    """A job in the state in which a path succeeds."""
    action = path.rpartition("/")[2]
    needs = {"resize": {"min_gpus": 1, "max_gpus": 2}, "terminal": {"terminal": "pipe"}, "requeue": {}}.get(action)
    if needs is not None:
        uid = owner.submit("sleep", "600", **needs)
        owner.sees(uid, "running")
        return uid
    uid = owner.submit("true", begin_s=4e9)
    if action in ("resume", "release"):
        assert owner.post(f"/v1/jobs/{uid}/hold").status_code == 200
    return uid


def operations() -> list[Any]:
    """All that the schema describes; that needs no service."""
    document = shorter(create_app(cast(Any, None)).openapi())
    return [found.ok() for found in schemathesis.openapi.from_dict(document).get_all_operations()]


def shorter(schema: Any) -> Any:
    """A schema with lower upper limits, so that examples are quickly made; the limits have tests of their own.

    It does not say that a token is needed, since wrong ones would be sent in place of ours.
    """
    if isinstance(schema, list):
        return [shorter(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: shorter(value) for name, value in schema.items() if name != "security"}
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


@pytest.mark.parametrize(("operation", "mode"), list(sorts()))
def test_every_answer_is_one_that_the_schema_names(fuzzed: Fuzzed, operation: Any, mode: GenerationMode) -> None:
    """And nobody's token is lost meanwhile, and those who may use an endpoint do so at least once."""
    succeeded: set[UserRole | None] = set()
    number = itertools.count()

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def send(case: Any) -> None:
        is_simple = mode is GenerationMode.POSITIVE and next(number) == 0
        harmless(case, fuzzed)
        for role, sender in fuzzed.senders.items():
            if is_simple:
                simple(case, fuzzed, role)
            answer = case.call_and_validate(base_url=fuzzed.url, headers=sender.headers, checks=CHECKS)
            if case.path == "/v1/session":
                continue  # with tests of its own: what it accepts is neither a role nor a token in the header
            assert (answer.status_code == 401) <= (role is None), "the token was lost"
            if answer.status_code < 300:
                succeeded.add(role)
            if case.path == "/v1/nodes/{node}/drain":
                fuzzed.ada.post(f"/v1/nodes/{fuzzed.node}/undrain")

    send()
    if mode is GenerationMode.POSITIVE:
        assert succeeded == allowed(operation)


def allowed(operation: Any) -> set[UserRole | None]:
    """The roles that may use an endpoint."""
    path, viewer, user, admin = operation.path, UserRole.VIEWER, UserRole.USER, UserRole.ADMIN
    if path == "/v1/session":
        return set()
    if path == "/v1/health":
        return {None, viewer, user, admin}
    if operation.label in ("GET /v1/tokens", "POST /v1/session/code"):
        return {viewer, user, admin}
    if path.startswith(("/v1/tokens", "/v1/audit", "/v1/queues/", "/v1/nodes/")):
        return {admin}
    return {user, admin} if operation.method != "get" or "terminal" in path else {viewer, user, admin}


def simple(case: Any, fuzzed: Fuzzed, role: UserRole | None) -> None:
    """A case that succeeds if the role may do that."""
    label, wanted = f"{case.method} {case.path}", role or UserRole.ADMIN
    case.query = {"follow": "false"} if "follow" in (case.query or {}) else {}
    case.headers = {}
    made: dict[str, Callable[[], str]] = {
        "uid": lambda: fuzzed.jobs[label, wanted],
        "token_id": fuzzed.token_to_lose,
        "node": lambda: fuzzed.node,
        "name": lambda: "night",
        "table": lambda: "queue",
        "array": lambda: fuzzed.array,
    }
    case.path_parameters = {name: made[name]() for name in case.path_parameters or {}}
    if case.path == "/v1/queues/{name}":
        fuzzed.ada.put("/v1/queues/night", {"max_gpus": 2})
    if label in BODIES:
        case.body = BODIES[label]


BODIES: dict[str, Any] = {
    "POST /v1/jobs": {"command": ["true"]},
    "PATCH /v1/jobs/{uid}": {"priority": 3},
    "POST /v1/jobs/{uid}/resize": {"gpus": 2},
    "PUT /v1/queues/{name}": {"max_gpus": 2},
    "POST /v1/tokens": {"user": "eve"},
}


def harmless(case: Any, fuzzed: Fuzzed) -> None:
    """Jobs of any shape, but they only do what harms nobody; known jobs now and then; streams that end."""
    if isinstance(case.body, dict) and isinstance(case.body.get("command"), list):
        case.body["command"][:1] = ["true"]
    given = case.path_parameters or {}
    if "uid" in given and (next(TURN) or given["uid"] in fuzzed.jobs.values()):
        given["uid"] = next(KNOWN)
    if "token_id" in given and (next(TURN) or given["token_id"] in fuzzed.own_tokens):
        given["token_id"] = fuzzed.token_to_lose()
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
            assert ("security" in operation) == ((method, path) not in (("get", "/v1/health"), ("post", "/v1/session")))
