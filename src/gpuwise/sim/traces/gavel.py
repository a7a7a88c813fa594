"""Reader of Gavel's and Shockwave's .trace files: tab-separated, without a header, in three variants.

A trace gives a job's steps, not its duration, except Shockwave's. The duration is steps ÷ the job's throughput alone on
V100s, from the trace's table of throughputs: given as ``throughputs``, or found in its folder or in one above.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gpuwise.sim.traces.errors import TraceError
from gpuwise.sim.traces.rows import Numbers, Reading, Rows, read_rows
from gpuwise.sim.traces.schema import DURATION, GPUS, PRIORITY, STEPS, SUBMIT, Rule
from gpuwise.sim.traces.source import Source

# Column names by the number of fields.
VARIANTS = {
    7: ("job_type", "command", "num_steps_arg", "needs_data_dir", "steps", "arrival", "scale_factor"),
    10: (
        *("job_type", "command", "working_dir", "num_steps_arg", "needs_data_dir"),
        *("steps", "scale_factor", "priority_weight", "slo", "arrival"),
    ),
    12: (
        *("job_type", "command", "working_dir", "num_steps_arg", "needs_data_dir", "steps"),
        *("scale_factor", "mode", "priority_weight", "slo", "duration", "arrival"),
    ),
}
# The msr traces' steps were made with the motivation table, whatever the number of GPUs: steps ÷ its throughput gives
# back the durations of the Philly jobs behind them (976,570 s for the first of 103959, as ElasticFlow's copy has it).
TABLES = {
    7: ("motivation_oracle_throughputs.json", "simulation_throughputs.json"),
    10: ("physical_cluster_throughputs.json", "simulation_throughputs.json"),
}
SLO = Rule("a deadline as a multiple of the duration, or -1", low=-1)
GPU_TYPE = "v100"


def sniff_gavel(head: str) -> bool:
    """Whether the first line has as many tabs as a Gavel trace, and numbers where steps and GPUs stand."""
    fields = head.split("\n", 1)[0].rstrip("\r").split("\t")
    names = VARIANTS.get(len(fields))
    if names is None:
        return False
    numbers = [fields[names.index(name)] for name in ("steps", "scale_factor", "arrival")]
    return all(number.replace(".", "", 1).isdigit() for number in numbers)


def read_gavel(source: Source) -> Reading:
    """Gavel and Shockwave: durations from steps and the table of throughputs, or as given; ids are row numbers, from 0.

    A deadline is arrival + SLO × duration; an SLO of -1 is none. ``ResNet-50 (batch size 64)`` is split into model and
    the batch of each GPU.
    """
    first = source.head().split("\n", 1)[0]
    width = first.count("\t") + 1
    if width not in VARIANTS:
        raise TraceError(f"{source.name}:1: {width} tab-separated fields; a Gavel trace has 7, 10 or 12")
    rows = read_rows(source, "\t", VARIANTS[width])
    arrival_s = rows.number("arrival", SUBMIT)
    steps = rows.number("steps", STEPS)
    gpus = rows.number("scale_factor", GPUS)
    duration_s = rows.number("duration", DURATION) if "duration" in rows else steps / _rates(rows, source, width, gpus)
    slo = rows.number("slo", SLO, default=-1) if "slo" in rows else np.full(len(rows), -1.0)
    job_type = rows.text("job_type")
    return rows.finish(
        id_column=None,
        submit_s=arrival_s,
        duration_s=duration_s,
        gpus=gpus,
        priority=rows.number("priority_weight", PRIORITY, default=0),
        deadline_s=np.where(slo < 0, np.inf, arrival_s + slo * duration_s),
        steps=steps,
        model=job_type.str.replace(r" \(batch size \d+\)$", ""),
        batch_per_gpu=job_type.str.extract(r"\(batch size (\d{1,15})\)$").cast(pl.Int64).fill_null(0),
    )


def _rates(rows: Rows, source: Source, width: int, gpus: Numbers) -> Numbers:
    """Steps per second of each job alone, flagging job types that the table does not have."""
    table = load_throughputs(_find_table(source, TABLES[width]))
    job_types = rows.text("job_type")
    keys = pl.DataFrame({"job_type": job_types, "gpus": gpus})
    pairs = keys.unique()
    rates = [lookup(table, job_type, int(count)) for job_type, count in pairs.iter_rows()]
    table_of_pairs = pairs.with_columns(rate=pl.Series(rates, dtype=pl.Float64))
    rate = keys.join(table_of_pairs, on=["job_type", "gpus"], how="left", maintain_order="left")["rate"].to_numpy()
    rows.flag(~(rate > 0), "job_type", f"has no measured throughput on {GPU_TYPE}")
    return np.where(rate > 0, rate, 1.0)


def lookup(table: dict[str, Any], job_type: str, gpus: int) -> float:
    """A job's throughput alone; that of one GPU where the table does not know this number of GPUs; 0 when unknown."""
    for key in (f"('{job_type}', {gpus})", job_type, f"('{job_type}', 1)"):
        entry = table.get(key)
        rate = entry.get("null") if isinstance(entry, dict) else None
        if isinstance(rate, int | float):
            return float(rate)
    return 0.0


def load_throughputs(path: Path) -> dict[str, Any]:
    """The V100 part of a table of throughputs in Gavel's JSON."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TraceError(f"{path}: the table of throughputs cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise TraceError(f"{path}: the table of throughputs is not JSON: {error}") from None
    if not isinstance(table, dict) or not isinstance(table.get(GPU_TYPE), dict):
        raise TraceError(f"{path}: not a table of throughputs in Gavel's JSON: no {GPU_TYPE!r} at its top")
    return dict(table[GPU_TYPE])


def _find_table(source: Source, names: tuple[str, ...]) -> Path:
    if source.throughputs is not None:
        return source.throughputs
    for folder in list(source.path.resolve().parents)[:4]:
        for name in names:
            if (folder / name).is_file():
                return folder / name
    raise TraceError(
        f"{source.name}: this trace gives steps, not durations; pass throughputs= with Gavel's {names[0]} "
        f"(looked for {' and '.join(names)} beside the trace and in three folders above)"
    )
