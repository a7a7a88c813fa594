"""Parameters in paths, queries and headers, and the patterns that text must match."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header, Path, Query

from gpuwise.core.errors import nearest_names
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.request import NAME_PATTERN
from gpuwise.service.live.errors import InvalidError
from gpuwise.service.live.job_logs import UID_PATTERN

MAX_LISTED = 1000
STATUSES = tuple(status.name.lower() for status in Status if status is not Status.DECLARED)
_WORDS: dict[str, str] = {}


def pattern(text: str, words: str) -> str:
    """A pattern that the whole of a text must match; ``words`` is what `in_words` says of it."""
    while _WORDS.setdefault(f"^{text}$", words) != words:
        text = f"(?:{text})"  # the same pattern with other words: errors tell them apart by how they are written
    return f"^{text}$"


def in_words(whole: str) -> str:
    """What a text must be to match a pattern."""
    return _WORDS.get(whole, "of another form; see /openapi.json")


UID = pattern(UID_PATTERN, "the id of a job such as 17, or 17-3 for a task of an array")
NAME = pattern(NAME_PATTERN, "letters, digits and -_./:@+")
JobId = Annotated[str, Path(pattern=UID, description="17, or 17-3 for a task of an array.")]
ArrayId = Annotated[str, Path(pattern=pattern("[0-9]{1,15}", "the id of an array such as 17"), description="17.")]
QueueName = Annotated[str, Path(pattern=NAME, description="A queue's name.")]
NodeName = Annotated[str, Path(pattern=pattern(r"[!-~]{1,253}", "a name without spaces"), description="A node's name.")]
TokenId = Annotated[str, Path(pattern=pattern("[0-9a-f]{1,64}", "the id of a token"), description="A token's id.")]
Before = Annotated[str | None, Query(pattern=UID, description="Jobs older than this one.")]
Limit = Annotated[int, Query(ge=1, le=MAX_LISTED, description="Maximum number of entries.")]
Sequence = Annotated[int | None, Query(ge=0, le=2**63 - 1, description="Events after this sequence number.")]
Moment = Annotated[float | None, Query(ge=0, le=1e11, allow_inf_nan=False, description="A Unix time.")]
Name = Annotated[str | None, Query(pattern=NAME)]
Words = Annotated[list[str], Query(max_length=MAX_LISTED, description="May be repeated, or joined by commas.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=pattern(r"[!-~]{1,128}", "1 to 128 ASCII characters without spaces"),
        description="Any text; a submission that is sent again with the same key is not repeated.",
    ),
]
LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        pattern=pattern("[0-9]{1,18}", "a number"),
        description="The last event that was received.",
    ),
]


def split(words: list[str]) -> list[str]:
    """A parameter's values, given several times or joined by commas."""
    return [word for each in words for word in each.split(",") if word]


def statuses(words: list[str]) -> list[str]:
    """Statuses by name."""
    found = split(words)
    for word in found:
        if word not in STATUSES:
            raise InvalidError(f"status is {word[:60]!r}; did you mean {', '.join(nearest_names(word, STATUSES))}?")
    return found


def uids(words: list[str]) -> list[str]:
    """Ids of jobs."""
    found = split(words)
    if len(found) > MAX_LISTED:
        raise InvalidError(f"uids has {len(found)} ids; it may have up to {MAX_LISTED}")
    for word in found:
        if not re.fullmatch(UID_PATTERN, word):
            raise InvalidError(f"uids has {word[:60]!r}; ids are such as 17, or 17-3 for a task of an array")
    return found


def arrays(words: list[str]) -> tuple[str, ...]:
    """Numbers of arrays."""
    found = uids(words)
    if tasks := [word for word in found if "-" in word]:
        raise InvalidError(f"open has {tasks[0][:60]!r}; it must be the number of an array, such as 17")
    return tuple(found)
