"""Job files: TOML with a job's keys at the top, or several ``[[job]]`` tables below what they share."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuwise.cli.show.tables import printable
from gpuwise.cli.submit.dependencies import in_order
from gpuwise.cli.submit.draft import Draft
from gpuwise.cli.submit.fields import FIELDS
from gpuwise.core.errors import GpuwiseError, nearest_names

MAX_BYTES = 4 << 20
_TABLE = re.compile(r"\s*\[\[\s*[\"']?job[\"']?\s*\]\]")
_SETTING = re.compile(r"\s*(?:\[{1,2}\s*(?:job\s*\.\s*)?)?[\"']?(?P<key>[\w-]+)[\"']?\s*[=.\]]")


def read_jobfile(path: Path) -> list[Draft]:
    """The jobs of a file, those first that others of the file wait for."""
    name = printable(str(path))
    source = _Source(name, _read(path, name))
    plain = source.parse()
    tables = plain.pop("job", None)
    shared = source.draft(0, plain)
    if tables is None:
        return in_order([_placed(shared, path)])
    if not (isinstance(tables, list) and tables and all(isinstance(table, dict) for table in tables)):
        raise GpuwiseError(f"{name}: job must be [[job]] tables; a single job has its keys at the top, in no table")
    return in_order([_placed(_below(shared, source.draft(at, table)), path) for at, table in enumerate(tables, 1)])


def _read(path: Path, name: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise GpuwiseError(f"{name}: {error.strerror}") from None
    except ValueError:
        raise GpuwiseError(f"{name!r} is not the name of a file") from None
    if len(data) > MAX_BYTES:
        raise GpuwiseError(f"{name}: too large for a job file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise GpuwiseError(f"{name}: not a text file") from None


class _Source:
    """A file's name and text."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._lines = _lines_of_keys(text)

    def parse(self) -> dict[str, Any]:
        """The file as TOML."""
        try:
            return tomllib.loads(self._text)
        except RecursionError:
            raise GpuwiseError(f"{self._name}: nested too deeply") from None
        except ValueError as error:
            raise GpuwiseError(f"{self._name}: not TOML: {printable(str(error))}") from None

    def draft(self, number: int, table: Mapping[str, Any]) -> Draft:
        """What a table says; 0 is what stands above all ``[[job]]`` tables."""
        labels = {key: self._label(number, key) for key in table}
        for key in table:
            if key not in FIELDS:
                near = ", ".join(nearest_names(key, FIELDS))
                raise GpuwiseError(f"{labels[key]} is not a key of a job" + (f"; did you mean {near}?" if near else ""))
        said = {key: FIELDS[key].read(labels[key], value) for key, value in table.items()}
        return Draft(said, labels, f"{self._name}: job {number}" if number else self._name)

    def _label(self, number: int, key: str) -> str:
        line = self._lines.get((number, key))
        return f"{self._name}{'' if line is None else f':{line}'}: {printable(key)}"


def _lines_of_keys(text: str) -> dict[tuple[int, str], int]:
    """The line where each key of each table is set, as far as it is written in the usual way."""
    found: dict[tuple[int, str], int] = {}
    table = 0
    for at, line in enumerate(text.split("\n"), 1):
        if _TABLE.match(line):
            table += 1
        elif setting := _SETTING.match(line):
            found.setdefault((table, setting["key"]), at)
    return found


def _placed(draft: Draft, path: Path) -> Draft:
    """With its working folder seen from the file's."""
    folder = draft.said.get("workdir")
    if not folder:
        return draft
    return replace(draft, said={**draft.said, "workdir": os.path.join(path.parent, os.path.expanduser(folder))})


def _below(shared: Draft, own: Draft) -> Draft:
    """A job's own keys over what all jobs of the file share."""
    said = {**shared.said, **own.said}
    if "env" in shared.said and "env" in own.said:
        said["env"] = {**shared.said["env"], **own.said["env"]}
    return replace(own, said=said, labels={**shared.labels, **own.labels})
