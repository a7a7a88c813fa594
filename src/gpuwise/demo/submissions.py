"""The demo: a dozen small trainings that show what a scheduler does, in about a minute.

Two long ones take both devices. Shorter ones are submitted a few seconds later and preempt them under ``srtf``; some of
them share a device, three are one array, one needs both devices at once, and one waits for others to compare them.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from gpuwise.core.job.request import JobRequest, Processes
from gpuwise.core.records import AttemptRecord, JobRecord
from gpuwise.core.units import format_duration

Submit = Callable[[Sequence[JobRequest]], list[JobRecord]]
Attempts = Callable[[str], Sequence[AttemptRecord]]

DEVICES = 2
PAUSE_S = 3.0
"""Between waves: long enough for the long jobs to be under way, too short for them to end on a fast machine."""


@dataclass(frozen=True, slots=True)
class Training:
    """A script of the demo, its number of steps, and how long these take on one core of a small machine."""

    name: str
    script: str
    steps: int
    duration_s: float
    gpu_frac: float = 1.0

    def request(self, python: str, folder: Path) -> JobRequest:
        """The job."""
        return JobRequest(
            name=self.name,
            command=(python, "-m", f"gpuwise.demo.jobs.{self.script}", "--steps", str(self.steps)),
            workdir=str(folder),
            steps=self.steps,
            duration_s=self.duration_s,
            gpu_frac=self.gpu_frac,
        )


LONG = (
    Training("spirals", "spirals", 6500, 14.0),
    Training("film-ratings", "factorise", 4000, 12.0),
)
SHORT = (
    Training("logistic", "logistic", 2500, 3.0),
    Training("k-means", "kmeans", 900, 3.5),
    Training("linear", "linear", 1000, 4.0, gpu_frac=0.5),
    Training("digits", "digits", 1000, 4.0, gpu_frac=0.5),
)
SWEEP = Training("learning-rates", "logistic", 1500, 2.0)
PARALLEL = Training("digits-on-two", "data_parallel", 800, 3.0)
WITH_TORCH = (
    Training("shapes-cnn", "shapes", 200, 5.5),
    Training("autoencoder", "autoencoder", 800, 8.0, gpu_frac=0.5),
)
COMPARE_S = 0.5
RESULTS = "results"
"""Folder in the jobs' folder where each writes its final numbers."""

Wave = Callable[[Sequence[JobRecord]], list[JobRequest]]
"""Jobs that are submitted together, given those that were submitted before."""


def submit_demo(
    submit: Submit, python: str, folder: Path | None = None, pause: Callable[[float], object] = time.sleep
) -> list[JobRecord]:
    """Submits the demo's jobs, in waves a few seconds apart, and returns their records.

    ``python`` runs them and must find gpuwise. They share ``folder``, by default a new one for temporary files.
    """
    folder = Path(tempfile.mkdtemp(prefix="gpuwise-demo-")) if folder is None else folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    records: list[JobRecord] = []
    for number, wave in enumerate(waves(python, folder)):
        if number:
            pause(PAUSE_S)
        records += submit(wave(records))
    return records


def waves(python: str, folder: Path, torch: bool | None = None) -> list[Wave]:
    """The demo's waves; with the PyTorch jobs if PyTorch is installed, unless ``torch`` says otherwise."""
    torch = find_spec("torch") is not None if torch is None else torch

    def first(_: Sequence[JobRecord]) -> list[JobRequest]:
        return [training.request(python, folder) for training in LONG]

    def second(_: Sequence[JobRecord]) -> list[JobRequest]:
        short = [training.request(python, folder) for training in SHORT]
        return [*short, replace(SWEEP.request(python, folder), array=(0, 1, 2))]

    def third(records: Sequence[JobRecord]) -> list[JobRequest]:
        rates = [record.uid for record in records if record.request.name == SWEEP.name]
        modern = [training.request(python, folder) for training in WITH_TORCH] if torch else []
        return [_compare(python, folder, rates), _on_two(python, folder), *modern]

    return [first, second, third]


def _on_two(python: str, folder: Path) -> JobRequest:
    """A job of one process per device, which may be resized while it runs."""
    request = PARALLEL.request(python, folder)
    return replace(request, gpus=DEVICES, min_gpus=1, max_gpus=DEVICES, processes=Processes.PER_GPU)


def _compare(python: str, folder: Path, jobs: Sequence[str]) -> JobRequest:
    """A job that reads the results of others, once they have succeeded."""
    return JobRequest(
        name="best-rate",
        command=(python, "-m", "gpuwise.demo.jobs.compare", *jobs),
        workdir=str(folder),
        after=tuple(jobs),
        duration_s=COMPARE_S,
        gpu_frac=0.5,
    )


def describe(records: Sequence[JobRecord], attempts: Attempts | None = None) -> str:
    """The demo's jobs as a table: how long each waited and ran, how often it was preempted, what it learned, where."""
    rows = [_HEADINGS, *(_row(record, attempts(record.uid) if attempts else ()) for record in records)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return "\n".join(_line(row, widths) for row in rows)


_HEADINGS = ("job", "name", "outcome", "waited", "ran", "suspended", "learned", "where")
_RIGHT = frozenset(("waited", "ran", "suspended"))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = zip(row, widths, _HEADINGS, strict=True)
    return "  ".join(f"{cell:{'>' if name in _RIGHT else '<'}{width}}" for cell, width, name in cells).rstrip()


def _row(record: JobRecord, attempts: Sequence[AttemptRecord]) -> tuple[str, ...]:
    ran_s = _ran_s(record, attempts)
    waited_s = math.nan if record.ended_at is None else max(0.0, record.ended_at - record.submitted_at - ran_s)
    return (
        record.uid,
        record.request.name,
        record.status,
        format_duration(waited_s),
        format_duration(ran_s),
        f"{record.preemptions} ×" if record.preemptions else "-",
        _learned(record),
        " → ".join(attempt.placement.partition(" ")[0] for attempt in attempts) or "-",
    )


def _ran_s(record: JobRecord, attempts: Sequence[AttemptRecord]) -> float:
    """How long a job had devices."""
    if attempts:
        return sum((each.ended_at or each.started_at) - each.started_at for each in attempts)
    return record.gpu_s / (record.request.gpus * record.request.gpu_frac)


def _learned(record: JobRecord) -> str:
    """The final numbers of a job, or the last loss it reported."""
    try:
        kept = (Path(record.request.workdir) / RESULTS / f"{record.uid}.json").read_text(encoding="utf-8")
        return ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in json.loads(kept).items())
    except (OSError, ValueError):
        return "-" if record.loss is None else f"loss {record.loss:.3g}"
