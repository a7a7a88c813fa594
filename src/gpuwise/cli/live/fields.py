"""What can be said of a job, in a file or by options: values as people write them, turned into the server's."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from time import time
from typing import Any

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.request import MAX_ARRAY, Processes
from gpuwise.core.spec import Sharing
from gpuwise.core.units import parse_bytes, parse_duration_s


@dataclass(frozen=True, slots=True)
class Field:
    """One thing that can be said of a job."""

    target: str
    """What the server calls it; empty for what only the forecast needs, which is made here."""
    parse: Callable[[Any], Any]
    """From a file's or option's value to the server's; raises ValueError or GpuwiseError if it cannot."""
    expected: str
    """What a value must be, to end a sentence with."""

    def read(self, label: str, value: object) -> Any:
        """The value as the server takes it; ``label`` is what it is called in messages."""
        try:
            return self.parse(value)
        except (ValueError, TypeError, OverflowError, OSError, GpuwiseError):
            raise GpuwiseError(f"{label} is {_short(value)}; it must be {self.expected}") from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _whole(value: Any) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError
    return value


def _seconds(value: Any) -> float:
    return _number(parse_duration_s(value) if isinstance(value, str) else value)


def _run_time(value: Any) -> float:
    seconds = _seconds(value)
    if seconds <= 0:
        raise ValueError
    return seconds


def _bytes(value: Any) -> float:
    return _number(parse_bytes(value) if isinstance(value, str) else value)


def _words(value: Any) -> list[str]:
    """A list, or words joined by commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list):
        raise ValueError
    words = [_text(part).strip() for part in parts]
    if not all(words):
        raise ValueError
    return words


def _command(value: Any) -> list[str]:
    words = shlex.split(value) if isinstance(value, str) else value
    if not isinstance(words, list) or not words:
        raise ValueError
    return [_text(word) for word in words]


def _gpus(value: Any) -> int | tuple[int, int]:
    if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d{1,9})\s*-\s*(\d{1,9})\s*", value)):
        low, high = int(match[1]), int(match[2])
        if not 0 < low <= high:
            raise ValueError
        return low, high
    if (count := _whole(value)) < 0:
        raise ValueError
    return count


def _array(value: Any) -> list[int]:
    if isinstance(value, list):
        return [_whole(index) for index in value]
    if isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal()):
        count = _whole(value)
        if not 0 < count <= MAX_ARRAY:
            raise ValueError
        return list(range(count))
    return [index for part in _words(value) for index in _indexes(part)]


def _indexes(part: str) -> range:
    low, dash, high = part.partition("-")
    first, last = int(low), int(high if dash else low)
    if last < first or last - first >= MAX_ARRAY:
        raise ValueError
    return range(first, last + 1)


def _ids(value: Any) -> list[str]:
    if isinstance(value, list):
        value = [str(each) if isinstance(each, int) and not isinstance(each, bool) else each for each in value]
    return _words(str(_whole(value)) if isinstance(value, int) else value)


def _sharing(value: Any) -> list[str]:
    modes = [word.replace("-", "_").lower() for word in _words(value)]
    if not {mode.name.lower() for mode in Sharing}.issuperset(modes):
        raise ValueError
    return modes


def _deadline(value: Any) -> float:
    """Unix time of a moment, or of a time from now on such as ``+6h``."""
    if isinstance(value, str) and value.startswith("+"):
        return round(time() + _seconds(value[1:]), 3)
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(_text(value))
    return moment.timestamp()


def _env(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError
    return {name: _env_value(given) for name, given in value.items()}


def _env_value(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError
    return str(value)


FIELDS: Mapping[str, Field] = {
    "command": Field("command", _command, 'a list of words such as ["python", "train.py"], or one line'),
    "workdir": Field("workdir", _text, "a folder"),
    "env": Field("env", _env, 'names with values, such as LR = "0.1"'),
    "name": Field("name", _text, "letters, digits and -_./:@+"),
    "queue": Field("queue", _text, "the name of a queue"),
    "gpus": Field("gpus", _gpus, "a number such as 2, or a range such as 1-4"),
    "gpu_frac": Field("gpu_frac", _number, "a part of one GPU such as 0.5"),
    "gpu_memory": Field("gpu_memory_bytes", _bytes, "memory a GPU, such as 4GiB"),
    "gpu_type": Field("gpu_types", _words, "GPU types such as A100,V100"),
    "sharing": Field("sharing", _sharing, "exclusive, time-slice, shared or mig, joined by commas"),
    "cpus": Field("cpus", _number, "a number such as 4"),
    "memory": Field("memory_bytes", _bytes, "memory of the whole job, such as 16GiB"),
    "duration": Field("duration_s", _run_time, "a time such as 90, 30m, 2h or 1d"),
    "steps": Field("steps", _number, "a number of training steps such as 10000"),
    "model": Field("", _text, "a model such as torchvision:resnet50 or train.py:build"),
    "batch": Field("", _whole, "a number of samples such as 64"),
    "precision": Field("", _text, "fp32, tf32, fp16 or bf16"),
    "optimizer": Field("", _text, "sgd, momentum or adam; none is a forward pass alone"),
    "image": Field("", _whole, "pixels such as 224"),
    "sequence": Field("", _whole, "tokens such as 512"),
    "priority": Field("priority", _whole, "a whole number such as 10"),
    "deadline": Field("deadline_s", _deadline, "a moment such as 2030-01-31T18:00, or a time from now such as +6h"),
    "retries": Field("retries", _whole, "a whole number such as 3"),
    "after": Field("after", _ids, "ids of jobs, such as 17,18"),
    "array": Field("array", _array, "a number of tasks such as 10, or indexes such as 0-9 or 0,3,7"),
    "processes": Field("processes", lambda value: str(Processes(value)), "one or per-gpu"),
    "time_limit": Field("time_limit_s", _seconds, "a time such as 12h"),
    "grace": Field("grace_s", _seconds, "a time such as 30s"),
}
"""By the name that files use; options have the same with hyphens."""

KEY_OF = {field.target: key for key, field in FIELDS.items() if field.target} | {"min_gpus": "gpus", "max_gpus": "gpus"}
"""From what the server calls it to what files call it."""
