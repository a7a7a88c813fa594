"""Nodes that are lost in a simulation, and come back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A node that is lost at a time and back after a while."""

    at_s: float
    node: int
    down_s: float = math.inf


def apart(faults: Iterable[NodeFault]) -> list[NodeFault]:
    """Faults in order, those of one node that overlap made one."""
    last: dict[int, NodeFault] = {}
    found: list[NodeFault] = []
    for fault in sorted(faults, key=lambda fault: (fault.at_s, fault.node)):
        before = last.get(fault.node)
        if before is not None and fault.at_s <= before.at_s + before.down_s:
            found.remove(before)
            ends_s = max(before.at_s + before.down_s, fault.at_s + fault.down_s)
            fault = NodeFault(before.at_s, fault.node, ends_s - before.at_s)
        last[fault.node] = fault
        found.append(fault)
    return found
