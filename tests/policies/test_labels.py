"""Labels that nodes must have, had better have, or have in common; NVLink; claims by others; how far apart GPUs are."""

from __future__ import annotations

from typing import Any

import pytest

from builders import capacity_of, cluster, engine_with, job, node, on, shapes_of
from gpuwise.core.cluster.capacity import Capacity, Claim
from gpuwise.core.cluster.nodes import Distance, node_table
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.commands import Placement, Start, Why
from gpuwise.core.decision.reasons import explain_room
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.events import NodeRemoved
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.job.table import JobTable
from gpuwise.core.units import GIB
from gpuwise.engine.checks import InvalidDecisionError
from gpuwise.policies.placing.placers import PLACERS, make_placer
from gpuwise.policies.registry import OWN, make_policy
from gpuwise.service.offline.simulate import simulate


def labelled(name: str, gpus: int = 2, **labels: str) -> Any:
    return node(name, gpus, labels=tuple(labels.items()), gpu_memory_bytes=16.0 * GIB, cpus=8.0)


ZONES = cluster(
    labelled("a0", zone="a", rack="r0"),
    labelled("a1", zone="a", rack="r1"),
    labelled("b0", zone="b", rack="r2"),
    labelled("b1", zone="b", rack="r2"),
    labelled("b2", zone="b", rack="r3"),
)


def shape(**asked: Any) -> Shape:
    return shapes_of(job("x", **asked))[0]


def place(name: str, capacity: Capacity, asked: Shape) -> Placement | None:
    jobs = JobTable()
    jobs.declare([job("x")])
    return make_placer(name, jobs)(capacity, asked, asked.gpus)


@pytest.mark.parametrize("placer", sorted(PLACERS))
@pytest.mark.parametrize("asked", [{"gpus": 1}, {"gpus": 2}, {"gpus": 4}, {"gpu_frac": 0.5}])
def test_every_placement_is_on_nodes_with_the_required_labels(placer: str, asked: dict[str, Any]) -> None:
    capacity = capacity_of(ZONES)
    found = place(placer, capacity, shape(**asked, require=(("zone", ("b",)), ("rack", ("r2", "r3")))))
    assert found is not None
    assert set(found.nodes) <= {2, 3, 4}


@pytest.mark.parametrize("placer", sorted(PLACERS))
def test_no_placement_where_no_node_has_the_labels(placer: str) -> None:
    for asked in ({"gpus": 1}, {"gpus": 3}, {"gpu_frac": 0.5}):
        assert place(placer, capacity_of(ZONES), shape(**asked, require=(("zone", ("c",)),))) is None


@pytest.mark.parametrize("placer", sorted(set(PLACERS) - {"random"}))
def test_preferred_labels_decide_between_equals(placer: str) -> None:
    found = place(placer, capacity_of(ZONES), shape(prefer=(("zone", ("b",)), ("rack", ("r3",)))))
    assert found is not None
    assert found.nodes == (4,)


@pytest.mark.parametrize("placer", ["best-fit", "first-fit", "worst-fit", "consolidated", "least-left", "fgd"])
def test_a_gang_stays_within_one_value_of_a_label(placer: str) -> None:
    """Four GPUs in one rack are on b0 and b1 only: r2 is the only rack with two nodes."""
    found = place(placer, capacity_of(ZONES), shape(gpus=4, within="rack"))
    assert found is not None
    assert set(found.nodes) == {2, 3}
    assert place(placer, capacity_of(ZONES), shape(gpus=6, within="rack")) is None
    assert place(placer, capacity_of(ZONES), shape(gpus=3, within="node")) is None


def test_a_gang_too_large_for_the_nodes_it_may_have_goes_over_several_of_them() -> None:
    """The largest node has 8 GPUs, but not the label; two of 4 have it."""
    capacity = capacity_of(cluster(labelled("big", 8), labelled("s0", 4, zone="a"), labelled("s1", 4, zone="a")))
    found = place("best-fit", capacity, shape(gpus=8, require=(("zone", ("a",)),)))
    assert found is not None
    assert found.nodes == (1, 2)


def test_the_engine_refuses_placements_that_break_what_a_job_requires() -> None:
    engine = engine_with([job("a", require=(("zone", ("b",)),)), job("b", gpus=2, within="rack")], ZONES)
    with pytest.raises(InvalidDecisionError, match="node a0 has not the labels that it requires: zone b"):
        engine.order(0.0, [Start(0, on((0, 0)))])
    with pytest.raises(InvalidDecisionError, match="nodes b1, b2 are not in one rack"):
        engine.order(0.0, [Start(1, on((3, 0), (4, 0)))])
    engine.order(0.0, [Start(0, on((2, 0))), Start(1, on((2, 1), (3, 0)))])


def test_a_job_whose_labels_no_node_has_says_so_with_numbers() -> None:
    engine = engine_with([job("a", require=(("zone", ("b", "c")), ("disk", ("nvme",))))], ZONES)
    reason = explain_room(engine.state, 0)
    assert reason.code is Why.NO_SUCH_NODE
    told = "requires nodes with zone b or c, disk nvme; none of the 5 nodes here has that"
    assert str(reason) == f"cannot run here now: {told}"


def test_room_is_counted_on_the_nodes_a_job_may_have() -> None:
    engine = engine_with([job("a", gpus=2, require=(("zone", ("a",)),)), job("b"), job("c")], ZONES)
    engine.order(0.0, [Start(1, on((0, 0))), Start(2, on((1, 0)))])
    told = "needs 2 GPUs on nodes with zone a; 2 of 4 such GPUs are idle, at most 1 on one node"
    assert str(explain_room(engine.state, 0)) == told
    engine.step(1.0, [NodeRemoved(1.0, "a0"), NodeRemoved(1.0, "a1")])
    assert explain_room(engine.state, 0).code is Why.NO_SUCH_NODE


@pytest.mark.parametrize("policy", sorted(OWN))
def test_under_every_policy_jobs_run_where_they_must(policy: str) -> None:
    """The engine refuses anything else, so a run that comes to its end shows it."""
    zones, modes = (("a",), ("b",), ("a", "b")), (frozenset(Sharing), frozenset((Sharing.EXCLUSIVE,)))
    jobs = [
        job(
            f"j{i}", 10.0 + 7 * (i % 5), gpus=1 + (i % 3 == 0), at=float(i),
            require=(("zone", zones[i % 3]),) if i % 4 else (), within="rack" if i % 2 else "",
            sharing=modes[i % 2], gpu_memory_bytes=4.0 * GIB, gpu_util_frac=0.4,
        )
        for i in range(40)
    ]  # fmt: skip
    small = ClusterSpec(
        tuple(labelled(f"{zone}{i}", zone=zone, rack=f"{zone}{i // 2}") for zone in "ab" for i in (0, 1))
    )
    result = simulate(jobs, small, make_policy(policy))
    placed = result.stays()
    for i, spec in enumerate(jobs):
        if spec.require:
            nodes = placed.filter(placed["id"] == f"j{i}")["node"].to_list()
            assert nodes
            assert all(name[0] in spec.require[0][1] for name in nodes)


# -- what others use ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placer", sorted(PLACERS))
@pytest.mark.parametrize("asked", [{"gpus": 1}, {"gpus": 2}, {"gpu_frac": 0.5}])
def test_devices_on_which_others_leave_too_little_memory_are_passed_over(placer: str, asked: dict[str, Any]) -> None:
    capacity = capacity_of(cluster(labelled("n0", 3), labelled("n1", 1)))
    capacity.set_claim(0, Claim(((0, 10.0 * GIB, False),)))
    capacity.set_claim(1, Claim(((0, 16.0 * GIB, False),)))
    needs = shape(**asked, gpu_memory_bytes=8.0 * GIB)
    found = place(placer, capacity, needs)
    assert found is not None
    assert set(found.devices()) <= {(0, 1), (0, 2)}
    capacity.take(found, needs)
    with pytest.raises(OverAllocationError):
        capacity.take(on((0, 0), sharing=found.sharing, milli=found.milli), needs)
    small = shape(**{**asked, "gpus": 1}, gpu_memory_bytes=4.0 * GIB)
    capacity.take(on((0, 0), sharing=found.sharing, milli=found.milli), small)


@pytest.mark.parametrize("placer", sorted(PLACERS))
def test_drained_nodes_and_devices_others_compute_on_get_nothing(placer: str) -> None:
    capacity = capacity_of(cluster(labelled("n0", 2), labelled("n1", 2)))
    capacity.set_claim(0, Claim(((0, 0.0, True), (1, 0.0, True))))
    for asked in ({"gpus": 1}, {"gpus": 2}, {"gpu_frac": 0.5}):
        found = place(placer, capacity, shape(**asked))
        assert found is not None
        assert found.nodes == (1,)


# -- how far apart -----------------------------------------------------------------------------------------------------


def test_distances() -> None:
    linked = node("a", 4, links=((0, 1), (2, 3)), labels=(("rack", "r"), ("switch", "s"), ("zone", "z")))
    nodes = node_table(
        ClusterSpec(
            (
                linked,
                labelled("b", switch="s", rack="r", zone="z"),
                labelled("c", switch="t", rack="r", zone="z"),
                labelled("d", zone="z"),
                labelled("e"),
            )
        )
    )
    apart = [nodes.distance((0, 0), other) for other in ((0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (3, 0), (4, 0))]
    assert apart == list(Distance)
    assert nodes.spread(on((0, 0))) is Distance.DEVICE
    assert nodes.spread(on((0, 0), (0, 1))) is Distance.NVLINK
    assert nodes.spread(on((0, 0), (0, 1), (2, 1))) is Distance.RACK


@pytest.mark.parametrize("placer", ["best-fit", "first-fit", "least-left"])
def test_gpus_joined_by_nvlink_go_together(placer: str) -> None:
    capacity = capacity_of(cluster(node("a", 6, links=((0, 2, 4), (1, 3)))))
    two, three = shape(gpus=2), shape(gpus=3)
    assert place(placer, capacity, two) == on((0, 1), (0, 3))  # the smallest group that is enough
    assert place(placer, capacity, three) == on((0, 0), (0, 2), (0, 4))
    assert place(placer, capacity, shape(gpus=1)) == on((0, 5))  # the one that is joined to nobody
    assert place(placer, capacity, shape(gpus=5)) == on((0, 0), (0, 1), (0, 2), (0, 3), (0, 4))


@pytest.mark.parametrize("name", sorted(PLACERS))
@pytest.mark.parametrize("gpus", [1, 2])
def test_every_placement_keeps_a_job_on_one_node_that_asks_for_it(name: str, gpus: int) -> None:
    jobs = JobTable()
    jobs.declare([job("a", gpus=gpus, within="node")])
    found = make_placer(name, jobs)(capacity_of(cluster("2x2:V100")), jobs.shape_of(0), gpus)
    assert found is not None
    assert len(found.nodes) == 1
