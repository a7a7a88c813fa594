"""A day in the life of a service, on a clock that jumps: memory stays flat, and nothing piles up."""

from __future__ import annotations

import gc
import random
import tempfile
from pathlib import Path

import psutil
import pytest
from world import Bench, request

from gpuwise.live import recovery
from gpuwise.store.sql import open_store

HOUR_S = 3600.0
MEGABYTE = 1 << 20


def test_memory_stays_flat_over_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job every 20 s on eight GPUs, some of them preempted, failed submissions in between: 4,320 jobs in all."""
    monkeypatch.setattr(recovery, "COMPACT_LINES", 3000)
    in_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=in_memory if in_memory.is_dir() else None) as folder:
        store = open_store(Path(folder) / "gpuwise.db")
        bench = Bench(store, "1x8:V100", policy="srtf")
        lots, submitted = random.Random(7), 0
        used: list[int] = []
        for hour in range(24):
            while bench.world.now_s < (hour + 1) * HOUR_S:
                submitted += len(bench.submit(request(lots.expovariate(1 / 140.0) + 1.0, gpus=lots.choice((1, 1, 2)))))
                until_s = submitted * 20.0
                while bench.world.now_s < until_s:
                    _turn_until(bench, until_s)
            gc.collect()
            used.append(psutil.Process().memory_info().rss)
            store.prune(ended_before=bench.clock.unix(bench.world.now_s) - 6 * HOUR_S, keep_lines=2000)
        bench.settle()
        store.close()
    assert submitted == 4320
    assert len(bench.controller.engine.state.jobs) < 1500
    grown = max(used[-6:]) - min(used[5:8])
    assert grown < 8 * MEGABYTE, f"memory by the hour, in MB: {[round(each / MEGABYTE) for each in used]}"


def _turn_until(bench: Bench, until_s: float) -> None:
    """One turn; if nothing would happen before a time, the clock is set to it."""
    due = bench.world.look_ahead(until_s)
    if due is None or due[0] >= until_s:
        bench.world.now_s = until_s
    if due is not None:
        bench.world.now_s = max(bench.world.now_s, due[0])
        bench.world.queued += due[1]
    bench.controller.turn()
