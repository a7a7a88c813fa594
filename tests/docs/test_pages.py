"""The pages of the documentation: each is in the index, links lead somewhere, and every command is described."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
INDEX = DOCS / "index.md"
GPUWISE = Path(sys.executable).with_name("gpuwise")
GROUPS = ("nodes", "queues", "tokens")
"""Commands with commands of their own."""

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


MAPS = [DOCS / "architecture.md", *sorted((PROJECT / "src").rglob("README.md"))]
SOURCES = re.compile(r"`((?:[a-z_]+/)*[a-z_0-9]+\.py|(?:[a-z_]+/)+)`")


@pytest.mark.parametrize("page", MAPS, ids=lambda page: str(page.relative_to(PROJECT)))
def test_named_source_files_exist(page: Path) -> None:
    package = PROJECT / "src" / "gpuwise"
    folders = [package, *(PROJECT / name for name in ("benchmarks", "docs", "examples", "tests"))]
    files = [path.relative_to(folder.parent) for folder in folders for path in folder.rglob("*.*")]
    known = {f"/{file}" for file in files} | {f"/{parent}/" for file in files for parent in file.parents}
    named = set(SOURCES.findall(page.read_text(encoding="utf-8")))
    assert not [name for name in named if not any(each.endswith("/" + name) for each in known)]


def test_index_has_each_page_once() -> None:
    linked = Counter((DOCS / link["target"]).resolve() for link in LINK.finditer(INDEX.read_text(encoding="utf-8")))
    assert not [str(page) for page in sorted(DOCS.rglob("*.md")) if page != INDEX and linked[page] != 1]
    assert max(linked.values()) == 1


def test_every_command_is_on_the_page_about_the_command_line() -> None:
    shown = subprocess.run([GPUWISE, "--help"], capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^  ([a-z]+) ", shown.partition("Commands:")[2], re.MULTILINE)
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert len(commands) > 20
    assert not [command for command in commands if not re.search(rf"`{command}\b", page)]


@cache
def options(command: str) -> set[str]:
    """The long options of a command or of a group's command."""
    shown = subprocess.run([GPUWISE, *command.split(), "--help"], capture_output=True, text=True, check=True).stdout
    return {"--help", "--version", "--install-completion", *re.findall(r"--[a-z][a-z-]*", shown)}


def mentioned() -> dict[str, set[str]]:
    """The commands of gpuwise that pages mention, each with the options it is mentioned with."""
    found: dict[str, set[str]] = {}
    for page in [*PAGES, PROJECT / "examples" / "entry_point" / "README.md"]:
        for line in re.findall(r"\bgpuwise ([a-z][^`\n#]*)", joined_commands(page)):
            own = re.split(r" -- |&&|\||;", line)[0].split()
            command = " ".join(own[:2]) if own[0] in GROUPS and len(own) > 1 and own[1].isalpha() else own[0]
            found.setdefault(command, set()).update(re.findall(r"(?<=\s)--[a-z][a-z-]*", " " + " ".join(own[1:])))
    return found


def joined_commands(page: Path) -> str:
    """The code of a page, with continued lines joined and without what commands print."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"^```(sh|console)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    blocks = ["\n".join(re.findall(r"^[$>] (.*)$", block, re.M)) if of == "console" else block for of, block in found]
    blocks = [re.sub(r" # .*", "", block) for block in blocks]
    return "\n".join(blocks + re.findall(r"`(gpuwise [^`\n]+)`", text))


def test_commands_on_pages_have_the_options_they_are_shown_with() -> None:
    wrong = {command: unknown for command, used in mentioned().items() if (unknown := used - options(command))}
    assert not wrong


def test_programs_and_tests_on_pages_are_there() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    scripts = set(re.findall(r"python3? ((?:benchmarks|docs|examples|tests)/[\w/]+\.py)", text))
    tests = set(re.findall(r"pytest (tests/[\w/.]+)", text)) | set(re.findall(r"`(tests/[\w/]+\.\w+)`", text))
    assert scripts
    assert tests
    assert not [name for name in scripts | tests if not (PROJECT / name).exists()]


def test_selections_of_tests_on_pages_select_some() -> None:
    text = (DOCS / "sdk.md").read_text(encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", "tests/sdk"]
    collected = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    selections = re.findall(r'pytest tests/sdk -k "?([\w ]+)"?`', text)
    assert selections
    assert not [each for words in selections for each in words.split(" or ") if each not in collected]
