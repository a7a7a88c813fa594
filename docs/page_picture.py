"""Takes the picture of the page in the README: python docs/page_picture.py, with Chromium and playwright installed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

PICTURE = Path(__file__).with_name("images") / "page.png"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SIZE = {"width": 1120, "height": 1060}
JOB = "learning-rates"
"""A job of the demo's second wave: once it is listed, it and others run, and those that they preempted wait."""


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no Chromium here; install the package chromium")
    command = [str(Path(sys.executable).with_name("gpuwise")), "up", "--demo", "--port", "0"]
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=chromium, args=FLAGS).new_page(viewport=SIZE)
        demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            take(page, login_link(demo))
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate()
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1000:.0f} kB")


def login_link(demo: subprocess.Popen[str]) -> str:
    """The link to the page, which the demo prints among its first lines."""
    assert demo.stdout is not None
    return next(line.split()[1] for line in demo.stdout if line.strip().startswith("page: "))


def take(page: Page, link: str) -> None:
    page.goto(link)
    page.get_by_text(JOB).first.wait_for()
    page.get_by_role("button", name="Tasks of array").first.click()
    page.locator("tr.task progress").nth(1).wait_for()
    PICTURE.parent.mkdir(exist_ok=True)
    page.screenshot(path=PICTURE)


if __name__ == "__main__":
    main()
