"""What text must look like: as a pattern for programs, in words for people."""

from __future__ import annotations

_WORDS: dict[str, str] = {}


def pattern(text: str, words: str) -> str:
    """A pattern that the whole of a text must match, and what `in_words` says of it."""
    while _WORDS.setdefault(f"^{text}$", words) != words:
        text = f"(?:{text})"  # the same pattern for something else: an error tells them apart by how they are written
    return f"^{text}$"


def in_words(whole: str) -> str:
    """What a text must be to match a pattern."""
    return _WORDS.get(whole, "written otherwise; see the API's description")
