"""The body of a job, made from what `JobRequest` declares of each property."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from gpuwise.api.schema.bodies import Body
from gpuwise.api.schema.parameters import pattern
from gpuwise.core.job.dependency import Until
from gpuwise.core.job.kinds import (
    Choice,
    Flag,
    Indexes,
    Kind,
    Labels,
    Members,
    Number,
    Speeds,
    Text,
    Variables,
    Whole,
    Words,
)
from gpuwise.core.job.notify import ADDRESS, ADDRESS_PATTERN, MOST_CHARS
from gpuwise.core.job.request import JobRequest
from gpuwise.core.job.schema import Entry, Records, entries
from gpuwise.service.live.job_logs import UID_PATTERN

ARGUMENT_CHARS = 131_072
NO_NUL = pattern(r"[^\x00]*", "text without NUL characters")
PRINTABLE = pattern(r"[^\x00-\x1f\x7f]*", "text without control characters")
Argument = Annotated[str, StringConstraints(max_length=ARGUMENT_CHARS, pattern=NO_NUL)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=PRINTABLE)]
DEPENDENCY = pattern(f"(({'|'.join(Until)}):)?({UID_PATTERN})", "the id of a job such as 17, or afterany:17")
After = Annotated[str, StringConstraints(pattern=DEPENDENCY)]
Address = Annotated[str, StringConstraints(max_length=MOST_CHARS, pattern=pattern(ADDRESS_PATTERN, ADDRESS))]
WORDS: Mapping[str, Any] = {"command": Argument, "after": After, "notify": Address}
"""The types of the items of a list, where they are not just words."""
EXAMPLES: list[Any] = [
    {"command": ["python", "train.py"], "workdir": "/home/ada/vision", "gpus": 1, "duration_s": 3600},
    {"command": ["./sweep.sh"], "name": "sweep", "array": [0, 1, 2], "gpu_frac": 0.5, "retries": 1},
]


def _number(entry: Entry) -> Any:
    about, whole = entry.about, isinstance(entry.kind, Whole)
    bounds: dict[str, Any] = {}
    if about.low > -math.inf:
        bounds["gt" if about.above else "ge"] = int(about.low) if whole else about.low
    if about.high < math.inf:
        bounds["le"] = int(about.high) if whole else about.high
    return Annotated[int if whole else float, Field(**bounds)]


def _text(entry: Entry) -> Any:
    about = entry.about
    form = pattern(f"({about.pattern})?", about.noun or entry.kind.noun) if about.pattern else NO_NUL
    return Annotated[str, StringConstraints(max_length=about.most or 1024, pattern=form)]


def _list(item: Any, entry: Entry, **more: Any) -> Any:
    return Annotated[list[item], Field(max_length=entry.about.most or None, **more)]


def _choice(entry: Entry) -> Any:
    assert isinstance(entry.kind, Choice)
    return _one_of(*(each.value for each in entry.kind.members))


def _members(entry: Entry) -> Any:
    assert isinstance(entry.kind, Members)
    names = [each.name.lower() for each in entry.kind.members]
    return Annotated[list[_one_of(*names)], Field(min_length=1, max_length=len(names))]  # type: ignore[misc]


def _by_name(value: Any) -> Any:
    return dict[Word, value]


def _one_of(*values: str) -> Any:
    return Literal[values]


def _speeds(entry: Entry) -> Any:
    return Annotated[_by_name(_number(_item(entry, Number()))), Field(max_length=entry.about.most)]


def _records(entry: Entry) -> Any:
    assert isinstance(entry.kind, Records)
    declaration = entry.kind.declaration
    return _list(body_of(declaration, f"{declaration.__name__}Body", Body), entry)


MAKERS: dict[type[Kind], Callable[[Entry], Any]] = {
    Whole: _number,
    Number: _number,
    Flag: lambda entry: bool,
    Text: _text,
    Words: lambda entry: _list(WORDS.get(entry.name, Word), entry, min_length=1 if entry.required else None),
    Indexes: lambda entry: _list(_number(_item(entry)), entry, json_schema_extra={"uniqueItems": True}),
    Choice: _choice,
    Members: _members,
    Speeds: _speeds,
    Labels: lambda entry: Annotated[
        dict[Word, Annotated[list[Word], Field(min_length=1, max_length=64)]], Field(max_length=entry.about.most)
    ],
    Variables: lambda entry: dict[str, Argument],
    Records: _records,
}
"""From the kind of a property to the type of its field; a new kind needs a line here."""


def _item(entry: Entry, kind: Kind | None = None) -> Entry:
    """One of the numbers of a property that has several."""
    return Entry(entry.name, kind or Whole(), 0, False, entry.about)


def field_of(entry: Entry) -> tuple[Any, Any]:
    """Type and default of a property's field; null is not known, or not given."""
    made, description = MAKERS[type(entry.kind)](entry), entry.about.help
    if entry.required:
        return made, Field(description=description)
    if entry.may_be_none or entry.default != entry.default:
        return made | None, Field(None, description=description)
    default = entry.plain(entry.default)
    return made, Field(default_factory=lambda: copy(default), description=description) if isinstance(
        default, (list, dict)
    ) else Field(default, description=description)


def body_of(declaration: type[Any], name: str, base: type[BaseModel]) -> Any:
    """The body with a field for each property of a declaration."""
    fields: dict[str, Any] = {each: field_of(entry) for each, entry in entries(declaration).items()}
    return create_model(name, __base__=base, __module__=__name__, __doc__=declaration.__doc__, **fields)


class _JobBody(Body):
    """A job to run. Only the command is required."""

    model_config = ConfigDict(json_schema_extra={"examples": EXAMPLES})

    def request(self) -> JobRequest:
        """The request, checked as a whole."""
        given = self.model_dump(exclude_unset=True)
        return JobRequest.from_json({name: value for name, value in given.items() if _is_given(name, value)})


def _is_given(name: str, value: Any) -> bool:
    """Whether a field has a value: null for a number that may be unknown is none."""
    return value is not None or entries(JobRequest)[name].may_be_none


if TYPE_CHECKING:

    class JobBody(_JobBody):
        """A job to run. Only the command is required."""

else:
    JobBody = body_of(JobRequest, "JobBody", _JobBody)
    JobBody.__doc__ = _JobBody.__doc__
