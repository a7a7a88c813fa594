"""The page with many jobs beside the page with ten, and beside a table of all jobs at once.

    python benchmarks/page.py [--jobs 10000] [--seconds 20] [--pages 10]

Starts `gpuwise up` on CPU stand-ins in a folder for temporary files, and Chromium, which must be installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, CDPSession, Page, Response, sync_playwright

from gpuwise.cli.live.page import login_link
from live import Caller, Server

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SIZE = {"width": 1120, "height": 1060}
VIEWS = {"overview": "#/", "queue": "#/queue", "ended": "#/ended"}
PATIENCE_MS = 120_000
FEW = 10
ARRAY = 500
REFRESH = "/v1/status"
"""What every refresh asks once."""
NOTE_TIMES = """
const times = window.benchmark = {first: null, longest: 0};
new MutationObserver((_, observer) => {
  if (!document.querySelector("tbody tr")) return;
  times.first = performance.now();
  observer.disconnect();
}).observe(document, {childList: true, subtree: true});
new PerformanceObserver((list) => {
  for (const {duration} of list.getEntries()) times.longest = Math.max(times.longest, duration);
}).observe({type: "longtask", buffered: true});
"""
ALL_AT_ONCE = """async (limit) => {
  const headers = {Authorization: `Bearer ${localStorage.getItem("gpuwise.session")}`};
  const begun = performance.now(), rows = [];
  let bytes = 0, total = 1;
  while (rows.length < total) {
    const path = `/v1/tables/queue?grouped=false&limit=${limit}&offset=${rows.length}`;
    const text = await (await fetch(path, {headers})).text(), answer = JSON.parse(text);
    bytes += text.length;
    total = answer.row_count;
    rows.push(...answer.rows);
  }
  const fetched = performance.now(), table = document.createElement("table");
  for (const {job} of rows) {
    const row = table.insertRow();
    for (const cell of [job.id, job.user, job.status, job.gpus, job.duration_s, job.step, job.submitted_at,
      job.estimated_start, job.why]) row.insertCell().append(document.createElement("div"), String(cell ?? "–"));
  }
  document.getElementById("main").replaceChildren(table);
  table.getBoundingClientRect();
  const elements = document.querySelectorAll("*").length;
  return {first: performance.now() - begun, busy: performance.now() - fetched, bytes, elements};
}"""


@dataclass(slots=True)
class Figures:
    """What was measured of a view; all but the first are per refresh or at the end."""

    first_ms: float
    busy_ms: float
    longest_ms: float
    elements: int
    kilobytes: float
    server_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the page with many jobs.")
    parser.add_argument("--jobs", type=int, default=10_000, help="Number of jobs.")
    parser.add_argument("--seconds", type=float, default=20.0, help="How long each view is observed.")
    parser.add_argument("--pages", type=int, default=10, help="Number of pages that are open at once.")
    given = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no Chromium here; install the package chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        with serving(FEW) as server:
            few = {name: measure(browser, server, view, given.seconds) for name, view in VIEWS.items()}
        with serving(given.jobs) as server:
            many = {name: measure(browser, server, view, given.seconds) for name, view in VIEWS.items()}
            for name in VIEWS:
                show(name, given.jobs, many[name], few[name])
            all_at_once(browser, server)
            many_pages(browser, server, given)
        browser.close()


@contextmanager
def serving(jobs: int) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="gpuwise-bench-") as folder:
        server = Server(Path(folder), "--devices", "4")
        try:
            fill(Caller(server.port, server.token), jobs)
            yield server
        finally:
            server.stop()


def fill(caller: Caller, jobs: int) -> None:
    """A fifth are jobs of their own, the others tasks of arrays, of which half are cancelled."""

    def submit(**more: object) -> str:
        body = {"command": ["/bin/sleep", "1000"], "duration_s": 900.0, **more}
        return str(caller.call("POST", "/v1/jobs", body)["jobs"][0]["id"])

    for number in range(jobs // 5):
        submit(name=f"bert-{number}")
    for number, first in enumerate(range(jobs // 5, jobs, ARRAY)):
        uid = submit(name="learning-rates", array=list(range(min(ARRAY, jobs - first))))
        if number % 2 == 0:
            caller.call("POST", f"/v1/jobs/{uid.partition('-')[0]}/cancel")


def measure(browser: Browser, server: Server, view: str, seconds: float) -> Figures:
    """Loads a view, then observes it while it refreshes."""
    page = logged_in(browser, server)
    page.goto(f"http://127.0.0.1:{server.port}/{view}")
    page.reload()
    page.locator("tbody tr").first.wait_for()
    page.wait_for_timeout(5000)  # the first estimates are computed
    received = answers(page)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})  # others keep the cores busy
    busy, server_ms = observed(page, seconds, lambda: busy_ms(session), lambda: cpu_ms(server))
    refreshes = sum(REFRESH in url for url, _ in received)
    times = page.evaluate("window.benchmark")
    figures = Figures(
        first_ms=times["first"],
        busy_ms=busy / refreshes,
        longest_ms=times["longest"],
        elements=page.evaluate("document.querySelectorAll('*').length"),
        kilobytes=sum(size for _, size in received) / 1e3 / refreshes,
        server_ms=server_ms / refreshes,
    )
    page.context.close()
    return figures


def observed(page: Page, seconds: float, *meters: Callable[[], float]) -> list[float]:
    """By how much meters rise."""
    before = [meter() for meter in meters]
    page.wait_for_timeout(1000 * seconds)
    return [meter() - begun for meter, begun in zip(meters, before, strict=True)]


def show(name: str, jobs: int, many: Figures, few: Figures) -> None:
    def ratio(figure: str) -> str:
        large, small = getattr(many, figure), getattr(few, figure)
        return f" ({large / small:.1f} ×)" if small else ""

    longest = f"{many.longest_ms:.0f} ms" if many.longest_ms else "under 50 ms"
    print(
        f"{name}, {jobs:,} jobs (× the same with {FEW} jobs): first rows after {many.first_ms:.0f} ms"
        f"{ratio('first_ms')}, {many.elements:,} elements{ratio('elements')}, longest task {longest}\n"
        f"  per refresh: main thread {many.busy_ms:.0f} ms{ratio('busy_ms')}, {many.kilobytes:.1f} kB"
        f"{ratio('kilobytes')}, CPU time of the service {many.server_ms:.0f} ms{ratio('server_ms')}",
        flush=True,
    )


def all_at_once(browser: Browser, server: Server) -> None:
    """The simplest page: one row per job that has not ended."""
    page = logged_in(browser, server)
    page.get_by_text("live", exact=True).wait_for()
    shown = page.evaluate(ALL_AT_ONCE, 1000)
    print(
        f"a table of all jobs that have not ended: rows after {shown['first']:.0f} ms, {shown['elements']:,} elements, "
        f"main thread {shown['busy']:.0f} ms, {shown['bytes'] / 1e3:,.0f} kB",
        flush=True,
    )
    page.context.close()


def many_pages(browser: Browser, server: Server, given: argparse.Namespace) -> None:
    """CPU time of the service while several overviews are open."""
    pages = [logged_in(browser, server) for _ in range(given.pages)]
    received = [answers(page) for page in pages]
    pages[0].wait_for_timeout(5000)
    for each in received:
        each.clear()
    (spent,) = observed(pages[0], given.seconds, lambda: cpu_ms(server))
    refreshes = sum(REFRESH in url for each in received for url, _ in each)
    print(
        f"{given.pages} overviews open: the service uses {spent / 1e3 / given.seconds:.1%} of a core, "
        f"{spent / refreshes:.0f} ms per refresh of a page"
    )


def logged_in(browser: Browser, server: Server) -> Page:
    context = browser.new_context(viewport=SIZE)
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(NOTE_TIMES)
    page = context.new_page()
    code = Caller(server.port, server.token).call("POST", "/v1/session/code")["code"]
    page.goto(login_link(f"http://127.0.0.1:{server.port}", code))
    page.locator("tbody tr").first.wait_for()
    return page


def answers(page: Page) -> list[tuple[str, int]]:
    """The addresses and sizes of all answers from here on."""
    found: list[tuple[str, int]] = []

    def note(answer: Response) -> None:
        found.append((answer.url, int(answer.headers.get("content-length", 0))))

    page.on("response", note)
    return found


def busy_ms(session: CDPSession) -> float:
    """The CPU time of the main thread so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return 1e3 * float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


def cpu_ms(server: Server) -> float:
    """The CPU time of the service so far."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
