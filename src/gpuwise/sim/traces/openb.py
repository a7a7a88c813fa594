"""Reader of Alibaba's openb pod lists (cluster-trace-gpu-v2023), whose pods share GPUs by the thousandth."""

from __future__ import annotations

import numpy as np
import polars as pl

from gpuwise.sim.traces.rows import Reading, Rows, read_rows
from gpuwise.sim.traces.schema import CPUS, GPUS, SUBMIT, NodeRow, Rule
from gpuwise.sim.traces.source import Source

COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time")
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
PRIORITY_OF_QOS = {"BE": 0, "Burstable": 1, "LS": 2, "Guaranteed": 3}
OUTCOME_OF_PHASE = {"Succeeded": "succeeded", "Failed": "failed"}
MEBIBYTE = 2**20
MILLI_GPU = Rule("a number of thousandths of a GPU from 1 to 1000", low=0, high=1000)
MEMORY = Rule("a number of MiB from 0", low=0)


def read_openb(source: Source) -> Reading:
    """openb pods: duration is deletion less scheduling, or less creation for a pod that was never scheduled.

    Times are seconds since the start of the trace and kept. Priority from the class of service: BE 0, Burstable 1, LS
    (latency-sensitive) 2, Guaranteed 3. Pods that lived for 0 s are left out. Pods without a GPU stay, with gpus = 0.
    """
    rows = read_rows(source)
    rows.require(COLUMNS)
    submit_s = rows.number("creation_time", SUBMIT)
    scheduled_s = rows.number("scheduled_time", SUBMIT, default=-1)
    duration_s = rows.number("deletion_time", SUBMIT) - np.where(scheduled_s < 0, submit_s, scheduled_s)
    rows.leave_out(duration_s == 0, "pods that lived for 0 s")
    rows.flag(duration_s < 0, "deletion_time", "is before the pod was scheduled")
    gpus = rows.number("num_gpu", GPUS)
    milli = rows.number("gpu_milli", MILLI_GPU)
    rows.flag((gpus > 0) & (milli < 1), "gpu_milli", f"is not {MILLI_GPU.expected}")
    qos = rows.text("qos")
    return rows.finish(
        id_column="name",
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=gpus,
        gpu_frac=np.where(gpus > 0, milli / 1000, 1.0),
        gpu_types=rows.text("gpu_spec"),
        cpus=rows.number("cpu_milli", CPUS) / 1000,
        memory_bytes=rows.number("memory_mib", MEMORY) * MEBIBYTE,
        priority=qos.replace_strict(PRIORITY_OF_QOS, default=0, return_dtype=pl.Int64),
        outcome=rows.text("pod_phase").replace_strict(OUTCOME_OF_PHASE, default="", return_dtype=pl.String),
    )


def read_openb_nodes(rows: Rows) -> list[NodeRow]:
    """The nodes of an openb node list."""
    names = rows.unique("sn").to_list()
    models = rows.text("model").to_list()
    gpus = rows.number("gpu", GPUS, default=0).astype(np.int64).tolist()
    cpus = (rows.number("cpu_milli", CPUS) / 1000).tolist()
    memory_bytes = (rows.number("memory_mib", MEMORY) * MEBIBYTE).tolist()
    rows.refuse_bad()
    return [NodeRow(*fields) for fields in zip(names, models, gpus, cpus, memory_bytes, strict=True)]
