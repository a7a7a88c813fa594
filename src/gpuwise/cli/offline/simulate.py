"""``simulate``, ``compare``, ``sweep`` and ``policies``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwise.cli.show.output import Output, show, writable
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.units import parse_duration_s

COLUMNS = (
    "policy",
    "jobs",
    "avg_jct_s",
    "p50_jct_s",
    "p99_jct_s",
    "avg_queue_s",
    "makespan_s",
    "gpu_util_frac",
    "preemptions",
    "wall_s",
)

TraceArgument = Annotated[
    str, typer.Argument(help="A trace file, or a generator such as gen:gavel?jobs=500&rate=4&seed=1.")
]
ClusterOption = Annotated[
    str, typer.Option("--cluster", "-c", help="NODESxGPUS:TYPE joined by +, a TOML file, or a node list (.csv).")
]
PolicyOption = Annotated[str, typer.Option("--policy", "-p", help="Policies, joined by commas; see gpuwise policies.")]
PlacementOption = Annotated[
    str | None, typer.Option(help="best-fit, first-fit, worst-fit, consolidated, least-left, spread, fgd or random.")
]
OutputOption = Annotated[
    Output | None, typer.Option("-o", "--output", help="table, wide, json or csv; a pipe gets csv.")
]
DropOption = Annotated[bool, typer.Option("--drop-oversized", help="Leave out jobs larger than the cluster.")]
ErrorOption = Annotated[
    float, typer.Option(help="Spread of what policies believe of run times around the truth (log-normal).")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("simulate")(simulate_command)
    app.command("compare")(compare_command)
    app.command("sweep")(sweep_command)
    app.command("policies")(policies_command)


def simulate_command(
    trace: TraceArgument,
    cluster: ClusterOption,
    policy: PolicyOption = "fifo",
    placement: PlacementOption = None,
    output: OutputOption = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page that compares the policies.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the charts as .png or .svg.")] = None,
    jobs_to: Annotated[
        Path | None, typer.Option("--jobs", help="Write one row a job as .csv or .parquet (one policy).")
    ] = None,
    journal: Annotated[Path | None, typer.Option(help="Write the journal, a line a record (one policy).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    round_length: Annotated[
        str | None, typer.Option("--round", help="Decide only at multiples of this time, e.g. 6m.")
    ] = None,
    forecast_error: ErrorOption = 0.0,
    drop_oversized: DropOption = False,
    format_: Annotated[
        str | None, typer.Option("--format", help="The trace's format, where its content does not tell.")
    ] = None,
    throughputs: Annotated[Path | None, typer.Option(help="Measured throughputs, for traces that need them.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out bad rows and say how many.")] = False,
) -> None:
    """Replay a trace on a cluster under one or more policies."""
    from gpuwise.policies.registry import make_policy
    from gpuwise.service.offline.clusters import load_cluster
    from gpuwise.service.offline.simulate import simulate
    from gpuwise.sim.traces.files import read_trace

    names = _names(policy)
    if jobs_to is not None and jobs_to.suffix not in (".csv", ".parquet"):
        raise GpuwiseError(f"{jobs_to}: write jobs as .csv or .parquet")
    if (jobs_to or journal) and len(names) > 1:
        raise GpuwiseError("--jobs and --journal write one policy's run; give one policy")
    spec = load_cluster(cluster)
    for name in names:
        make_policy(name)
    loaded = read_trace(trace, format=format_, skip_bad=skip_bad, throughputs=throughputs)
    _tell_left_out(loaded)
    results, refused = [], []
    for name in _progress(names):
        try:
            results.append(simulate(
                loaded, spec, name, placement=placement, seed=seed,
                round_s=None if round_length is None else parse_duration_s(round_length),
                forecast_error=forecast_error, oversized="drop" if drop_oversized else "error",
            ))  # fmt: skip
        except GpuwiseError as error:
            refused.append(GpuwiseError(f"{name}: {error}") if len(names) > 1 else error)
    if not results:
        raise refused[0]
    show([result.as_dict() for result in results], output, COLUMNS, title=f"{loaded.name} on {spec.describe()}")
    if report is not None:
        from gpuwise.sim.results.report.page import html_report

        html_report(results, writable(report))
        print(f"report: {report}", file=sys.stderr)
    if plot is not None:
        from gpuwise.sim.results.plots import save

        save(results, writable(plot))
        print(f"plot: {plot}", file=sys.stderr)
    if journal is not None:
        results[0].engine.journal.write(writable(journal))
    if jobs_to is not None:
        _write_frame(results[0].to_frame(), writable(jobs_to))
    if refused:  # after what the other policies gave
        raise GpuwiseError("; ".join(map(str, refused)))


def compare_command(
    results: Annotated[list[Path], typer.Argument(help="What gpuwise simulate -o json or gpuwise sweep wrote.")],
    output: OutputOption = None,
) -> None:
    """Show results side by side."""
    rows: list[dict[str, Any]] = []
    for path in results:
        rows += [{"file": path.name, **row} for row in _read_results(path)]
    columns = (*(("file",) if len(results) > 1 else ()), *COLUMNS)
    show(rows, output, columns)


def sweep_command(
    trace: TraceArgument,
    cluster: ClusterOption,
    policy: PolicyOption,
    load: Annotated[str, typer.Option(help="Loads, joined by commas: 2 lets jobs come twice as fast.")] = "1",
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, joined by commas, or a range such as 0-9; the trace's own by default.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Keeps finished runs, a line each; the sweep goes on from it.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; all cores by default.")] = None,
    placement: PlacementOption = None,
    forecast_error: ErrorOption = 0.0,
    drop_oversized: DropOption = False,
    output: OutputOption = None,
) -> None:
    """Run policies × loads × seeds on all cores; an interrupted sweep goes on where it was."""
    from gpuwise.policies.placing.placers import DEFAULT_PLACER
    from gpuwise.service.offline.sweep import plan_sweep, seed_of, sweep

    chosen = [seed_of(trace)] if seeds is None else _seeds(seeds)
    runs = plan_sweep(
        trace, cluster, _names(policy), _numbers(load), chosen, placement=placement or DEFAULT_PLACER,
        forecast_error=forecast_error, oversized="drop" if drop_oversized else "error",
    )  # fmt: skip
    if store is not None:
        writable(store)
    with _Bar(len(runs)) as advance:
        rows = sweep(runs, store, workers, on_done=advance)
    show(rows, output, ("policy", "load", "seed", *COLUMNS[1:]))


def policies_command(output: OutputOption = None) -> None:
    """List the policies and placements that are installed."""
    from gpuwise.policies.placing.placers import PLACERS
    from gpuwise.policies.registry import describe, parameters

    rows = [
        {"kind": "policy", "name": name, "what": what, "parameters": _shown(parameters(name))}
        for name, what in describe().items()
    ]
    rows += [{"kind": "placement", "name": name, "what": what, "parameters": ""} for name, (what, _) in PLACERS.items()]
    show(rows, output)


def _shown(parameters: dict[str, Any]) -> str:
    """Parameters as they are written after a policy's name."""
    return " ".join(f"{name}={_word(value)}" for name, value in parameters.items())


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(f"{each:g}" for each in value) if isinstance(value, tuple) else str(value)


def _names(text: str) -> list[str]:
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


def _tell_left_out(trace: Any) -> None:
    if trace.skipped or trace.left_out:
        print(trace.summary(), file=sys.stderr)


def _write_frame(frame: Any, path: Path) -> None:
    try:
        frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
    except OSError as error:
        raise GpuwiseError(f"{path}: {error.strerror or error}") from None


def _read_results(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise GpuwiseError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise GpuwiseError(f"{path}: not what gpuwise simulate -o json writes") from None
    try:
        parsed = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else [json.loads(line) for line in text.splitlines() if line.strip()]
        )
    except json.JSONDecodeError as error:
        raise GpuwiseError(f"{path}:{error.lineno}: not what gpuwise simulate -o json writes ({error.msg})") from None
    if not parsed or not all(isinstance(row, dict) and "policy" in row for row in parsed):
        raise GpuwiseError(f"{path}: not what gpuwise simulate -o json writes")
    return parsed


def _progress(names: list[str]) -> Any:
    if len(names) == 1 or not sys.stderr.isatty():
        return names
    from rich.console import Console
    from rich.progress import track

    return track(names, description="simulating", console=Console(stderr=True), transient=True)


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
