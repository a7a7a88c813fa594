"""How people write the values of a job, in a file or as an option, turned into the server's.

Each raises ValueError, TypeError, OverflowError, OSError or GpuwiseError for what it cannot read.
"""

from __future__ import annotations

import math
import re
import shlex
from datetime import datetime
from time import time
from typing import Any

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.request import MAX_ARRAY
from gpuwise.core.units import parse_bytes, parse_duration_s


class ReadError(GpuwiseError):
    """What is wrong with a part of a value, where that is clearer than what the whole must be."""


def read_text(value: Any) -> str:
    """Text."""
    if not isinstance(value, str):
        raise ValueError
    return value


def read_number(value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def read_whole(value: Any) -> int:
    """A whole number."""
    if isinstance(value, str):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError
    return value


def read_flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError
    return value


def read_seconds(value: Any) -> float:
    """A time such as ``90``, ``30m`` or ``2h``."""
    return read_number(parse_duration_s(value) if isinstance(value, str) else value)


def read_bytes(value: Any) -> float:
    """A size such as ``4GiB``."""
    return read_number(parse_bytes(value) if isinstance(value, str) else value)


def read_words(value: Any) -> list[str]:
    """A list, or words joined by commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list):
        raise ValueError
    words = [read_text(part).strip() for part in parts]
    if not all(words):
        raise ValueError
    return words


def read_command(value: Any) -> list[str]:
    """A list of words, or one line that is split as a shell would."""
    words = shlex.split(value) if isinstance(value, str) else value
    if not isinstance(words, list) or not words:
        raise ValueError
    return [read_text(word) for word in words]


def read_gpus(value: Any) -> int | tuple[int, int]:
    """A number of GPUs, or a range such as ``1-4``."""
    if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d{1,9})\s*-\s*(\d{1,9})\s*", value)):
        low, high = int(match[1]), int(match[2])
        if not 0 < low <= high:
            raise ValueError
        return low, high
    if (count := read_whole(value)) < 0:
        raise ValueError
    return count


def read_array(value: Any) -> list[int] | tuple[list[int], int]:
    """Indexes such as ``0-9`` or ``0,3,7``, or a number of them; ``0-9%4`` with how many may run at one time."""
    if isinstance(value, str) and "%" in value:
        indexes, _, most = value.partition("%")
        if not 0 < (limit := read_whole(most)) <= MAX_ARRAY:
            raise ValueError
        return _read_indexes(indexes), limit
    return _read_indexes(value)


def _read_indexes(value: Any) -> list[int]:
    if isinstance(value, list):
        return [read_whole(index) for index in value]
    if isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal()):
        count = read_whole(value)
        if not 0 < count <= MAX_ARRAY:
            raise ValueError
        return list(range(count))
    return [index for part in read_words(value) for index in _indexes(part)]


def _indexes(part: str) -> range:
    low, dash, high = part.partition("-")
    first, last = int(low), int(high if dash else low)
    if last < first or last - first >= MAX_ARRAY:
        raise ValueError
    return range(first, last + 1)


def read_ids(value: Any) -> list[str]:
    """Ids of jobs."""
    if isinstance(value, list):
        value = [str(each) if isinstance(each, int) and not isinstance(each, bool) else each for each in value]
    return read_words(str(read_whole(value)) if isinstance(value, int) else value)


def read_addresses(value: Any) -> list[str]:
    """An address, or a list of them."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list):
        raise ValueError
    return [read_text(each) for each in given]


def read_labels(value: Any) -> dict[str, list[str]]:
    """Labels from ``zone=a,b``, from a list of such, or from a table."""
    labels: dict[str, list[str]] = {}
    for key, some in _label_pairs(value):
        if key in labels:
            raise ReadError(f"{key} is given twice; give all its values at once, as in {key}=a,b, and each key once")
        labels[key] = read_words(some)
        if not all(_may_be_label(text) for text in (key, *labels[key])):
            raise ValueError
    return labels


def _label_pairs(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list):
        raise ValueError
    pairs = [read_text(each).partition("=") for each in given]
    if bare := next((key for key, equals, some in pairs if not equals or not some.strip()), None):
        raise ReadError(f"{bare} has no value; give it as in zone=a,b")
    return [(key.strip(), some) for key, _, some in pairs]


def _may_be_label(text: str) -> bool:
    return 0 < len(text) <= 128 and text.isprintable() and not set(text) & set("=,|")


def read_node_labels(given: list[str]) -> tuple[tuple[str, str], ...]:
    """Labels of a node from texts such as ``zone=a``."""
    labels: dict[str, str] = {}
    for text in given:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (equals and _may_be_label(key) and _may_be_label(value)):
            raise GpuwiseError(f"--label is {text!r}; it must be a key and a value such as zone=a")
        if key in labels:
            raise GpuwiseError(f"--label {key} is given twice; a key can have one value only")
        labels[key] = value
    return tuple(labels.items())


def read_chosen_gpus(given: str) -> tuple[str, ...]:
    """Indexes or UUIDs of GPUs from text such as ``0,2``."""
    words = tuple(word.strip() for word in given.split(","))
    if not all(re.fullmatch(r"\d{1,4}|GPU-[\w-]+", word, re.ASCII) for word in words) or len(set(words)) < len(words):
        raise GpuwiseError(f"--gpus is {given!r}; it must be indexes or UUIDs of GPUs, each once, such as 0,2")
    return words


def read_deadline(value: Any) -> float:
    """Unix time of a moment, or of a time from now on such as ``+6h``."""
    if isinstance(value, str) and value.startswith("+"):
        return round(time() + read_seconds(value[1:]), 3)
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(read_text(value))
    return moment.timestamp()


def read_env(value: Any) -> dict[str, str]:
    """Names with values."""
    if not isinstance(value, dict):
        raise ValueError
    return {name: _env_value(name, given) for name, given in value.items()}


def _env_value(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ReadError(f"{name!r} must be text or a number, such as LR = 0.1")  # not its value, which may be a secret
    return str(value)
