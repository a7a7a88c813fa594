"""The pages of the documentation: each is in the index, links lead somewhere, and every command is described."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
INDEX = DOCS / "index.md"
PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\((?P<target>[^)#:]+)(?:#(?P<anchor>[^)]*))?\)")
HEADING = re.compile(r"^#+ (?P<text>.*)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as they are linked to."""
    headings = (heading["text"].lower() for heading in HEADING.finditer(page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.finditer(page.read_text(encoding="utf-8")):
        target = page.parent / link["target"]
        assert target.exists(), link[0]
        assert link["anchor"] is None or link["anchor"] in anchors(target), link[0]


def test_index_has_each_page_once() -> None:
    linked = Counter((DOCS / link["target"]).resolve() for link in LINK.finditer(INDEX.read_text(encoding="utf-8")))
    assert not [str(page) for page in sorted(DOCS.rglob("*.md")) if page != INDEX and linked[page] != 1]
    assert max(linked.values()) == 1


def test_every_command_is_on_the_page_about_the_command_line() -> None:
    gpuwise = Path(sys.executable).with_name("gpuwise")
    shown = subprocess.run([gpuwise, "--help"], capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^  ([a-z]+) ", shown.partition("Commands:")[2], re.MULTILINE)
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert len(commands) > 20
    assert not [command for command in commands if not re.search(rf"`{command}\b", page)]
