"""The allocation experiment: small by hand, then on the published pods and nodes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from gpuwise.core.errors import GpuwiseError
from gpuwise.experiments.validation import (
    FOLDER,
    PUBLISHED,
    PlacerFactory,
    allocated_at_full_demand,
    fragmentation,
    read_pods,
)
from gpuwise.policies.placing.random_fit import RandomFit
from gpuwise.sim.traces.schema import NodeRow

EVERY_PLACEMENT = pytest.mark.parametrize("make", [each[2] for each in PUBLISHED], ids=[each[0] for each in PUBLISHED])
HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
NODES = [NodeRow(f"n{number}", "T4", 2, 8.0, 2.0**30) for number in range(50)]


def pods(*lines: str, tmp_path: Path) -> pl.DataFrame:
    path = tmp_path / "pods.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return read_pods(path)


def test_every_pod_is_read_also_those_that_lived_for_no_time(tmp_path: Path) -> None:
    found = pods("a,1500,1,1,250,,LS,Running,5,5,5", "b,2000,2,0,0,T4|P100,BE,Failed,0,9,", tmp_path=tmp_path)
    assert found.rows() == [("a", 1, 0.25, "", 1.5, 2.0**20), ("b", 0, 1.0, "T4|P100", 2.0, 2.0**21)]


@EVERY_PLACEMENT
def test_pods_that_always_fit_get_all_they_ask_for(make: PlacerFactory, tmp_path: Path) -> None:
    # One GPU a pod: the n-th arrival brings demand and allocation to n % both, and only n = 100 rounds to 100 %.
    found = pods(*(f"p{i},1000,1,1,1000,,LS,Running,0,9,0" for i in range(40)), tmp_path=tmp_path)
    assert allocated_at_full_demand(found, NODES, make, seed=1) == pytest.approx(100)


def test_pods_of_600_thousandths_leave_the_rest_of_each_gpu(tmp_path: Path) -> None:
    # 100 GPUs hold one such pod each, 60 %; demand of 100 % is that of 167 pods.
    found = pods("p,0,0,1,600,,LS,Running,0,9,0", tmp_path=tmp_path)
    assert allocated_at_full_demand(found, NODES, lambda jobs, seed: RandomFit(seed), seed=1) == pytest.approx(60)


@EVERY_PLACEMENT
@pytest.mark.parametrize("gpu_types", ["", "T4", "P100"])
def test_a_pod_stays_on_one_node(make: PlacerFactory, gpu_types: str, tmp_path: Path) -> None:
    # Gangs of 4 on nodes of 2 are turned away, not split; no P100 is here at all.
    found = pods(f"p,0,0,4,1000,{gpu_types},LS,Running,0,9,0", tmp_path=tmp_path)
    assert allocated_at_full_demand(found, NODES, make, seed=1) == 0


def test_pods_without_any_gpu_are_refused(tmp_path: Path) -> None:
    found = pods("p,1000,1,0,0,,LS,Running,0,9,0", tmp_path=tmp_path)
    with pytest.raises(GpuwiseError, match="none of the pods asks for a GPU"):
        allocated_at_full_demand(found, NODES, lambda jobs, seed: RandomFit(seed), seed=1)


def test_published_allocation_is_reached(data_dir: Path) -> None:
    if not (data_dir / FOLDER).is_dir():
        pytest.skip(f"no {FOLDER} among the measured data")
    found = fragmentation(data_dir, seeds=2)
    assert [row.paper for row in found] == [86.30, 92.86, 95.23]
    for row in found:
        assert row.met, f"{row.metric}: {row.ours:.2f} %, published {row.paper:.2f} %"
