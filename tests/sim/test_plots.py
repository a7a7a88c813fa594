"""Plots: that each draws what it says, and that files come out the same each time."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gpuwise
from gpuwise import GpuwiseError, SimulationResult

pytest.importorskip("matplotlib")

from matplotlib.collections import PolyCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from gpuwise.sim.results import plots

TRACE = "gen:gavel?jobs=60&rate=30&seed=1"


@pytest.fixture(scope="module")
def results() -> list[SimulationResult]:
    return [gpuwise.simulate(TRACE, "4x8:V100", policy) for policy in ("fifo", "sjf")]


def test_the_distribution_ends_at_all_jobs(results: list[SimulationResult]) -> None:
    axes = plots.jct_cdf(results).axes[0]
    assert axes.get_xscale() == "log"
    for line, result in zip(axes.get_lines(), results, strict=True):
        x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        assert (y[0], y[-1]) == (0, 100)
        assert x[-1] == pytest.approx(result.to_frame()["jct_s"].max())


def test_the_queue_has_the_right_area(results: list[SimulationResult]) -> None:
    axes = plots.queue_over_time(results).axes[0]
    drawn = [patch for patch in axes.patches if isinstance(patch, StepPatch)]
    for patch, result in zip(drawn, results, strict=True):
        values, edges_s, _ = patch.get_data()
        assert len(values) <= 600
        # Without suspensions every job is in the queue for its queueing time.
        assert (values * np.diff(edges_s)).sum() == pytest.approx(result.to_frame()["queue_s"].sum())


def test_use_is_in_per_cent_of_the_cluster(results: list[SimulationResult]) -> None:
    axes = plots.use_over_time(results[:1]).axes[0]
    values, edges_s, _ = axes.patches[0].get_data()
    assert values.max() <= 100
    assert (values * np.diff(edges_s)).sum() / edges_s[-1] == pytest.approx(100 * results[0].metrics.gpu_alloc_frac)
    assert "%" in axes.get_ylabel()


def test_a_small_run_has_bars_and_a_large_one_a_map(
    results: list[SimulationResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    axes = plots.gantt(results[0]).axes[0]
    assert any(isinstance(drawn, PolyCollection) for drawn in axes.collections)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["n0", "n1", "n2", "n3"]
    monkeypatch.setattr(plots, "MOST_BARS", 10)
    axes = plots.gantt(results[0]).axes[0]
    assert any(isinstance(drawn, QuadMesh) for drawn in axes.collections)


def test_more_nodes_than_can_be_told_apart_share_rows() -> None:
    figure = plots.gantt(gpuwise.simulate(TRACE, "100x8:V100"))
    assert figure.axes[0].get_ylim() == (50, 0)  # two nodes a row
    assert figure.axes[0].get_yticklabels()[0].get_text() == "n0–n1"


def test_the_overview_has_four_panels_and_names_each_policy(results: list[SimulationResult]) -> None:
    figure = plots.overview(results)
    assert len(figure.axes) == 4
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fifo", "sjf"]
    assert len(results[0].plot().axes) == 4


@pytest.mark.parametrize("draw", [plots.jct_cdf, plots.queue_over_time, plots.use_over_time, plots.overview])
def test_dollars_in_a_name_are_not_a_formula(
    draw: Callable[[Sequence[SimulationResult]], Figure], results: list[SimulationResult], tmp_path: Path
) -> None:
    odd = replace(results[0], policy="$\\frac$ _x")
    draw([odd]).savefig(tmp_path / "odd.png", dpi=40)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".PNG"])
def test_the_same_results_give_the_same_file(suffix: str, results: list[SimulationResult], tmp_path: Path) -> None:
    for name in ("one", "two"):
        plots.save(results, tmp_path / f"{name}{suffix}")
    made = (tmp_path / f"one{suffix}").read_bytes()
    assert made == (tmp_path / f"two{suffix}").read_bytes()
    assert made.startswith(b"<?xml" if suffix == ".svg" else b"\x89PNG")
    assert b"dc:date" not in made


@pytest.mark.parametrize("name", ["plot.pdf", "plot", "plot.html"])
def test_other_files_are_refused(name: str, results: list[SimulationResult], tmp_path: Path) -> None:
    with pytest.raises(GpuwiseError, match=r"must end in \.png or \.svg"):
        plots.save(results, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_folder_that_is_not_there_is_named(results: list[SimulationResult], tmp_path: Path) -> None:
    with pytest.raises(GpuwiseError, match="cannot write"):
        plots.save(results, tmp_path / "missing" / "plot.png")


def test_plots_use_no_global_state(results: list[SimulationResult]) -> None:
    loaded = "matplotlib.pyplot" in sys.modules
    plots.overview(results)
    assert ("matplotlib.pyplot" in sys.modules) == loaded


def test_without_matplotlib_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "gpuwise.sim.results.plots")
    with pytest.raises(GpuwiseError, match=r"pip install 'gpuwise\[plot\]'"):
        importlib.import_module("gpuwise.sim.results.plots")
