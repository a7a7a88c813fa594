"""The waiting line: always in order, whatever comes and goes."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from builders import job
from gpuwise.core.cluster.queue import WaitingQueue
from gpuwise.core.job.table import JobTable

JOBS = 24
keys = st.floats(0, 5).map(lambda key: round(key, 1))


def table_of(shapes: int = 4) -> JobTable:
    """Jobs that ask, in turn, for 1, 2, 3 or 4 GPUs."""
    table = JobTable()
    table.declare([job(f"j{i}", gpus=1 + i % shapes) for i in range(JOBS)])
    return table


class QueueMachine(RuleBasedStateMachine):
    """A queue beside a plain dictionary of keys."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[int, float] = {}
        self.table = table_of()
        self.queue = WaitingQueue(self.table, self._key)
        self.waiting: set[int] = set()

    def _key(self, number: int) -> float:
        return self.keys[number]

    def _expected(self) -> list[int]:
        return sorted(self.waiting, key=lambda number: (self.keys[number], number))

    @rule(number=st.integers(0, JOBS - 1), key=keys)
    def come_or_go(self, number: int, key: float) -> None:
        if number in self.waiting:
            self.queue.remove(number)
            self.waiting.remove(number)
        else:
            self.keys[number] = key
            self.queue.add(number)
            self.waiting.add(number)

    @rule(closed=st.sets(st.integers(0, 3)), closes=st.dictionaries(st.integers(1, 8), st.integers(0, 3), max_size=3))
    def walk(self, closed: set[int], closes: dict[int, int]) -> None:
        """On the way, after so many jobs, a shape closes: the rest of its lane is left out."""
        seen: list[int] = []
        shut = set(closed)
        for number in self.queue.walk(shut):
            seen.append(number)
            shut |= {closes[len(seen)]} if len(seen) in closes else set()
        order = self._expected()
        assert seen == [number for number in order if number in set(seen)]
        for shape in range(4):
            lane = [number for number in order if self.table.shape.item(number) == shape]
            walked = [number for number in seen if self.table.shape.item(number) == shape]
            assert walked == lane[: len(walked)]
            assert not walked or shape not in closed
            if shape not in shut:
                assert walked == lane
            for position, other in closes.items():
                # The head of a lane that another closes is already on its way.
                if other == shape and position <= len(seen):
                    assert len(set(walked) & set(seen[position:])) <= 1

    @invariant()
    def is_in_order(self) -> None:
        expected = self._expected()
        assert list(self.queue) == expected
        assert len(self.queue) == len(expected)
        assert all((number in self.queue) == (number in self.waiting) for number in range(JOBS))
        if expected:
            assert self.queue.head() == expected[0]
        for number in expected:
            assert self.queue.key_of(number) == self.keys[number]

    @invariant()
    def knows_the_lowest_key_above(self) -> None:
        for at_least in (-10.0, 0.0, 2.5, 5.1):
            above = [self.keys[number] for number in self.waiting if self.keys[number] >= at_least]
            assert self.queue.first_key(at_least) == min(above, default=math.inf)


TestQueue = QueueMachine.TestCase


@given(st.lists(keys, min_size=JOBS, max_size=JOBS), st.sets(st.integers(0, 3)))
def test_a_walk_leaves_out_the_lanes_of_closed_shapes(given_keys: list[float], closed: set[int]):
    table = table_of()
    queue = WaitingQueue(table, lambda number: given_keys[number])
    for number in range(JOBS):
        queue.add(number)
    expected = sorted(range(JOBS), key=lambda each: (given_keys[each], each))
    assert list(queue.walk(closed)) == [number for number in expected if table.shape.item(number) not in closed]


@given(st.lists(keys, min_size=JOBS, max_size=JOBS))
def test_a_lane_that_closes_at_its_head_lets_nobody_of_it_pass(given_keys: list[float]):
    """As drafts do: a job that does not fit closes its own shape, and no other of that shape is looked at."""
    table = table_of()
    queue = WaitingQueue(table, lambda number: given_keys[number])
    for number in range(JOBS):
        queue.add(number)
    closed: set[int] = set()
    seen = []
    for number in queue.walk(closed):
        seen.append(table.shape.item(number))
        closed.add(seen[-1])
    assert sorted(seen) == [0, 1, 2, 3]


def test_ties_go_by_row_that_is_by_submission():
    queue = WaitingQueue(table_of(), lambda number: 0.0)
    for number in (5, 3, 9, 1):
        queue.add(number)
    assert list(queue) == [1, 3, 5, 9]
