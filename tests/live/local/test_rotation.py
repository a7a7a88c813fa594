"""Whose turn it is, with a made-up clock."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from gpuwise.live.local.time_slices import (
    DEFAULT_QUANTUM_S,
    SHORTEST_QUANTUM_S,
    Rotation,
    Sharer,
    connected,
    quantum_of,
)


def sharer(uid: str, *devices: int, milli: int = 500, quantum_s: float = 1.0) -> Sharer:
    return Sharer(uid, frozenset((0, device) for device in devices), milli, quantum_s)


def in_turn(rotation: Rotation, sharers: list[Sharer]) -> str:
    return "".join(each.uid for each in sharers if rotation.has_turn(each.uid))


def turns(rotation: Rotation, sharers: list[Sharer], number: int) -> list[str]:
    """Who has the turn in each of the next so many turns."""
    rotation.update(0.0, sharers)
    found = [in_turn(rotation, sharers)]
    for _ in range(number - 1):
        rotation.update(rotation.next_s(), sharers)
        found.append(in_turn(rotation, sharers))
    return found


def test_a_job_alone_runs_all_the_time() -> None:
    rotation = Rotation()
    assert rotation.update(5.0, [sharer("a", 0), sharer("b", 1)]) == {"a", "b"}
    assert rotation.next_s() == math.inf
    assert rotation.has_turn("somebody who takes no turns")


def test_two_jobs_alternate() -> None:
    assert turns(Rotation(), [sharer("a", 0), sharer("b", 0)], 6) == ["a", "b", "a", "b", "a", "b"]


@pytest.mark.parametrize("shares", [(750, 250), (500, 300, 200), (600, 200, 100, 100)])
def test_turns_are_in_proportion_to_shares(shares: tuple[int, ...]) -> None:
    sharers = [sharer(uid, 0, milli=milli) for uid, milli in zip("abcd", shares, strict=False)]
    counted = Counter(
        turns(Rotation(), sharers, 100)
    )  # shares are tenths or quarters: a hundred turns are whole rounds
    for each in sharers:
        assert abs(counted[each.uid] - each.milli / 10) <= 1


def test_a_gang_has_its_turn_on_all_its_devices_and_others_fill_what_it_leaves() -> None:
    sharers = [sharer("a", 0), sharer("b", 1), sharer("g", 0, 1)]
    assert turns(Rotation(), sharers, 6) == ["ab", "g", "ab", "g", "ab", "g"]


def test_devices_that_are_connected_through_others_are_one_group() -> None:
    a, b, c, d = sharer("a", 0, 1), sharer("b", 1, 2), sharer("c", 3), sharer("d", 2, 4)
    assert [{each.uid for each in group} for group in connected([a, b, c, d])] == [{"c"}, {"a", "b", "d"}]
    assert turns(Rotation(), [a, b, c, d], 4) == ["acd", "bc", "acd", "bc"]


def test_the_shortest_quantum_that_is_asked_for_counts() -> None:
    assert quantum_of([sharer("a", 0, quantum_s=0.0), sharer("b", 0, quantum_s=0.0)]) == DEFAULT_QUANTUM_S
    assert quantum_of([sharer("a", 0, quantum_s=0.0), sharer("b", 0, quantum_s=90.0)]) == 90.0
    assert quantum_of([sharer("a", 0, quantum_s=5.0), sharer("b", 0, quantum_s=90.0)]) == 5.0
    assert quantum_of([sharer("a", 0, quantum_s=1e-9)]) == SHORTEST_QUANTUM_S


def test_a_newcomer_has_a_turn_at_once_and_no_more_than_its_share_after() -> None:
    rotation, a, b = Rotation(), sharer("a", 0, quantum_s=10.0), sharer("b", 0, quantum_s=10.0)
    rotation.update(0.0, [a])
    assert rotation.update(1000.0, [a, b]) == {"a", "b"}  # a was alone for long, which is not held against it
    assert (in_turn(rotation, [a, b]), rotation.next_s()) == ("b", 1010.0)
    assert rotation.update(1005.0, [a, b]) == set()
    rotation.update(1010.0, [a, b])
    assert in_turn(rotation, [a, b]) == "a"


def test_whoever_holds_the_devices_after_a_restart_keeps_them_for_a_turn() -> None:
    rotation, sharers = Rotation(), [sharer("a", 0), sharer("b", 0)]
    rotation.update(7.0, sharers, {"b"})
    assert (in_turn(rotation, sharers), rotation.next_s()) == ("b", 8.0)
    rotation = Rotation()
    rotation.update(7.0, sharers, {"a", "b"})  # of a version that ran them at the same time
    assert len(in_turn(rotation, sharers)) == 1


def test_when_a_job_ends_its_devices_go_to_the_next_at_once() -> None:
    rotation, a, b, c = Rotation(), sharer("a", 0), sharer("b", 0), sharer("c", 0)
    rotation.update(0.0, [a, b, c])
    assert in_turn(rotation, [a, b, c]) == "a"
    rotation.update(0.5, [b, c])
    assert (in_turn(rotation, [b, c]), rotation.next_s()) == ("b", 1.5)
    rotation.update(0.7, [b])
    assert (in_turn(rotation, [b]), rotation.next_s()) == ("b", math.inf)
