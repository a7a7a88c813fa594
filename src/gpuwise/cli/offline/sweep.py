"""``sweep``: policies × loads × seeds on all cores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwise.cli.offline.simulate import COLUMNS, ClusterOption, PolicyOption, SimulationOptions, policy_names
from gpuwise.cli.offline.traces import TraceArgument, writable
from gpuwise.cli.options import OutputOption
from gpuwise.cli.show.tables import show
from gpuwise.core.errors import GpuwiseError


def sweep_command(
    trace: TraceArgument,
    cluster: ClusterOption,
    policy: PolicyOption,
    load: Annotated[str, typer.Option(help="Loads, joined by commas: 2 submits jobs twice as fast.")] = "1",
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, joined by commas, or a range such as 0-9; the trace's own by default.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="File for finished runs, one line each; the sweep continues from it.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; all cores by default.")] = None,
    *,
    simulation: SimulationOptions,
    output: OutputOption = None,
) -> None:
    """Run policies × loads × seeds on all cores. An interrupted sweep continues where it was."""
    from gpuwise.service.offline.sweep import plan_sweep, seed_of, sweep

    chosen = [seed_of(trace)] if seeds is None else _seeds(seeds)
    runs = plan_sweep(trace, cluster, policy_names(policy), _numbers(load), chosen, **simulation.settings())
    if store is not None:
        writable(store)
    with _Bar(len(runs)) as advance:
        rows = sweep(runs, store, workers, on_done=advance)
    show(rows, output, ("policy", "load", "seed", *COLUMNS[1:]))


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise GpuwiseError(f"{text!r} is not a list of numbers joined by commas") from None


def _seeds(text: str) -> list[int]:
    low, dash, high = text.partition("-")
    try:
        found = list(range(int(low), int(high) + 1)) if dash else [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 0:
        raise GpuwiseError(f"{text!r} is not a list of seeds such as 0,1,2 or 0-9")
    return found


class _Bar:
    """A progress bar on a terminal, nothing elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._bar: Any = None

    def __enter__(self) -> Any:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("sweep", total=self._total)
        return self._advance

    def _advance(self, done: int, total: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
