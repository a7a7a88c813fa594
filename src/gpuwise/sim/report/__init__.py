"""A report of simulations as one HTML file that needs no network and no other package."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gpuwise.core.errors import GpuwiseError
from gpuwise.sim.report.page import page
from gpuwise.sim.report.series import courses
from gpuwise.sim.result import SimulationResult

__all__ = ["html_report"]


def html_report(results: Sequence[SimulationResult], path: str | os.PathLike[str]) -> None:
    """Writes a report that compares simulations: figures, charts over time, who ran where, who waited longest."""
    text = page(courses(results))
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise GpuwiseError(f"cannot write the report to {os.fspath(path)!r}: {error.strerror or error}") from error
