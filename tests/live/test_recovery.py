"""Starting from what is on disk, on the machine as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import HALVES, node
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.records import Batch, JournalLine, Snapshot, Store, StoreError
from gpuwise.engine.engine import Engine
from gpuwise.live.clock import Clock
from gpuwise.live.recovery import EngineStore, Layouts
from gpuwise.policies.fifo import Fifo
from gpuwise.policies.placing.placement import best_fit


def _make(cluster: ClusterSpec) -> Engine:
    return Engine(cluster, Fifo(), placer=best_fit)


def rebuilt(store: Store, cluster: ClusterSpec, layouts: Layouts) -> Engine:
    return EngineStore(store, cluster, _make, Clock(1000.0), layouts).rebuild()


def test_gpus_that_were_partitioned_before_stay_so(store: Store) -> None:
    cluster = ClusterSpec.parse("1x2:A100")
    first = rebuilt(store, cluster, {(0, 1): HALVES})
    assert first.state.capacity.layouts == {(0, 1): HALVES}
    again = rebuilt(store, cluster, {})  # from now on it is the engine that knows
    assert again.state.capacity.layouts == {(0, 1): HALVES}


def test_other_nodes_have_their_own_partitions(store: Store) -> None:
    rebuilt(store, ClusterSpec.parse("1x2:A100"), {(0, 1): HALVES})
    moved = rebuilt(store, ClusterSpec.parse("1x1:H100"), {(0, 0): HALVES})
    assert moved.state.capacity.layouts == {(0, 0): HALVES}


def test_another_machine_under_the_same_name_has_its_own_partitions_and_is_not_drained(store: Store) -> None:
    first, second = (ClusterSpec((node("box", 2, "A100", uid=uid),)) for uid in ("one", "two"))
    before = rebuilt(store, ClusterSpec((replace(first.nodes[0], schedulable=False),)), {(0, 1): HALVES})
    assert before.state.capacity.layouts == {(0, 1): HALVES}
    assert not rebuilt(store, first, {}).state.nodes.specs[0].schedulable
    other = rebuilt(store, second, {(0, 0): HALVES})
    assert other.state.capacity.layouts == {(0, 0): HALVES}
    assert other.state.nodes.specs[0].schedulable


def test_damage_is_named_by_table_and_row_with_the_way_out(store: Store) -> None:
    cluster = ClusterSpec.parse("1x2:A100")
    rebuilt(store, cluster, {})
    store.commit(Batch(lines=[JournalLine(1, 0.0, "JobStarted", None, '{"type": "JobSta')]))
    with pytest.raises(StoreError, match=r"table journal, sequence 1 cannot be read .*gpuwise restore FILE"):
        rebuilt(store, cluster, {})
    store.commit(Batch(lines=[JournalLine(3, 0.0, "WokeUp", None, "{}")]))
    with pytest.raises(StoreError, match=r"table journal has no row with sequence 2; .*gpuwise restore FILE"):
        rebuilt(store, cluster, {})
    store.commit(Batch(snapshot=Snapshot(2, "{}")))
    with pytest.raises(StoreError, match=r"table snapshots, sequence 2 cannot be read .*gpuwise restore FILE"):
        rebuilt(store, cluster, {})
