"""Texts for users are in the field's own words: none has a word of the list in words.toml.

Looked at are the documentation, the examples, the page, and the strings and docstrings of the source; comments and
names in the source are not. An exception is a line, word for word, in which the word is right.
"""

from __future__ import annotations

import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SOURCE = PROJECT / "src" / "gpuwise"
RULES = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
WORDS = [(re.compile(rule["pattern"].replace(" ", r"\s+"), re.IGNORECASE), rule) for rule in RULES["word"]]
EXCEPTIONS = {rule["line"] for rule in RULES.get("exception", ())}
PAGES = [
    *(PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((PROJECT / "docs").rglob("*.md")),
    *sorted(path for path in (PROJECT / "examples").rglob("*") if path.suffix in (".md", ".py", ".toml")),
]
PACKAGES = sorted(path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__")


class Passage(NamedTuple):
    """A text, the line it begins on, and whether it is a docstring."""

    line: int
    text: str
    docstring: bool = False


JAVASCRIPT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)""", re.DOTALL
)
EMBEDDED = re.compile(r"\$?\{[^{}]*\}")
CODE_SPAN = re.compile(r"(?<!`)(`{1,2})(?!`)[^`]+\1(?!`)")
QUOTES = re.compile(r"""^\w*("{3}|'{3}|"|')(?P<text>.*)\1$""", re.DOTALL)


def passages(path: Path) -> Iterator[Passage]:
    """The texts of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py" and SOURCE in path.parents:
        yield from python_strings(text)
    elif path.suffix == ".js":
        for found in JAVASCRIPT.finditer(text):
            if found["text"] and " " in found["text"]:
                yield Passage(text.count("\n", 0, found.start()) + 1, EMBEDDED.sub(_blank, found["text"]))
    else:
        yield Passage(1, CODE_SPAN.sub(_blank, text))


def python_strings(text: str) -> Iterator[Passage]:
    """The strings of several words; neighbours that Python joins are one."""
    first, parts, statement = None, list[str](), True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING:
            found = QUOTES.match(token.string)
            assert found is not None
            first = first or Passage(token.start[0], "", docstring=statement)
            embedded = "f" in token.string[: found.start(1)].lower()
            parts.append(EMBEDDED.sub(_blank, found["text"]) if embedded else found["text"])
        elif token.type not in (tokenize.NL, tokenize.COMMENT):
            if first and " " in (joined := "".join(parts)):
                yield first._replace(text=CODE_SPAN.sub(_blank, joined))
            first = None
            parts.clear()
            statement = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "_", found[0])


def hits(path: Path) -> Iterator[str]:
    """What is wrong in a file, with the replacement."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    for begin, text, docstring in passages(path):
        for pattern, rule in WORDS:
            for found in pattern.finditer(text) if rule.get("docstrings", True) or not docstring else ():
                row = begin + text.count("\n", 0, found.start())
                if lines[row - 1] not in EXCEPTIONS:
                    yield f'{path.relative_to(PROJECT)}:{row}: "{" ".join(found[0].split())}"; say: {rule["say"]}'


def texts_of(package: str) -> list[Path]:
    return sorted(path for path in (SOURCE / package).rglob("*") if path.suffix in (".py", ".md", ".html", ".js"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_words_of_a_page(page: Path) -> None:
    found = list(hits(page))
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_words_of_a_package(package: str) -> None:
    found = [hit for path in texts_of(package) for hit in hits(path)]
    assert not found, f"{len(found)} words\n" + "\n".join(found)


def test_every_exception_is_needed() -> None:
    everything = [*PAGES, *(path for package in PACKAGES for path in texts_of(package))]
    lines = {line.strip() for path in everything for line in path.read_text(encoding="utf-8").splitlines()}
    assert not EXCEPTIONS - lines


def test_strings_of_python_are_found() -> None:
    source = '"""A docstring\nof two lines."""\nx = f"held {job.held} by " "two"  # a comment\ny = "one"\n'
    assert list(python_strings(source)) == [
        Passage(1, "A docstring\nof two lines.", docstring=True),
        Passage(3, "held __________ by two"),
    ]


def test_a_word_is_found_across_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("One\njob was driven\nout of `held_gpus`.\n", encoding="utf-8")
    monkeypatch.setattr("test_words.PROJECT", tmp_path)
    assert list(hits(page)) == ['page.md:2: "driven out"; say: preempt, preempted']
