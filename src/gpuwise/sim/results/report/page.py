"""A report of simulations as one HTML file that needs no network and no other package."""

from __future__ import annotations

import html
import os
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwise.core import __version__
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.units import format_duration
from gpuwise.sim.results.course import Course, courses
from gpuwise.sim.results.report import charts, tables
from gpuwise.sim.results.report.svg import SHADES, Chart
from gpuwise.sim.results.report.tables import swatch

if TYPE_CHECKING:
    from gpuwise.sim.results.result import SimulationResult


def html_report(results: Sequence[SimulationResult], path: str | os.PathLike[str]) -> None:
    """Writes a report that compares simulations: figures, charts over time, which job ran where, the longest waits."""
    text = _page(courses(results))
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise GpuwiseError(f"cannot write the report to {os.fspath(path)!r}: {error.strerror or error}") from error


def _page(runs: Sequence[Course]) -> str:
    style, script = _own("style.css"), _own("script.js")
    # The browser runs this script and no other, and fetches nothing.
    allowed = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_digest(script)}'"
    title = html.escape(_title(runs))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{title} · gpuwise</title>\n'
        f"<style>\n{style}</style></head>\n"
        f"<body><header><h1>{title}</h1>{_about(runs)}</header>\n<main>\n{_sections(runs)}\n</main>\n"
        f"<footer>Made by gpuwise {__version__}.</footer>"
        f'<div id="tip" role="status" hidden></div>\n<script>{script}</script></body></html>\n'
    )


def _own(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return b64encode(sha256(script.encode()).digest()).decode()


def _title(runs: Sequence[Course]) -> str:
    names = [run.label for run in runs]
    if len(names) > 6:
        return f"{len(names)} simulations compared"
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    clusters = {run.result.cluster for run in runs}
    return f"{listed} on {clusters.pop()}" if len(clusters) == 1 else f"{listed} compared"


def _about(runs: Sequence[Course]) -> str:
    results = [run.result for run in runs]
    facts = {
        "trace": [result.trace for result in results],
        "cluster": [f"{result.cluster} ({run.gpus:,} GPUs)" for run, result in zip(runs, results, strict=True)],
        "jobs": [f"{len(run.ids):,}" for run in runs],
        "placement": [result.placement for result in results],
        "seed": [str(result.seed) for result in results],
        "gpuwise": [__version__],
    }
    unfinished = [f"{run.label}: {count:,}" for run in runs if (count := len(run.ids) - run.result.metrics.finished)]
    if unfinished:
        facts["not finished"] = unfinished
    return (
        "<dl>"
        + "".join(
            f"<div><dt>{name}</dt><dd>{html.escape(', '.join(dict.fromkeys(values)))}</dd></div>"
            for name, values in facts.items()
        )
        + "</dl>"
    )


def _sections(runs: Sequence[Course]) -> str:
    step = charts.bin_text(runs)
    parts = [
        _section("compare", "Policies side by side", _summary(runs), tables.comparison(runs)),
        _choice(runs),
        _section("completion", "How long jobs took",
                 "Read upwards from a time: the part of the jobs that was done by then. A line further to the left and "
                 "higher is better; it meets 50% at the median.", charts.completion_times(runs).html()),
        _section("waiting", "How many jobs waited",
                 f"Submitted jobs that had no GPUs. Each step is the average over {step}; lower is better.",
                 charts.queue_length(runs).html()),
        _section("used", "How busy the GPUs were", _use_hint(step), charts.gpu_use(runs).html()),
        _occupancies(runs),
        _section("sizes", "Small and large jobs",
                 "Means over the jobs that ended, by the number of GPUs they asked for. A policy that is quick on "
                 "average may still let large jobs wait.", tables.by_size(runs)),
        _section("longest", "Longest waits", f"The {tables.LONGEST} longest times without GPUs under each policy.",
                 f'<div class="side">{"".join(tables.longest_waits(i, run) for i, run in enumerate(runs))}</div>'),
    ]  # fmt: skip
    return "\n".join(parts)


def _use_hint(step: str) -> str:
    return (
        "Strong lines are GPUs in use: those allocated to jobs, times each job's own utilization where the trace has "
        f"it. Faint lines, where they differ, are GPUs allocated. Each step is the average over {step}."
    )


def _section(name: str, title: str, hint: str, content: str) -> str:
    return f'<section id="{name}"><h2>{title}</h2><p class="hint">{hint}</p>{content}</section>'


def _summary(runs: Sequence[Course]) -> str:
    note = "Times are those of the simulated cluster; those in the last three columns were measured while simulating."
    if len(runs) == 1:
        return f"Rest the pointer on a heading to see what it means. {note}"
    best = min(runs, key=lambda run: _or_infinite(run.result.metrics.avg_jct_s))
    average_s, first_s = best.result.metrics.avg_jct_s, runs[0].result.metrics.avg_jct_s
    versus = ""
    if best is not runs[0] and first_s > 0:
        versus = f", {100 * (1 - average_s / first_s):.0f}% less than under {html.escape(runs[0].label)}"
    lead = f"Jobs were done soonest under <b>{html.escape(best.label)}</b>: {format_duration(average_s)} on average"
    return (
        f"{lead}{versus}. The best value of each column is marked; small figures compare with the first policy. {note}"
    )


def _or_infinite(seconds: float) -> float:
    return seconds if seconds == seconds else float("inf")


def _choice(runs: Sequence[Course]) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" checked data-toggle="{i}">{swatch(i)}{html.escape(run.label)}</label>'
        for i, run in enumerate(runs)
    )
    return f'<fieldset class="choice"><legend>Shown in the charts</legend>{boxes}</fieldset>'


def _occupancies(runs: Sequence[Course]) -> str:
    drawn = charts.occupancies(runs)
    tabs = "".join(
        f'<button type="button" role="tab" id="tab-{i}" aria-controls="panel-{i}">{swatch(i)}'
        f"{html.escape(run.label)}</button>"
        for i, run in enumerate(runs)
    )
    panels = "".join(
        f'<div role="tabpanel" id="panel-{i}" aria-labelledby="tab-{i}"><p class="hint">{_node_hint(chart)}</p>'
        f"{chart.html()}</div>"
        for i, chart in enumerate(drawn)
    )
    hint = "One row per node, time from left to right. All policies have the same time axis."
    content = f'<div role="tablist" class="tabs" aria-label="policy">{tabs}</div>{panels}'
    return _section("nodes", "Jobs on nodes", hint, content)


def _node_hint(chart: Chart) -> str:
    if chart.data["kind"] == "bars":
        return "Each bar is a job on its GPUs; the same colour in several rows at once is often one gang."
    shades = "".join(f'<i class="s{shade}"></i>' for shade in range(SHADES + 1))
    return (
        "There are too many jobs or nodes to draw each, so a cell shows which part of a row's GPUs was allocated: "
        f'<span class="scale">0% <span aria-hidden="true">{shades}</span> 100%</span>'
    )
