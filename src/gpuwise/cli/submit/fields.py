"""The keys of a job file and the options of ``submit``, made from what `JobRequest` declares of each property."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuwise.cli.submit.environment import EnvFrom
from gpuwise.cli.submit.readers import (
    ReadError,
    read_addresses,
    read_array,
    read_bytes,
    read_command,
    read_deadline,
    read_env,
    read_flag,
    read_gpus,
    read_ids,
    read_labels,
    read_number,
    read_seconds,
    read_text,
    read_whole,
    read_words,
)
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.kinds import Choice, Flag, Indexes, Kind, Labels, Members, Number, Text, Variables, Whole, Words
from gpuwise.core.job.needs import JobNeeds
from gpuwise.core.job.property import PropertyError, short
from gpuwise.core.job.request import JobRequest
from gpuwise.core.job.schema import Entry, Records, entries

Reader = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A key of a job file, which is an option, too."""

    target: str
    """What the server calls it; empty for what is used here only."""
    parse: Reader
    """From a file's or option's value to the server's; raises ValueError or GpuwiseError if it cannot."""
    expected: str
    """What a value must be, to end a sentence with."""
    help: str
    metavar: str | None = None
    repeated: bool = False
    """Whether the option may be given several times."""
    is_flag: bool = False
    """Whether the option has no value."""

    def read(self, label: str, value: object) -> Any:
        """The value as the server takes it; ``label`` is what it is called in messages."""
        try:
            return self.parse(value)
        except (PropertyError, ReadError) as error:
            raise ReadError(f"{label}: {error}") from None
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, OSError, GpuwiseError):
            raise ReadError(f"{label} is {short(value)}; it must be {self.expected}") from None


def _roles(kind: Records, value: Any) -> Any:
    """Roles from ``ps:2,cpus=4`` or ``worker:1-3,gpus=1``, from a list of such, or from tables."""
    given = [value] if isinstance(value, (str, dict)) else value
    if not isinstance(given, list) or not given:
        raise ValueError
    return kind.plain([_role(kind, each) for each in given])


def _role(kind: Records, value: Any) -> Any:
    given = _role_parts(value) if isinstance(value, str) else value
    known = entries(kind.declaration)
    for name in given:
        if name not in known:
            raise ReadError(f"{name!r} is not one of {', '.join(known)}")
    return kind.declaration(**{name: _field(known[name]).read(name, each) for name, each in given.items()})


def _role_parts(text: str) -> dict[str, str]:
    """What a role's text says, by property; a range of counts starts on the first number."""
    head, *rest = text.split(",")
    name, colon, count = (part.strip() for part in head.partition(":"))
    parts = {"name": name}
    if match := re.fullmatch(r"(\d+)\s*-\s*(\d+)", count):
        parts |= {"count": match[1], "min_count": match[1], "max_count": match[2]}
    elif colon:
        parts["count"] = count
    return parts | {key.strip(): each.strip() for key, _, each in (part.partition("=") for part in rest)}


def _modes(kind: Members, value: Any) -> list[str]:
    modes = [word.replace("-", "_").lower() for word in read_words(value)]
    kind.revive(modes)
    return modes


BY_NAME: Mapping[str, Reader] = {
    "command": read_command, "gpus": read_gpus, "after": read_ids, "deadline_s": read_deadline,
    "begin_s": read_deadline, "notify": read_addresses,
}  # fmt: skip
"""Properties that people write otherwise than others of their unit or kind."""
BY_UNIT: Mapping[str, tuple[Reader, str]] = {
    "s": (read_seconds, "a time such as 90, 30m or 2h"),
    "bytes": (read_bytes, "a size such as 4GiB"),
}
BY_KIND: Mapping[type[Kind], Callable[[Any], Reader]] = {
    Whole: lambda kind: read_whole,
    Number: lambda kind: read_number,
    Flag: lambda kind: read_flag,
    Text: lambda kind: read_text,
    Words: lambda kind: read_words,
    Indexes: lambda kind: read_array,
    Choice: lambda kind: lambda value: kind.plain(kind.revive(value)),
    Members: lambda kind: partial(_modes, kind),
    Labels: lambda kind: read_labels,
    Variables: lambda kind: read_env,
    Records: lambda kind: partial(_roles, kind),
}
"""From the kind of a property to how people write it; a new kind needs a line here."""
REPEATED = (Labels, Records, Variables)
ONE_EACH = ("notify",)
"""Properties of several words of which each is given by an option of its own: they may have commas."""


def reader_of(entry: Entry) -> Reader:
    """How a property is read from what people write."""
    if entry.name in BY_NAME and entry.about.option:
        return BY_NAME[entry.name]
    if entry.about.unit in BY_UNIT:
        return BY_UNIT[entry.about.unit][0]
    return BY_KIND[type(entry.kind)](entry.kind)


def _field(entry: Entry) -> Field:
    about = entry.about
    usual = BY_UNIT[about.unit][1] if about.unit in BY_UNIT else about.noun or entry.kind.noun
    return Field(
        entry.name, reader_of(entry), about.written or usual, about.option_help or about.help, about.metavar or None,
        isinstance(entry.kind, REPEATED) or entry.name in ONE_EACH, isinstance(entry.kind, Flag),
    )  # fmt: skip


FORECAST_ONLY: dict[str, Field] = {
    "precision": Field("", read_text, "fp32, tf32, fp16 or bf16", "fp32, tf32, fp16 or bf16.", "KIND"),
    "optimizer": Field(
        "", read_text, "sgd, momentum or adam; none is a forward pass alone", "sgd, momentum or adam.", "KIND"
    ),
    "image": Field("", read_whole, "pixels such as 224", "Height and width of images.", "PIXELS"),
    "sequence": Field("", read_whole, "tokens such as 512", "Length of sequences.", "TOKENS"),
}
"""How a model trains, which only its forecast needs."""
CLIENT_ONLY: dict[str, Field] = {
    "env_from": Field(
        "", lambda value: EnvFrom(value).value, "none, path or all",
        "What it takes along of your environment; all.", "none|path|all",
    ),
}  # fmt: skip
"""What is done here, before a job is sent."""
_JOB = {entry.about.option: _field(entry) for entry in entries(JobRequest).values() if entry.about.option}
_FIRST = (
    "command",
    "name",
    "queue",
    *(entry.about.option for entry in entries(JobNeeds).values() if entry.about.option),
)
FIELDS: Mapping[str, Field] = {key: _JOB[key] for key in _FIRST} | FORECAST_ONLY | _JOB | CLIENT_ONLY
"""By the name that files use; options have the same with hyphens."""

KEY_OF = {field.target: key for key, field in FIELDS.items() if field.target} | {
    "min_gpus": "gpus", "max_gpus": "gpus", "array_limit": "array",
}  # fmt: skip
"""From what the server calls it to what files call it."""
