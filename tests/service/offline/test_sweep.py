"""Sweeps: in order, on several cores, and from where they were interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuwise.core.errors import GpuwiseError
from gpuwise.service.offline.simulate import simulate
from gpuwise.service.offline.sweep import Run, plan_sweep, sweep

TRACE = "gen:gavel?jobs=30&rate=60"
CLUSTER = "2x4:V100"
TIMINGS = {"wall_s", "decide_p50_s", "decide_max_s"}


def plan(**changed: Any) -> list[Run]:
    asked = {"policies": ["fifo", "srtf"], "loads": [1.0, 2.0], "seeds": [0, 1], **changed}
    return plan_sweep(asked.pop("trace", TRACE), asked.pop("cluster", CLUSTER), **asked)


def untimed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in TIMINGS} for row in rows]


def lines_of(store: Path) -> list[str]:
    return store.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[str]]:
    """A sweep by one worker: its rows, and the lines of its store."""
    store = tmp_path_factory.mktemp("sweep") / "store.jsonl"
    rows = sweep(plan(), store, workers=1)
    return rows, lines_of(store)


def test_rows_come_by_policy_then_load_then_seed(whole: tuple[list[dict[str, Any]], list[str]]) -> None:
    rows, lines = whole
    assert [(row["policy"], row["load"], row["seed"]) for row in rows] == [
        (policy, load, seed) for policy in ("fifo", "srtf") for load in (1.0, 2.0) for seed in (0, 1)
    ]
    assert "key" not in rows[0]
    assert len(lines) == len({json.loads(line)["key"] for line in lines}) == 8


def test_a_run_is_the_simulation_it_stands_for(whole: tuple[list[dict[str, Any]], list[str]]) -> None:
    alone = simulate(f"{TRACE}&seed=1", CLUSTER, "srtf", seed=1).as_dict()
    row = next(row for row in whole[0] if (row["policy"], row["load"], row["seed"]) == ("srtf", 1.0, 1))
    assert {name: row[name] for name in alone.keys() - TIMINGS - {"trace"}} == {
        name: alone[name] for name in alone.keys() - TIMINGS - {"trace"}
    }


def test_seeds_and_loads_change_the_result(whole: tuple[list[dict[str, Any]], list[str]]) -> None:
    assert len({row["avg_jct_s"] for row in whole[0]}) == 8
    by_run = {(row["policy"], row["load"], row["seed"]): row["avg_queue_s"] for row in whole[0]}
    assert by_run["fifo", 2.0, 0] > by_run["fifo", 1.0, 0]


def test_two_workers_give_what_one_does(whole: tuple[list[dict[str, Any]], list[str]], tmp_path: Path) -> None:
    store = tmp_path / "store.jsonl"
    steps: list[tuple[int, int]] = []
    rows = sweep(plan(), store, workers=2, on_done=lambda *step: steps.append(step))
    assert untimed(rows) == untimed(whole[0])
    assert sorted(untimed(list(map(json.loads, lines_of(store)))), key=str) == sorted(
        untimed(list(map(json.loads, whole[1]))), key=str
    )
    assert steps == [(done, 8) for done in range(9)]


def test_an_interrupted_sweep_goes_on(whole: tuple[list[dict[str, Any]], list[str]], tmp_path: Path) -> None:
    rows, lines = whole
    store = tmp_path / "store.jsonl"
    kept = "\n".join(lines[:5]) + "\n"
    store.write_text(kept + lines[5][:100], encoding="utf-8")  # killed while it wrote the sixth
    done: list[int] = []
    assert untimed(sweep(plan(), store, workers=1, on_done=lambda now, _: done.append(now))) == untimed(rows)
    assert done == [5, 6, 7, 8]
    text = store.read_text(encoding="utf-8")
    assert text.startswith(kept)
    # Each of the three that were missing has a line of its own, so that nothing is run a third time.
    done.clear()
    assert untimed(sweep(plan(), store, workers=1, on_done=lambda now, _: done.append(now))) == untimed(rows)
    assert done == [8]
    assert store.read_text(encoding="utf-8") == text


def test_a_finished_sweep_runs_nothing(whole: tuple[list[dict[str, Any]], list[str]], tmp_path: Path) -> None:
    rows, lines = whole
    store = tmp_path / "store.jsonl"
    store.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert sweep(plan(), store, workers=1) == rows
    assert lines_of(store) == lines
    more = sweep(plan(seeds=[0, 1, 2], loads=[1.0]), store, workers=1)
    assert [row["seed"] for row in more] == [0, 1, 2, 0, 1, 2]
    assert len(lines_of(store)) == len(lines) + 2


def test_a_file_that_changed_is_run_again(tmp_path: Path) -> None:
    trace, store = tmp_path / "jobs.csv", tmp_path / "store.jsonl"
    for duration_s in (10, 20):
        trace.write_text(f"id,submit_s,duration_s,gpus\na,0,{duration_s},1\n")
        (row,) = sweep(plan_sweep(str(trace), CLUSTER, ["fifo"], [1.0], [0]), store, workers=1)
        assert row["avg_jct_s"] == duration_s
    assert len(lines_of(store)) == 2


def test_a_cluster_file_that_changed_is_run_again(tmp_path: Path) -> None:
    trace, store, cluster = tmp_path / "jobs.csv", tmp_path / "store.jsonl", tmp_path / "cluster.toml"
    trace.write_text("id,submit_s,duration_s,gpus\na,0,10,1\n")
    for speed in (1.0, 2.0):
        cluster.write_text(f'[[node]]\ngpu_type = "V100"\ngpus = 1\nspeed = {speed}\n')
        (row,) = sweep(plan_sweep(str(trace), str(cluster), ["fifo"], [1.0], [0]), store, workers=1)
        assert row["avg_jct_s"] == 10 / speed
    assert len(lines_of(store)) == 2


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"policies": ["fifo", "srft"]}, "unknown policy 'srft'; did you mean srtf"),
        ({"cluster": "2x4:V10"}, "unknown GPU type 'V10'"),
        ({"placement": "bestfit"}, "unknown placement 'bestfit'; did you mean best-fit"),
        ({"loads": [1.0, 0.0]}, "above 0"),
        ({"loads": [float("nan")]}, "above 0"),
    ],
)
def test_what_is_wrong_is_told_before_the_first_run(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(GpuwiseError, match=words):
        plan(**changed)


def test_the_error_of_a_run_comes_out_of_a_worker(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submit_s,duration_s,gpus\na,0,10,1\n")
    runs = plan_sweep(str(trace), CLUSTER, ["fifo", "sjf"], [1.0], [0])
    trace.unlink()
    with pytest.raises(GpuwiseError, match="no such file"):
        sweep(runs, workers=2)
