"""What a user types to find jobs: words that must all match, each in any field or in one, as in ``bert user:ada``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FIELDS = ("id", "name", "user", "queue", "status")


@dataclass(frozen=True, slots=True)
class SearchTerm:
    """One word, in lower case; an empty field is any field."""

    text: str
    field: str = ""

    def matches(self, texts: Mapping[str, str]) -> bool:
        """Whether a job with these texts by field matches; a field that is missing matches nothing."""
        if self.field == "id":
            return is_job_or_array(texts.get("id", ""), self.text)
        if self.field:
            return self.text in texts.get(self.field, "").lower()
        return any(
            text.startswith(self.text) if field == "id" else self.text in text.lower() for field, text in texts.items()
        )


def is_job_or_array(uid: str, asked: str) -> bool:
    """Whether a job has an id, or is a task of the array with it."""
    return uid == asked or uid.startswith(f"{asked}-")


def parse_search(text: str) -> tuple[SearchTerm, ...]:
    """The words of a search; a prefix that is no field, as in ``lr:0.1``, is part of its word."""
    terms = []
    for word in text.lower().split():
        field, colon, rest = word.partition(":")
        if colon and field in FIELDS:
            terms += [SearchTerm(rest, field)] if rest else []  # "user:" is a word that is still being typed
        else:
            terms.append(SearchTerm(word))
    return tuple(terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedQuery:
    """Which page of the ended jobs to read."""

    user: str | None = None
    """None is every user."""
    terms: tuple[SearchTerm, ...] = ()
    sort: str = "ended"
    descending: bool = True
    grouped: bool = True
    """Whether an array is one row."""
    open_arrays: tuple[str, ...] = ()
    """Arrays whose tasks follow them, in rows of their own."""
    offset: int = 0
    limit: int = 50


def page_start(offset: int, limit: int, row_count: int) -> int:
    """An offset, or that of the last page if it is beyond it."""
    return min(offset, max(0, row_count - 1) // limit * limit)
