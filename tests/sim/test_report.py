"""The HTML report: its arithmetic, and that the page is whole, safe and the same each time."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import gpuwise
from gpuwise import GpuwiseError, JobSpec, SimulationResult
from gpuwise.sim.report import charts, html_report
from gpuwise.sim.report.occupancy import _device_runs, bars, fullness
from gpuwise.sim.report.series import cdf_at, cdf_points, courses, labels, time_average, time_edges
from gpuwise.sim.report.tables import brief_time, difference
from gpuwise.sim.report.ticks import duration_ticks, log_duration_ticks, log_range, nice_step, nice_ticks

VOID = {"meta", "input", "br", "link", "img", "hr"}
TRACE = "gen:gavel?jobs=60&rate=30&seed=1"
DAY_S = 86400.0


@pytest.fixture(scope="module")
def results() -> list[SimulationResult]:
    return [gpuwise.simulate(TRACE, "4x8:V100", policy) for policy in ("fifo", "fifo-backfill", "sjf")]


@pytest.fixture(scope="module")
def page(results: list[SimulationResult], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    html_report(results, path)
    return path.read_text(encoding="utf-8")


class Balanced(HTMLParser):
    """Fails at the first tag that is closed out of turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words += data


def parsed(page: str) -> Balanced:
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


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
        assert run.held_frac(edges_s).mean() == pytest.approx(result.metrics.gpu_alloc_frac)
        assert run.used_frac(edges_s).mean() == pytest.approx(result.metrics.gpu_util_frac)


@pytest.mark.parametrize("policy", ["fifo", "las"])
def test_the_course_is_that_of_the_timeline(policy: str) -> None:
    result = gpuwise.simulate(TRACE, "2x16:V100", policy)
    run = courses([result])[0]
    edges_s, timeline = time_edges([run], 50), result.timeline()
    for name, values in (("waiting", run.waiting(edges_s)), ("gpus_held", run.held_frac(edges_s) * run.gpus)):
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
    assert list(_device_runs(0b1011_0110)) == [(1, 2), (4, 2), (7, 1)]
    assert list(_device_runs(0)) == []
    assert list(_device_runs(2**64 - 1)) == [(0, 64)]


def test_bars_cover_what_was_held(results: list[SimulationResult]) -> None:
    run = courses(results)[0]
    drawn = bars(run, 1000)
    assert drawn is not None
    lasted_s = run.end_s[drawn.stay] - run.begin_s[drawn.stay]
    # A row is one node of 8 GPUs, of which 0.06 above and below are left free.
    assert (drawn.height / 0.88 * 8 * lasted_s).sum() == pytest.approx((run.held * (run.end_s - run.begin_s)).sum())


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
    assert full.held_frac.shape == (2, 40)
    assert full.held_frac.mean() == pytest.approx(results[0].metrics.gpu_alloc_frac)


def test_equal_cells_become_one_rectangle() -> None:
    drawn = charts.shaded(np.array([[0.0, 1.0, 1.0, 0.5], [0.5, 0.5, 0.0, 0.0]]))
    assert drawn == (
        '<path class="shade s5" d="M7500 0h2500v5000h-2500zM0 5000h5000v5000h-5000z"/>'
        '<path class="shade s10" d="M2500 0h5000v5000h-5000z"/>'
    )


# Drawing and words


def test_paths_are_steps() -> None:
    assert charts.steps([0.5, 0.5, 1.0, 0.0]) == "M0 5000H5000V0H7500V10000H10000"
    assert charts.stairs([0.25, 0.5], [0.5, 1.0]) == "M0 10000H2500V5000H5000V0H10000"


def test_differences_are_relative_and_those_of_parts_are_in_points() -> None:
    assert difference(150, 100) == "+50 %"
    assert difference(97, 100) == "−3.0 %"
    assert difference(0.3, 0.25, is_part=True) == "+5.0 pt"
    assert difference(2000, 100) == "×20"
    assert difference(5, 0) == ""
    assert difference(5, 5) == "±0"
    assert [brief_time(s) for s in (7.9e-6, 0.0123, 3.4)] == ["7.9 µs", "12.3 ms", "3.4 s"]


# The page


def test_the_page_is_whole(page: str, results: list[SimulationResult]) -> None:
    seen = parsed(page)
    assert len(seen.ids) == len(set(seen.ids))
    for words in (TRACE, "4x8:V100 (32 GPUs)", "best-fit", gpuwise.__version__, "average JCT", "Who waited longest"):
        assert words in seen.words
    assert page.count("<svg ") == page.count("<desc ") == 3 + len(results)
    assert all('scope="' in head for head in re.findall(r"<th\b[^>]*>", page))


def test_the_page_needs_no_network(page: str) -> None:
    rest = page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    for word in ("http://", "https://", "url(", "@import", "<link", "src=", "fetch("):
        assert word not in rest


def test_the_numbers_behind_the_charts_can_be_read(page: str) -> None:
    blocks = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]
    assert [block["kind"] for block in blocks] == ["lines"] * 3 + ["bars"] * 3
    assert all(line["values"][-1] == 100 for line in blocks[0]["lines"])


def test_the_best_value_of_a_column_is_marked_once(page: str, results: list[SimulationResult]) -> None:
    best = min(result.metrics.avg_jct_s for result in results)
    assert f'<td class="best" data-value="{best!r}">' in page
    assert page.count('class="best measured"') == 3


def test_the_same_results_give_the_same_page(page: str, results: list[SimulationResult], tmp_path: Path) -> None:
    html_report(results, tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page


def test_a_second_run_differs_only_in_what_a_clock_measured(page: str, tmp_path: Path) -> None:
    again = [gpuwise.simulate(TRACE, "4x8:V100", policy) for policy in ("fifo", "fifo-backfill", "sjf")]
    html_report(again, tmp_path / "again.html")

    def unmeasured(text: str) -> str:
        return re.sub(r'<td class="[a-z ]*measured".*?</td>', "", text)

    assert unmeasured((tmp_path / "again.html").read_text(encoding="utf-8")) == unmeasured(page)


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><!-- &amp; \"'"
    jobs = [JobSpec(id=f"{evil}{i}", duration_s=100, gpus=8) for i in range(3)]
    fair = gpuwise.simulate(jobs, "1x8:V100")
    named = SimulationResult(evil, evil, fair.cluster, evil, 0, fair.wall_s, fair.engine)
    html_report([named, fair], tmp_path / "evil.html")
    page = (tmp_path / "evil.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "<!--" not in page
    assert evil in parsed(page).words
    blocks = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]
    assert blocks[0]["lines"][0]["name"] == evil
    assert blocks[3]["ids"] == [f"{evil}{i}" for i in range(3)]


def test_one_result_and_jobs_that_never_wait_make_a_page(tmp_path: Path) -> None:
    html_report([gpuwise.simulate([JobSpec(id="only", duration_s=0.5)], "1x1:V100")], tmp_path / "one.html")
    words = parsed((tmp_path / "one.html").read_text(encoding="utf-8")).words
    assert "No job waited." in words


def test_thousands_of_jobs_make_a_small_page(tmp_path: Path) -> None:
    trace = "gen:philly?jobs=5000&seed=1"
    runs = [gpuwise.simulate(trace, "40x8:V100", policy, oversized="drop") for policy in ("fifo", "sjf")]
    html_report(runs, tmp_path / "large.html")
    assert (tmp_path / "large.html").stat().st_size < 1_000_000


def test_what_cannot_be_done_is_said(results: list[SimulationResult], tmp_path: Path) -> None:
    with pytest.raises(GpuwiseError, match="no results"):
        html_report([], tmp_path / "none.html")
    with pytest.raises(GpuwiseError, match="cannot write the report"):
        html_report(results, tmp_path / "missing" / "report.html")


@pytest.fixture
def dom_after(tmp_path: Path) -> Callable[[str], str]:
    """The page as a browser sees it after its own script and another have run."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no chromium to look at the page with")

    def look(page: str) -> str:
        path = tmp_path / "seen.html"
        path.write_text(page, encoding="utf-8")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom"]
        seen = subprocess.run(
            [browser, *flags, f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return seen.stdout

    return look


def test_a_browser_runs_the_script(page: str, dom_after: Callable[[str], str]) -> None:
    # The page allows no script but its own; for this test the allowance is left out and another script plays the reader.
    reader = """<script>
      document.querySelectorAll(".sortable thead button")[1].click();
      document.querySelectorAll("[data-toggle]")[1].click();
      document.querySelectorAll("[role=tab]")[2].click();
      const plot = document.querySelector(".plot"), box = plot.getBoundingClientRect();
      plot.dispatchEvent(new PointerEvent("pointermove", {clientX: box.right - 1, clientY: box.top + 9}));
    </script></body>"""
    plain = dom_after(page)
    assert plain.count('aria-selected="true"') == 1
    opened = re.sub(r"<meta http-equiv[^>]*>", "", page).replace("</body>", reader)
    seen = dom_after(opened)
    rows = re.findall(r'<tr><th scope="row"><span class="swatch c(\d)"', seen)[:3]
    assert rows == ["2", "1", "0"]  # sjf, fifo-backfill, fifo by average JCT
    assert re.findall(r'class="line c1  ?off" data-policy="1"', seen)
    assert re.search(r'id="panel-0"[^>]*hidden', seen)
    assert not re.search(r'id="panel-2"[^>]*hidden', seen)
    tip = re.search(r'<div id="tip".*?</div></div>', seen)
    assert tip is not None
    assert "done within" in tip[0]
    assert "100%" in tip[0]
    assert "fifo-backfill" not in tip[0]
