"""The page with a long queue: when its first rows are there, its elements, how busy the browser is, what it receives.

    python benchmarks/page.py [--jobs 10000] [--seconds 10] [--pictures FOLDER]

Starts `gpuwise up` on CPU stand-ins in a folder for temporary files, and Chromium, which must be installed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, CDPSession, Page, Response, sync_playwright

from live import Caller, Server

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
VIEWS = {"overview": "#/", "queue": "#/queue"}
PATIENCE_MS = 120_000
ARRAY = 500


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the page with a long queue.")
    parser.add_argument("--jobs", type=int, default=10_000, help="Number of jobs.")
    parser.add_argument("--seconds", type=float, default=10.0, help="How long the browser is observed in each view.")
    parser.add_argument("--pictures", type=Path, help="A folder for a picture of each view.")
    given = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no Chromium here; install the package chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = Server(Path(folder), "--devices", "4")
        try:
            fill(Caller(server.port, server.token), given.jobs)
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            for name, view in VIEWS.items():
                measure(browser, server, name, view, given)
            browser.close()
        finally:
            server.stop()


def fill(caller: Caller, jobs: int) -> None:
    """A fifth are jobs of their own, the others tasks of arrays."""
    for number in range(jobs // 5):
        caller.call(
            "POST", "/v1/jobs", {"command": ["/bin/sleep", "1000"], "name": f"bert-{number}", "duration_s": 900.0}
        )
    left = jobs - jobs // 5
    while left > 0:
        size = min(ARRAY, left)
        body = {
            "command": ["/bin/sleep", "1000"],
            "name": "learning-rates",
            "array": list(range(size)),
            "duration_s": 600.0,
        }
        caller.call("POST", "/v1/jobs", body)
        left -= size


def measure(browser: Browser, server: Server, name: str, view: str, given: argparse.Namespace) -> None:
    context = browser.new_context(viewport={"width": 1120, "height": 1060})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"http://127.0.0.1:{server.port}/login?token={server.token}")
    page.locator("h2").first.wait_for()
    begun = time.perf_counter()
    page.goto(f"http://127.0.0.1:{server.port}/{view}")
    page.reload()
    if given.jobs:
        page.locator("tbody tr").first.wait_for()
    first_s = time.perf_counter() - begun
    received = sizes(page)
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    before = busy_s(session)
    page.wait_for_timeout(1000 * given.seconds)
    busy = (busy_s(session) - before) / given.seconds
    elements = page.evaluate("document.querySelectorAll('*').length")
    print(
        f"{name}: first rows after {first_s:.2f} s, {elements:,} elements, main thread {busy:.1%} busy, "
        f"{sum(received) / 1e3 / given.seconds:.1f} kB/s in {len(received) / given.seconds:.1f} answers/s"
    )
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=given.pictures / f"{name}-{given.jobs}.png", full_page=True)
    context.close()


def sizes(page: Page) -> list[int]:
    """The sizes of all answers from here on."""
    found: list[int] = []

    def note(answer: Response) -> None:
        found.append(int(answer.headers.get("content-length", 0)))

    page.on("response", note)
    return found


def busy_s(session: CDPSession) -> float:
    """How long the main thread has worked so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


if __name__ == "__main__":
    main()
