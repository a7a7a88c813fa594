"""``simulate`` and ``compare``: a trace under policies, and their results side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwise.cli.offline.traces import ReadingOptions, TraceArgument, writable
from gpuwise.cli.options import OutputOption
from gpuwise.cli.show.tables import fitting, show
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.units import parse_duration_s

COLUMNS = (
    "policy", "jobs", "avg_jct_s", "p50_jct_s", "p99_jct_s", "avg_queue_s", "makespan_s", "gpu_util_frac",
    "preemptions", "wall_s",
)  # fmt: skip

DROP = ("wall_s", "p50_jct_s", "preemptions", "makespan_s", "p99_jct_s")
"""What a narrow terminal has no room for."""

ClusterOption = Annotated[
    str, typer.Option("--cluster", "-c", help="NODESxGPUS:TYPE joined by +, a TOML file, or a node list (.csv).")
]
PolicyOption = Annotated[str, typer.Option("--policy", "-p", help="Policies, joined by commas; see gpuwise policies.")]


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """How a simulation runs, for ``simulate`` and ``sweep``."""

    placement: Annotated[
        str | None, typer.Option(help="Where jobs are placed, such as best-fit; see gpuwise policies.")
    ] = None
    forecast_error: Annotated[
        float, typer.Option(help="Spread of estimated run times around the true ones (log-normal).")
    ] = 0.0
    drop_oversized: Annotated[
        bool, typer.Option("--drop-oversized", help="Leave out jobs larger than the cluster.")
    ] = False

    def settings(self) -> dict[str, Any]:
        """As keywords of `simulate`."""
        oversized = "drop" if self.drop_oversized else "error"
        return {"placement": self.placement, "forecast_error": self.forecast_error, "oversized": oversized}


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Files that ``simulate`` writes."""

    report: Annotated[Path | None, typer.Option(help="Write an HTML page that compares the policies.")] = None
    plot: Annotated[Path | None, typer.Option(help="Write the charts as .png or .svg.")] = None
    journal: Annotated[Path | None, typer.Option(help="Write the journal, one line per record (one policy).")] = None
    jobs: Annotated[Path | None, typer.Option(help="Write one row per job as .csv or .parquet (one policy).")] = None

    def check(self, policies: Sequence[str]) -> None:
        """Refuses what could not be written, before anything runs."""
        if self.jobs is not None and self.jobs.suffix not in (".csv", ".parquet"):
            raise GpuwiseError(f"{self.jobs}: write jobs as .csv or .parquet")
        if (self.jobs or self.journal) and len(policies) > 1:
            raise GpuwiseError("--jobs and --journal write one policy's run; give one policy")

    def write(self, comparison: Any) -> None:
        """Writes those that are asked for."""
        for kind in ("report", "plot", "journal", "jobs"):
            if (path := getattr(self, kind)) is not None:
                getattr(comparison, f"write_{kind}")(writable(path))
                if kind in ("report", "plot"):
                    print(f"{kind}: {path}", file=sys.stderr)


def simulate_command(
    trace: TraceArgument,
    cluster: ClusterOption,
    policy: PolicyOption = "fifo",
    *,
    simulation: SimulationOptions,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    round_length: Annotated[
        str | None, typer.Option("--round", help="Decide only at multiples of this time, e.g. 6m.")
    ] = None,
    output: OutputOption = None,
    files: FileOptions,
    reading: ReadingOptions,
) -> None:
    """Replay a trace on a cluster under one or more policies."""
    from gpuwise.service.offline.simulate import compare

    policies = policy_names(policy)
    files.check(policies)
    found = compare(
        trace, cluster, policies, reading=reading.settings(), progress=_progress, seed=seed,
        round_s=None if round_length is None else parse_duration_s(round_length), **simulation.settings(),
    )  # fmt: skip
    if found.trace.skipped or found.trace.left_out:
        print(found.trace.summary(), file=sys.stderr)
    if not found.results:
        raise found.refused[0]
    rows = [result.as_dict() for result in found.results]
    show(rows, output, fitting(rows, COLUMNS, DROP), title=f"{found.trace.name} on {found.cluster.describe()}")
    files.write(found)
    if found.refused:  # after what the other policies gave
        raise GpuwiseError("; ".join(map(str, found.refused)))


def policy_names(text: str) -> list[str]:
    """Policies joined by commas; a comma inside a policy's parameters is followed by a number."""
    names: list[str] = []
    for part in filter(None, text.split(",")):
        if names and "?" in names[-1] and _is_number(part):
            names[-1] += "," + part
        else:
            names.append(part.strip())
    if not names:
        raise GpuwiseError("no policy given; see gpuwise policies")
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _progress(names: Sequence[str]) -> Iterable[str]:
    if len(names) == 1 or not sys.stderr.isatty():
        return names
    from rich.console import Console
    from rich.progress import track

    return track(names, description="simulating", console=Console(stderr=True), transient=True)


def compare_command(
    results: Annotated[list[Path], typer.Argument(help="What gpuwise simulate -o json or gpuwise sweep wrote.")],
    output: OutputOption = None,
) -> None:
    """Show results side by side."""
    rows = [{"file": path.name, **row} for path in results for row in _read_results(path)]
    show(rows, output, fitting(rows, (*(("file",) if len(results) > 1 else ()), *COLUMNS), DROP))


def _read_results(path: Path) -> list[dict[str, Any]]:
    unlike = "not what gpuwise simulate -o json writes"
    try:
        text = path.read_text(encoding="utf-8")
        lines = [text] if text.lstrip().startswith("[") else [line for line in text.splitlines() if line.strip()]
        parsed = [json.loads(line) for line in lines]
    except OSError as error:
        raise GpuwiseError(f"{path}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise GpuwiseError(f"{path}:{error.lineno}: {unlike} ({error.msg})") from None
    except UnicodeDecodeError:
        raise GpuwiseError(f"{path}: {unlike}") from None
    rows: list[dict[str, Any]] = parsed[0] if text.lstrip().startswith("[") else parsed
    if not rows or not all(isinstance(row, dict) and "policy" in row for row in rows):
        raise GpuwiseError(f"{path}: {unlike}")
    return rows
