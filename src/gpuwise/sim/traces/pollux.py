"""Reader of Pollux' workloads, whose durations come from the measured tables that Pollux ships with them.

A workload gives a job's application, replicas and batch size. As in Pollux' simulator, its duration alone is

    iterations = Σ over epochs of progress in the epoch ÷ gain(batch)      (validation-<batch>.csv)
    gain(batch) = (var + sqr) / (var / scale + sqr), scale = batch ÷ the smallest batch
    duration = iterations × step time(replicas, batch)                     (placements.csv, scalability.csv)

where var and sqr are the variance and squared norm of the gradient in that epoch: the progress of one iteration,
counted in iterations at the smallest batch. Replicas are packed four to a node. A replica's batch that does not fit
is accumulated over several passes: step + passes × (step − sync). The tables are in ../traces/<application>/.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from gpuwise.sim.traces.errors import TraceError, shown
from gpuwise.sim.traces.rows import Numbers, Reading, Rows, read_rows
from gpuwise.sim.traces.schema import SUBMIT, Rule
from gpuwise.sim.traces.source import Source

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
REPLICAS = Rule("a whole number of replicas from 1", low=1, high=1e6, whole=True)
SAMPLES = Rule("a whole batch size from 1", low=1, high=1e9, whole=True)
# Epochs that a job of each application trains, and the largest batch a replica takes where tables go beyond it
# (Pollux' simulator, applications.py).
EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
LARGEST_LOCAL_BATCH = {"yolov3": 8}
GPUS_PER_NODE = 4
MOST_REPLICAS = 64


@dataclass(frozen=True)
class Application:
    """One application's measured tables."""

    folder: Path

    def work(self, replicas: int, batch_size: int) -> tuple[float, float]:
        """Run time in seconds and iterations of a job alone; nan when the batch size was not measured."""
        iterations = self._iterations(batch_size)
        local = math.ceil(batch_size / replicas)
        passes = math.ceil(local / self._largest_local) - 1
        if replicas == 1 and batch_size > min(self._validation):
            passes = max(1, passes)
        step_s, sync_s = self._step(replicas, math.ceil(local / (passes + 1)))
        return iterations * (step_s + passes * (step_s - sync_s)), iterations

    def max_replicas(self, batch_size: int) -> int:
        """As many replicas as still get the smallest measured batch each; ncf trains on one."""
        if self.folder.name == "ncf":
            return 1
        smallest = int(self._placements["local_bsz"].to_numpy().min())
        return max(1, min(MOST_REPLICAS, batch_size // smallest))

    def _iterations(self, batch_size: int) -> float:
        """Iterations to the end of training; nan outside the measured batch sizes."""
        sizes = list(self._validation)
        if not sizes[0] <= batch_size <= sizes[-1]:
            return math.nan
        tables = self._validation.values()
        progress = np.min([table["progress"] for table in tables], axis=0)
        sqr, var = (
            np.array([np.interp(batch_size, sizes, epoch) for epoch in zip(*(t[name] for t in tables), strict=True)])
            for name in ("grad_sqr", "grad_var")
        )
        gain = (var + sqr) / (var / (batch_size / sizes[0]) + sqr)
        return float((np.diff(progress, prepend=0.0) / gain).sum())

    def _step(self, replicas: int, local_batch: int) -> tuple[float, float]:
        """Step and synchronization time, between the nearest measured numbers of replicas and local batches."""
        measured = self._dense
        times = []
        for column in ("step_time", "sync_time"):
            at_batch = [np.interp(local_batch, table["local_bsz"], table[column]) for table in measured.values()]
            times.append(float(np.interp(replicas, list(measured), at_batch)))
        return times[0], times[1]

    @cached_property
    def _validation(self) -> dict[int, pl.DataFrame]:
        """The epochs Pollux trains, by batch size, ascending."""
        columns = ("progress", "grad_sqr", "grad_var")
        paths = {int(path.stem.split("-")[1]): path for path in self.folder.glob("validation-*.csv")}
        if not paths:
            raise TraceError(f"{self.folder}: no validation-<batch size>.csv; Pollux' measured tables are needed")
        tables = {size: _table(paths[size], columns) for size in sorted(paths)}
        epochs = min(EPOCHS[self.folder.name], *(table.height for table in tables.values()))
        return {size: table.head(epochs) for size, table in tables.items()}

    @cached_property
    def _placements(self) -> pl.DataFrame:
        return _table(self.folder / "placements.csv", ("placement", "local_bsz", "step_time", "sync_time"))

    @cached_property
    def _largest_local(self) -> int:
        largest = int(self._placements["local_bsz"].to_numpy().max())
        return LARGEST_LOCAL_BATCH.get(self.folder.name, largest)

    @cached_property
    def _dense(self) -> dict[int, pl.DataFrame]:
        """Measurements of replicas packed four to a node, by number of replicas, ascending."""
        scalability = _table(self.folder / "scalability.csv", ("num_nodes", "num_replicas", "local_bsz"))
        dense = {}
        for replicas in range(1, MOST_REPLICAS + 1):
            full, rest = divmod(replicas, GPUS_PER_NODE)
            placement = int((str(rest) if rest else "") + "4" * full)
            table = self._placements.filter(pl.col("placement") == placement)
            if table.is_empty():
                packed = (pl.col("num_replicas") == replicas) & (pl.col("num_nodes") == full + (rest > 0))
                table = scalability.filter(packed)
            if not table.is_empty():
                dense[replicas] = table.sort("local_bsz")
        return dense


def read_pollux(source: Source) -> Reading:
    """Pollux' workload: name, time, application, num_replicas, batch_size; jobs may be resized, from 1 GPU up."""
    rows = read_rows(source)
    rows.require(COLUMNS)
    folder = source.path.resolve().parent.parent / "traces"
    unknown = ~rows.text("application").is_in(list(EPOCHS)).to_numpy()
    rows.flag(unknown, "application", f"is not one of {', '.join(EPOCHS)}")
    replicas = rows.number("num_replicas", REPLICAS)
    batch_size = rows.number("batch_size", SAMPLES)
    work = _measure(rows, folder, replicas, batch_size)
    rows.flag(np.isnan(work["duration_s"]), "batch_size", "is outside the batch sizes measured for this application")
    return rows.finish(
        id_column="name",
        submit_s=rows.number("time", SUBMIT),
        duration_s=work["duration_s"],
        gpus=replicas,
        min_gpus=np.ones(len(rows)),
        max_gpus=work["max_gpus"],
        steps=work["steps"],
        model=rows.text("application"),
        batch_per_gpu=np.ceil(batch_size / np.maximum(replicas, 1)),
    )


def _measure(rows: Rows, folder: Path, replicas: Numbers, batch_size: Numbers) -> dict[str, Numbers]:
    """Duration, steps and most GPUs of each job, worked out once for each different job."""
    keys = pl.DataFrame({"app": rows.text("application"), "gpus": replicas, "batch": batch_size})
    kinds = keys.filter(pl.col("app").is_in(list(EPOCHS)) & (pl.col("gpus") >= 1) & (pl.col("batch") >= 1)).unique()
    applications = {name: Application(folder / name) for name in kinds["app"].unique()}
    for name, application in applications.items():
        if not application.folder.is_dir():
            raise TraceError(f"{rows.file}: durations of {name} need Pollux' measured tables in {folder / name}")
    found: list[tuple[float, float, float]] = []
    for name, gpus, batch in kinds.iter_rows():
        duration_s, steps = applications[name].work(int(gpus), int(batch))
        found.append((duration_s, steps, max(gpus, applications[name].max_replicas(int(batch)))))
    names = ("duration_s", "steps", "max_gpus")
    table = kinds.with_columns(
        pl.Series(name, [row[i] for row in found], dtype=pl.Float64) for i, name in enumerate(names)
    )
    joined = keys.join(table, on=["app", "gpus", "batch"], how="left", maintain_order="left")
    return {name: joined[name].fill_null(math.nan).to_numpy() for name in names}


def _table(path: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    try:
        table = pl.read_csv(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise TraceError(f"{path}: Pollux' measured table cannot be read: {shown(str(error))}") from None
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise TraceError(f"{path}: missing column {', '.join(missing)}")
    return table
