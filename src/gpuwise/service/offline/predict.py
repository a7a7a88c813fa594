"""The use case behind ``gpuwise predict``: a model and some GPU or VM types become a forecast."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.devices.catalogue import GpuType, gpu_type, gpu_types
from gpuwise.devices.vms import VmType, vm_type, vm_types
from gpuwise.graph.cache import cached_graph
from gpuwise.graph.models.by_name import ModelSpec, graph_of_function
from gpuwise.graph.ops import Graph, Op
from gpuwise.predict import registry
from gpuwise.predict.base import Estimates
from gpuwise.predict.memory.parts import memory_features
from gpuwise.predict.time.gpu_rates import is_known, rates
from gpuwise.predict.time.step_time import step_columns
from gpuwise.predict.time.work import own_row
from gpuwise.service.offline.forecast import Forecast, Quantity, Row

IMAGENET = 1_281_167
"""Samples of the usual epoch."""
COMMON = ("K80", "P100", "V100", "T4", "RTX2080Ti", "RTX3090", "A10", "A100", "A100-80GB", "L4", "L40S", "H100")
"""The GPU types that are shown when none is named."""
MOST_LAYERS = 15
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Place:
    """A GPU type, or a VM with its GPUs, to forecast for."""

    gpu: GpuType
    gpus: int = 1
    vm: str | None = None
    usd_per_hour: float | None = None

    @classmethod
    def of_vm(cls, vm: VmType) -> Place:
        """A VM with all its GPUs."""
        return cls(gpu_type(vm.gpu), vm.gpus, vm.name, vm.usd_per_hour)


def predict(
    model: str | Graph | Callable[..., Any],
    *,
    batch: int = 32,
    gpus: Sequence[str] | None = None,
    vms: Sequence[str] | None = None,
    count: int = 1,
    precision: str = "fp32",
    optimizer: str = "momentum",
    image: int | None = None,
    sequence: int | None = None,
    measured: Mapping[str, float] | None = None,
    epoch_samples: int = IMAGENET,
    fresh: bool = False,
) -> Forecast:
    """What a model will need on each GPU or VM type: step and epoch time, utilization, memory, speed and cost.

    ``model`` is a name as ``gpuwise predict`` takes it, a function that returns the module and its example inputs, or a
    graph that was traced before, whose batch and precision count then. ``count`` is the number of GPUs of a type that
    train together; a VM has its own. Naming a file or function runs its code. ``batch`` is what each GPU gets in a
    step. ``measured`` are seconds that a step took where it has run, by GPU type; others are worked out from these.
    """
    places = _places(gpus, vms, count)
    if epoch_samples < 1:
        raise GpuwiseError(f"an epoch of {epoch_samples} samples; it must be 1 or more")
    if isinstance(model, Graph):
        graph = model
    else:
        name = model if isinstance(model, str) else getattr(model, "__name__", "model")
        ask = ModelSpec(name, batch, precision, optimizer, image=image, sequence=sequence)  # type: ignore[arg-type] # takes words
        graph = cached_graph(ask, fresh=fresh) if isinstance(model, str) else graph_of_function(model, ask)
    rows = _rows(graph, places, _checked(measured), epoch_samples)
    return Forecast(graph.model, graph.batch, epoch_samples, graph, tuple(rows), _notes(graph, places))


def costliest(forecast: Forecast, most: int = MOST_LAYERS) -> list[dict[str, Any]]:
    """The operators that take longest on each GPU, with their share of the step and what bounds them there."""
    predictor: Any = registry.load("step_time").predictor
    rows: list[dict[str, Any]] = []
    for gpu in dict.fromkeys(row.gpu for row in forecast):
        times = predictor.operator_times(forecast.graph, gpu)
        peak = rates([gpu], str(forecast.graph.precision))
        longest = np.argsort(-times, kind="stable")[:most].tolist()
        ops, total_s = forecast.graph.ops, float(times.sum())
        rows += [_costly(gpu, ops[each], float(times[each]), total_s, peak) for each in longest]
    return rows


def _costly(gpu: str, op: Op, time_s: float, total_s: float, peak: dict[str, Any]) -> dict[str, Any]:
    computing, moving = op.flops / float(peak["flops_per_s"][0]), op.bytes / float(peak["bytes_per_s"][0])
    return {
        "gpu": gpu, "layer": op.layer, "operator": op.operator, "phase": str(op.phase),
        "shape": "×".join(map(str, op.output)), "gflops": op.flops / 1e9, "read_and_written_bytes": op.bytes,
        "time_ms": 1e3 * time_s,
        "share_frac": time_s / total_s, "bound": "compute" if computing >= moving else "memory",
    }  # fmt: skip


# -- what is asked for ------------------------------------------------------------------------------------------------


def _places(gpus: Sequence[str] | None, vms: Sequence[str] | None, count: int) -> list[Place]:
    if count < 1:
        raise GpuwiseError(f"{count} GPUs; it must be 1 or more")
    found = [_place(gpu_type(name), count) for name in gpus or ()]
    for name in vms or ():
        found += [Place.of_vm(vm) for vm in _vms(name)]
    if not found:
        found = [_place(gpu_types()[name], count) for name in COMMON if name in gpu_types()]
    for place in found:
        if not is_known(place.gpu.name):
            raise GpuwiseError(f"too little is published about {place.gpu.name}, so there is no forecast for it")
    return found


def known_types(names: Iterable[str]) -> dict[str, str]:
    """The catalogue's names of GPU types, by the names given; without those about which too little is published."""
    found = {}
    for name in names:
        with suppress(UnknownNameError):
            if is_known(name):
                found[name] = gpu_type(name).name
    return found


def _place(gpu: GpuType, count: int) -> Place:
    price = gpu.usd_per_hour
    return Place(gpu, count, usd_per_hour=None if price is None else price * count)


def _vms(name: str) -> list[VmType]:
    """One VM type, or all of a cloud of which the GPUs are known well enough."""
    clouds = {vm.cloud.lower() for vm in vm_types().values()}
    if name.lower() not in clouds:
        return [vm_type(name)]
    return [vm for vm in vm_types(cloud=name).values() if is_known(vm.gpu)]


def _checked(measured: Mapping[str, float] | None) -> dict[str, float] | None:
    """Measured step times under the catalogue's names."""
    if not measured:
        return None
    for name, seconds in measured.items():
        if not 0.0 < seconds < np.inf:
            raise GpuwiseError(f"a step of {seconds} s on {name}; it must be above 0")
    return {gpu_type(name).name: float(seconds) for name, seconds in measured.items()}


# -- the forecast -------------------------------------------------------------------------------------------------


def _rows(graph: Graph, places: Sequence[Place], measured: Mapping[str, float] | None, epoch_samples: int) -> list[Row]:
    predictor: Any = registry.load("step_time").predictor
    table = step_columns(graph, [place.gpu.name for place in places], measured=measured)
    steps, sources = _on_all_gpus(places, predictor.estimate(table)), predictor.sources(table)
    utilization = _utilization(graph, places, steps)
    memory, p_oom = _memory(graph, places)
    rows = []
    for number, place in enumerate(places):
        step = _quantity(steps, number)
        per_epoch = epoch_samples / (graph.batch * place.gpus)
        epoch = step.times(per_epoch)
        price = place.usd_per_hour
        rows.append(Row(
            gpu=place.gpu.name, vm=place.vm, gpus=place.gpus, batch=graph.batch, precision=str(graph.precision),
            step_time_s=step, epoch_time_s=epoch, gpu_util_pct=_quantity(utilization, number),
            memory_bytes=_quantity(memory, number), samples_per_s=step.inverse(graph.batch * place.gpus),
            usd_per_epoch=None if price is None else epoch.times(price / SECONDS_PER_HOUR),
            capacity_bytes=float(place.gpu.memory_bytes or 0.0), fits=bool(p_oom[number] < 0.5),
            p_oom=float(p_oom[number]), source=sources[number],
            in_domain=bool(steps.in_domain[number] and memory.in_domain[number]),
        ))  # fmt: skip
    return rows


def _on_all_gpus(places: Sequence[Place], alone: Estimates) -> Estimates:
    """Steps of VMs with several GPUs, trained data-parallel: as much longer as they were for other models."""
    several = np.array([place.gpus > 1 for place in places])
    if not several.any():
        return alone
    scaling = registry.load("scaling").predictor
    table = {
        "step_time_s": alone.value[several],
        "gpus": np.array([place.gpus for place in places], dtype=float)[several],
        "nodes": np.ones(int(several.sum())),
    }
    made = scaling.estimate(table)
    parts = {name: getattr(alone, name).copy() for name in ("value", "low", "high", "in_domain")}
    # Two independent errors, of one GPU's step and of the growth: their logarithms add up as squares.
    for name in ("low", "high"):
        one = np.log(getattr(alone, name)[several] / alone.value[several])
        both = np.hypot(one, np.log(getattr(made, name) / made.value))
        parts[name][several] = made.value * np.exp(both if name == "high" else -both)
    parts["value"][several] = made.value
    parts["in_domain"][several] &= made.in_domain
    return Estimates(**parts)


def _utilization(graph: Graph, places: Sequence[Place], steps: Estimates) -> Estimates:
    gpus = [place.gpu.name for place in places]
    busy = [own_row(graph, gpu) for gpu in gpus]
    table: dict[str, Any] = {name: np.array([row[name] for row in busy]) for name in busy[0]}
    # Kernels slower than the roofline make a step longer, and are no waiting: the time model knows them.
    time_model: Any = registry.load("step_time").predictor
    busy_s = np.maximum(table["busy_time_s"], time_model.gpu_seconds(step_columns(graph, gpus)))
    table |= {
        "testbed": ["miso"] * len(places),
        "step_time_s": steps.value,
        "busy_frac": np.minimum(busy_s / steps.value, 1.0),
    }
    return registry.load("utilization").predictor.estimate(table)


def _memory(graph: Graph, places: Sequence[Place]) -> tuple[Estimates, Any]:
    predictor: Any = registry.load("memory").predictor
    table: dict[str, Any] = {name: np.full(len(places), value) for name, value in memory_features(graph).items()}
    table |= {
        "gpu": [place.gpu.name for place in places],
        "framework": ["pytorch"] * len(places),
        "measure": ["device"] * len(places),
        "batch_size": np.full(len(places), float(graph.batch)),
    }
    capacity = np.array([float(place.gpu.memory_bytes or 0.0) for place in places])
    return predictor.estimate(table), predictor.p_oom(table, capacity)


def _quantity(estimates: Estimates, number: int) -> Quantity:
    return Quantity(*(float(getattr(estimates, name)[number]) for name in ("value", "low", "high")))


def _notes(graph: Graph, places: Sequence[Place]) -> tuple[str, ...]:
    notes = [f"note: {note}" for note in graph.notes]
    if graph.unknown:
        names = ", ".join(f"{name} ({count} ×)" for name, count in sorted(graph.unknown.items()))
        notes.append(f"note: without a formula, so counted by their bytes: {names}")
    if any(place.gpus > 1 for place in places):
        notes.append("note: on several GPUs, data-parallel with the same batch on each, as jobs of other models grew")
    return tuple(notes)
