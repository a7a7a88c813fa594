"""Small builders, so that a test reads as: this cluster, these jobs, this outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
from gpuwise.core.commands import Command, Decision, Grant, MigSlice, Placement
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.events import Event, JobSubmitted
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.units import GIB
from gpuwise.engine.engine import Engine
from gpuwise.policies.placing.placement import first_fit
from gpuwise.service.offline.simulate import simulate
from gpuwise.sim.results.result import SimulationResult


def commands_of(engine: Engine, now_s: float, *events: Event) -> list[Command]:
    """What an engine does about events, as its journal has it."""
    before = len(engine.journal.records)
    engine.step(now_s, events)
    return [each for each in engine.journal.records[before:] if isinstance(each, Command)]


HALVES = (MigSlice("3g.20gb", 0, 429, 20 * GIB), MigSlice("3g.20gb", 4, 429, 20 * GIB))
"""An A100 cut in two."""


def job(id: str, duration_s: float = 10.0, gpus: int = 1, at: float = 0.0, **more: Any) -> JobSpec:
    """A job of so many seconds on so many GPUs, submitted at a time."""
    return JobSpec(id=id, duration_s=duration_s, gpus=gpus, submit_s=at, **more)


def node(name: str, gpus: int, gpu_type: str = "V100", **more: Any) -> NodeSpec:
    """A node of so many GPUs."""
    return NodeSpec(name=name, gpu_type=gpu_type, gpus=gpus, **more)


def cluster(*nodes: str | NodeSpec) -> ClusterSpec:
    """A cluster from shorthand, or from nodes."""
    if len(nodes) == 1 and isinstance(nodes[0], str):
        return ClusterSpec.parse(nodes[0])
    return ClusterSpec(tuple(each for each in nodes if isinstance(each, NodeSpec)))


def on(*devices: tuple[int, int], sharing: Sharing = Sharing.EXCLUSIVE, milli: int = 1000) -> Placement:
    """A placement on (node, device) pairs."""
    masks: dict[int, int] = {}
    for where, device in devices:
        masks[where] = masks.get(where, 0) | 1 << device
    return Placement(tuple(Grant(*each) for each in masks.items()), sharing, milli)


def mig(node: int, device: int, start: int, milli: int = 429) -> Placement:
    """A placement on the MIG slice that begins at ``start``."""
    return Placement((Grant(node, 1 << device, start),), Sharing.MIG, milli)


def capacity_of(spec: ClusterSpec) -> Capacity:
    """Everything free."""
    nodes = NodeTable()
    for each in spec.nodes:
        nodes.put(each)
    return Capacity(nodes)


def shapes_of(*jobs: JobSpec) -> list[Shape]:
    """What each of some jobs asks for; shapes that differ have ids that differ, whichever call they come from."""
    named = [replace(each, id=f"{each.id} {len(_SHAPES)}.{number}") for number, each in enumerate(jobs)]
    return [_SHAPES.shape_of(row) for row in _SHAPES.declare(named)]


_SHAPES = JobTable()


class Scripted:
    """A policy that decides what a test tells it to, one decision after the other, then nothing."""

    name = "scripted"

    def __init__(self, wakes_on: frozenset[type[Event]] = frozenset()) -> None:
        self.wakes_on = wakes_on
        self.script: list[Any] = []

    def decide(self, view: ClusterView, rng: Any) -> Decision:
        """Runs the next line of the script on a draft; one that gives a decision is followed to the letter."""
        draft = view.draft()
        given = self.script.pop(0)(draft) if self.script else None
        return given if isinstance(given, Decision) else draft.seal()


class Timetable:
    """A policy that does what a test tells it to at the times it tells it to."""

    name = "timetable"
    wakes_on: frozenset[type[Event]] = frozenset((JobSubmitted,))

    def __init__(self, actions: dict[float, Callable[[Draft], object]]) -> None:
        self.actions = dict(actions)

    def decide(self, view: ClusterView, rng: Any) -> Decision:
        """Does what is due and asks to be woken for what is next."""
        draft = view.draft()
        for at_s in sorted(at_s for at_s in self.actions if at_s <= view.now_s):
            self.actions.pop(at_s)(draft)
        return draft.seal(wake_at=min(self.actions, default=None))


def engine_with(jobs: Sequence[JobSpec], spec: ClusterSpec, **more: Any) -> Engine:
    """An engine with a scripted policy to which the jobs were submitted, each at its time."""
    engine = Engine(spec, more.pop("policy", None) or Scripted(), placer=first_fit, **more)
    for row in engine.state.jobs.declare(jobs):
        at_s = engine.state.jobs.submit_s.item(row)
        engine.step(at_s, [JobSubmitted(at_s, row)])
    return engine


def draft_with(jobs: Sequence[JobSpec], spec: ClusterSpec) -> Draft:
    """A draft over a cluster on which the jobs wait."""
    return engine_with(jobs, spec).view.draft()


def run(jobs: Any, spec: str | ClusterSpec, policy: Any = "fifo", **more: Any) -> SimulationResult:
    """A simulation on a cluster that is not looked up in the catalogue."""
    return simulate(jobs, cluster(spec) if isinstance(spec, str) else spec, policy, **more)


def started(result: SimulationResult) -> dict[str, float]:
    """When each job first started."""
    return _by_id(result.to_frame(), "start_s")


def finished(result: SimulationResult) -> dict[str, float]:
    """When each job ended."""
    return _by_id(result.to_frame(), "finish_s")


def stays(result: SimulationResult) -> list[tuple[str, str, float, float]]:
    """Who held GPUs where, from when to when."""
    frame = result.stays().sort("start_s", "id", "node")
    return list(frame.select("id", "node", "start_s", "end_s").iter_rows())


def _by_id(frame: pl.DataFrame, column: str) -> dict[str, float]:
    return dict(frame.select("id", column).iter_rows())
