"""gpuwise: know what a deep learning job needs before it runs, and find it the best place on shared GPUs."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpuwise.core import __version__ as __version__

if TYPE_CHECKING:
    from gpuwise.core.assignments import Assignment, Desired, DeviceCut, Intent, NodeRequest, Where
    from gpuwise.core.cluster.capacity import Capacity
    from gpuwise.core.cluster.nodes import Distance, NodeTable
    from gpuwise.core.cluster.spec import ClusterSpec, NodeSpec
    from gpuwise.core.commands import (
        NOTHING,
        Command,
        Decision,
        Explain,
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
    from gpuwise.core.decision.draft import Draft
    from gpuwise.core.decision.steps import DraftError
    from gpuwise.core.decision.view import ClusterView
    from gpuwise.core.errors import GpuwiseError, OverAllocationError, ReadOnlyError, UnknownNameError
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
        ReleaseRefused,
        StartRefused,
        WokeUp,
    )
    from gpuwise.core.job.life_cycle import Status
    from gpuwise.core.job.needs import Forecast, Role, Sharing, Source
    from gpuwise.core.job.property import PropertyError
    from gpuwise.core.job.shape import Shape
    from gpuwise.core.job.spec import JobSpec
    from gpuwise.core.job.table import JobTable
    from gpuwise.core.observations import AttemptObserved, Cause, Details, Observations, Phase, RankStatus
    from gpuwise.core.protocols import Executor, MakeRates, Placer, Policy, RateModel
    from gpuwise.core.rates import (
        BoundedRates,
        ComposedRates,
        DeclaredRates,
        DeclaredSharing,
        LinearScaling,
        Rates,
        Scaling,
        SharingPart,
        progresses,
        time_left_s,
    )
    from gpuwise.devices.catalogue import gpu_type, gpu_types
    from gpuwise.engine.checks import InvalidDecisionError
    from gpuwise.engine.drive import StalledError
    from gpuwise.predict.conformance import check_predictor
    from gpuwise.predict.rates import InterferenceRates, PredictedRates
    from gpuwise.service.offline.predict import predict
    from gpuwise.service.offline.simulate import Truth, simulate
    from gpuwise.sim.conformance import NotConformingError, check_policy
    from gpuwise.sim.executor.failures import NodeFault
    from gpuwise.sim.results.result import SimulationResult
    from gpuwise.sim.traces.files import read_trace, write_trace
    from gpuwise.sim.traces.trace import Trace


_NAMES = {
    "gpuwise.core.assignments": "Assignment Desired DeviceCut Intent NodeRequest Where",
    "gpuwise.core.cluster.capacity": "Capacity",
    "gpuwise.core.cluster.spec": "ClusterSpec NodeSpec",
    "gpuwise.core.commands": (
        "Command Decision Explain Grant MigSlice Migrate NOTHING Placement Provision Rearrange Reason "
        "Release Repartition Resize Resume Start Stop Suspend TaskGrant Why"
    ),
    "gpuwise.core.decision.draft": "Draft",
    "gpuwise.core.errors": "GpuwiseError OverAllocationError ReadOnlyError UnknownNameError",
    "gpuwise.core.events": (
        "BackOffEnded CAPACITY_CHANGES DeviceLost DeviceRestored DevicesClaimed Event JobCancelled "
        "JobFailed JobFinished JobHeld JobNoted JobProgressed JobReleased JobRevised JobStarted "
        "JobSubmitted JobSuspended NodeAdded NodeChanged NodeLost NodeRemoved NodeRestored "
        "ReleaseRefused StartRefused WokeUp"
    ),
    "gpuwise.core.job.life_cycle": "Status",
    "gpuwise.core.job.needs": "Forecast Role Sharing Source",
    "gpuwise.core.job.shape": "Shape",
    "gpuwise.core.job.spec": "JobSpec",
    "gpuwise.core.job.table": "JobTable",
    "gpuwise.core.cluster.nodes": "Distance NodeTable",
    "gpuwise.core.observations": "AttemptObserved Cause Details Observations Phase RankStatus",
    "gpuwise.core.job.property": "PropertyError",
    "gpuwise.core.protocols": "Executor MakeRates Placer Policy RateModel",
    "gpuwise.core.rates": (
        "BoundedRates ComposedRates DeclaredRates DeclaredSharing LinearScaling Rates Scaling "
        "SharingPart progresses time_left_s"
    ),
    "gpuwise.core.decision.steps": "DraftError",
    "gpuwise.core.decision.view": "ClusterView",
    "gpuwise.devices": "gpu_type gpu_types",
    "gpuwise.engine.drive": "StalledError",
    "gpuwise.engine.checks": "InvalidDecisionError",
    "gpuwise.predict.conformance": "check_predictor",
    "gpuwise.predict.rates": "InterferenceRates PredictedRates",
    "gpuwise.service.offline.predict": "predict",
    "gpuwise.service.offline.simulate": "Truth simulate",
    "gpuwise.sim.conformance": "NotConformingError check_policy",
    "gpuwise.sim.executor.failures": "NodeFault",
    "gpuwise.sim.results.result": "SimulationResult",
    "gpuwise.sim.traces": "Trace read_trace write_trace",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "CAPACITY_CHANGES",
    "NOTHING",
    "Assignment",
    "AttemptObserved",
    "BackOffEnded",
    "BoundedRates",
    "Capacity",
    "Cause",
    "ClusterSpec",
    "ClusterView",
    "Command",
    "ComposedRates",
    "Decision",
    "DeclaredRates",
    "DeclaredSharing",
    "Desired",
    "Details",
    "DeviceCut",
    "DeviceLost",
    "DeviceRestored",
    "DevicesClaimed",
    "Distance",
    "Draft",
    "DraftError",
    "Event",
    "Executor",
    "Explain",
    "Forecast",
    "GpuwiseError",
    "Grant",
    "Intent",
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
    "JobTable",
    "LinearScaling",
    "MakeRates",
    "MigSlice",
    "Migrate",
    "NodeAdded",
    "NodeChanged",
    "NodeFault",
    "NodeLost",
    "NodeRemoved",
    "NodeRequest",
    "NodeRestored",
    "NodeSpec",
    "NodeTable",
    "NotConformingError",
    "Observations",
    "OverAllocationError",
    "Phase",
    "Placement",
    "Placer",
    "Policy",
    "PredictedRates",
    "PropertyError",
    "Provision",
    "RankStatus",
    "RateModel",
    "Rates",
    "ReadOnlyError",
    "Rearrange",
    "Reason",
    "Release",
    "ReleaseRefused",
    "Repartition",
    "Resize",
    "Resume",
    "Role",
    "Scaling",
    "Shape",
    "Sharing",
    "SharingPart",
    "SimulationResult",
    "Source",
    "StalledError",
    "Start",
    "StartRefused",
    "Status",
    "Stop",
    "Suspend",
    "TaskGrant",
    "Trace",
    "Truth",
    "UnknownNameError",
    "Where",
    "Why",
    "WokeUp",
    "check_policy",
    "check_predictor",
    "gpu_type",
    "gpu_types",
    "predict",
    "progresses",
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


class _CallablePackage(ModuleType):
    """The package `gpuwise.predict`, which is also the use case ``gpuwise.predict(model, batch=64)``."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return import_module("gpuwise.service.offline.predict").predict(*args, **kwargs)


import_module("gpuwise.predict").__class__ = _CallablePackage


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
