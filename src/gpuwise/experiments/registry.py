"""The experiments by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gpuwise.core.errors import UnknownNameError
from gpuwise.experiments import colocation, priority, sharing, validation
from gpuwise.experiments.rows import Row
from gpuwise.service.offline.catalogue import data_dir

EXPERIMENTS: Mapping[str, Callable[[Path], list[Row]]] = {
    "validation": validation.rows,
    "priority": priority.rows,
    "colocation": colocation.rows,
    "sharing": sharing.rows,
}


def chosen(name: str) -> list[str]:
    """The experiments that a name stands for: one, or all."""
    if name != "all" and name not in EXPERIMENTS:
        raise UnknownNameError("experiment", name, (*EXPERIMENTS, "all"))
    return [name] if name != "all" else list(EXPERIMENTS)


def reproduce(name: str) -> list[Row]:
    """Runs an experiment, or all of them."""
    data = data_dir()
    return [row for each in chosen(name) for row in EXPERIMENTS[each](data)]
