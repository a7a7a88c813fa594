"""gpuwise: know what a deep learning job needs before it runs, and find it the best place on shared GPUs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpuwise.core.version import __version__ as __version__

if TYPE_CHECKING:
    from gpuwise.core.commands import NOTHING, Decision, Placement, Reason, Why
    from gpuwise.core.errors import GpuwiseError
    from gpuwise.core.events import CAPACITY_CHANGES
    from gpuwise.core.protocols import Policy
    from gpuwise.core.spec import ClusterSpec, JobSpec, NodeSpec, Sharing
    from gpuwise.core.view import ClusterView, Draft
    from gpuwise.devices import gpu_type, gpu_types
    from gpuwise.predict.conformance import check_predictor
    from gpuwise.service.predict import predict
    from gpuwise.service.simulate import simulate
    from gpuwise.sim.conformance import check_policy
    from gpuwise.sim.faults import NodeFault
    from gpuwise.sim.result import SimulationResult
    from gpuwise.sim.traces import Trace, read_trace, write_trace


_HOME = {
    "CAPACITY_CHANGES": "gpuwise.core.events",
    "ClusterSpec": "gpuwise.core.spec",
    "ClusterView": "gpuwise.core.view",
    "Decision": "gpuwise.core.commands",
    "Draft": "gpuwise.core.view",
    "GpuwiseError": "gpuwise.core.errors",
    "JobSpec": "gpuwise.core.spec",
    "NOTHING": "gpuwise.core.commands",
    "NodeFault": "gpuwise.sim.faults",
    "NodeSpec": "gpuwise.core.spec",
    "Placement": "gpuwise.core.commands",
    "Policy": "gpuwise.core.protocols",
    "Reason": "gpuwise.core.commands",
    "Sharing": "gpuwise.core.spec",
    "SimulationResult": "gpuwise.sim.result",
    "Trace": "gpuwise.sim.traces",
    "Why": "gpuwise.core.commands",
    "check_policy": "gpuwise.sim.conformance",
    "check_predictor": "gpuwise.predict.conformance",
    "gpu_type": "gpuwise.devices",
    "gpu_types": "gpuwise.devices",
    "predict": "gpuwise.service.predict",
    "read_trace": "gpuwise.sim.traces",
    "simulate": "gpuwise.service.simulate",
    "write_trace": "gpuwise.sim.traces",
}

__all__ = [
    "CAPACITY_CHANGES",
    "NOTHING",
    "ClusterSpec",
    "ClusterView",
    "Decision",
    "Draft",
    "GpuwiseError",
    "JobSpec",
    "NodeFault",
    "NodeSpec",
    "Placement",
    "Policy",
    "Reason",
    "Sharing",
    "SimulationResult",
    "Trace",
    "Why",
    "check_policy",
    "check_predictor",
    "gpu_type",
    "gpu_types",
    "predict",
    "read_trace",
    "simulate",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    """Imports what is asked for when it is asked for, so that the command line answers at once."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'gpuwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
