"""Whether the cluster could ever run a job, and what it lacks if it could not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.eligible import describe_labels
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.job.needs import ON_ONE_NODE, Role, sharing_only
from gpuwise.core.job.request import JobRequest
from gpuwise.core.job.shape import SHAPE_FIELDS, describe_roles
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import feasible
from gpuwise.core.units import format_bytes
from gpuwise.engine.engine import Engine
from gpuwise.live.inbox import NotPossibleError

MOST_ANSWERS = 1000
DECIDED_BY = ("gpu_frac", *(name for name in SHAPE_FIELDS if name != "milli"))
"""The properties of a job that decide whether it is feasible."""


class Feasibility:
    """Whether jobs are feasible on an engine's nodes; answers are kept until the nodes change."""

    def __init__(self) -> None:
        self.answers: dict[tuple[Any, ...], bool] = {}

    def check(self, engine: Engine, request: JobRequest) -> None:
        """Refuses a job that could never run."""
        nodes = [node for _, node in engine.state.nodes.present()]
        key = request.within
        if key and key != ON_ONE_NODE and all(key not in dict(node.labels) for node in nodes):
            raise NotPossibleError(
                f"the job can never run here: its nodes must be within one {key}, and no node has that label"
            )
        if not self.is_feasible(engine, request):
            raise NotPossibleError(
                f"the job can never run here: it asks for {_asks(request)}, and {_offered(request, nodes)}"
            )

    def is_feasible(self, engine: Engine, request: JobRequest) -> bool:
        """Whether the cluster could run a job if it were empty."""
        key = tuple(getattr(request, name) for name in DECIDED_BY)
        if key not in self.answers:
            if len(self.answers) >= MOST_ANSWERS:
                self.answers.clear()
            self.answers[key] = _is_feasible(engine, request.spec("job", submit_s=0.0, duration_s=1.0))
        return self.answers[key]


def _is_feasible(engine: Engine, spec: JobSpec) -> bool:
    state, table = engine.state, JobTable()
    table.declare([spec])
    empty = Capacity(state.nodes)
    empty.ignore_drains()
    if not hasattr(engine.policy, "feasible"):  # one that has it may partition GPUs otherwise than they are now
        for (node, device), slices in state.capacity.layouts.items():
            empty.repartition(node, device, slices)
    return feasible(engine.policy, empty, table.shape_of(0), engine.view.placer)


def _asks(request: JobRequest) -> str:
    kinds = f" of type {' or '.join(request.gpu_types)}" if request.gpu_types else ""
    memory = f" with {format_bytes(request.gpu_memory_bytes)} each" if request.gpu_memory_bytes else ""
    host = f", {request.cpus:g} CPUs" if request.cpus else ""
    host += f", {format_bytes(request.memory_bytes)} of memory" if request.memory_bytes else ""
    sharing = sharing_only(request.sharing)
    roles = f", as {describe_roles(request.roles)}" if request.roles else ""
    where = f", on nodes with {describe_labels(request.require)}" if request.require else ""
    where += f", within one {request.within}" if request.within else ""
    return f"{request.gpus} GPU{'' if request.gpus == 1 else 's'}{kinds}{memory}{host}{roles}{sharing}{where}"


def _offered(request: JobRequest, nodes: Sequence[NodeSpec]) -> str:
    """What there is on the nodes with the labels that a job requires, of what it asks for."""
    labelled = [node for node in nodes if all(dict(node.labels).get(key) in values for key, values in request.require)]
    if not labelled:
        return f"no node has {describe_labels(request.require)}" if request.require else "there are no nodes"
    return f"there are {', '.join(_node(request, node) for node in labelled)}"


def _node(request: JobRequest, node: NodeSpec) -> str:
    asked: Sequence[JobRequest | Role] = (request, *request.roles)
    more = []
    if request.gpu_memory_bytes and math.isfinite(node.gpu_memory_bytes):
        more.append(f"{format_bytes(node.gpu_memory_bytes)} each")
    if any(each.cpus for each in asked) and math.isfinite(node.cpus):
        more.append(f"{node.cpus:g} CPUs")
    if any(each.memory_bytes for each in asked) and math.isfinite(node.memory_bytes):
        more.append(f"{format_bytes(node.memory_bytes)} of memory")
    if value := dict(node.labels).get(request.within):
        more.append(f"{request.within} {value}")
    gpus = f"{node.gpus} × {node.gpu_type}" if node.gpus else "0 GPUs"
    return gpus + (f" ({', '.join(more)})" if more else "")
