"""What stands in addresses and headers."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header, Path, Query

from gpuwise.api.schema.patterns import pattern
from gpuwise.core.errors import nearest_names
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.request import NAME_PATTERN
from gpuwise.service.live.job_logs import UID_PATTERN
from gpuwise.service.live.refusals import InvalidError

MOST_LISTED = 1000
STATUSES = tuple(status.name.lower() for status in Status if status is not Status.DECLARED)

UID = pattern(UID_PATTERN, "the id of a job such as 17, or 17-3 for a task of an array")
NAME = pattern(NAME_PATTERN, "letters, digits and -_./:@+")
JobId = Annotated[str, Path(pattern=UID, description="17, or 17-3 for a task of an array.")]
QueueName = Annotated[str, Path(pattern=NAME, description="A queue's name.")]
NodeName = Annotated[str, Path(pattern=pattern(r"[!-~]{1,253}", "a name without spaces"), description="A node's name.")]
TokenId = Annotated[str, Path(pattern=pattern("[0-9a-f]{1,64}", "the id of a token"), description="A token's id.")]
Before = Annotated[str | None, Query(pattern=UID, description="Jobs older than this one.")]
Limit = Annotated[int, Query(ge=1, le=MOST_LISTED, description="At most so many.")]
Sequence = Annotated[int | None, Query(ge=0, le=2**63 - 1, description="What happened after this sequence number.")]
Name = Annotated[str | None, Query(pattern=NAME)]
Words = Annotated[list[str], Query(max_length=MOST_LISTED, description="Several, or joined by commas.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=pattern(r"[!-~]{1,128}", "1 to 128 ASCII characters without spaces"),
        description="Any text; sent again with the same one, a submission is not done again.",
    ),
]
LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID", pattern=pattern("[0-9]{1,18}", "a number"), description="The last event that was seen."
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
    if len(found) > MOST_LISTED:
        raise InvalidError(f"uids has {len(found)} ids; it may have {MOST_LISTED}")
    for word in found:
        if not re.fullmatch(UID_PATTERN, word):
            raise InvalidError(f"uids has {word[:60]!r}; ids are such as 17, or 17-3 for a task of an array")
    return found
