"""The Python code in the documentation runs: every ```python block of a page, from top to bottom, in one namespace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def run_page(page: Path) -> int:
    """Runs a page's code and returns how many blocks it has; tracebacks show the page's own lines."""
    text = page.read_text(encoding="utf-8")
    namespace = {"__name__": page.stem}
    blocks = list(BLOCK.finditer(text))
    for block in blocks:
        lines_before = text.count("\n", 0, block.start("code"))
        exec(compile("\n" * lines_before + block["code"], str(page), "exec", dont_inherit=True), namespace)
    return len(blocks)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_of_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)


def test_pages_with_code_are_found() -> None:
    with_code = {page.name for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))}
    assert {"README.md", "policy-in-a-notebook.md"} <= with_code


def test_a_page_that_is_wrong_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError) as caught:
        run_page(page)
    assert caught.traceback[-1].lineno + 1 == 8
