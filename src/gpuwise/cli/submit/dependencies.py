"""Which jobs of a file wait for which: names told apart from ids, and an order to submit them in."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from gpuwise.cli.show.tables import printable
from gpuwise.cli.submit.draft import Draft
from gpuwise.core.errors import GpuwiseError, nearest_names

_ID = re.compile(r"[0-9]+(-[0-9]+)?")


def in_order(drafts: Sequence[Draft]) -> list[Draft]:
    """Jobs of one file, those first that others wait for, else as in the file."""
    names = Counter(draft.name for draft in drafts if draft.name)
    linked = [_linked(draft, names) for draft in drafts]
    numbers = {draft.name: number for number, draft in enumerate(linked)}
    graph = TopologicalSorter({at: [numbers[name] for name in draft.after] for at, draft in enumerate(linked)})
    try:
        graph.prepare()
    except CycleError as error:
        circle = [linked[number] for number in reversed(error.args[1])]
        path = " → ".join(printable(draft.name) for draft in circle)
        raise GpuwiseError(f"{circle[0].labels['after']}: jobs wait for each other in a circle: {path}") from None
    return [linked[number] for number in _lowest_first(graph)]


def _linked(draft: Draft, names: Counter[str]) -> Draft:
    """A job with what it waits for split into names of the same file and ids."""
    if "after" not in draft.said:
        return draft
    local = tuple(name for name in draft.said["after"] if name in names)
    ids = [each for each in draft.said["after"] if each not in names]
    for name in local:
        if names[name] > 1:
            raise GpuwiseError(f"{draft.labels['after']} names {name!r}, and {names[name]} jobs are called that")
    for each in ids:
        if not _ID.fullmatch(each):
            near = ", ".join(map(printable, nearest_names(each, names)))
            hint = f"did you mean {near}?" if near else "write the id of a job, such as 17"
            raise GpuwiseError(f"{draft.labels['after']} names {each!r}, and no job of the file is called that; {hint}")
    return replace(draft, after=local, said={**draft.said, "after": ids})


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
