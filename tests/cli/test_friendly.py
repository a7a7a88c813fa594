"""What a user can mend is told in one line, with exit code 2 and without a traceback."""

from __future__ import annotations

import random
import shlex
from pathlib import Path

import pytest
from command import Answer, gpuwise, process, write_jobs

ON = "-c 1x4:V100"


CASES = {
    # each a command, and words that its answer must have
    # names
    "policy": (f"simulate ok.csv {ON} -p fifo,srft", "unknown policy 'srft'", "did you mean srtf"),
    "policy's parameter": (f"simulate ok.csv {ON} -p srtf?repak=true", "repak", "repack"),
    "GPU type": ("simulate ok.csv -c 1x4:V10", "unknown GPU type 'V10'", "V100"),
    "GPU type like no other": ("simulate ok.csv -c 1x4:Foo", "unknown GPU type 'Foo'", "see gpuwise gpus"),
    "GPU type of a list": ("gpus V100 A10O", "unknown GPU type 'A10O'", "A100"),
    "cluster": ("simulate ok.csv -c 4V100", "'4V100'", "NODESxGPUS:TYPE", "8x8:V100"),
    "placement": (f"simulate ok.csv {ON} --placement bestfit", "unknown placement 'bestfit'", "best-fit"),
    "format": (f"simulate ok.csv {ON} --format tiresia", "unknown trace format 'tiresia'", "tiresias"),
    "generator": (f"simulate gen:gavle?jobs=5 {ON}", "unknown generator 'gavle'", "gavel"),
    "generator's parameter": (f"simulate gen:gavel?job=5 {ON}", "'job'", "did you mean jobs"),
    "experiment": ("reproduce validaton", "unknown experiment 'validaton'", "validation"),
    # traces
    "empty": (f"simulate empty.csv {ON}", "empty.csv", "empty"),
    "header only": (f"simulate header.csv {ON}", "header.csv", "no jobs"),
    "negative duration": (f"simulate negative.csv {ON}", "negative.csv:3", "duration_s", "'-5'", "--skip-bad"),
    "NaN": (f"simulate nan.csv {ON}", "nan.csv:2", "duration_s", "'nan'", "--skip-bad"),
    "duplicate id": (f"simulate twice.csv {ON}", "twice.csv:3", "column id", "'a'", "--skip-bad"),
    "oversized": (f"simulate large.csv {ON}", "'large'", "64 GPUs", "1x4:V100", "--drop-oversized"),
    "10 MB in one line": (f"simulate line.csv {ON}", "line.csv", "not a trace", "submit_s"),
    "10 MB in one cell": (f"simulate cell.csv {ON}", "cell.csv:2", "too long"),
    "binary": (f"simulate binary.csv {ON}", "binary.csv", "binary data"),
    "missing": (f"simulate okay.csv {ON}", "okay.csv", "no such file", "ok.csv"),
    # options
    "round": (f"simulate ok.csv {ON} --round soon", "'soon' is not a duration"),
    "round of 0": (f"simulate ok.csv {ON} --round 0", "a round of 0", "above 0"),
    "seed below 0": (f"simulate ok.csv {ON} --seed -1", "seed", "-1"),
    "forecast error": (f"simulate ok.csv {ON} --forecast-error nan", "forecast error of nan"),
    "seeds": (f"sweep ok.csv {ON} -p fifo --seeds 1-x", "'1-x'", "0-9"),
    "seeds backwards": (f"sweep ok.csv {ON} -p fifo --seeds 5-1", "'5-1'", "0-9"),
    "load of 0": (f"sweep ok.csv {ON} -p fifo --load 1,0", "above 0"),
    "jobs of two policies": (f"simulate ok.csv {ON} -p fifo,sjf --jobs jobs.csv", "--jobs", "one policy"),
    # files to write; not even the superuser can write below a file, or over a folder
    "jobs below a file": (f"simulate ok.csv {ON} --jobs ok.csv/jobs.csv", "ok.csv/jobs.csv"),
    "jobs over a folder": (f"simulate ok.csv {ON} --jobs folder.csv", "folder.csv"),
    "jobs as text": (f"simulate ok.csv {ON} --jobs jobs.txt", "jobs.txt", ".csv or .parquet"),
    "journal over a folder": (f"simulate ok.csv {ON} --journal folder.csv", "folder.csv"),
    "report below a file": (f"simulate ok.csv {ON} --report ok.csv/report.html", "ok.csv/report.html"),
    "report over a folder": (f"simulate ok.csv {ON} --report folder.csv", "folder.csv"),
    "plot as PDF": (f"simulate ok.csv {ON} --plot plot.pdf", "plot.pdf", ".png or .svg"),
    "store over a folder": (f"sweep ok.csv {ON} -p fifo --store folder.csv", "folder.csv"),
    "conversion below a file": ("convert ok.csv ok.csv/other.csv", "ok.csv/other.csv"),
    # files to read
    "results that are none": ("compare ok.csv", "ok.csv:1", "gpuwise simulate -o json"),
    "results that are binary": ("compare binary.csv", "binary.csv", "gpuwise simulate -o json"),
    # the service
    "label without a value": ("up --label zone", "--label is 'zone'", "such as zone=a"),
    "label with two values": ("up --label zone=a,b", "--label is 'zone=a,b'", "such as zone=a"),
    "label twice": ("up --label zone=a --label zone=b", "--label zone is given twice"),
    # clusters; more of them in tests/service/test_clusters.py
    "TOML: unknown field": ("simulate ok.csv -c unknown.toml", "'gpuz'", "unknown.toml", "gpus"),
    "TOML: no gpus": ("simulate ok.csv -c without.toml", "without.toml", "gpus"),
    "TOML: wrong type": ("simulate ok.csv -c wrong.toml", "wrong.toml", "gpu_type", "5"),
    "TOML: not TOML": ("simulate ok.csv -c prose.toml", "prose.toml", "line 1"),
    "TOML: missing": ("simulate ok.csv -c nowhere.toml", "nowhere.toml"),
}  # fmt: skip

IN_A_PROCESS = ("policy", "negative duration", "10 MB in one line", "10 MB in one cell", "binary", "jobs over a folder")
"""The cases that are also met from outside: how each kind of error leaves, and what is slow if anything is."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one trace that is right and many that are not."""
    home = tmp_path_factory.mktemp("friendly")
    write_jobs(home / "ok.csv", "a,0,10,1", "b,5,20,2")
    write_jobs(home / "header.csv")
    write_jobs(home / "negative.csv", "a,0,10,1", "b,0,-5,1", "c,0,x,1")
    write_jobs(home / "nan.csv", "a,0,nan,1")
    write_jobs(home / "twice.csv", "a,0,10,1", "a,1,10,1")
    write_jobs(home / "large.csv", "small,0,10,1", "large,0,10,64")
    write_jobs(home / "cell.csv", f"a,0,{'9' * 10_000_000},1")
    (home / "empty.csv").touch()
    (home / "line.csv").write_text("x" * 10_000_000)
    (home / "binary.csv").write_bytes(random.Random(1).randbytes(100_000))
    (home / "folder.csv").mkdir()
    (home / "unknown.toml").write_text('[[node]]\ngpu_type = "V100"\ngpus = 4\ngpuz = 4\n')
    (home / "without.toml").write_text('[[node]]\ngpu_type = "V100"\n')
    (home / "wrong.toml").write_text("[[node]]\ngpu_type = 5\ngpus = 4\n")
    (home / "prose.toml").write_text("eight nodes of eight\n")
    return home


def check(answer: Answer, *words: str) -> None:
    assert "Traceback" not in answer.err, answer.err.splitlines()[-1]
    assert answer.code == 2, answer.err
    assert answer.err.startswith("gpuwise: ")
    assert answer.err.count("\n") == 1, answer.err
    assert len(answer.err) < 2000
    for word in words:
        assert word in answer.err


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_told_in_one_line(name: str, folder: Path) -> None:
    command, *words = CASES[name]
    check(gpuwise(*shlex.split(command), folder=folder), *words)


@pytest.mark.parametrize("name", IN_A_PROCESS)
def test_a_process_of_its_own_tells_the_same(name: str, folder: Path) -> None:
    command, *words = CASES[name]
    check(process(*shlex.split(command), folder=folder), *words)


def test_jobs_larger_than_the_cluster_can_be_left_out(folder: Path) -> None:
    answer = gpuwise("simulate", "large.csv", "-c", "1x4:V100", "--drop-oversized", "--jobs", "l.csv", folder=folder)
    assert answer.code == 0, answer.err
    rows = (folder / "l.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == ["small"]


def test_a_policy_that_refuses_does_not_cost_what_the_others_gave(folder: Path) -> None:
    (folder / "gang.csv").write_text("id,submit_s,duration_s,gpus\na,0,10,2\n")
    words = ("simulate", "gang.csv", "-c", "1x4:A100", "-p", "fifo,mig-static,sjf", "-o", "csv")
    answer = gpuwise(*words, folder=folder)
    assert answer.code == 2
    assert [row.split(",")[0] for row in answer.out.splitlines()[1:]] == ["fifo", "sjf"]
    assert answer.err.startswith("gpuwise: mig-static: job 'a'")


def test_bad_rows_can_be_left_out_and_are_counted(folder: Path) -> None:
    answer = gpuwise("simulate", "negative.csv", "-c", "1x4:V100", "--skip-bad", "--jobs", "n.csv", folder=folder)
    assert answer.code == 0, answer.err
    assert "2 bad rows skipped" in answer.err
    rows = (folder / "n.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == ["a"]
