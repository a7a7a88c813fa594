"""Sets of nodes, taking and giving, copies to try things on, and MIG."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import HALVES, capacity_of, cluster, job, mig, node, on, shapes_of
from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import first, members, node_set
from gpuwise.core.commands import Grant, MigSlice, Placement
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.units import GIB, UNLIMITED

SHARED, TIME_SLICE = Sharing.SHARED, Sharing.TIME_SLICE
node_numbers = st.sets(st.integers(0, 300))


def snapshot(capacity: Capacity) -> dict[str, Any]:
    """Everything that is free, in a form that later changes do not touch."""
    lists = {"idle": capacity.idle, "by_idle": capacity.by_idle, "idle_total": capacity.idle_total, "up": capacity.up}
    arrays = ("free_cpu_milli", "free_host_bytes", "open_milli", "open_memory", "open_sharing")
    return {
        **{name: repr(value) for name, value in lists.items()},
        **{name: getattr(capacity, name).tolist() for name in arrays},
        "layouts": dict(capacity.layouts),
        "free_slices": dict(capacity.free_slices),
    }


def one_shape(**asked: Any) -> Shape:
    return shapes_of(job("x", **asked))[0]


# -- sets of nodes -----------------------------------------------------------------------------------------------------


@given(node_numbers)
def test_a_node_set_has_the_members_it_was_made_of_lowest_first(numbers: set[int]):
    mask = np.zeros(301, dtype=bool)
    mask[list(numbers)] = True
    nodes = node_set(mask)
    assert list(members(nodes)) == sorted(numbers)
    assert nodes == sum(1 << number for number in numbers)
    assert nodes.bit_count() == len(numbers)


@given(node_numbers.filter(bool))
def test_the_first_of_a_node_set_is_its_lowest_member(numbers: set[int]):
    assert first(sum(1 << number for number in numbers)) == min(numbers)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), unique=True, max_size=16), st.integers(0, 4))
def test_nodes_with_so_many_idle_devices_are_those_that_a_count_finds(taken: list[tuple[int, int]], asked: int):
    capacity = capacity_of(cluster("4x4:V100+2x4:T4"))
    for where in taken:
        capacity.take(on(where), one_shape())
    idle = [4 - sum(1 for busy, _ in taken if busy == number) for number in range(6)]
    assert set(members(capacity.at_least(0, asked))) == {number for number in range(4) if idle[number] >= asked}
    assert set(members(capacity.at_least(1, asked))) == {number for number in (4, 5) if idle[number] >= asked}
    assert capacity.idle_total == [sum(idle[:4]), sum(idle[4:])]


# -- taking and giving -------------------------------------------------------------------------------------------------

MIXED = cluster(
    node("a", 2, "A100", cpus=8, memory_bytes=64 * GIB, gpu_memory_bytes=40 * GIB),
    node("b", 2, "A100", cpus=8, memory_bytes=64 * GIB, gpu_memory_bytes=40 * GIB),
    node("c", 4, "T4", gpu_memory_bytes=16 * GIB),
)

DEMANDS = (
    (on((0, 0), (0, 1)), {"gpus": 2, "cpus": 4, "memory_bytes": 6 * GIB}),
    (on((0, 1), (1, 0)), {"gpus": 2, "cpus": 3}),
    (on((1, 1), sharing=SHARED, milli=250), {"gpu_frac": 0.25, "gpu_memory_bytes": 10 * GIB, "cpus": 0.5}),
    (on((1, 1), sharing=SHARED, milli=500), {"gpu_frac": 0.5, "gpu_memory_bytes": 30 * GIB}),
    (on((1, 1), sharing=TIME_SLICE, milli=500), {"gpu_frac": 0.5}),
    (on((2, 0), (2, 3)), {"gpus": 2}),
    (on((2, 3), sharing=TIME_SLICE, milli=100), {"gpu_frac": 0.1, "memory_bytes": GIB}),
    (mig(0, 0, 0), {"gpu_frac": 0.4, "gpu_memory_bytes": 20 * GIB}),
    (mig(0, 0, 4), {"gpu_frac": 0.4, "cpus": 1}),
)


def test_a_node_out_of_service_is_in_no_index():
    capacity = capacity_of(cluster("3x2:V100+1x4:T4"))
    capacity.set_up(1, False)
    assert [list(members(capacity.at_least(code, 0))) for code in (0, 1)] == [[0, 2], [3]]
    assert capacity.idle_total == [4, 4]
    capacity.set_up(1, True)
    assert capacity.idle_total == [6, 4]


@pytest.mark.parametrize(
    ("cpus", "number", "on"),
    [(0.1, 10, 1.0), (1 / 3, 3, 1.0), (1 / 6, 6, 1.0), (0.07, 100, 7.0), (1.001, 1, 1.001), (0.57, 4, 2.28)],
)
def test_what_fits_by_the_numbers_declared_fits_and_no_more(cpus: float, number: int, on: float):
    capacity = capacity_of(cluster(node("a", 64, cpus=on)))
    shape = one_shape(cpus=cpus)
    for device in range(number):
        assert capacity.hosts(shape, 1) == 1
        if device < 64:
            capacity.take(Placement((Grant(0, 1 << device),)), shape)
        else:
            capacity.take(Placement((Grant(0, 0),)), one_shape(gpus=0, cpus=cpus))
    assert capacity.hosts(shape, 1) == 0
    assert capacity.free_cpus[0] < cpus


def test_a_need_that_is_spread_over_nodes_is_never_more_than_was_declared():
    capacity = capacity_of(cluster(*(node(name, 4, cpus=10.0, memory_bytes=10.0) for name in "abc")))
    shape = one_shape(gpus=3, cpus=10.0, memory_bytes=10.0)
    for device in range(3):  # a third of ten on each node, three times
        capacity.take(on((0, device), (1, device), (2, device)), shape)
    assert capacity.free_cpus.tolist() == [0.001] * 3  # 10.000 - 3 × 3.333
    assert capacity.free_memory.tolist() == [1.0] * 3


def test_what_is_not_modelled_does_not_run_out():
    capacity = capacity_of(cluster(node("a", 1)))
    shape = one_shape(gpu_frac=0.001, cpus=1e6, memory_bytes=2.0**60, gpu_memory_bytes=2.0**60)
    for _ in range(1000):
        capacity.take(on((0, 0), sharing=SHARED, milli=1), shape)
    assert (capacity.free_cpus[0], capacity.free_memory[0]) == (np.inf, np.inf)
    assert capacity.open_memory[0, 0] == UNLIMITED


def test_rounding_does_not_add_up_over_many_jobs():
    total = 64e9 + 0.3
    capacity = capacity_of(cluster(node("a", 2, memory_bytes=total)))
    rng = np.random.default_rng(0)
    shapes = shapes_of(*(job(str(i), memory_bytes=float(size)) for i, size in enumerate(rng.uniform(0, 30e9, 200))))
    for number in range(30_000):
        # Two at a time, the first to come the first to go: sums in this order do not cancel out exactly.
        one, other = shapes[number % 200], shapes[(7 * number + 3) % 200]
        capacity.take(on((0, 0)), one)
        capacity.take(on((0, 1)), other)
        capacity.give(on((0, 0)), one)
        capacity.give(on((0, 1)), other)
    assert capacity.free_memory[0] == 64e9  # whole bytes
    assert list(members(capacity.hosts(one_shape(memory_bytes=total), 1))) == [0]


@given(st.lists(st.integers(0, len(DEMANDS) - 1), max_size=12), st.booleans(), st.randoms(use_true_random=False))
def test_giving_back_undoes_taking_in_any_order(chosen: list[int], cut: bool, random: Any):
    capacity = capacity_of(MIXED)
    if cut:
        capacity.repartition(0, 0, HALVES)
    before = snapshot(capacity)
    held: list[tuple[Placement, Shape]] = []
    for each in chosen:
        placement, shape = DEMANDS[each][0], one_shape(**DEMANDS[each][1])
        unchanged = snapshot(capacity)
        try:
            capacity.take(placement, shape)
        except OverAllocationError:
            assert snapshot(capacity) == unchanged
        else:
            assert snapshot(capacity) != unchanged
            held.append((placement, shape))
    random.shuffle(held)
    for placement, shape in held:
        capacity.give(placement, shape)
    assert snapshot(capacity) == before


def test_a_gang_takes_its_part_of_cpus_and_memory_on_each_node():
    capacity = capacity_of(MIXED)
    capacity.take(on((0, 0), (0, 1), (1, 0)), one_shape(gpus=3, cpus=6, memory_bytes=30 * GIB))
    # 2 of 3 GPUs on node a: 4 of 6 CPUs and 20 of 30 GiB; 1 of 3 on node b: 2 CPUs and 10 GiB.
    assert capacity.free_cpus[:2].tolist() == [8 - 4, 8 - 2]
    assert capacity.free_memory[:2].tolist() == [(64 - 20) * GIB, (64 - 10) * GIB]


def test_shares_of_a_device_add_up_and_the_device_is_idle_again_when_all_are_back():
    capacity = capacity_of(MIXED)
    small, large = one_shape(gpu_frac=0.3, gpu_memory_bytes=8 * GIB), one_shape(gpu_frac=0.7, gpu_memory_bytes=32 * GIB)
    capacity.take(on((0, 0), sharing=SHARED, milli=300), small)
    capacity.take(on((0, 0), sharing=SHARED, milli=700), large)
    # 1000 - 300 - 700 = 0 thousandths and 40 - 8 - 32 = 0 GiB are left.
    assert (capacity.open_milli[0, 0], capacity.open_memory[0, 0]) == (0, 0)
    assert capacity.idle[0] == 0b10
    capacity.give(on((0, 0), sharing=SHARED, milli=300), small)
    assert (capacity.open_milli[0, 0], capacity.open_memory[0, 0]) == (300, 8 * GIB)
    assert capacity.idle[0] == 0b10
    capacity.give(on((0, 0), sharing=SHARED, milli=700), large)
    assert capacity.idle[0] == 0b11
    assert capacity.open_sharing[0, 0] == 0


TOO_MUCH = {
    "a device that is held": (on((0, 1), (1, 0)), {"gpus": 2}),
    "a device that is shared": (on((1, 0), (1, 1)), {"gpus": 2}),
    "a device that the node does not have": (on((0, 5)), {}),
    "a share larger than what is left": (on((1, 1), sharing=SHARED, milli=600), {"gpu_frac": 0.6}),
    "memory that a share does not have left": (
        on((1, 1), sharing=SHARED, milli=100),
        {"gpu_frac": 0.1, "gpu_memory_bytes": 31 * GIB},
    ),
    "another kind of sharing": (on((1, 1), sharing=TIME_SLICE, milli=100), {"gpu_frac": 0.1}),
    "a share of a device that is held": (on((0, 1), sharing=SHARED, milli=100), {"gpu_frac": 0.1}),
    "a share of a device that is cut": (on((0, 0), sharing=SHARED, milli=100), {"gpu_frac": 0.1}),
    "a device that is cut": (on((0, 0)), {}),
    "a slice that is held": (mig(0, 0, 0), {"gpu_frac": 0.4}),
    "a slice that is not there": (mig(0, 0, 2), {"gpu_frac": 0.4}),
    "a slice of a device that is not cut": (mig(1, 0, 0), {"gpu_frac": 0.4}),
    "a slice with too little memory": (mig(0, 0, 4), {"gpu_frac": 0.4, "gpu_memory_bytes": 21 * GIB}),
    "more CPUs than are left": (on((1, 0)), {"cpus": 6}),
    "more memory than is left": (on((1, 0)), {"memory_bytes": 65 * GIB}),
    "a device of a node that is down": (on((2, 0)), {}),
    "a share on a node that is down": (on((2, 0), sharing=SHARED, milli=100), {"gpu_frac": 0.1}),
    "one free device and one that is held": (on((1, 0), (0, 1)), {"gpus": 2}),
}


def busy_capacity() -> Capacity:
    """Node a: device 0 cut in halves, one taken, device 1 held. Node b: half of device 1 and 3 CPUs. Node c: down."""
    capacity = capacity_of(MIXED)
    capacity.repartition(0, 0, HALVES)
    capacity.take(mig(0, 0, 0), one_shape(gpu_frac=0.4))
    capacity.take(on((0, 1)), one_shape())
    half = one_shape(gpu_frac=0.5, gpu_memory_bytes=10 * GIB, cpus=3)
    capacity.take(on((1, 1), sharing=SHARED, milli=500), half)
    capacity.set_up(2, False)
    return capacity


@pytest.mark.parametrize(("placement", "asked"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_what_is_not_free_is_refused_and_nothing_changes(placement: Placement, asked: dict[str, Any]):
    capacity = busy_capacity()
    before = snapshot(capacity)
    with pytest.raises(OverAllocationError, match=r"^node \w+: "):
        capacity.take(placement, one_shape(**asked))
    assert snapshot(capacity) == before


def test_a_slice_on_a_node_that_is_down_is_refused():
    capacity = capacity_of(MIXED)
    capacity.repartition(0, 0, HALVES)
    capacity.set_up(0, False)
    with pytest.raises(OverAllocationError):
        capacity.take(mig(0, 0, 0), one_shape(gpu_frac=0.4))


TWICE = {
    "whole": (Placement((Grant(0, 0b1), Grant(0, 0b1))), {"gpus": 2}),
    "share": (Placement((Grant(0, 0b1), Grant(0, 0b1)), SHARED, 600), {"gpu_frac": 0.6}),
    "slice": (Placement((Grant(1, 0b1, 0), Grant(1, 0b1, 0)), Sharing.MIG, 429), {"gpus": 2}),
}


@pytest.mark.parametrize(("placement", "asked"), TWICE.values(), ids=TWICE)
def test_a_placement_that_names_a_device_twice_is_refused(placement: Placement, asked: dict[str, Any]):
    capacity = capacity_of(MIXED)
    capacity.repartition(1, 0, HALVES)
    with pytest.raises(OverAllocationError):
        capacity.take(placement, one_shape(**asked))


def test_grants_on_one_node_together_must_find_their_cpus_there():
    capacity = capacity_of(MIXED)
    capacity.repartition(0, 0, HALVES)
    both_halves = Placement((Grant(0, 0b1, 0), Grant(0, 0b1, 4)), Sharing.MIG, 429)
    # Each half needs 12 / 2 = 6 CPUs; the node has 8.
    with pytest.raises(OverAllocationError):
        capacity.take(both_halves, one_shape(gpus=2, cpus=12))


def test_cpus_that_do_not_add_up_exactly_are_all_there_again_in_the_end():
    capacity = capacity_of(cluster(node("a", 4, cpus=0.3)))
    third, rest = one_shape(cpus=0.1), one_shape(cpus=0.2)
    for _ in range(1000):
        capacity.take(on((0, 0)), third)
        capacity.take(on((0, 1)), rest)
        capacity.give(on((0, 0)), third)
        capacity.give(on((0, 1)), rest)
    assert capacity.hosts(one_shape(cpus=0.3), 1) == 1
    capacity.take(on((0, 2)), one_shape(cpus=0.3))


# -- copies ------------------------------------------------------------------------------------------------------------


def change_everything(capacity: Capacity) -> None:
    """Writes to every list, array and dictionary of a capacity."""
    capacity.take(on((1, 0)), one_shape(cpus=2, memory_bytes=GIB))
    capacity.take(on((1, 1), sharing=SHARED, milli=200), one_shape(gpu_frac=0.2, gpu_memory_bytes=GIB))
    capacity.take(mig(0, 0, 4), one_shape(gpu_frac=0.4))
    capacity.give(on((0, 1)), one_shape())
    capacity.repartition(0, 1, HALVES)


def test_writing_to_a_copy_never_changes_the_original():
    capacity = busy_capacity()
    before = snapshot(capacity)
    change_everything(capacity.fork())
    assert snapshot(capacity) == before


def test_writing_to_the_original_never_changes_a_copy():
    capacity = busy_capacity()
    before = snapshot(capacity)
    copy = capacity.fork()
    change_everything(capacity)
    assert snapshot(copy) == before


def test_a_copy_of_a_copy_stands_alone():
    capacity = busy_capacity()
    before = snapshot(capacity)
    copy = capacity.fork()
    copy.take(on((1, 0)), one_shape(cpus=1))
    between = snapshot(copy)
    twin = copy.fork()
    change = one_shape(gpu_frac=0.2, cpus=1)
    twin.take(on((1, 1), sharing=SHARED, milli=200), change)
    assert snapshot(copy) == between
    assert snapshot(capacity) == before
    copy.take(on((1, 1), sharing=SHARED, milli=200), change)
    assert snapshot(copy) == snapshot(twin)


# -- what would fit ----------------------------------------------------------------------------------------------------


def test_a_shape_may_run_on_the_types_it_names_that_have_the_memory():
    capacity = capacity_of(MIXED)
    shapes = shapes_of(
        job("any"),
        job("named", gpu_types=("T4",)),
        job("large", gpu_memory_bytes=20 * GIB),
        job("too large for its type", gpu_types=("T4",), gpu_memory_bytes=20 * GIB),
        job("unknown type", gpu_types=("H100",)),
    )
    assert [capacity.types_for(shape) for shape in shapes] == [(0, 1), (1,), (0,), (), ()]


def test_a_node_that_joins_brings_its_type():
    capacity = capacity_of(MIXED)
    (shape,) = shapes_of(job("x", gpu_types=("H100",)))
    assert capacity.types_for(shape) == ()
    capacity.add_node(capacity.nodes.put(node("d", 8, "H100")))
    assert capacity.types_for(shape) == (2,)
    assert list(members(capacity.at_least(2, 8))) == [3]
    capacity.take(on((3, 7)), shape)
    assert capacity.idle_total[2] == 7
    capacity.take(on((3, 6), sharing=SHARED, milli=500), shape)
    assert capacity.open_milli[3, 6] == 500


def test_hosts_are_the_nodes_with_cpus_and_memory_for_a_part_of_the_gang():
    capacity = capacity_of(MIXED)
    shape = one_shape(gpus=4, cpus=20, memory_bytes=40 * GIB)
    # 1 GPU needs 5 CPUs, 2 need 10: nodes a and b have 8, node c as many as anybody asks for.
    assert list(members(capacity.hosts(shape, 1))) == [0, 1, 2]
    assert list(members(capacity.hosts(shape, 2))) == [2]


# -- MIG ---------------------------------------------------------------------------------------------------------------


def test_an_idle_device_can_be_cut_and_made_whole_again():
    capacity = capacity_of(MIXED)
    before = snapshot(capacity)
    capacity.repartition(0, 1, HALVES)
    assert capacity.idle[0] == 0b01
    assert capacity.idle_total[0] == 3
    assert capacity.free_slices[0, 1] == HALVES
    capacity.repartition(0, 1, ())
    assert snapshot(capacity) == before


def test_a_cut_device_can_be_cut_another_way_while_its_slices_are_free():
    capacity = capacity_of(MIXED)
    whole = (MigSlice("7g.40gb", 0, 1000, 40 * GIB),)
    capacity.repartition(0, 0, HALVES)
    capacity.repartition(0, 0, whole)
    assert capacity.free_slices[0, 0] == whole
    assert capacity.slice_at(0, 0, 4) is None


@pytest.mark.parametrize("slices", [HALVES, ()], ids=["cut", "whole"])
@pytest.mark.parametrize("where", [(0, 0), (0, 1), (1, 1)], ids=["slice taken", "held", "shared"])
def test_a_device_in_use_cannot_be_repartitioned(where: tuple[int, int], slices: tuple[MigSlice, ...]):
    capacity = busy_capacity()
    before = snapshot(capacity)
    with pytest.raises(OverAllocationError, match="in use and cannot be repartitioned"):
        capacity.repartition(*where, slices)
    assert snapshot(capacity) == before


def test_slices_come_back_in_the_order_of_the_layout():
    capacity = capacity_of(MIXED)
    capacity.repartition(0, 0, HALVES)
    shape = one_shape(gpu_frac=0.4)
    capacity.take(mig(0, 0, 0), shape)
    capacity.take(mig(0, 0, 4), shape)
    capacity.give(mig(0, 0, 4), shape)
    capacity.give(mig(0, 0, 0), shape)
    assert capacity.free_slices[0, 0] == HALVES
