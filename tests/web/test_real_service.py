"""The page before a real service with a real job: nothing here is made up."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from serving import owners_link, serve

from gpuwise.api.app import create_app
from gpuwise.core.job.request import JobRequest
from gpuwise.service.live.up import LocalDeployment, Settings

HOSTILE = "<img src=x onerror='window.hacked=1'>\x1b]0;hacked\x07\x1b]8;;http://evil.example\x1b\\link\x9b2J"
TRAINING = """
import sys, time
from gpuwise import sdk
job = sdk.attach(save=lambda path: path.write_text(""), load=lambda path: None)
print("begins at", job.step, sys.argv[1], flush=True)
for step in job.steps(100_000):
    job.report(loss=1 / (1 + step), samples=32)
    time.sleep(0.01)
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[LocalDeployment]:
    deployment = LocalDeployment(Settings(state=tmp_path / "state", policy="srtf", devices=2))
    yield deployment
    left = [record.uid for record in deployment.controller.live_records()]
    deployment.controller.cancel(left, "the test's end").result(10)
    deployment.close()


@pytest.fixture
def address(deployment: LocalDeployment) -> Iterator[str]:
    yield from serve(create_app(deployment.service))


def test_the_life_of_a_job(address: str, deployment: LocalDeployment, open_page: Callable[..., Page]) -> None:
    page = open_page(owners_link(address, deployment))
    expect(page.get_by_text("No job runs.")).to_be_visible()
    expect(page.get_by_text("CPU stand-ins, not GPUs")).to_be_visible()
    assert "login" not in page.url

    request = JobRequest(
        command=(sys.executable, "-c", TRAINING, HOSTILE), name="real", gpu_frac=0.5, duration_s=1000.0
    )
    deployment.controller.submit([request], "ada").result(10)
    link = page.get_by_role("table", name="Running jobs").get_by_role("link", name="1 real")
    expect(page.get_by_role("article").filter(has_text="1 real")).to_contain_text("free50 %")
    expect(page.get_by_text("of 100,000").first).to_be_visible()
    link.click()
    expect(page.get_by_label("log of job 1")).to_have_text(f"begins at 0 {HOSTILE}\n")
    expect(page).to_have_title("job 1 · gpuwise")
    expect(page.get_by_label("log of job 1").locator("*")).to_have_count(0)  # text alone

    page.get_by_role("button", name="Suspend").click()
    expect(page.locator(".why")).to_have_text("was put on hold by its user until it is resumed")
    expect(page.get_by_role("row", name="suspended").first).to_contain_text("75")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_label("log of job 1")).to_have_text(re.compile(r"begins at 0 .*begins at [1-9]", re.DOTALL))
    expect(page.get_by_role("heading", name="Attempts (2)")).to_be_visible()
    expect(page.locator("dl .status.running")).to_be_visible()

    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
    expect(page.locator("dl .status.cancelled")).to_be_visible()
    expect(page.locator(".why")).to_contain_text("cancelled by")
    page.get_by_role("link", name="Ended").click()
    expect(page.get_by_role("row", name="1 real")).to_contain_text("cancelled")
    assert page.evaluate("window.hacked") is None
