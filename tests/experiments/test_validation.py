"""The simulator against others' simulators, a testbed, and a plain loop, on the same traces.

The second of Muri's traces takes longer than a test should; ``gpuwise reproduce validation`` has it.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from builders import started
from gpuwise.experiments import validation
from gpuwise.experiments.rows import Row
from gpuwise.service.offline.clusters import load_cluster
from gpuwise.service.offline.simulate import simulate
from gpuwise.sim.traces.files import read_trace

HERE = Path(__file__).parent


def part(data_dir: Path, name: str) -> Path:
    """A folder of the measured data, which may not be here."""
    if not (data_dir / name).is_dir():
        pytest.skip(f"no {name} among the measured data")
    return data_dir / name


def check(rows: list[Row]) -> None:
    for row in rows:
        assert row.met, f"{row.metric}: {row.ours:.0f} {row.unit}, published {row.paper:.0f}"


def test_other_simulators_give_the_same_averages(data_dir: Path) -> None:
    part(data_dir, "peers")
    rows = validation.peers(data_dir)
    assert [row.paper for row in rows] == [12172.0, 12171.0, 14504.0, 14660.0]
    assert all(row.within <= 0.01 for row in rows)
    check(rows)


def test_fifo_starts_jobs_when_a_plain_loop_does(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE.parent / "engine")
    from test_determinism import plain_fifo

    trace = read_trace(part(data_dir, "peers") / "philly32x8_1000.csv")
    spec = load_cluster("32x8:V100")
    expected = plain_fifo(trace, spec)
    found = started(simulate(trace, spec, "fifo", placement="first-fit"))
    assert found.keys() == expected.keys()
    assert len(found) == 1000
    same = sum(found[name] == pytest.approx(start_s) for name, start_s in expected.items())
    assert same >= 950
    waited = sum(found[name] > at_s for name, at_s in trace.jobs.select("id", "submit_s").iter_rows())
    assert waited > 100, "the trace must queue for the comparison to say anything"


def test_the_testbed_measured_the_same(data_dir: Path) -> None:
    part(data_dir, "muri")
    rows = validation.muri_measured(data_dir)
    assert [row.paper for row in rows] == [249140.0, 238612.0, 336533.0]
    assert all(row.within <= 0.10 for row in rows)
    check(rows)


@pytest.mark.parametrize("theirs", validation.MURI_POLICIES)
def test_the_simulated_figures_of_muri_are_reached(theirs: str, data_dir: Path) -> None:
    folder = part(data_dir, "muri")
    policy, within = validation.MURI_POLICIES[theirs]
    published = pl.read_csv(folder / "published_simulation_results_fig9_fig10.csv")
    paper = published.filter(policy=theirs, metric="JCT", trace="trace1")["value_seconds"].item()
    trace = read_trace(folder / "simulator" / "trace-data" / "trace1.csv")
    ours = simulate(trace, "8x8:V100", policy).metrics.avg_jct_s
    assert within <= (0.10 if theirs == "Tiresias_L" else 0.05)
    check([Row(validation.NAME, f"Muri trace1, {policy}: average JCT", "s", paper, ours, within)])
