"""Chromium, and a server for it to look at."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from api_double import Double, app_of
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from serving import serve

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE_MS = 20_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed; the page is tested in it")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def one_double() -> Double:
    return Double()


@pytest.fixture(scope="session")
def address(one_double: Double) -> Iterator[str]:
    """Where the double is served."""
    yield from serve(app_of(one_double))


@pytest.fixture
def double(one_double: Double) -> Double:
    one_double.reset()
    return one_double


Complaints = list[str]


@pytest.fixture
def complaints() -> Complaints:
    """Errors, and what the content security policy forbade; a test that means to cause some clears them."""
    return []


@pytest.fixture
def open_page(browser: Browser, complaints: Complaints) -> Iterator[Callable[..., Page]]:
    """Opens an address in a window of its own; `width` and `dark` say what kind of window."""
    contexts = []

    def listen(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def open_(url: str, width: int = 1200, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", listen)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
