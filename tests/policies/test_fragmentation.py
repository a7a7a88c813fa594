"""Fragmentation descent against its definition, written out longhand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.commands import Grant, MigSlice, Placement
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.policies.placing.fragmentation import (
    BLOCK,
    FragmentationDescent,
    TaskClass,
    UsableTables,
    first_of_best,
    typical_classes,
)
from gpuwise.policies.placing.placement import best_fit
from gpuwise.policies.placing.random_fit import RandomFit

HALF = TaskClass(cpus=0, gpus=1, milli=500, gpu_types=(), popularity=1.0)
WHOLE = TaskClass(cpus=0, gpus=1, milli=1000, gpu_types=(), popularity=1.0)


def cluster(*nodes: NodeSpec) -> Capacity:
    table = NodeTable()
    for node in nodes:
        table.put(node)
    return Capacity(table)


def node(name: str, gpus: int, gpu_type: str = "V100", **more: float) -> NodeSpec:
    return NodeSpec(name=name, gpus=gpus, gpu_type=gpu_type, **more)


class Asking:
    """Shapes of one table, so that each has its own number."""

    def __init__(self) -> None:
        self.jobs = JobTable()

    def __call__(self, **asked: Any) -> Shape:
        row = self.jobs.declare([JobSpec(id=str(len(self.jobs)), duration_s=1.0, **asked)])[0]
        return self.jobs.shape_of(row)


@pytest.fixture
def shape() -> Asking:
    return Asking()


def hold(capacity: Capacity, where: int, device: int, asked: Shape) -> None:
    sharing = Sharing.EXCLUSIVE if asked.whole else Sharing.SHARED
    capacity.take(Placement((Grant(where, 1 << device),), sharing, asked.milli), asked)


# -- the definition ----------------------------------------------------------------------------------------------------


def free_milli(capacity: Capacity, where: int) -> list[int]:
    devices = range(int(capacity.nodes.gpus[where]))
    return [1000 if capacity.idle[where] >> d & 1 else int(capacity.open_milli[where, d]) for d in devices]


def fragmentation(classes: Sequence[TaskClass], cpus: float, free: Sequence[int], gpu_type: str) -> float:
    """F of a node: what each class cannot use, on average."""
    total = 0.0
    for each in classes:
        fits = (
            each.gpus > 0
            and (not each.gpu_types or gpu_type in each.gpu_types)
            and cpus >= each.cpus - 1e-9
            and sum(f >= each.milli for f in free) >= each.gpus
        )
        total += each.popularity * sum(f for f in free if not fits or f < each.milli)
    return total


def score(gain_milli: float) -> int:
    return min(99, math.floor(100 / (1 + math.exp(-(gain_milli + 1e-6) / 1000))))


def choices(capacity: Capacity, where: int, asked: Shape) -> list[tuple[int, list[int]]]:
    """What a job may take on a node: a bit mask of devices, and what is free then."""
    free = free_milli(capacity, where)
    idle = [d for d in range(len(free)) if capacity.idle[where] >> d & 1]
    if asked.whole or not asked.gpus:
        taken = idle[: asked.gpus]
        after = [0 if d in taken else f for d, f in enumerate(free)]
        return [(sum(1 << d for d in taken), after)] if len(idle) >= asked.gpus else []
    mode = Sharing.SHARED if Sharing.SHARED in asked.sharing else Sharing.TIME_SLICE
    return [
        (1 << d, [f - asked.milli if d == e else f for e, f in enumerate(free)])
        for d in range(len(free))
        if d in idle
        or (
            capacity.open_sharing[where, d] == mode
            and free[d] >= asked.milli
            and capacity.open_memory[where, d] >= asked.gpu_memory_bytes
        )
    ]


def longhand(classes: Sequence[TaskClass], capacity: Capacity, asked: Shape) -> tuple[int, int] | None:
    """The node and devices by trying every choice; the first of the highest score."""
    best, chosen = -1, None
    for where in range(len(capacity.nodes)):
        gpu_type = capacity.nodes.types[capacity.nodes.type_of[where]]
        cpus, memory = float(capacity.free_cpus[where]), float(capacity.free_memory[where])
        if not capacity.up[where] or cpus < asked.cpus - 1e-9 or memory < asked.memory_bytes:
            continue
        if asked.gpu_types and gpu_type not in asked.gpu_types:
            continue
        if capacity.nodes.memory_of(where) < asked.gpu_memory_bytes:
            continue
        before = fragmentation(classes, cpus, free_milli(capacity, where), gpu_type)
        for devices, after in choices(capacity, where, asked):
            found = score(before - fragmentation(classes, cpus - asked.cpus, after, gpu_type))
            if found > best:
                best, chosen = found, (where, devices)
    return chosen


# -- random clusters and jobs ------------------------------------------------------------------------------------------

TYPES = ("V100", "T4", "A100")
ANY_OF_SOME = ((), (), (), ("V100",), ("T4", "A100"))


def random_classes(rng: np.random.Generator, count: int) -> list[TaskClass]:
    found = []
    for part in rng.dirichlet(np.ones(count)) if count else []:
        gpus = int(rng.choice([0, 1, 1, 1, 2, 4, 8]))
        milli = int(rng.choice([100, 300, 470, 810, 1000])) if gpus == 1 else 1000 * (gpus > 0)
        types = ANY_OF_SOME[rng.integers(len(ANY_OF_SOME))] if gpus else ()
        found.append(TaskClass(float(rng.integers(0, 24)) / 2, gpus, milli, types, float(part)))
    return found


def random_cluster(rng: np.random.Generator, cpus_known: bool) -> Capacity:
    sizes = (0, 1, 2, 4, 8, 16)
    return cluster(
        *(
            NodeSpec(
                name=str(number),
                gpus=int(rng.choice(sizes)),
                gpu_type=str(rng.choice(TYPES)),
                cpus=float(rng.integers(1, 64)) if cpus_known else math.inf,
                memory_bytes=float(rng.integers(1, 64)),
                gpu_memory_bytes=16.0,
            )
            for number in range(int(rng.integers(1, 7)))
        )
    )


def random_shape(rng: np.random.Generator, shape: Asking) -> Shape:
    gpus = int(rng.choice([0, 1, 1, 1, 1, 2, 4]))
    one = gpus == 1
    return shape(
        gpus=gpus,
        gpu_frac=float(rng.choice([0.1, 0.3, 0.47, 0.81, 1.0])) if one else 1.0,
        gpu_types=ANY_OF_SOME[rng.integers(len(ANY_OF_SOME))],
        gpu_memory_bytes=float(rng.choice([0, 0, 4, 12])) if gpus else 0.0,
        sharing=frozenset({Sharing.TIME_SLICE}) if rng.random() < 0.3 else frozenset(Sharing),
        cpus=float(rng.integers(0, 16)) / 2,
        memory_bytes=float(rng.integers(0, 6)),
    )


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), cpus_known=st.booleans())
def test_each_choice_is_the_one_that_the_definition_gives(seed: int, cpus_known: bool) -> None:
    rng, shape = np.random.default_rng(seed), Asking()
    classes, capacity = random_classes(rng, int(rng.integers(0, 12))), random_cluster(rng, cpus_known)
    descent = FragmentationDescent(classes)
    if len(capacity.nodes) > 1 and rng.random() < 0.5:
        capacity.set_up(int(rng.integers(len(capacity.nodes))), False)
    held: list[tuple[Placement, Shape]] = []
    for _ in range(25):
        asked = random_shape(rng, shape)
        expected, found = longhand(classes, capacity, asked), descent(capacity, asked, asked.gpus)
        if expected is None:
            assert found is None or len(found.grants) > 1
            continue
        assert found is not None
        assert found.grants == (Grant(*expected),)
        capacity.take(found, asked)
        held.append((found, asked))
        if rng.random() < 0.2:
            capacity.give(*held.pop(int(rng.integers(len(held)))))


@pytest.mark.parametrize("seed", range(20))
def test_tables_hold_what_is_usable(seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes = random_classes(rng, 12)
    nodes, devices = 30, int(rng.choice([1, 4, 8, 16]))
    free = rng.choice([0, 100, 190, 470, 700, 1000, 1000], (nodes, devices))
    cpus = np.append(rng.integers(0, 30, nodes - 1) / 2, math.inf)
    gpu_type = rng.integers(0, len(TYPES), nodes)
    tables = UsableTables(classes, TYPES, devices)
    usable = tables.usable(tables.rows(gpu_type, 1000 * cpus), free, (free == 1000).sum(axis=1))
    expected = [fragmentation(classes, c, f, TYPES[t]) for c, f, t in zip(cpus, free.tolist(), gpu_type, strict=True)]
    np.testing.assert_allclose(free.sum(axis=1) - usable, expected, atol=1e-9)


# -- single decisions --------------------------------------------------------------------------------------------------


def test_a_fraction_goes_where_it_leaves_whole_gpus_whole(shape: Asking) -> None:
    # Everyone wants a whole GPU. Node 0 is idle: a half there makes 500 thousandths useless (F 0 -> 500).
    # On node 1 a device is half taken, useless already (F 500 -> 0): the gain is +500 instead of -500.
    capacity = cluster(node("a", 2), node("b", 2))
    half = shape(gpu_frac=0.5)
    hold(capacity, 1, 1, half)
    assert FragmentationDescent([WHOLE])(capacity, half, 1) == Placement((Grant(1, 0b10),), Sharing.SHARED, 500)


def test_a_tie_goes_to_the_lowest_node_and_device(shape: Asking) -> None:
    capacity = cluster(node("a", 2), node("b", 2), node("c", 2))
    hold(capacity, 0, 0, shape())
    hold(capacity, 0, 1, shape())
    descent = FragmentationDescent([HALF])
    assert descent(capacity, shape(), 1) == Placement((Grant(1, 0b01),))
    assert descent(capacity, shape(gpu_frac=0.5), 1) == Placement((Grant(1, 0b01),), Sharing.SHARED, 500)


def test_nodes_scored_in_blocks_are_compared_with_each_other(shape: Asking) -> None:
    capacity = cluster(*(node(str(number), 1) for number in range(2 * BLOCK + 10)))
    half, descent = shape(gpu_frac=0.5), FragmentationDescent([WHOLE])
    assert descent(capacity, half, 1) == Placement((Grant(0, 1),), Sharing.SHARED, 500)
    for where in (2 * BLOCK + 5, BLOCK + 1):
        hold(capacity, where, 0, half)
        assert descent(capacity, half, 1) == Placement((Grant(where, 1),), Sharing.SHARED, 500)


def test_gains_of_less_than_a_step_of_the_score_tie() -> None:
    # 100 sigmoid(0.20) = 54.98 and 100 sigmoid(0.17) = 54.24: both score 54; 100 sigmoid(0.21) = 55.23.
    assert first_of_best(np.array([[-math.inf, 150.0], [170.0, 200.0]])) == 2
    assert first_of_best(np.array([[170.0, 200.0], [210.0, -math.inf]])) == 2


@pytest.mark.parametrize("best", [-60_000.0, -5_000.0, 0.0, 5_000.0, 64_000.0])
def test_what_does_not_fit_is_never_chosen_however_bad_the_rest(best: float) -> None:
    assert first_of_best(np.array([[-math.inf, -math.inf], [-math.inf, best]])) == 3


def test_a_job_without_gpus_goes_where_its_cpus_are_not_missed(shape: Asking) -> None:
    # Jobs need 4 CPUs beside a GPU: taking 4 of 6 CPUs from node 0 would strand its GPUs, node 1 has no GPUs idle.
    capacity = cluster(node("a", 2, cpus=6), node("b", 2, cpus=6))
    hold(capacity, 1, 0, shape())
    hold(capacity, 1, 1, shape())
    descent = FragmentationDescent([TaskClass(cpus=4, gpus=1, milli=1000, gpu_types=(), popularity=1.0)])
    assert descent(capacity, shape(gpus=0, cpus=4), 0) == Placement((Grant(1, 0),))


def test_a_type_that_nobody_else_may_use_is_taken_first(shape: Asking) -> None:
    capacity = cluster(node("a", 4, "A100"), node("b", 4, "T4"))
    descent = FragmentationDescent([TaskClass(0, 1, 1000, ("A100",), 1.0)])
    assert descent(capacity, shape(), 1) == Placement((Grant(1, 0b0001),))
    assert descent(capacity, shape(gpu_types=("A100",)), 1) == Placement((Grant(0, 0b0001),))
    assert descent(capacity, shape(gpu_types=("H100",)), 1) is None


def test_nodes_whose_cpus_are_not_modelled_have_enough(shape: Asking) -> None:
    capacity = cluster(node("a", 2), node("b", 2, cpus=8))
    descent = FragmentationDescent([TaskClass(8, 1, 1000, (), 1.0)])
    # On b it would leave 4 CPUs and one useless GPU (F 0 -> 1000); on a the other GPU stays useful (F 0 -> 0).
    assert descent(capacity, shape(cpus=4), 1) == Placement((Grant(0, 0b01),))
    assert descent(capacity, shape(gpu_frac=0.3, cpus=9), 1) == Placement((Grant(0, 0b01),), Sharing.SHARED, 300)


@pytest.mark.parametrize("asked", [{}, {"gpu_frac": 0.5}, {"gpus": 0, "cpus": 1}])
def test_nodes_that_are_down_get_nothing(shape: Asking, asked: dict[str, float]) -> None:
    capacity = cluster(node("a", 2, cpus=8), node("b", 2, cpus=8))
    hold(capacity, 0, 0, shape(gpu_frac=0.5))
    capacity.set_up(0, False)
    wanted = shape(**asked)
    for placer in (FragmentationDescent([HALF]), RandomFit(0)):
        found = placer(capacity, wanted, wanted.gpus)
        assert found is not None
        assert found.nodes == (1,)
    capacity.set_up(1, False)
    assert FragmentationDescent([HALF])(capacity, wanted, wanted.gpus) is None
    assert RandomFit(0)(capacity, wanted, wanted.gpus) is None


def test_devices_shared_in_another_way_are_not_joined(shape: Asking) -> None:
    capacity = cluster(node("a", 2))
    hold(capacity, 0, 0, shape(gpu_frac=0.5))
    turns = shape(gpu_frac=0.5, sharing=frozenset({Sharing.TIME_SLICE}))
    for placer in (FragmentationDescent([WHOLE]), RandomFit(0)):
        assert placer(capacity, turns, 1) == Placement((Grant(0, 0b10),), Sharing.TIME_SLICE, 500)


def test_devices_cut_into_slices_are_not_free(shape: Asking) -> None:
    capacity = cluster(node("a", 2))
    capacity.repartition(0, 0, (MigSlice("3g.20gb", 0, 429, 20.0), MigSlice("3g.20gb", 4, 429, 20.0)))
    for placer in (FragmentationDescent([HALF]), RandomFit(0)):
        assert placer(capacity, shape(gpu_frac=0.4), 1) == Placement((Grant(0, 0b10),), Sharing.SHARED, 400)
        assert placer(capacity, shape(gpus=2), 2) is None


def test_devices_without_the_memory_are_passed_over(shape: Asking) -> None:
    capacity = cluster(node("a", 2, gpu_memory_bytes=16))
    hold(capacity, 0, 0, shape(gpu_frac=0.5, gpu_memory_bytes=12))
    descent = FragmentationDescent([WHOLE])
    assert descent(capacity, shape(gpu_frac=0.5, gpu_memory_bytes=4), 1) == Placement(
        (Grant(0, 1),), Sharing.SHARED, 500
    )
    assert descent(capacity, shape(gpu_frac=0.5, gpu_memory_bytes=5), 1) == Placement(
        (Grant(0, 2),), Sharing.SHARED, 500
    )
    assert descent(capacity, shape(gpu_memory_bytes=17), 1) is None


@pytest.mark.parametrize("gpus", [16, 64])
def test_large_nodes_are_filled_to_the_last_gpu(shape: Asking, gpus: int) -> None:
    capacity = cluster(node("a", gpus), node("b", 8))
    descent = FragmentationDescent([HALF, TaskClass(0, 12, 1000, (), 1.0)])
    for count in (12, gpus - 12):
        gang = shape(gpus=count)
        found = descent(capacity, gang, count)
        assert found is not None
        capacity.take(found, gang)
    assert capacity.idle[0].bit_count() + capacity.idle[1].bit_count() == 8


def test_gangs_larger_than_a_node_go_by_best_fit(shape: Asking) -> None:
    capacity = cluster(*(node(str(number), 4) for number in range(4)))
    hold(capacity, 1, 0, shape())
    gang = shape(gpus=6)
    for placer in (FragmentationDescent([HALF]), RandomFit(3)):
        assert placer(capacity, gang, 6) == Placement((Grant(0, 0b1111), Grant(1, 0b0110)))
    assert best_fit(capacity, gang, 6) == Placement((Grant(0, 0b1111), Grant(1, 0b0110)))


def test_a_gang_that_one_node_could_hold_is_not_split(shape: Asking) -> None:
    capacity = cluster(node("a", 4), node("b", 4))
    hold(capacity, 0, 0, shape())
    hold(capacity, 1, 0, shape())
    assert FragmentationDescent([HALF])(capacity, shape(gpus=4), 4) is None


def test_an_elastic_gang_takes_its_cpus_by_the_gpu(shape: Asking) -> None:
    capacity = cluster(node("a", 4, cpus=4), node("b", 4, cpus=8))
    gang = shape(gpus=4, min_gpus=1, max_gpus=4, cpus=16)
    assert FragmentationDescent([])(capacity, gang, 1) == Placement((Grant(0, 0b0001),))
    assert FragmentationDescent([])(capacity, gang, 2) == Placement((Grant(1, 0b0011),))
    assert FragmentationDescent([])(capacity, gang, 3) is None


def test_clusters_without_gpus_or_nodes(shape: Asking) -> None:
    for placer in (FragmentationDescent([HALF]), RandomFit(0)):
        empty, plain = cluster(), cluster(node("a", 0, "none", cpus=4))
        for asked in (shape(), shape(gpu_frac=0.5), shape(gpus=2)):
            assert placer(empty, asked, asked.gpus) is None
            assert placer(plain, asked, asked.gpus) is None
        assert placer(plain, shape(gpus=0, cpus=4), 0) == Placement((Grant(0, 0),))


def test_one_descent_serves_clusters_of_other_types_and_those_that_grow(shape: Asking) -> None:
    descent = FragmentationDescent([TaskClass(0, 1, 1000, ("A100",), 0.5), TaskClass(0, 1, 1000, ("T4",), 0.5)])
    assert descent(cluster(node("a", 2, "A100"), node("b", 2, "V100")), shape(), 1) == Placement((Grant(1, 1),))
    growing = cluster(node("a", 2, "T4"))
    assert descent(growing, shape(), 1) == Placement((Grant(0, 1),))
    growing.add_node(growing.nodes.put(node("b", 12, "V100")))
    assert descent(growing, shape(), 1) == Placement((Grant(1, 1),))


def test_placers_change_nothing(shape: Asking) -> None:
    capacity = cluster(node("a", 4, cpus=8), node("b", 4, cpus=8))
    hold(capacity, 0, 1, shape(gpu_frac=0.3, cpus=1))
    before = [
        capacity.idle.copy(),
        *(a.copy() for a in (capacity.open_milli, capacity.free_cpus, capacity.free_memory)),
    ]
    for asked in (shape(cpus=2), shape(gpu_frac=0.4), shape(gpus=0, cpus=1)):
        FragmentationDescent([HALF])(capacity, asked, asked.gpus)
        RandomFit(1)(capacity, asked, asked.gpus)
    after = [capacity.idle, capacity.open_milli, capacity.free_cpus, capacity.free_memory]
    for then, now in zip(before, after, strict=True):
        np.testing.assert_array_equal(then, now)


# -- filling a cluster -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_random_fills_never_over_allocate(seed: int) -> None:
    rng, shape = np.random.default_rng(seed), Asking()
    capacity = random_cluster(rng, cpus_known=seed % 2 == 0)
    placer = (FragmentationDescent(random_classes(rng, 8)), RandomFit(seed))[seed % 3 == 0]
    turned_away = 0
    for _ in range(300):
        asked = random_shape(rng, shape)
        found = placer(capacity, asked, asked.gpus)
        if found is None:
            turned_away += 1
            assert longhand([], capacity, asked) is None
            continue
        assert found.gpus == asked.gpus
        assert found.milli == (asked.milli if asked.gpus else 1000)
        capacity.take(found, asked)
        assert capacity.free_cpus.min() >= 0
        assert capacity.free_memory.min() >= 0
        assert capacity.open_memory.min() >= 0
        assert capacity.open_milli.min() >= 0
    assert turned_away


def test_random_fit_draws_every_place_and_repeats_with_its_seed(shape: Asking) -> None:
    capacity = cluster(node("a", 2), node("b", 2), node("c", 2))
    hold(capacity, 1, 0, shape())
    half, placer = shape(gpu_frac=0.5), RandomFit(7)
    drawn = [placer(capacity, half, 1) for _ in range(200)]
    assert {each.devices()[0] for each in drawn if each} == {(0, 0), (0, 1), (1, 1), (2, 0), (2, 1)}
    again = RandomFit(7)
    assert drawn == [again(capacity, half, 1) for _ in range(200)]


# -- typical classes ---------------------------------------------------------------------------------------------------


def test_typical_classes_are_the_most_frequent_ones() -> None:
    # 20 jobs: 10 halves, 6 whole, 3 without GPUs, 1 gang. The first three make 19 of 20 = 95 %, without the gang.
    def many(count: int, **asked: Any) -> list[JobSpec]:
        return [JobSpec(id=f"{asked}{i}", duration_s=1.0, **asked) for i in range(count)]

    jobs = JobTable()
    jobs.declare([*many(1, gpus=4), *many(3, gpus=0, cpus=2.0, gpu_types=("T4",)), *many(6, memory_bytes=5.0)])
    jobs.declare([*many(4, gpu_frac=0.5, gpu_types=("T4", "A100")), *many(6, gpu_frac=0.5, gpu_types=("A100", "T4"))])
    assert typical_classes(jobs) == (
        TaskClass(0.0, 1, 500, ("A100", "T4"), 10 / 19),
        TaskClass(0.0, 1, 1000, (), 6 / 19),
        TaskClass(2.0, 0, 0, (), 3 / 19),
    )
    assert len(typical_classes(jobs, share=0.951)) == 4
    assert typical_classes(JobTable()) == ()


@pytest.mark.parametrize(("gpus", "milli"), [(2, 500), (1, 0), (1, 1001)])
def test_classes_that_make_no_sense_are_refused(gpus: int, milli: int) -> None:
    with pytest.raises(GpuwiseError, match=f"{milli}/1000"):
        TaskClass(0, gpus, milli, (), 1.0)
