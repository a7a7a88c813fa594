"""Reading Gavel's pairs, from small files in its two formats."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpuwise.predict.fitting.data.gavel import busy_fractions, colocated_matrix, colocated_pairs


def test_pairs_are_read_once_as_fractions_of_solo_speed(tmp_path: Path) -> None:
    a, b, many = "('Net (batch size 16)', 1)", "('Game', 1)", "('Net (batch size 16)', 2)"
    table = {
        a: {"null": 10.0, a: [5.0, 4.0], b: [8.0, 1.0]},
        b: {"null": 2.0, a: [1.0, 8.0], b: [0.0, 0.0]},
        many: {"null": 20.0, many: [9.0, 9.0]},
    }
    (tmp_path / "gavel").mkdir()
    document = {"p100": table, "p100_unconsolidated": table}
    (tmp_path / "gavel" / "simulation_throughputs.json").write_text(json.dumps(document), encoding="utf-8")
    rows = colocated_pairs(tmp_path)
    found = sorted(zip(rows["gpu"], rows["model"], rows["batch_size"], rows["speed"].round(3), strict=True))
    assert found == [
        ("P100", "Game", 1.0, 0.5),
        ("P100", "Net", 16.0, 0.4),
        ("P100", "Net", 16.0, 0.5),
        ("P100", "Net", 16.0, 0.8),
    ]
    assert sorted(np.unique(rows["group"], return_counts=True)[1]) == [2, 2]
    assert np.all(np.isnan(rows["gpu_util_frac"])), "unknown from one type of GPU"


def test_the_matrix_is_read_by_gpu_with_rates_cut_off_at_solo_speed(tmp_path: Path) -> None:
    folder = tmp_path / "gavel" / "packing_experiment_branch"
    folder.mkdir(parents=True)
    part = ',,A,B\nA,10,"5, 6","12, 1"\nB,4,,"0, 0"\n,,,\n'
    (folder / "perf_prediction_measurements.csv").write_text(f"K80,,,\n{part}V100,,,\n{part}", encoding="utf-8")
    rows = colocated_matrix(tmp_path)
    assert rows["gpu"].tolist() == ["K80"] * 4 + ["V100"] * 4
    assert rows["model"].tolist() == ["A", "A", "A", "B"] * 2
    assert rows["speed"].tolist() == pytest.approx([0.5, 0.6, 1.0, 0.25] * 2)
    assert np.all(np.isnan(rows["step_time_s"]))


def test_busy_fractions_are_those_of_host_and_gpu_work() -> None:
    host = np.array([0.0, 0.0, 0.1, 0.5, 0.9, 1.0])
    work = 1.0 - host  # on the fast GPU; the slow one takes four times as long for it
    busy = busy_fractions({"fast": host + work, "slow": host + 4.0 * work})
    assert busy["fast"] == pytest.approx(np.maximum(work, 0.05))
    assert busy["slow"][:5] == pytest.approx((4.0 * work / (host + 4.0 * work))[:5])


def test_a_job_on_one_gpu_alone_has_no_busy_fraction() -> None:
    busy = busy_fractions({"fast": np.array([1.0, np.nan]), "slow": np.array([4.0, 4.0]), "none": np.full(2, np.nan)})
    assert np.isnan(busy["slow"][1])
    assert np.isnan(busy["fast"][1])
    assert np.isnan(busy["none"]).all()
