"""gpuwise: know what a deep learning job needs before it runs, and find it the best place on shared GPUs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpuwise.core.version import __version__ as __version__

if TYPE_CHECKING:
    from gpuwise.core.capacity import Capacity, OverAllocationError
    from gpuwise.core.commands import (
        NOTHING,
        Command,
        Decision,
        Grant,
        Migrate,
        MigSlice,
        Placement,
        Provision,
        Rearrange,
        Reason,
        Release,
        Repartition,
        Resize,
        Resume,
        Start,
        Stop,
        Suspend,
        TaskGrant,
        Why,
    )
    from gpuwise.core.draft import Draft
    from gpuwise.core.errors import GpuwiseError, ReadOnlyError, UnknownNameError
    from gpuwise.core.events import (
        CAPACITY_CHANGES,
        BackOffEnded,
        DeviceLost,
        DeviceRestored,
        DevicesClaimed,
        Event,
        JobCancelled,
        JobFailed,
        JobFinished,
        JobHeld,
        JobNoted,
        JobProgressed,
        JobReleased,
        JobRevised,
        JobStarted,
        JobSubmitted,
        JobSuspended,
        NodeAdded,
        NodeChanged,
        NodeLost,
        NodeRemoved,
        NodeRestored,
        StartRefused,
        WokeUp,
    )
    from gpuwise.core.jobs import Shape, Status
    from gpuwise.core.property import PropertyError
    from gpuwise.core.protocols import Placer, Policy, RateModel
    from gpuwise.core.rates import BoundedRates, ComposedRates, DeclaredRates, Rates, time_left_s
    from gpuwise.core.spec import ClusterSpec, Forecast, JobSpec, NodeSpec, Role, Sharing, Source
    from gpuwise.core.steps import DraftError
    from gpuwise.core.view import ClusterView
    from gpuwise.devices import gpu_type, gpu_types
    from gpuwise.engine.engine import InvalidDecisionError
    from gpuwise.predict.conformance import check_predictor
    from gpuwise.predict.rates import InterferenceRates, PredictedRates
    from gpuwise.service.predict import predict
    from gpuwise.service.simulate import Truth, simulate
    from gpuwise.sim.conformance import NotConformingError, check_policy
    from gpuwise.sim.faults import NodeFault
    from gpuwise.sim.result import SimulationResult
    from gpuwise.sim.traces import Trace, read_trace, write_trace


_NAMES = {
    "gpuwise.core.capacity": "Capacity OverAllocationError",
    "gpuwise.core.commands": (
        "NOTHING Command Decision Grant MigSlice Migrate Placement Provision Rearrange Reason Release "
        "Repartition Resize Resume Start Stop Suspend TaskGrant Why "
    ),
    "gpuwise.core.draft": "Draft",
    "gpuwise.core.errors": "GpuwiseError ReadOnlyError UnknownNameError",
    "gpuwise.core.events": (
        "BackOffEnded CAPACITY_CHANGES DeviceLost DeviceRestored DevicesClaimed Event JobCancelled JobFailed "
        "JobFinished JobHeld JobNoted JobProgressed JobReleased JobRevised JobStarted JobSubmitted JobSuspended "
        "NodeAdded NodeChanged NodeLost NodeRemoved NodeRestored StartRefused WokeUp"
    ),
    "gpuwise.core.jobs": "Shape Status",
    "gpuwise.core.protocols": "Placer Policy RateModel",
    "gpuwise.core.rates": "BoundedRates ComposedRates DeclaredRates Rates time_left_s",
    "gpuwise.core.property": "PropertyError",
    "gpuwise.core.spec": "ClusterSpec Forecast JobSpec NodeSpec Role Sharing Source",
    "gpuwise.core.steps": "DraftError",
    "gpuwise.core.view": "ClusterView",
    "gpuwise.devices": "gpu_type gpu_types",
    "gpuwise.engine.engine": "InvalidDecisionError",
    "gpuwise.predict.conformance": "check_predictor",
    "gpuwise.predict.rates": "InterferenceRates PredictedRates",
    "gpuwise.service.predict": "predict",
    "gpuwise.service.simulate": "Truth simulate",
    "gpuwise.sim.conformance": "NotConformingError check_policy",
    "gpuwise.sim.faults": "NodeFault",
    "gpuwise.sim.result": "SimulationResult",
    "gpuwise.sim.traces": "Trace read_trace write_trace",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "CAPACITY_CHANGES",
    "NOTHING",
    "BackOffEnded",
    "BoundedRates",
    "Capacity",
    "ClusterSpec",
    "ClusterView",
    "Command",
    "ComposedRates",
    "Decision",
    "DeclaredRates",
    "DeviceLost",
    "DeviceRestored",
    "DevicesClaimed",
    "Draft",
    "DraftError",
    "Event",
    "Forecast",
    "GpuwiseError",
    "Grant",
    "InterferenceRates",
    "InvalidDecisionError",
    "JobCancelled",
    "JobFailed",
    "JobFinished",
    "JobHeld",
    "JobNoted",
    "JobProgressed",
    "JobReleased",
    "JobRevised",
    "JobSpec",
    "JobStarted",
    "JobSubmitted",
    "JobSuspended",
    "MigSlice",
    "Migrate",
    "NodeAdded",
    "NodeChanged",
    "NodeFault",
    "NodeLost",
    "NodeRemoved",
    "NodeRestored",
    "NodeSpec",
    "NotConformingError",
    "OverAllocationError",
    "Placement",
    "Placer",
    "Policy",
    "PredictedRates",
    "PropertyError",
    "Provision",
    "RateModel",
    "Rates",
    "ReadOnlyError",
    "Rearrange",
    "Reason",
    "Release",
    "Repartition",
    "Resize",
    "Resume",
    "Role",
    "Shape",
    "Sharing",
    "SimulationResult",
    "Source",
    "Start",
    "StartRefused",
    "Status",
    "Stop",
    "Suspend",
    "TaskGrant",
    "Trace",
    "Truth",
    "UnknownNameError",
    "Why",
    "WokeUp",
    "check_policy",
    "check_predictor",
    "gpu_type",
    "gpu_types",
    "predict",
    "read_trace",
    "simulate",
    "time_left_s",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    """Imports what is asked for when it is asked for, so that the command line answers at once."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'gpuwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
