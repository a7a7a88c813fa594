"""Damaged files: whatever bytes are changed, a reader gives jobs that pass the checks or an error a user can act on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import trace_samples as samples

from gpuwise.core.errors import GpuwiseError
from gpuwise.sim.traces.files import read_trace, trace_from_frame

TRACES = {
    "tiresias": samples.TIRESIAS,
    "muri": samples.MURI,
    "chronus": samples.CHRONUS,
    "philly-csv": samples.PHILLY_CSV,
    "philly-json": (json.dumps(samples.PHILLY_JSON),),
    "openb": samples.OPENB,
    "sacct": samples.SACCT,
    "gavel": samples.GAVEL_12,
    "gpuwise": ("id,submit_s,duration_s,gpus,gpu_frac,deadline_s", "a,0,60,2,0.5,90", "b,1,6,1,1,inf"),
}
ALPHABET = np.frombuffer(b"09-+.,|\t\n\"'eEinfNa{}[]:\x00\xff ", dtype=np.uint8)


@pytest.mark.parametrize("name", TRACES)
def test_changed_bytes_never_escape_as_other_errors(tmp_path: Path, name: str):
    rng = np.random.default_rng(0)
    whole = np.frombuffer("\n".join(TRACES[name]).encode(), dtype=np.uint8)
    path = tmp_path / "trace"
    for _ in range(60):
        data = whole.copy()
        data[rng.integers(len(data), size=rng.integers(1, 6))] = rng.choice(ALPHABET)
        path.write_bytes(data[: rng.integers(1, len(data) + 1) if rng.random() < 0.2 else None].tobytes())
        try:
            trace = read_trace(path, skip_bad=bool(rng.integers(2)), format=name if rng.random() < 0.5 else None)
        except GpuwiseError:
            continue
        assert trace_from_frame(trace.jobs).jobs.equals(trace.jobs)
