"""The HTML report: that the page is whole, safe and the same each time."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import gpuwise
from gpuwise import GpuwiseError, JobSpec, SimulationResult
from gpuwise.sim.results.report.page import html_report

VOID = {"meta", "input", "br", "link", "img", "hr"}
TRACE = "gen:gavel?jobs=60&rate=30&seed=1"


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


def test_the_page_is_whole(page: str, results: list[SimulationResult]) -> None:
    seen = parsed(page)
    assert len(seen.ids) == len(set(seen.ids))
    for words in (TRACE, "4x8:V100 (32 GPUs)", "best-fit", gpuwise.__version__, "average JCT", "Longest waits"):
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
    named = replace(fair, policy=evil, trace=evil, placement=evil)
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
    # The page allows no script but its own; here the allowance is left out, and another script plays the reader.
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
