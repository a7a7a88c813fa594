"""What the report draws: marks on axes, fewer points with the same averages, bars and maps of the nodes."""

from __future__ import annotations

import numpy as np
import pytest

import gpuwise
from gpuwise import JobSpec, SimulationResult
from gpuwise.sim.results.course import cdf_at, cdf_points, courses, labels, time_average, time_edges
from gpuwise.sim.results.occupancy import bars, device_runs, fullness
from gpuwise.sim.results.report import svg
from gpuwise.sim.results.report.tables import brief_time, difference
from gpuwise.sim.results.ticks import duration_ticks, log_duration_ticks, log_range, nice_step, nice_ticks

TRACE = "gen:gavel?jobs=60&rate=30&seed=1"
DAY_S = 86400.0


@pytest.fixture(scope="module")
def results() -> list[SimulationResult]:
    return [gpuwise.simulate(TRACE, "4x8:V100", policy) for policy in ("fifo", "fifo-backfill", "sjf")]


# Ticks


@pytest.mark.parametrize(
    ("span", "step"),
    [
        (10, 2),  # 10 / 2 = 5 parts
        (11, 5),  # 11 / 2 = 5.5 parts are too many
        (26, 10),  # 26 / 5 = 5.2 are too many
        (0.9, 0.2),
        (0.03, 0.01),
        (44, 10),
        (0, 1),
    ],
)
def test_a_step_is_the_smallest_round_number_with_at_most_five_parts(span: float, step: float) -> None:
    assert nice_step(span, 5) == step


@pytest.mark.parametrize("high", [0.3, 1, 7, 10, 99, 100, 101, 14_950, 3e6])
def test_ticks_start_at_zero_and_enclose_the_highest_value(high: float) -> None:
    places = [place for place, _ in nice_ticks(high)]
    assert places[0] == 0
    assert places[-2] < high <= places[-1] * (1 + 1e-9)
    assert len(places) <= 6
    assert np.allclose(np.diff(places), places[1])


def test_ticks_of_a_count_are_whole() -> None:
    assert nice_ticks(2, whole=True) == [(0, "0"), (1, "1"), (2, "2")]
    assert [text for _, text in nice_ticks(14_950)] == ["0", "5,000", "10,000", "15,000"]
    assert nice_ticks(400_000)[-1][1] == "400k"


@pytest.mark.parametrize(
    ("span_s", "texts"),
    [
        (60, ["0", "10s", "20s", "30s", "40s", "50s", "60s"]),
        (5400, ["0", "10m", "20m", "30m", "40m", "50m", "60m", "70m", "80m", "90m"]),
        (7.65 * DAY_S, ["0", "1d", "2d", "3d", "4d", "5d", "6d", "7d"]),
        (162 * DAY_S, ["0", "20d", "40d", "60d", "80d", "100d", "120d", "140d", "160d"]),
        (0.4, ["0", "0.05s", "0.1s", "0.15s", "0.2s", "0.25s", "0.3s", "0.35s", "0.4s"]),
    ],
)
def test_times_are_marked_in_the_unit_that_suits_them(span_s: float, texts: list[str]) -> None:
    assert [text for _, text in duration_ticks(span_s)] == texts


def test_a_logarithmic_axis_has_marks_a_person_knows() -> None:
    assert log_range([45.0, 4000.0]) == (30.0, 10800.0)
    assert [text for _, text in log_duration_ticks(30, 10800)] == ["30s", "1m", "3m", "10m", "30m", "1h", "3h"]
    assert [text for _, text in log_duration_ticks(1, 10 * DAY_S)] == [
        "1s",
        "10s",
        "1m",
        "10m",
        "1h",
        "10h",
        "1d",
        "10d",
    ]
    assert log_range([0.0]) == (1.0, 60.0)
    assert log_range([60.0, 60.0]) == (60.0, 600.0)


# Series


def test_bins_hold_time_averages() -> None:
    # 2 from 1 s to 6 s, one more from 3 s: the bins 0-4 and 4-8 hold (3 × 2 + 1 × 1) / 4 and (2 × 2 + 4 × 1) / 4.
    at_s, change = np.array([1.0, 6.0, 3.0, 8.0]), np.array([2.0, -2.0, 1.0, -1.0])
    assert time_average(at_s, change, np.array([0.0, 4.0, 8.0])).tolist() == [[1.75, 2.0]]


@pytest.mark.parametrize("bins", [1, 7, 300])
def test_fewer_points_keep_the_time_average(results: list[SimulationResult], bins: int) -> None:
    for result, run in zip(results, courses(results), strict=True):
        edges_s = time_edges([run], bins)
        # Without suspensions the queue holds every job for its queueing time, over the whole run.
        assert run.waiting(edges_s).mean() * run.span_s == pytest.approx(result.to_frame()["queue_s"].sum())
        assert run.allocated_frac(edges_s).mean() == pytest.approx(result.metrics.gpu_alloc_frac)
        assert run.used_frac(edges_s).mean() == pytest.approx(result.metrics.gpu_util_frac)


@pytest.mark.parametrize("policy", ["fifo", "las"])
def test_the_course_is_that_of_the_timeline(policy: str) -> None:
    result = gpuwise.simulate(TRACE, "2x16:V100", policy)
    run = courses([result])[0]
    edges_s, timeline = time_edges([run], 50), result.timeline()
    for name, values in (("waiting", run.waiting(edges_s)), ("gpus_allocated", run.allocated_frac(edges_s) * run.gpus)):
        change = np.diff(timeline[name].to_numpy(), prepend=0)
        expected = time_average(timeline["at_s"].to_numpy(), change, edges_s)[0]
        assert values == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("count", [1, 3, 400, 401, 5000])
def test_a_distribution_rises_to_one_at_the_largest_value(count: int) -> None:
    values = np.sort(np.random.default_rng(count).exponential(100, count))
    across, up = cdf_points(values)
    assert up[-1] == 1
    assert across[-1] == values[-1]
    assert across[0] == values[0]
    assert len(across) <= 400
    assert (np.diff(up) > 0).all()
    assert cdf_at(values, across) == pytest.approx(up)


def test_runs_are_told_apart_by_what_differs(results: list[SimulationResult]) -> None:
    assert labels(results) == ["fifo", "fifo-backfill", "sjf"]
    larger = gpuwise.simulate(TRACE, "5x8:V100", "fifo")
    assert labels([results[0], larger]) == ["fifo, 4x8:V100", "fifo, 5x8:V100"]
    assert labels([results[0], results[0]]) == ["fifo (1)", "fifo (2)"]


# Occupancy


def test_devices_are_drawn_in_runs() -> None:
    assert list(device_runs(0b1011_0110)) == [(1, 2), (4, 2), (7, 1)]
    assert list(device_runs(0)) == []
    assert list(device_runs(2**64 - 1)) == [(0, 64)]


def test_bars_cover_what_was_allocated(results: list[SimulationResult]) -> None:
    run = courses(results)[0]
    drawn = bars(run, 1000)
    assert drawn is not None
    lasted_s = run.end_s[drawn.stay] - run.begin_s[drawn.stay]
    # A row is one node of 8 GPUs, of which 0.06 above and below are left free.
    assert (drawn.height / 0.88 * 8 * lasted_s).sum() == pytest.approx(
        (run.allocated * (run.end_s - run.begin_s)).sum()
    )


def test_jobs_that_share_a_gpu_lie_beside_each_other() -> None:
    jobs = [JobSpec(id=name, duration_s=100, gpu_frac=0.5) for name in "ab"]
    run = courses([gpuwise.simulate(jobs, "1x1:V100")])[0]
    drawn = bars(run, 10)
    assert drawn is not None
    # Both run at once, each in half of the lane of 0.88 that starts at 0.06.
    assert drawn.top.tolist() == pytest.approx([0.06, 0.50])
    assert drawn.height.tolist() == pytest.approx([0.44, 0.44])


def test_too_many_bars_become_a_map(results: list[SimulationResult]) -> None:
    run = courses(results)[0]
    assert bars(run, 10) is None
    full = fullness(run, time_edges([run], 40), most_rows=2)
    assert full.rows == ["n0–n1", "n2–n3"]
    assert full.allocated_frac.shape == (2, 40)
    assert full.allocated_frac.mean() == pytest.approx(results[0].metrics.gpu_alloc_frac)


def test_equal_cells_become_one_rectangle() -> None:
    drawn = svg.shaded(np.array([[0.0, 1.0, 1.0, 0.5], [0.5, 0.5, 0.0, 0.0]]))
    assert drawn == (
        '<path class="shade s5" d="M7500 0h2500v5000h-2500zM0 5000h5000v5000h-5000z"/>'
        '<path class="shade s10" d="M2500 0h5000v5000h-5000z"/>'
    )


# Drawing and words


def test_paths_are_steps() -> None:
    assert svg.steps([0.5, 0.5, 1.0, 0.0]) == "M0 5000H5000V0H7500V10000H10000"
    assert svg.stairs([0.25, 0.5], [0.5, 1.0]) == "M0 10000H2500V5000H5000V0H10000"


def test_differences_are_relative_and_those_of_parts_are_in_points() -> None:
    assert difference(150, 100) == "+50 %"
    assert difference(97, 100) == "−3.0 %"
    assert difference(0.3, 0.25, is_part=True) == "+5.0 pt"
    assert difference(2000, 100) == "×20"
    assert difference(5, 0) == ""
    assert difference(5, 5) == "±0"
    assert [brief_time(s) for s in (7.9e-6, 0.0123, 3.4)] == ["7.9 µs", "12.3 ms", "3.4 s"]
