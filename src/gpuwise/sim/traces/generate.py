"""Generator specs: ``gen:gavel?jobs=500&rate=4&seed=1`` is a trace wherever a trace file can be named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpuwise.core.errors import UnknownNameError
from gpuwise.sim.traces.errors import TraceError, shown
from gpuwise.sim.traces.schema import Rule
from gpuwise.sim.traces.synthetic import gavel, milan, philly_like
from gpuwise.sim.traces.trace import Trace

PREFIX = "gen:"
MAX_JOBS = 10_000_000
JOBS = Rule("a whole number of jobs from 1 to 10,000,000", low=1, high=MAX_JOBS, whole=True)
NODES = Rule("a whole number of nodes from 1 to 1,000,000", low=1, high=MAX_JOBS / 10, whole=True)
SEED = Rule("a whole number from 0", low=0, high=2**53, whole=True)
GPUS = Rule("a whole number of GPUs from 1", low=1, high=1e9, whole=True)
RATE = Rule("a number of jobs per hour above 0", low=0, high=1e9, open_low=True)
MEAN = Rule("a mean time between jobs above 0 s", low=0, high=1e9, open_low=True)
LOAD = Rule("a load above 0 (0.8 keeps the GPUs busy for 80 % of the time)", low=0, high=1e3, open_low=True)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a generator spec: the argument it sets and what it must be."""

    argument: str
    rule: Rule
    required: bool = False


@dataclass(frozen=True, slots=True)
class Generator:
    """A generator that specs can name."""

    name: str
    description: str
    make: Callable[..., Trace]
    parameters: dict[str, Parameter]


GENERATORS: dict[str, Generator] = {
    entry.name: entry
    for entry in (
        Generator(
            "gavel",
            "Gavel's Poisson workload; rate is jobs per hour",
            gavel,
            {
                "jobs": Parameter("jobs", JOBS, required=True),
                "rate": Parameter("jobs_per_hour", RATE, required=True),
                "seed": Parameter("seed", SEED),
            },
        ),
        Generator(
            "philly",
            "jobs as Microsoft Philly's; load and gpus set how close together they are",
            philly_like,
            {
                "jobs": Parameter("jobs", JOBS, required=True),
                "load": Parameter("load", LOAD),
                "gpus": Parameter("gpus", GPUS),
                "seed": Parameter("seed", SEED),
            },
        ),
        Generator(
            "milan",
            "Ardagna's instances: ten jobs per node; mean is the seconds between jobs, 30 or 45",
            milan,
            {
                "nodes": Parameter("nodes", NODES, required=True),
                "mean": Parameter("mean_interarrival_s", MEAN),
                "seed": Parameter("seed", SEED),
            },
        ),
    )
}


def generate(spec: str) -> Trace:
    """The trace that a spec describes, e.g. ``gen:philly?jobs=1000&load=0.8&gpus=256&seed=0``."""
    name, _, query = spec.removeprefix(PREFIX).partition("?")
    if name not in GENERATORS:
        raise UnknownNameError("generator", name, GENERATORS)
    generator = GENERATORS[name]
    arguments: dict[str, float | int] = {}
    for part in filter(None, query.split("&")):
        key, _, text = part.partition("=")
        if key not in generator.parameters:
            raise UnknownNameError(f"parameter of generator {name}", key, generator.parameters)
        arguments[generator.parameters[key].argument] = _value(spec, key, text, generator.parameters[key].rule)
    missing = [key for key, p in generator.parameters.items() if p.required and p.argument not in arguments]
    if missing:
        example = "&".join(f"{key}=…" for key in generator.parameters)
        raise TraceError(f"{shown(spec)}: missing {', '.join(missing)}; the form is {PREFIX}{name}?{example}")
    made = generator.make(**arguments)
    return Trace(made.jobs, spec, f"{PREFIX}{name}")


def _value(spec: str, key: str, text: str, rule: Rule) -> float | int:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not rule.allows(np.array([value])).all():
        raise TraceError(f"{shown(spec)}: {key}: {shown(text)} is not {rule.expected}")
    return int(value) if rule.whole else value
