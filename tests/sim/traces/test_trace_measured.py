"""Formats whose durations come from measured tables: Gavel's, Shockwave's and Pollux'."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from trace_samples import GAVEL_12, column

from gpuwise.sim.traces.errors import TraceError
from gpuwise.sim.traces.files import read_trace


def test_shockwave_carries_durations(write):
    trace = read_trace(write("s.trace", *GAVEL_12))
    assert column(trace, "duration_s") == [500.0, 100.0]
    assert column(trace, "gpus") == [2, 1]
    assert column(trace, "steps") == [1000.0, 70.0]
    assert column(trace, "model") == ["ResNet-50", "A3C"]
    assert column(trace, "batch_per_gpu") == [64, 0]
    assert column(trace, "priority") == [1, 5]
    assert column(trace, "deadline_s") == [math.inf, 30 + 2 * 100]


THROUGHPUTS = {"v100": {"('LM (batch size 5)', 1)": {"null": 10.0}, "('LM (batch size 5)', 2)": {"null": 16.0}}}
GAVEL_7 = "LM (batch size 5)\tcd x && python3 main.py\t--steps\t1\t{steps}\t{arrival}\t{gpus}"
GAVEL_10 = "LM (batch size 5)\tpython3 main.py\tlm\t--steps\t1\t{steps}\t{gpus}\t1\t-1.000000\t{arrival}"


@pytest.mark.parametrize("line", [GAVEL_7, GAVEL_10])
def test_gavel_divides_steps_by_the_throughput_alone(write, tmp_path: Path, line: str):
    jobs = [line.format(steps=800, arrival=5 * n, gpus=gpus) for n, gpus in enumerate((1, 2, 8))]
    path = write("traces/msr/seed0/x.trace", *jobs)
    (tmp_path / "simulation_throughputs.json").write_text(json.dumps(THROUGHPUTS))
    trace = read_trace(path)
    # 800 ÷ 10, 800 ÷ 16, and 800 ÷ 10 for 8 GPUs, which the table does not have
    assert column(trace, "duration_s") == [80.0, 50.0, 80.0]
    assert column(trace, "submit_s") == [0.0, 5.0, 10.0]
    assert column(trace, "id") == ["0", "1", "2"]


def test_gavel_without_a_table_says_what_to_pass(write, tmp_path: Path):
    path = write("a/b/c/d/x.trace", GAVEL_10.format(steps=800, arrival=0, gpus=1))
    with pytest.raises(TraceError, match=r"throughputs= with Gavel's physical_cluster_throughputs.json"):
        read_trace(path)
    table = tmp_path / "mine.json"
    table.write_text(json.dumps(THROUGHPUTS))
    assert column(read_trace(path, throughputs=table), "duration_s") == [80.0]
    for text, complaint in (("{", "not JSON"), ("[]", "no 'v100'")):
        table.write_text(text)
        with pytest.raises(TraceError, match=complaint):
            read_trace(path, throughputs=table)
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(path, throughputs=tmp_path / "none.json")


def test_gavel_job_types_without_a_throughput_are_bad_rows(write, tmp_path: Path):
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"v100": {"LM (batch size 5)": {"null": 0.0}}}))
    path = write("x.trace", GAVEL_7.format(steps=1, arrival=0, gpus=1))
    with pytest.raises(TraceError, match=r":1: column job_type: 'LM \(batch size 5\)' has no measured throughput"):
        read_trace(path, throughputs=table)


def test_pollux_multiplies_iterations_by_step_time(write):
    tables = "traces/cifar10"
    validation = ("progress,iteration,metric,grad_sqr,grad_var", *(f"{n * 10},0,0.5,1,3" for n in range(1, 121)))
    write(f"{tables}/validation-128.csv", *validation)
    write(f"{tables}/validation-512.csv", *validation)
    write(
        f"{tables}/placements.csv",
        *("placement,local_bsz,step_time,sync_time", "1,32,0.1,0.01", "1,128,0.4,0.01"),
        *("4,32,0.2,0.05", "4,128,0.5,0.05", "44,32,0.3,0.1", "44,128,0.6,0.1"),
    )
    write(f"{tables}/scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time", "6,24,32,0.4,0.2")
    header = "name,time,application,num_replicas,batch_size"
    jobs = ("a,10,cifar10,1,128", "b,20,cifar10,4,512", "c,30,cifar10,1,512", "d,40,cifar10,6,192")
    trace = read_trace(write("workloads/w.csv", header, *jobs))
    # 100 epochs are a progress of 1000. One iteration's gain is 1 at batch 128, (3 + 1) / (3 / 4 + 1) = 16/7 at 512 and
    # 4 / (3 / 1.5 + 1) = 4/3 at 192: 1000, 437.5 and 750 iterations.
    # a: 1000 × 0.4; b: 128 on each of 4 GPUs, 437.5 × 0.5; c: four passes of 128, 437.5 × (0.4 + 3 × 0.39);
    # d: 32 on each of 6 GPUs, halfway between 4 (0.2 s) and 8 (0.3 s): 750 × 0.25
    assert column(trace, "duration_s") == pytest.approx([400.0, 218.75, 686.875, 187.5])
    assert column(trace, "steps") == pytest.approx([1000, 437.5, 437.5, 750])
    assert column(trace, "min_gpus") == [1, 1, 1, 1]
    assert column(trace, "max_gpus") == [4, 16, 16, 6]  # batch size ÷ the smallest measured share, 32
    with pytest.raises(TraceError, match="batch_size: '64' is outside the batch sizes measured"):
        read_trace(write("workloads/w.csv", header, "a,10,cifar10,1,64"))
    with pytest.raises(TraceError, match="application: 'gpt9' is not one of bert"):
        read_trace(write("workloads/w.csv", header, "a,10,gpt9,1,64"))


def test_pollux_without_its_tables_names_the_folder(write, tmp_path: Path):
    path = write("workloads/w.csv", "name,time,application,num_replicas,batch_size", "a,10,bert,1,12")
    with pytest.raises(TraceError, match=f"durations of bert need Pollux' measured tables in {tmp_path}/traces/bert"):
        read_trace(path)
    write("traces/bert/validation-12.csv", "progress,grad_sqr,grad_var", "1,1,1")
    with pytest.raises(TraceError, match=r"placements.csv: Pollux' measured table cannot be read"):
        read_trace(path)
