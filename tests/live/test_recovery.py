"""Starting from what is on disk, on the machine as it is."""

from __future__ import annotations

from builders import HALVES
from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.records import Store
from gpuwise.engine.engine import Engine
from gpuwise.live.clock import Clock
from gpuwise.live.recovery import recover
from gpuwise.policies.fifo import Fifo
from gpuwise.policies.placing.placement import best_fit


def _make(cluster: ClusterSpec) -> Engine:
    return Engine(cluster, Fifo(), placer=best_fit)


def test_gpus_that_were_cut_before_stay_cut(store: Store) -> None:
    cluster = ClusterSpec.parse("1x2:A100")
    first = recover(store, cluster, _make, Clock(1000.0), {(0, 1): HALVES})
    assert first.engine.state.capacity.layouts == {(0, 1): HALVES}
    again = recover(store, cluster, _make, Clock(1000.0), {})  # from now on it is the engine that knows
    assert again.engine.state.capacity.layouts == {(0, 1): HALVES}


def test_other_nodes_bring_their_own_cuts(store: Store) -> None:
    recover(store, ClusterSpec.parse("1x2:A100"), _make, Clock(1000.0), {(0, 1): HALVES})
    moved = recover(store, ClusterSpec.parse("1x1:H100"), _make, Clock(1000.0), {(0, 0): HALVES})
    assert moved.engine.state.capacity.layouts == {(0, 0): HALVES}
