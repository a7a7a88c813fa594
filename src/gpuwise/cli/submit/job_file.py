"""Job files: TOML with a job's keys at the top, or several ``[[job]]`` tables below what they share."""

from __future__ import annotations

import heapq
import os
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from gpuwise.cli.show.tables import printable
from gpuwise.cli.submit.draft import Draft
from gpuwise.cli.submit.fields import FIELDS
from gpuwise.core.errors import GpuwiseError, nearest_names
from gpuwise.core.job.dependency import Dependency

MAX_BYTES = 4 << 20
_ID = re.compile(r"[0-9]+(-[0-9]+)?")
_TABLE = re.compile(r"\s*\[\[\s*[\"']?job[\"']?\s*\]\]")
_SETTING = re.compile(r"\s*(?:\[{1,2}\s*(?:job\s*\.\s*)?)?[\"']?(?P<key>[\w-]+)[\"']?\s*[=.\]]")


def read_jobfile(path: Path) -> list[Draft]:
    """The jobs of a file in the order to submit them: dependencies before the jobs that wait for them."""
    name = printable(str(path))
    source = _Source(name, _read(path, name))
    plain = source.parse()
    tables = plain.pop("job", None)
    shared = source.draft(0, plain)
    if tables is None:
        return _in_order([_placed(shared, path)])
    if not (isinstance(tables, list) and tables and all(isinstance(table, dict) for table in tables)):
        raise GpuwiseError(f"{name}: job must be [[job]] tables; a single job has its keys at the top, in no table")
    return _in_order([_placed(_below(shared, source.draft(at, table)), path) for at, table in enumerate(tables, 1)])


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
        """The job of a table; 0 is what stands above all ``[[job]]`` tables."""
        labels = {key: self._label(number, key) for key in table}
        for key in table:
            if key not in FIELDS:
                near = ", ".join(nearest_names(key, FIELDS))
                raise GpuwiseError(f"{labels[key]} is not a key of a job" + (f"; did you mean {near}?" if near else ""))
        values = {key: FIELDS[key].read(labels[key], value) for key, value in table.items()}
        return Draft(values, labels, f"{self._name}: job {number}" if number else self._name)

    def _label(self, number: int, key: str) -> str:
        line = self._lines.get((number, key))
        return f"{self._name}{'' if line is None else f':{line}'}: {printable(key)}"


def _lines_of_keys(text: str) -> dict[tuple[int, str], int]:
    """Line number of each key of each table, as far as it is written in the usual way."""
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
    folder = draft.values.get("workdir")
    if not folder:
        return draft
    return replace(draft, values={**draft.values, "workdir": os.path.join(path.parent, os.path.expanduser(folder))})


def _below(shared: Draft, own: Draft) -> Draft:
    """A job's own keys over what all jobs of the file share."""
    values = {**shared.values, **own.values}
    if "env" in shared.values and "env" in own.values:
        values["env"] = {**shared.values["env"], **own.values["env"]}
    return replace(own, values=values, labels={**shared.labels, **own.labels})


# -- which jobs of a file wait for which -------------------------------------------------------------------------------


def _in_order(drafts: Sequence[Draft]) -> list[Draft]:
    """Jobs of one file, dependencies before the jobs that wait for them, else as in the file."""
    names = Counter(draft.name for draft in drafts if draft.name)
    linked = [_linked(draft, names) for draft in drafts]
    numbers = {draft.name: number for number, draft in enumerate(linked)}
    graph = TopologicalSorter({at: [numbers[_job_in(each)] for each in draft.after] for at, draft in enumerate(linked)})
    try:
        graph.prepare()
    except CycleError as error:
        circle = [linked[number] for number in reversed(error.args[1])]
        path = " → ".join(printable(draft.name) for draft in circle)
        raise GpuwiseError(f"{circle[0].labels['after']}: jobs wait for each other in a circle: {path}") from None
    return [linked[number] for number in _lowest_first(graph)]


def _linked(draft: Draft, names: Counter[str]) -> Draft:
    """A job with what it waits for split into names of the same file and ids."""
    if "after" not in draft.values:
        return draft
    local = tuple(each for each in draft.values["after"] if _job_in(each) in names)
    ids = [each for each in draft.values["after"] if _job_in(each) not in names]
    for name in map(_job_in, local):
        if names[name] > 1:
            raise GpuwiseError(f"{draft.labels['after']} names {name!r}, and {names[name]} jobs are called that")
    for each in ids:
        if not _ID.fullmatch(_job_in(each)):
            near = ", ".join(map(printable, nearest_names(_job_in(each), names)))
            hint = f"did you mean {near}?" if near else "write the id of a job, such as 17"
            raise GpuwiseError(f"{draft.labels['after']} names {each!r}, and no job of the file is called that; {hint}")
    return replace(draft, after=local, values={**draft.values, "after": ids})


def _job_in(after: str) -> str:
    return Dependency.parse(after).name


def _lowest_first(graph: TopologicalSorter[int]) -> list[int]:
    order: list[int] = []
    ready = list(graph.get_ready())
    heapq.heapify(ready)
    while ready:
        order.append(heapq.heappop(ready))
        graph.done(order[-1])
        for number in graph.get_ready():
            heapq.heappush(ready, number)
    return order
