"""The queue: waiting jobs, kept in a policy's order as they are added, changed and removed."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace, merge

from gpuwise.core.guards import ReadOnlyList
from gpuwise.core.job.table import JobTable

RankKey = Callable[[int], float]
"""The rank of a waiting job: lowest first, ties by row, that is by submission."""

Entry = tuple[float, int]


class WaitingQueue:
    """Waiting jobs in lanes, one per shape, each sorted by the policy's key.

    Jobs of one shape ask for the same, so when the first of a lane does not fit, no other does: a decision
    looks at the heads of a few lanes and not at thousands of jobs.
    """

    def __init__(self, jobs: JobTable, key: RankKey) -> None:
        self._jobs = jobs
        self.key = key
        self._lanes: dict[int, list[Entry]] = {}
        self._entry: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._entry)

    def __contains__(self, job: object) -> bool:
        return job in self._entry

    def __iter__(self) -> Iterator[int]:
        """Every waiting job, in order."""
        return (job for _, job in merge(*self._lanes.values()))

    @property
    def lanes(self) -> Mapping[int, Sequence[Entry]]:
        """The jobs of each shape with their keys, in order."""
        return {shape: ReadOnlyList(lane) for shape, lane in self._lanes.items()}

    def add(self, job: int, key: float | None = None) -> None:
        """Adds a job, by the policy's key unless one is given."""
        entry = (self.key(job) if key is None else key, job)
        self._entry[job] = entry
        shape = self._jobs.shape_by_row[job].id
        lane = self._lanes.get(shape)
        if lane is None:
            self._lanes[shape] = [entry]
        elif entry > lane[-1]:
            lane.append(entry)
        else:
            insort(lane, entry)

    def remove(self, job: int) -> None:
        """Removes a job."""
        entry = self._entry.pop(job)
        shape = self._jobs.shape_by_row[job].id
        lane = self._lanes[shape]
        if len(lane) == 1:
            del self._lanes[shape]
        else:
            del lane[bisect_left(lane, entry)]

    def discard(self, job: int) -> None:
        """Removes a job, if it is in the queue."""
        if job in self._entry:
            self.remove(job)

    def head(self) -> int:
        """The first job."""
        return min(lane[0] for lane in self._lanes.values())[1]

    def first_key(self, at_least: float) -> float:
        """The lowest key from ``at_least`` on; infinite if there is none."""
        found = math.inf
        for lane in self._lanes.values():
            position = bisect_left(lane, (at_least, -1))
            if position < len(lane):
                found = min(found, lane[position][0])
        return found

    def key_of(self, job: int) -> float:
        """The key by which a waiting job is sorted."""
        return self._entry[job][0]

    def walk(self, closed: set[int]) -> Iterator[int]:
        """Waiting jobs in order, leaving out lanes whose shape is, or on the way becomes, a member of ``closed``."""
        if len(self._lanes) == 1:
            for shape, lane in self._lanes.items():
                for _, job in lane:
                    if shape in closed:
                        return
                    yield job
            return
        heads = [(lane[0], shape, 0, lane) for shape, lane in self._lanes.items() if shape not in closed]
        heapify(heads)
        while heads:
            (_, job), shape, position, lane = heads[0]
            yield job
            position += 1
            if shape in closed or position == len(lane):
                heappop(heads)
            else:
                heapreplace(heads, (lane[position], shape, position, lane))
