"""Cluster files that come with traces."""

from __future__ import annotations

import pytest

from gpuwise.sim.traces.errors import TraceError
from gpuwise.sim.traces.files import read_nodes
from gpuwise.sim.traces.schema import NodeRow

GIB = 2**30


def test_openb_node_list(write):
    path = write("nodes.csv", "sn,cpu_milli,memory_mib,gpu,model", "n0,64000,262144,2,P100", "n1,32000,1024,0,")
    assert read_nodes(path) == [NodeRow("n0", "P100", 2, 64.0, 256 * GIB), NodeRow("n1", "", 0, 32.0, GIB)]


def test_tiresias_cluster_spec(write):
    path = write("spec.csv", "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node", "2,3,8,64,256")
    nodes = read_nodes(path)
    assert len(nodes) == 6  # 2 switches × 3 nodes
    assert nodes[5] == NodeRow("node-5", "", 8, 64.0, 256 * GIB)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (("sn,cpu_milli,memory_mib,gpu,model",), "no nodes in it"),
        (
            ("sn,cpu_milli,memory_mib,gpu,model", "n0,64000,262144,-2,P100"),
            ":2: column gpu: '-2' is not a whole number",
        ),
        (("a,b", "1,2"), "not a cluster file; its columns are 'a,b'"),
        (
            ("num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node", "1000000,1000000,8,64,256"),
            "at most 1,000,000",
        ),
    ],
)
def test_bad_cluster_files(write, lines: tuple[str, ...], complaint: str):
    with pytest.raises(TraceError, match=complaint):
        read_nodes(write("nodes.csv", *lines))


def test_real_node_lists(data_dir):
    nodes = read_nodes(data_dir / "alibaba_gpu_v2023" / "openb_node_list_gpu_node.csv")
    assert len(nodes) == 1213
    assert sum(node.gpus for node in nodes) == 6212
    assert len(read_nodes(data_dir / "tiresias" / "n32g4.csv")) == 32
