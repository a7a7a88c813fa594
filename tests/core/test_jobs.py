"""The job table: what was declared comes back, however many there are."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import job
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.life_cycle import ENDED, LIFE_CYCLE, PLACED, WAITING, Status
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.schema import plain
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable

times = st.floats(0, 1e6)
names = st.text("abc é-7", max_size=6)


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    gpus = draw(st.integers(0, 64))
    elastic = gpus > 0 and draw(st.booleans())
    low, high = (draw(st.integers(1, gpus)), draw(st.integers(gpus, 128))) if elastic else (None, None)
    return JobSpec(
        id=draw(names),
        submit_s=draw(times),
        duration_s=draw(st.floats(1e-3, 1e6)),
        gpus=gpus,
        min_gpus=low,
        max_gpus=high,
        gpu_frac=draw(st.integers(1, 1000)) / 1000 if gpus == 1 and not elastic else 1.0,
        gpu_memory_bytes=draw(times),
        gpu_types=tuple(draw(st.lists(names, max_size=3))),
        sharing=frozenset(draw(st.sets(st.sampled_from(Sharing), min_size=1))),
        cpus=draw(times),
        memory_bytes=draw(times),
        priority=draw(st.integers(-(2**31), 2**31 - 1)),
        deadline_s=draw(times | st.just(math.inf)),
        tenant=draw(names),
        steps=draw(st.none() | st.floats(1e-3, 1e9)),
        model=draw(names),
        batch_per_gpu=draw(st.integers(0, 2**31 - 1)),
        gpu_util_frac=draw(st.floats(0, 1)),
        suspend_s=draw(times),
        resume_s=draw(times),
        migrate_s=draw(times),
        resize_s=draw(times),
    )


def in_full(spec: JobSpec) -> JobSpec:
    """A declaration with what it leaves open filled in, as the table keeps it."""
    low, high = spec.gpu_range
    return replace(spec, min_gpus=low, max_gpus=high)


@given(st.lists(specs(), max_size=40, unique_by=lambda spec: spec.id), st.integers(0, 40))
def test_what_is_declared_comes_back(declared: list[JobSpec], split: int):
    table = JobTable()
    rows = [*table.declare(declared[:split]), *table.declare(declared[split:])]
    assert rows == list(range(len(declared))) == [table.row_of[spec.id] for spec in declared]
    assert [plain(table.spec(row)) for row in rows] == [plain(in_full(spec)) for spec in declared]


def test_an_unknown_utilization_comes_back_unknown():
    table = JobTable()
    table.declare([job("a")])
    assert math.isnan(table.spec(0).gpu_util_frac)


def test_whether_steps_are_known_is_kept_apart_from_how_many_are_counted():
    table = JobTable()
    table.declare([job("a", 60.0), job("b", 60.0, steps=60.0)])
    assert table.steps[:2].tolist() == [60.0, 60.0]
    assert table.steps_known[:2].tolist() == [0, 1]
    table.duration_s[:2] = 90.0  # a revised run time makes nothing known
    assert [table.spec(row).steps for row in (0, 1)] == [None, 60.0]


def test_columns_give_the_same_table_as_objects():
    known = {"gpu_util_frac": 0.5}
    declared = [
        job("a", gpus=4, tenant="x", **known),
        job("b", gpu_frac=0.25, at=3.0, **known),
        job("c", max_gpus=8, **known),
    ]
    by_object, by_column = JobTable(), JobTable()
    by_object.declare(declared)
    listed = {field.name: [getattr(spec, field.name) for spec in declared] for field in fields(JobSpec)}
    by_column.declare_columns(listed)
    assert [plain(by_column.spec(row)) for row in range(3)] == [plain(by_object.spec(row)) for row in range(3)]


def test_columns_may_be_left_out():
    table = JobTable()
    table.declare_columns({"id": ["a", "b"], "duration_s": [5.0, 6.0]})
    # Only what has no default: one whole GPU, steps unknown.
    assert plain(table.spec(1)) == plain(in_full(job("b", 6.0)))


def test_a_table_grows_and_keeps_what_it_had():
    table = JobTable()
    for number in range(100):
        table.declare([job(f"j{number}", duration_s=number + 1)])
        table.status[number] = Status.PENDING
    assert len(table) == 100
    assert table.columns()["duration_s"].tolist() == [number + 1 for number in range(100)]
    assert table.columns()["status"].tolist() == [Status.PENDING] * 100
    assert math.isnan(table.first_start_s[99])


def test_columns_are_cut_to_the_rows_in_use_and_refuse_writes():
    table = JobTable()
    table.declare([job("a"), job("b")])
    column = table.columns()["priority"]
    assert len(column) == 2
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1


def test_jobs_that_ask_for_the_same_have_one_shape():
    table = JobTable()
    table.declare([job("a", 5.0, 2), job("b", 9.0, 2, tenant="x"), job("c", 5.0, 3), job("d", 5.0, 2, max_gpus=4)])
    assert table.shape[:4].tolist() == [0, 0, 1, 2]
    assert [shape.max_gpus for shape in table.shapes] == [2, 3, 4]


def test_the_smallest_share_is_a_thousandth():
    table = JobTable()
    table.declare([job("a", gpu_frac=1e-5), job("b", gpu_frac=0.3334)])
    assert [table.shape_of(row).milli for row in (0, 1)] == [1, 333]


def test_an_id_is_used_once_and_a_refused_declaration_leaves_the_table_as_it_was():
    table = JobTable()
    table.declare([job("a")])
    with pytest.raises(GpuwiseError, match="job id 'a' is used twice; ids must be unique"):
        table.declare([job("b"), job("a")])
    assert "b" not in table.row_of
    table.declare([job("c"), job("b")])
    assert table.ids == ["a", "c", "b"]


def test_the_life_cycle_names_every_status_and_nothing_follows_an_end():
    assert LIFE_CYCLE.keys() == set(Status)
    assert all(not LIFE_CYCLE[status] for status in ENDED)
    assert not WAITING & PLACED
    assert not (WAITING | PLACED) & ENDED
    reached = {Status.DECLARED}
    for _ in Status:
        reached |= {after for before in reached for after in LIFE_CYCLE[before]}
    assert reached == set(Status)
