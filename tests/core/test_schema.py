"""One declaration of a job's properties: each of them reaches every form of a job and comes back the same."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import dataclass
from typing import Annotated, Any

import polars as pl
import pytest

from builders import cluster, engine_with
from gpuwise.api.schema.job_body import JobBody, body_of
from gpuwise.api.schema.views import job as job_view
from gpuwise.cli.submit.fields import FIELDS, KEY_OF
from gpuwise.core.job.kinds import Choice, Number, Whole
from gpuwise.core.job.needs import Forecast, JobNeeds, Role, Sharing, Source
from gpuwise.core.job.property import Property, PropertyError
from gpuwise.core.job.request import MAX_INDEX, JobRequest
from gpuwise.core.job.schema import Entry, check, entries, plain, revive
from gpuwise.core.job.shape import SHAPE_FIELDS
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.records import JobRecord
from gpuwise.engine.journal import job_spec, replay
from gpuwise.engine.snapshot import restore, snapshot
from gpuwise.service.offline.job_columns import job_columns
from gpuwise.sim.traces.files import read_trace, trace_from_frame, write_trace
from gpuwise.sim.traces.schema import TRACE_SCHEMA

SAMPLES: dict[str, Any] = {
    "gpus": 4, "min_gpus": 4, "max_gpus": 6, "gpu_memory_bytes": 2e9, "gpu_memory_low_bytes": 1e9 + 1 / 3,
    "gpu_memory_high_bytes": 3e9, "gpu_memory_source": Source.PREDICTED, "gpu_util_frac": 0.5,
    "gpu_util_low_frac": 0.25, "gpu_util_high_frac": 0.75, "gpu_util_source": Source.OBSERVED,
    "gpu_types": ("A100", "V100"), "sharing": frozenset((Sharing.MIG, Sharing.EXCLUSIVE)),
    "require": (("zone", ("a", "b")), ("gen", ("2",))), "prefer": (("rack", ("7",)),), "within": "zone",
    "roles": (Role("ps", 2, cpus=4.5), Role("worker", 2, max_count=3, gpus=2, memory_bytes=1e9 + 1 / 3)),
    "priority": -7, "retries": 3, "requeue": True, "steps": 1000.0, "model": "bert", "batch_per_gpu": 32,
    "speeds": (("V100", 1.5), ("A100", 2.0)), "suspend_s": 1.0, "resume_s": 2.0, "migrate_s": 3.0, "resize_s": 4.0,
}  # fmt: skip
"""Values other than the defaults; a property that is not named here gets one by its kind."""
OTHERS = {"gpu_frac": 0.5, "cpus": 3.5, "memory_bytes": 2.5e9}
"""Those that go neither with several GPUs nor with roles, each in a job of its own."""


def by_kind(entry: Entry) -> Any:
    """A value of a property other than its default."""
    kind, about = entry.kind, entry.about
    if isinstance(kind, Number):
        number = min(about.high, max(about.low, 0.0) + 3.0)
        return int(number) if isinstance(kind, Whole) else number
    return next(each for each in kind.members if each != entry.default) if isinstance(kind, Choice) else "some"


def samples() -> list[dict[str, Any]]:
    new = {name: by_kind(each) for name, each in entries(JobNeeds).items() if name not in (*SAMPLES, *OTHERS)}
    return [SAMPLES | new, *({name: value} for name, value in OTHERS.items())]


def test_there_is_a_sample_of_every_property() -> None:
    known = {name: value for given in samples() for name, value in given.items()}
    assert known.keys() == entries(JobNeeds).keys()
    for name, value in known.items():
        assert not entries(JobNeeds)[name].is_default(value)


def test_every_property_is_declared_once_and_has_a_form_everywhere() -> None:
    for name, entry in entries(JobNeeds).items():
        assert entry.about.help.endswith("."), name
        assert entries(JobSpec)[name].about is entries(JobRequest)[name].about is entry.about
        assert name in JobBody.model_fields
        assert name in TRACE_SCHEMA
        assert (
            name in JobTable.COLUMNS or name in SHAPE_FIELDS or name == "gpu_frac"
        )  # which shapes have in thousandths
        if entry.about.option:
            assert FIELDS[entry.about.option].target == name
            assert KEY_OF[name] == entry.about.option


@pytest.mark.parametrize("given", samples(), ids=lambda given: "+".join(given)[:20])
def test_every_property_survives_table_journal_and_snapshot(given: dict[str, Any]) -> None:
    spec = JobSpec(id="a", duration_s=60.0, **given)
    engine = engine_with([spec], cluster("1x8:A100"))
    again = replay(engine.journal.lines())
    restored = engine_with([], cluster("1x8:A100")).state
    restore(restored, json.loads(json.dumps(snapshot(engine.state))))
    for jobs in (engine.state.jobs, again.jobs, restored.jobs):
        assert {name: getattr(jobs.spec(0), name) for name in given} == given
    assert job_spec(json.loads(json.dumps(plain(spec)))) == spec


@pytest.mark.parametrize("given", samples(), ids=lambda given: "+".join(given)[:20])
def test_every_property_goes_from_the_api_to_the_engine_and_the_answer(given: dict[str, Any]) -> None:
    asked = JobRequest(command=("true",), **given)
    sent = json.loads(json.dumps(asked.to_json()))
    request = JobBody.model_validate(sent).request()
    assert request == asked
    assert JobRequest.from_json(sent) == asked
    spec = request.spec("1", submit_s=0.0, duration_s=Forecast(60.0))
    known = {name: getattr(spec, name) for name in given}
    assert known == given | ({"speeds": known["speeds"]} if "speeds" in given else {})  # relative to the middle one
    answer = job_view(JobRecord(uid="1", user="ada", request=request))
    assert answer["needs"] == {name: sent[name] for name in given}


@pytest.mark.parametrize("given", samples(), ids=lambda given: "+".join(given)[:20])
def test_every_property_goes_through_a_trace(given: dict[str, Any], tmp_path: Any) -> None:
    cells = {name: [entries(JobNeeds)[name].kind.cell(value)] for name, value in given.items()}
    columns = {"submit_s": [0.0], "duration_s": [60.0], "gpus": [1], **cells}
    write_trace(trace_from_frame(pl.DataFrame(columns)), tmp_path / "a.csv")
    columns, _ = job_columns(read_trace(tmp_path / "a.csv"))
    assert {name: columns[name][0] for name in given} == given


@dataclass(frozen=True, slots=True, kw_only=True)
class Coloured(JobRequest):
    """A request with a property that jobs do not have."""

    colour: Annotated[
        str, Property(help="What it is painted in.", noun="a colour", pattern="[a-z]+", option="colour")
    ] = "grey"


def test_a_new_property_needs_no_more_than_its_entry() -> None:
    body = body_of(Coloured, "ColouredBody", JobBody.__base__)
    assert body.model_fields["colour"].description == "What it is painted in."
    asked = Coloured(command=("true",), colour="red")
    assert revive(Coloured, plain(asked)) == asked
    with pytest.raises(PropertyError, match="colour is 'RED'; it must be a colour"):
        Coloured(command=("true",), colour="RED")


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_carries_name_value_and_what_is_expected() -> None:
    with pytest.raises(PropertyError) as refused:
        JobSpec(id="a", duration_s=60.0, retries=101)
    error = refused.value
    assert (error.name, error.value, error.expected, error.of) == (
        "retries", 101, "a whole number from 0 to 100", "job 'a'",
    )  # fmt: skip
    assert str(error) == "job 'a': retries is 101; it must be a whole number from 0 to 100"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a flag": ({"gpus": True}, "gpus is True; it must be a whole number of GPUs"),
    "half a GPU": ({"gpus": 1.5}, "gpus is 1.5; it must be a whole number of GPUs"),
    "beyond a bound": ({"gpus": 10**30}, "to 65536"),
    "obvious bound": ({"memory_bytes": 1e30}, "it must be a number of bytes from 0 to 1.15292e+18"),
    "speeds": ({"speeds": (("V100", -1.0),)}, "each GPU type once"),
    "speed twice": ({"speeds": (("V100", 1.0), ("V100", 2.0))}, "each GPU type once"),
    "label without values": ({"require": {"zone": ()}}, "labels such as zone=a,b"),
    "label twice": ({"require": (("a", ("1",)), ("a", ("2",)))}, "labels such as zone=a,b"),
    "label with a comma": ({"prefer": {"zone": ("a,b",)}}, "labels such as zone=a,b"),
    "within nothing": ({"within": "a b"}, "the key of a label such as zone, or node"),
    "interval": ({"gpu_memory_bytes": 1e9, "gpu_memory_low_bytes": 2e9}, "at most gpu_memory_bytes, which is"),
    "upper end": ({"gpu_util_frac": 0.5, "gpu_util_high_frac": 0.25}, "at least gpu_util_frac, which is 0.5"),
    "source": ({"gpu_util_source": "hearsay"}, "declared or history or observed or predicted or default"),
    "two roles of a name": ({"gpus": 0, "roles": (Role("a"), Role("a"))}, "roles with different names"),
    "other GPUs than its roles": ({"gpus": 3, "roles": (Role("w", 2, gpus=1),)}, "gpus is 3; it must be 2, as many as"),
    "range of its roles": ({"gpus": 2, "roles": (Role("w", 2, max_count=4, gpus=1),)}, "max_gpus is 2; it must be 4"),
    "memory beside roles": ({"gpus": 0, "memory_bytes": 1.0, "roles": (Role("a"),)}, "0, since each role has its own"),
    "no role": ({"roles": ("worker",)}, "a list of roles"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("declaration", [JobSpec, JobRequest])
def test_both_declarations_refuse_the_same(name: str, declaration: type[Any]) -> None:
    wrong, told = WRONG[name]
    needed = {"id": "a", "duration_s": 1.0} if declaration is JobSpec else {"command": ("true",)}
    with pytest.raises(PropertyError) as refused:
        declaration(**needed, **wrong)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"name": ""}, "a name such as worker"),
        ({"name": "a b"}, "a name such as worker"),
        ({"name": "ps", "count": 0}, "a whole number from 1 to 10000"),
        ({"name": "ps", "min_count": 2}, "between min_count and max_count"),
        ({"name": "ps", "cpus": math.inf}, "cpus is inf"),
    ],
)
def test_a_role_that_cannot_be_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(PropertyError, match=told):
        Role(**wrong)


def test_the_api_and_the_core_have_the_same_bounds() -> None:
    largest = JobBody.model_json_schema()["properties"]["array"]["items"]["maximum"]
    assert largest == MAX_INDEX
    JobRequest(command=("true",), array=(MAX_INDEX,))


def test_a_field_without_a_property_is_told() -> None:
    @dataclass
    class Bare:
        size: int = 1

    with pytest.raises(TypeError, match="size has no Property"):
        check(Bare())


# -- defects of the version before -------------------------------------------------------------------------------------


def test_the_name_of_a_job_is_not_its_model() -> None:
    spec = JobRequest(command=("true",), name="try-3", model="resnet50", batch_per_gpu=64).spec(
        "1", submit_s=0.0, duration_s=60.0
    )
    assert (spec.model, spec.batch_per_gpu) == ("resnet50", 64)
    assert JobRequest(command=("true",), name="try-3").spec("1", submit_s=0.0, duration_s=60.0).model == ""


def test_jobs_that_differ_in_where_they_may_run_have_different_shapes() -> None:
    table = JobTable()
    given: list[dict[str, Any]] = [
        {}, {"require": {"zone": "a"}}, {"prefer": {"zone": "a"}}, {"within": "zone"}, {"roles": (Role("w", gpus=1),)},
    ]  # fmt: skip
    table.declare([JobSpec(id=str(at), duration_s=1.0, **more) for at, more in enumerate(given * 2)][: len(given) + 1])
    assert table.shape[:6].tolist() == [0, 1, 2, 3, 4, 0]
    assert table.shape_of(1).require == (("zone", ("a",)),)
    assert table.shape_of(4).roles == (Role("w", gpus=1),)
