"""A policy that writes to the view gets an error and changes nothing; what it reads is always as it is now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from audit import picture

from builders import HALVES, cluster, engine_with, job, node, on
from gpuwise.core.assignments import Where
from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import ReadOnlyError
from gpuwise.core.events import JobSubmitted, NodeAdded, NodeChanged, WokeUp
from gpuwise.core.job.needs import Forecast
from gpuwise.engine.engine import Engine


def busy() -> Engine:
    """A job runs, one waits, a GPU is cut, and hosts have CPUs."""
    nodes = cluster(node("a", 2, "A100", cpus=8.0), node("b", 2, "A100", cpus=8.0))
    engine = engine_with([job("runs", cpus=1.0), job("waits", gpus=2)], nodes)
    engine.policy.script = [lambda draft: (draft.start(0), draft.cut(1, 0, HALVES))]
    engine.step(0.0, [WokeUp(0.0)])
    return engine


REFUSED = (ReadOnlyError, ValueError, TypeError, AttributeError)
"""What gpuwise's own guards, numpy's and Python's raise."""
WRITES: dict[str, Callable[[ClusterView, Draft], Any]] = {
    "a cell of a job": lambda view, _: view.jobs.priority.__setitem__(0, 9),
    "a column": lambda view, _: setattr(view.jobs, "priority", None),
    "a column of the view": lambda view, _: view.column("priority").__setitem__(0, 9),
    "a job's id": lambda view, _: view.jobs.ids.__setitem__(0, "x"),
    "a job's shape": lambda view, _: view.jobs.shape_by_row.append(None),
    "a job declared": lambda view, _: view.jobs.declare([job("new")]),
    "a job revised": lambda view, _: view.jobs.revise_memory(1, Forecast(1.0)),
    "the row of a job": lambda view, _: view.jobs.row_of.update(x=1),
    "the speeds of a job": lambda view, _: view.jobs.speed_tables[0].update(V100=9.0),
    "a cell of a node": lambda view, _: view.nodes.gpus.__setitem__(0, 9),
    "what the capacity keeps to itself": lambda view, _: view.capacity._bits.append(0),
    "the nodes removed": lambda view, _: view.nodes.removed.add(0),
    "the models of jobs": lambda view, _: view.jobs.values["model"].append("x"),
    "a node added": lambda view, _: view.nodes.put(node("c", 1)),
    "the type of a node": lambda view, _: view.nodes.type_of.__setitem__(0, 1),
    "room taken": lambda view, _: view.capacity.take(on((0, 1)), view.shape(1)),
    "room given": lambda view, _: view.capacity.give(view.placed[0], view.shape(0)),
    "a GPU cut": lambda view, _: view.capacity.repartition(0, 1, HALVES),
    "a node out of service": lambda view, _: view.capacity.set_up(0, False),
    "a device out of service": lambda view, _: view.capacity.set_device_up(0, 0, False),
    "room for a node": lambda view, _: view.capacity.add_node(2),
    "idle devices": lambda view, _: view.capacity.idle.__setitem__(0, 0),
    "nodes by idle devices": lambda view, _: view.capacity.by_idle.__setitem__(0, []),
    "nodes of a type by idle devices": lambda view, _: exec("b[0][2] = 0", {"b": view.capacity.by_idle}),
    "free CPUs": lambda view, _: view.capacity.free_cpu_milli.__setitem__(0, 0.0),
    "slices": lambda view, _: view.capacity.layouts.pop((1, 0)),
    "free slices": lambda view, _: view.capacity.free_slices.__setitem__((1, 0), ()),
    "a list replaced": lambda view, _: setattr(view.capacity, "idle", []),
    "nodes behind the capacity": lambda view, _: view.capacity.nodes.gpus.__setitem__(0, 9),
    "where a job is": lambda view, _: exec("del placed[0]", {"placed": view.placed}),
    "a job placed": lambda view, _: view.placed.update({1: on((0, 1))}),
    "a job lined up": lambda view, _: view.waiting.add(0),
    "a job taken out of line": lambda view, _: view.waiting.remove(1),
    "the order": lambda view, _: setattr(view.waiting, "key", None),
    "a lane": lambda view, _: next(iter(view.waiting.lanes.values())).clear(),
    "those that hold GPUs": lambda view, _: view.placed_jobs().__setitem__(0, 1),
    "the view itself": lambda view, _: setattr(view, "capacity", None),
    "an untouched draft": lambda _, draft: draft.capacity.take(on((0, 1)), draft.view.shape(1)),
    "the free CPUs of a fork": lambda view, _: view.capacity.fork().free_cpu_milli.__setitem__(0, 0.0),
    "the slices of a fork": lambda view, _: view.capacity.fork().layouts.pop((1, 0)),
    "the nodes of a fork": lambda view, _: view.capacity.fork().nodes.gpus.__setitem__(0, 9),
    "a fork of a fork": lambda view, _: view.capacity.fork().fork().free_host_bytes.__setitem__(0, 0.0),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_refused_and_changes_nothing(write: str) -> None:
    engine = busy()
    before = picture(engine.state)
    with pytest.raises(REFUSED, match=r"read-only|does not support item|no attribute"):
        WRITES[write](engine.view, engine.view.draft())
    assert picture(engine.state) == before
    engine.state.jobs.declare([job("after")])
    engine.step(0.0, [JobSubmitted(0.0, 2)])  # the engine itself still may


def test_the_error_says_what_to_do() -> None:
    with pytest.raises(ReadOnlyError, match=r"a policy's view is read-only; try things on view\.draft\(\)"):
        busy().view.capacity.take(on((0, 1)), None)


def test_a_placer_that_takes_what_it_found_is_refused() -> None:
    def greedy(capacity: Capacity, shape: Any, gpus: int) -> Any:
        capacity.take(on((0, 1)), shape)

    engine = busy()
    before = picture(engine.state)
    with pytest.raises(ReadOnlyError):
        engine.view.draft(greedy).start(1)
    assert picture(engine.state) == before


def test_what_a_draft_writes_to_its_own_copy_stays_there() -> None:
    engine = busy()
    before = picture(engine.state)
    draft = engine.view.draft()
    draft.suspend(0)
    draft.start(1)
    draft.capacity.give(on((0, 1)), draft.view.shape(1))
    draft.capacity.repartition(1, 0, ())
    draft.capacity.free_cpu_milli[0] = 0
    assert picture(engine.state) == before


def test_the_view_follows_the_tables_as_they_grow() -> None:
    engine = busy()
    view, jobs = engine.view, engine.view.jobs
    rows = engine.state.jobs.declare([job(f"more {number}", priority=number) for number in range(100)])
    engine.step(1.0, [JobSubmitted(1.0, row) for row in rows])
    engine.step(1.0, [NodeAdded(1.0, node("c", 8, "V100"))])
    assert (len(jobs), jobs.priority.item(101), jobs.ids[101], view.shape(101).gpus) == (102, 99, "more 99", 1)
    assert (len(view.nodes), view.nodes.gpus.item(2), view.nodes.types[-1]) == (3, 8, "V100")
    assert view.capacity.idle[2] == 0xFF
    assert view.capacity.idle_total == [2, 8]
    assert len(view.waiting) == 101
    engine.state.jobs.priority[0] = 7
    assert jobs.priority.item(0) == 7


def test_a_policy_may_ask_where_a_placement_is_by_name_and_is_told_how_it_is_now():
    engine = busy()
    view = engine.view
    assert view.nodes.where(on((1, 1))) == (Where("b", ("b/1",)),)
    engine.step(1.0, [NodeChanged(1.0, node("b", 2, "A100", cpus=8.0, device_ids=("GPU-x", "GPU-y")))])
    assert view.nodes.where(on((1, 1))) == (Where("b", ("GPU-y",)),)
