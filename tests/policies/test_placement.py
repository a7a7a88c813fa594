"""Where on the cluster: each placement on the same few clusters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import HALVES, capacity_of, cluster, job, mig, node, on, run, shapes_of
from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.commands import Placement
from gpuwise.core.errors import UnknownNameError
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import Placer
from gpuwise.core.units import GIB
from gpuwise.policies.placing.placement import best_fit, consolidated, first_fit, spread, worst_fit
from gpuwise.policies.placing.placers import PLACERS, make_placer

BY_NAME: dict[str, Placer] = {
    "first": first_fit,
    "best": best_fit,
    "worst": worst_fit,
    "consolidated": consolidated,
    "spread": spread,
}


def with_idle(*idle: int, size: int = 4) -> Capacity:
    """A cluster of nodes with so many of their GPUs idle, the highest ones."""
    capacity = capacity_of(cluster(f"{len(idle)}x{size}:V100"))
    (one,) = shapes_of(job("busy"))
    for number, count in enumerate(idle):
        for device in range(size - count):
            capacity.take(on((number, device)), one)
    return capacity


def gang(gpus: int, **more: object) -> Shape:
    return shapes_of(job("x", gpus=gpus, **more))[0]


def by_node(placement: Placement | None) -> dict[int, int] | None:
    """How many GPUs on which nodes."""
    return None if placement is None else {grant.node: grant.devices.bit_count() for grant in placement.grants}


ONE_NODE = {"first": {0: 2}, "best": {1: 2}, "worst": {2: 2}, "consolidated": {1: 2}, "spread": {2: 1, 0: 1}}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_gang_that_fits_on_a_node(name: str):
    # 3, 2 and 4 idle; two are asked for. Node 1 has the least room that is enough, node 2 the most.
    assert by_node(BY_NAME[name](with_idle(3, 2, 4), gang(2), 2)) == ONE_NODE[name]


LARGER = {
    "first": {0: 4, 1: 2},  # an empty node and the first with 2 more
    "best": {0: 4, 2: 2},  # an empty node and the fullest with 2 more
    "worst": {0: 4, 1: 2},  # an empty node and the emptiest with 2 more
    "consolidated": {0: 4, 2: 2},
    "spread": {0: 2, 1: 2, 2: 2},
}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_gang_that_no_node_holds(name: str):
    assert by_node(BY_NAME[name](with_idle(4, 4, 3), gang(6), 6)) == LARGER[name]


SCATTERED = {"first": None, "best": None, "worst": None, "consolidated": {0: 3, 1: 3}, "spread": {0: 2, 1: 2, 2: 2}}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_larger_gang_without_an_empty_node(name: str):
    assert by_node(BY_NAME[name](with_idle(3, 3, 3), gang(6), 6)) == SCATTERED[name]


@pytest.mark.parametrize(
    ("name", "splits"), [("best", None), ("consolidated", {0: 2, 1: 1}), ("spread", {0: 1, 1: 1, 2: 1})]
)
def test_a_gang_that_a_node_would_hold_but_none_does_now(name: str, splits: dict[int, int] | None):
    # Three GPUs are asked for; at most two are idle on one node.
    assert by_node(BY_NAME[name](with_idle(2, 2, 2), gang(3), 3)) == splits


@pytest.mark.parametrize("name", BY_NAME)
def test_the_lowest_idle_devices_of_a_node_are_taken(name: str):
    # Devices 0 and 1 of the only node are busy.
    assert BY_NAME[name](with_idle(2), gang(1), 1) == on((0, 2))


@pytest.mark.parametrize("name", BY_NAME)
def test_a_job_without_gpus_is_placed_on_a_node(name: str):
    placement = BY_NAME[name](with_idle(0, 0), gang(0), 0)
    assert placement is not None
    assert placement.gpus == 0
    assert len(placement.grants) == 1


@pytest.mark.parametrize("name", BY_NAME)
def test_gpu_types_are_tried_in_the_order_of_the_cluster(name: str):
    capacity = capacity_of(cluster("1x2:T4+1x4:V100+1x4:A100"))
    place = BY_NAME[name]
    assert place(capacity, gang(1), 1) == on((0, 0))
    assert place(capacity, gang(4), 4) == on((1, 0), (1, 1), (1, 2), (1, 3))
    (named,) = shapes_of(job("x", gpu_types=("A100",)))
    assert place(capacity_of(cluster("1x2:T4+1x4:V100+1x4:A100")), named, 1) == on((2, 0))


# -- CPUs --------------------------------------------------------------------------------------------------------------

FEW_CPUS = cluster(node("a", 4, cpus=4), node("b", 4, cpus=32))


@pytest.mark.parametrize("name", ["first", "best", "worst", "consolidated"])
def test_a_node_without_cpus_is_passed_over(name: str):
    # 4 CPUs a GPU: node a can feed one GPU, two need 8.
    assert by_node(BY_NAME[name](capacity_of(FEW_CPUS), gang(2, cpus=8), 2)) == {1: 2}


@pytest.mark.parametrize("name", ["consolidated", "spread"])
def test_a_gang_is_split_as_the_cpus_of_the_nodes_allow(name: str):
    # 2 CPUs a GPU: each node has CPUs for two of the four GPUs.
    capacity = capacity_of(cluster(node("a", 4, cpus=4), node("b", 4, cpus=4)))
    assert by_node(BY_NAME[name](capacity, gang(4, cpus=8), 4)) == {0: 2, 1: 2}


def test_a_gang_spread_unevenly_because_of_cpus_finds_its_room():
    # 4 CPUs a GPU: node a can feed one GPU, node b the other three.
    assert by_node(spread(capacity_of(FEW_CPUS), gang(4, cpus=16), 4)) == {0: 1, 1: 3}


def test_a_gang_larger_than_a_node_needs_cpus_on_each():
    spec = cluster(node("a", 4, cpus=8), node("b", 4, cpus=2), node("c", 4, cpus=8))
    # 2 CPUs a GPU: node b cannot feed four GPUs.
    assert by_node(first_fit(capacity_of(spec), gang(8, cpus=16), 8)) == {0: 4, 2: 4}


# -- fractions ---------------------------------------------------------------------------------------------------------


def shared(*left: int | None, mode: Sharing = Sharing.SHARED) -> Capacity:
    """One node whose devices have so many thousandths left; None is idle."""
    capacity = capacity_of(cluster(node("n0", len(left), gpu_memory_bytes=16 * GIB)))
    for device, milli in enumerate(left):
        if milli is not None:
            (shape,) = shapes_of(job("there", gpu_frac=(1000 - milli) / 1000))
            capacity.take(on((0, device), sharing=mode, milli=1000 - milli), shape)
    return capacity


def device_of(placer: Placer, capacity: Capacity, gpu_frac: float, **more: object) -> int | None:
    (shape,) = shapes_of(job("x", gpu_frac=gpu_frac, **more))
    placement = placer(capacity, shape, 1)
    if placement is None:
        return None
    assert placement.milli == round(1000 * gpu_frac)
    return placement.grants[0].devices.bit_length() - 1


FRACTIONS = {
    # device:      700 left, 400 left, idle
    ("first", 0.3): 0,
    ("best", 0.3): 1,  # the least left that is enough
    ("worst", 0.3): 2,  # an idle one
    ("consolidated", 0.3): 1,
    ("spread", 0.3): 2,
    ("first", 0.5): 0,
    ("best", 0.5): 0,
    ("worst", 0.5): 2,
    ("first", 0.8): 2,
    ("best", 0.8): 2,
    ("worst", 0.8): 2,
}


@pytest.mark.parametrize(("name", "gpu_frac"), FRACTIONS)
def test_a_fraction_of_a_gpu(name: str, gpu_frac: float):
    assert device_of(BY_NAME[name], shared(700, 400, None), gpu_frac) == FRACTIONS[name, gpu_frac]


@pytest.mark.parametrize("name", BY_NAME)
def test_a_fraction_where_no_device_is_idle(name: str):
    expected = {"first": 0, "best": 1, "consolidated": 1, "worst": 2, "spread": 2}[name]
    assert device_of(BY_NAME[name], shared(500, 300, 600), 0.3) == expected
    assert device_of(BY_NAME[name], shared(500, 300, 600), 0.7) is None


def test_first_fit_takes_the_first_device_with_room_be_it_open_or_idle():
    assert device_of(first_fit, shared(None, 500), 0.5) == 0


@pytest.mark.parametrize("name", BY_NAME)
def test_a_device_shared_in_another_way_is_passed_over(name: str):
    only_slices = frozenset((Sharing.TIME_SLICE,))
    assert device_of(BY_NAME[name], shared(900), 0.5, sharing=only_slices) is None
    assert device_of(BY_NAME[name], shared(900, mode=Sharing.TIME_SLICE), 0.5, sharing=only_slices) == 0


@pytest.mark.parametrize("name", BY_NAME)
def test_a_fraction_needs_memory_on_the_device(name: str):
    capacity = shared(None, None)
    (large,) = shapes_of(job("large", gpu_frac=0.1, gpu_memory_bytes=10 * GIB))
    capacity.take(on((0, 0), sharing=Sharing.SHARED, milli=100), large)
    # 6 of 16 GiB are left on device 0.
    assert device_of(BY_NAME[name], capacity, 0.1, gpu_memory_bytes=10 * GIB) == 1
    assert device_of(BY_NAME[name], capacity, 0.1, gpu_memory_bytes=17 * GIB) is None


def test_a_fraction_finds_cpus_that_were_given_back_in_parts():
    capacity = capacity_of(cluster(node("n0", 1, cpus=0.3)))
    third, rest = shapes_of(job("a", gpu_frac=0.1, cpus=0.1), job("b", gpu_frac=0.1, cpus=0.2))
    there = on((0, 0), sharing=Sharing.SHARED, milli=100)
    (without,) = shapes_of(job("c", gpu_frac=0.1))
    capacity.take(there, without)
    for shape in (third, rest):
        capacity.take(there, shape)
    for shape in (third, rest):
        capacity.give(there, shape)
    # All of 0.3 CPUs are free again, but for rounding.
    assert device_of(best_fit, capacity, 0.1, cpus=0.3) == 0


HOLDS_ALONE = {
    "part, alone": {"gpu_frac": 0.5, "sharing": frozenset((Sharing.EXCLUSIVE,))},
    "whole, beside others": {"sharing": frozenset((Sharing.SHARED,))},
    "whole, in time slices": {"sharing": frozenset((Sharing.TIME_SLICE,))},
}


@pytest.mark.parametrize("asked", HOLDS_ALONE.values(), ids=HOLDS_ALONE)
def test_a_job_is_placed_only_in_ways_it_allows(asked: dict[str, object]):
    result = run([job("x", 10, **asked)], "1x1:V100")
    assert result.metrics.finished == 1


# -- all of them -------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
    st.integers(1, 12),
    st.sampled_from([0.0, 1.0, 3.0]),
    st.sampled_from(sorted(PLACERS)),
)
def test_what_a_placement_finds_is_free_and_whole(idle: list[int], gpus: int, cpus: float, name: str):
    capacity = with_idle(*idle)
    table = JobTable()
    table.declare([job("x", gpus=gpus, cpus=cpus)])
    shape = table.shape_of(0)
    before = repr((capacity.idle, capacity.by_idle))
    found = make_placer(name, table)(capacity, shape, gpus)
    assert repr((capacity.idle, capacity.by_idle)) == before, "looking changed something"
    if found is None:
        # None that splits gangs may say so while enough GPUs are idle.
        assert name not in ("consolidated", "spread") or sum(idle) < gpus
        assert max(idle) < gpus or name == "spread"
    else:
        assert found.gpus == gpus
        capacity.take(found, shape)


def test_an_unknown_placement_is_named_with_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown placement 'bestfit'; did you mean best-fit"):
        make_placer("bestfit", JobTable())


@pytest.mark.parametrize("placement", ["fgd", "random", "least-left", "best-fit"])
@pytest.mark.parametrize(
    "spec",
    [
        job("half, alone", gpu_frac=0.5, sharing=frozenset((Sharing.EXCLUSIVE,))),
        job("two, beside others", gpus=2, sharing=frozenset((Sharing.SHARED,))),
    ],
    ids=lambda spec: spec.id,
)
def test_every_placement_holds_gpus_the_way_a_job_allows(placement: str, spec: JobSpec):
    result = run([spec], "1x2:V100", placement=placement)
    assert result.metrics.finished == 1


@pytest.mark.parametrize("placement", ["fgd", "random", "least-left", "best-fit"])
def test_every_placement_puts_a_job_for_slices_on_a_slice_and_never_on_a_whole_gpu(placement: str):
    table = JobTable()
    table.declare([job("a", gpu_frac=0.4, sharing=frozenset((Sharing.MIG,)))])
    shape, capacity, placer = table.shape_of(0), capacity_of(cluster("1x2:A100")), make_placer(placement, table)
    assert placer(capacity, shape, 1) is None
    capacity.repartition(0, 1, HALVES)
    assert placer(capacity, shape, 1) == mig(0, 1, HALVES[0].start)
