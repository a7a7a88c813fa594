"""What commands print and write: JSON, CSV and tables, files, and how soon help comes."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from command import COMMAND, Answer, gpuwise, process

from gpuwise import simulate
from gpuwise.devices.catalogue import gpu_types
from gpuwise.engine.journal import read_journal
from gpuwise.policies.placing.placers import PLACERS
from gpuwise.policies.registry import policies
from gpuwise.sim.traces.files import FORMATS
from gpuwise.sim.traces.generate import GENERATORS

TRACE = "gen:gavel?jobs=40&rate=60&seed=2"
CLUSTER = "2x4:V100+1x8:RTX2080Ti"  # the catalogue has no price for the second type: cost_usd is unknown
FIELDS = {
    "policy", "jobs", "avg_jct_s", "p50_jct_s", "p99_jct_s", "makespan_s", "avg_queue_s", "gpu_util_frac",
    "gpu_alloc_frac", "decisions", "decide_p50_s", "decide_max_s", "wall_s", "preemptions", "migrations",
    "deadline_misses", "cost_usd",
}  # fmt: skip
TIMINGS = {"wall_s", "decide_p50_s", "decide_max_s"}


def right(answer: Answer) -> str:
    """The output of a command that must succeed without a word of complaint."""
    assert (answer.code, answer.err) == (0, "")
    return answer.out


def strict(text: str) -> Any:
    """JSON as the standard has it, without NaN and Infinity."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def records(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("output")


@pytest.fixture(scope="module")
def as_json(folder: Path) -> str:
    """One policy's run as JSON, with every file that one policy's run can be written to."""
    files = ("--journal", "made/run.journal", "--jobs", "made/jobs.csv")
    return right(process("simulate", TRACE, "-c", CLUSTER, "-p", "srtf", "-o", "json", *files, folder=folder))


@pytest.fixture(scope="module")
def swept(as_json: str, folder: Path) -> list[dict[str, Any]]:
    """A sweep of two policies and two seeds, with its store; the run as JSON is stored beside it."""
    (folder / "run.json").write_text(as_json)
    seeds = ("--seeds", "0-1", "--workers", "1", "--store", "made/sweep.jsonl", "-o", "json")
    found: list[dict[str, Any]] = strict(
        right(gpuwise("sweep", TRACE, "-c", CLUSTER, "-p", "fifo,sjf", *seeds, folder=folder))
    )
    return found


# -- help --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("args", "most"), [(["--help"], 250), (["simulate", "--help"], 380)])  # 212, 321 here
def test_help_loads_few_modules_and_none_that_is_heavy(args: list[str], most: int) -> None:
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('LOADED', *sys.modules))\n"
        f"sys.argv = ['gpuwise', *{args!r}]\n"
        "from gpuwise.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    shown, loaded = done.stdout.rsplit("LOADED", 1)
    assert "gpuwise" in shown
    assert "typer" in loaded.split()
    assert not {"polars", "numpy", "matplotlib", "rich"} & set(loaded.split())
    assert len(loaded.split()) < most


def test_help_names_every_command(folder: Path) -> None:
    shown = right(gpuwise("--help", folder=folder))
    commands = {line.split()[0] for line in shown.partition("Commands:")[2].splitlines() if line.strip()}
    assert {"simulate", "compare", "sweep", "policies", "gpus", "formats", "convert", "reproduce"} <= commands


# -- simulate ----------------------------------------------------------------------------------------------------------


def test_json_has_every_field(as_json: str) -> None:
    (row,) = strict(as_json)
    assert row.keys() >= FIELDS
    assert (row["policy"], row["jobs"], row["cluster"], row["trace"]) == ("srtf", 40, CLUSTER, TRACE)
    assert row["cost_usd"] is None
    assert 0 < row["gpu_util_frac"] <= row["gpu_alloc_frac"] <= 1


def test_json_is_what_python_gives(as_json: str) -> None:
    (row,) = strict(as_json)
    mine = simulate(TRACE, CLUSTER, "srtf").as_dict()
    assert row.keys() == mine.keys()
    assert {name: row[name] for name in row.keys() - TIMINGS} == {name: mine[name] for name in row.keys() - TIMINGS}


def test_a_pipe_gets_csv_and_tables_when_asked(folder: Path) -> None:
    command = ("simulate", TRACE, "-c", CLUSTER, "-p", "fifo,sjf")
    piped = records(right(process(*command, folder=folder)))
    assert [row["policy"] for row in piped] == ["fifo", "sjf"]
    assert piped[0].keys() >= FIELDS
    assert piped[0]["cost_usd"] == ""
    wide = right(gpuwise(*command, "-o", "wide", folder=folder))
    title, heading, rule, first, second = (line.strip() for line in wide.splitlines() if line.strip())
    assert title == f"{TRACE} on {CLUSTER}"
    assert "decide max" in heading
    assert "cost $" in heading
    assert set(rule) == {"─"}
    assert (first.split()[0], second.split()[0]) == ("fifo", "sjf")


def test_a_report_and_a_plot_are_written_and_named(folder: Path) -> None:
    files = ("--report", "new/report.html", "--plot", "new/plot.svg")
    answer = gpuwise("simulate", TRACE, "-c", CLUSTER, "-p", "fifo,sjf", "-o", "table", *files, folder=folder)
    assert answer.code == 0, answer.err
    assert answer.err.splitlines() == ["report: new/report.html", "plot: new/plot.svg"]
    assert (folder / "new" / "report.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert "<svg" in (folder / "new" / "plot.svg").read_text(encoding="utf-8")
    heading = answer.out.splitlines()[2]
    assert "avg jct" in heading
    assert "decide max" not in heading


def test_the_journal_leads_to_the_same_state(as_json: str, folder: Path) -> None:
    mine = simulate(TRACE, CLUSTER, "srtf").engine
    path = folder / "made" / "run.journal"
    assert path.read_text(encoding="utf-8").splitlines() == list(mine.journal.lines())
    replayed = read_journal(path)
    assert replayed.jobs.ids == mine.state.jobs.ids
    for name, values in mine.state.jobs.columns().items():
        np.testing.assert_array_equal(replayed.jobs.columns()[name], values, err_msg=name)
    assert mine.state.jobs.columns()["preemptions"].sum() > 0, "a run without preemptions says little"


def test_jobs_are_written_as_csv_and_parquet(as_json: str, folder: Path) -> None:
    expected = simulate(TRACE, CLUSTER, "srtf").to_frame()
    written = pl.read_csv(folder / "made" / "jobs.csv", schema=expected.schema)
    assert written.drop("tenant").equals(expected.drop("tenant"))
    right(gpuwise("simulate", TRACE, "-c", CLUSTER, "-p", "srtf", "--jobs", "made/jobs.parquet", folder=folder))
    assert pl.read_parquet(folder / "made" / "jobs.parquet").equals(expected)


# -- compare and sweep -------------------------------------------------------------------------------------------------


def test_a_sweep_lists_all_its_runs(swept: list[dict[str, Any]], folder: Path) -> None:
    assert [(row["policy"], row["load"], row["seed"]) for row in swept] == [
        ("fifo", 1.0, 0), ("fifo", 1.0, 1), ("sjf", 1.0, 0), ("sjf", 1.0, 1),
    ]  # fmt: skip
    assert all(row.keys() >= FIELDS for row in swept)
    assert len((folder / "made" / "sweep.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize("order", [("run.json", "made/sweep.jsonl"), ("made/sweep.jsonl", "run.json")], ids=" ".join)
def test_results_of_a_run_and_a_sweep_compare(
    order: tuple[str, str], swept: list[dict[str, Any]], folder: Path
) -> None:
    rows = records(right(gpuwise("compare", *order, folder=folder)))
    by_file = {"run.json": ["srtf"], "sweep.jsonl": [row["policy"] for row in swept]}
    assert [(row["file"], row["policy"]) for row in rows] == [
        (Path(path).name, policy) for path in order for policy in by_file[Path(path).name]
    ]
    loads = {row["file"]: row["load"] for row in rows}
    assert loads == {"run.json": "", "sweep.jsonl": "1.0"}


# -- lists -------------------------------------------------------------------------------------------------------------


def test_gpus_are_listed_with_their_figures(folder: Path) -> None:
    listed = strict(right(gpuwise("gpus", "-o", "json", folder=folder)))
    assert {row["name"] for row in listed} == set(gpu_types())
    v100 = next(row for row in listed if row["name"] == "V100")
    assert (v100["memory_bytes"], v100["sms"], v100["mig"]) == (16 * 2**30, 80, False)
    assert v100["bandwidth_gb_per_s"] == pytest.approx(900)


def test_an_alias_gives_the_mig_profiles_of_its_type(folder: Path) -> None:
    rows = records(right(gpuwise("gpus", "A100-40GB", "V100", "--mig", folder=folder)))
    assert {row["gpu"] for row in rows} == {"A100"}
    assert next(row["starts"] for row in rows if row["name"] == "3g.20gb") == "0 4"


def test_figures_have_sources(folder: Path) -> None:
    rows = records(right(gpuwise("gpus", "T4", "--sources", folder=folder)))
    assert {"memory_bytes", "sms", "fp32_tflops"} <= {row["figure"] for row in rows}
    assert all(row["source"] for row in rows)


def test_policies_and_placements_are_listed(folder: Path) -> None:
    rows = records(right(gpuwise("policies", folder=folder)))
    assert [row["name"] for row in rows if row["kind"] == "policy"] == list(policies())
    assert [row["name"] for row in rows if row["kind"] == "placement"] == list(PLACERS)
    assert all(row["what"] for row in rows)


def test_formats_and_generators_are_listed(folder: Path) -> None:
    rows = strict(right(gpuwise("formats", "-o", "json", folder=folder)))
    assert [row["name"] for row in rows if row["kind"] == "format"] == list(FORMATS)
    assert [row["name"] for row in rows if row["kind"] == "generator"] == [f"gen:{name}" for name in GENERATORS]


# -- where the output goes ---------------------------------------------------------------------------------------------


@pytest.fixture
def terminal() -> Callable[..., str]:
    """What a command writes to a terminal, without its colours."""

    def shown(*args: str, width: int = 120, kind: str = "xterm") -> str:
        ours, theirs = pty.openpty()
        environment = {**os.environ, "COLUMNS": str(width), "TERM": kind}
        with subprocess.Popen([*COMMAND, *args], stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
            os.close(theirs)
            text = b""
            try:
                while piece := os.read(ours, 65536):
                    text += piece
            except OSError:  # how Linux says that the other side has closed
                pass
            assert process.wait() == 0
        os.close(ours)
        return re.sub(r"\x1b\[[\d;]*m", "", text.decode())

    return shown


def test_a_terminal_gets_a_table(terminal: Callable[..., str]) -> None:
    lines = [line.rstrip() for line in terminal("gpus", "V100", "T4").splitlines() if line.strip()]
    assert any(line.split()[0] == "name" for line in lines)
    assert any(set(line.strip()) == {"─"} for line in lines)
    assert any(line.split()[0] == "V100" and "16 GiB" in line for line in lines)
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_results_fit_a_terminal_without_words_cut_in_two(terminal: Callable[..., str], width: int, kind: str) -> None:
    lines = terminal(
        "simulate", "gen:gavel?jobs=9&rate=1", "--cluster", "2x8:V100", width=width, kind=kind
    ).splitlines()
    (heading,) = [line for line in lines if line.split()[:1] == ["policy"]]
    assert max(map(len, lines)) <= width
    assert re.split(" {2,}", heading.strip())[:3] == ["policy", "jobs", "avg jct"]
    assert ("preemptions" in heading) is (width >= 100)
    assert sum(line.split()[:1] == ["fifo"] for line in lines) == 1
    assert "ms" not in "".join(lines) or "wall" in heading


def test_a_reader_who_leaves_early_causes_no_complaint() -> None:
    with subprocess.Popen([*COMMAND, "gpus"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
