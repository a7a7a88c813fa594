"""What submit makes of options and words, what it sends and what it prints; against a server that plays its part."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any

import pytest
from command import Answer, gpuwise
from live_scripted import TOKEN, Scripted, job, refused, reply, scripted

Submit = Callable[..., tuple[Answer, Scripted]]
ONE = reply({"jobs": [job("17")]}, 201)
ARRAY = reply({"jobs": [job("17-0", array_index=0), job("17-1", array_index=1)]}, 201)
FORECAST = {
    "duration_s": 3600.0, "duration_source": "history", "placement": "box:0", "estimated_start": 2e9,
    "estimated_finish": 2e9 + 3600, "why": "", "ahead": 2,
}  # fmt: skip
PAIR = '[[job]]\nname = "a"\ncommand = "true"\n[[job]]\nname = "b"\ncommand = "true"\nafter = ["a", "5"]\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUWISE_API_TOKEN", TOKEN)
    monkeypatch.delenv("GPUWISE_TOKEN_FILE", raising=False)
    (tmp_path / "job.toml").write_text('command = "python train.py"\ngpus = 4\nname = "resnet"\n[env]\nA = 1\n')
    (tmp_path / "pair.toml").write_text(PAIR)
    return tmp_path


@pytest.fixture
def submit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Submit:
    """Runs submit against a server with a script."""

    def run(*words: str, script: tuple[bytes, ...] = (ONE,)) -> tuple[Answer, Scripted]:
        with scripted(*script) as server:
            monkeypatch.setenv("GPUWISE_SERVER", server.url)
            return gpuwise("submit", *words, folder=folder), server

    return run


def sent(submit: Submit, *words: str, script: tuple[bytes, ...] = (ONE,)) -> dict[str, Any]:
    """The body that a command line comes to, without what is always there."""
    answer, server = submit(*words, script=script)
    assert (answer.code, answer.err) == (0, "")
    body: dict[str, Any] = server.asked[0].json
    if "--env-from" not in words:
        body["env"] = {name: value for name, value in body.pop("env", {}).items() if os.environ.get(name) != value}
        body = {name: value for name, value in body.items() if name != "env" or value}
    assert body.pop("after", []) == [] or "--after" in words
    return body


# -- options -----------------------------------------------------------------------------------------------------------

OPTIONS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "nothing": ([], {}),
    "name, queue": (["--name", "x", "--queue", "q"], {"name": "x", "queue": "q"}),
    "gpus": (["--gpus", "2"], {"gpus": 2}),
    "elastic": (["--gpus", "2-4"], {"gpus": 2, "min_gpus": 2, "max_gpus": 4}),
    "fraction": (["--gpu-frac", "0.5", "--gpu-memory", "4GiB"], {"gpu_frac": 0.5, "gpu_memory_bytes": 4 * 2**30}),
    "types": (["--gpu-type", "A100,V100", "--sharing", "mig"], {"gpu_types": ["A100", "V100"], "sharing": ["mig"]}),
    "host": (["--cpus", "1.5", "--memory", "1G"], {"cpus": 1.5, "memory_bytes": 2**30}),
    "times": (["--duration", "2h", "--time-limit", "3h"], {"duration_s": 7200, "time_limit_s": 10_800}),
    "steps": (["--steps", "1000", "--grace", "0"], {"steps": 1000, "grace_s": 0}),
    "priority": (["--priority", "-5", "--retries", "3"], {"priority": -5, "retries": 3}),
    "array": (["--array", "0-2"], {"array": [0, 1, 2]}),
    "labels": (
        ["--require", "zone=a,b", "--require", "gen=2", "--prefer", "rack=7", "--within", "zone"],
        {"require": {"zone": ["a", "b"], "gen": ["2"]}, "prefer": {"rack": ["7"]}, "within": "zone"},
    ),
    "roles": (
        ["--role", "ps:2,cpus=4", "--role", "worker:1,gpus=1"],
        {"roles": [{"name": "ps", "count": 2, "cpus": 4}, {"name": "worker", "gpus": 1}]},
    ),
    "elastic role": (
        ["--role", "worker:1-3,gpus=1"],
        {"roles": [{"name": "worker", "min_count": 1, "max_count": 3, "gpus": 1}], "max_gpus": 3},
    ),
    "processes": (["--processes", "per-gpu"], {"processes": "per-gpu"}),
    "env": (["--env", "A=1=2", "--env", "B="], {"env": {"A": "1=2", "B": ""}}),
    "own folder": (["--workdir", ""], {"workdir": None}),
    "folder": (["--workdir", "/data"], {"workdir": "/data"}),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_become_fields(name: str, submit: Submit, folder: Path) -> None:
    words, expected = OPTIONS[name]
    whole = {"command": ["python", "train.py"], "workdir": str(folder), **expected}
    assert sent(submit, *words, "--", "python", "train.py") == {k: v for k, v in whole.items() if v is not None}


def test_after_and_deadline(submit: Submit) -> None:
    body = sent(submit, "--after", "3,4-1", "--deadline", "+6h", "true")
    assert body["deadline_s"] == pytest.approx(time() + 6 * 3600, abs=30)
    answer, server = submit("--after", "3,4-1", "true")
    assert answer.code == 0
    assert server.asked[0].json["after"] == ["3", "4-1"]


def test_a_variable_may_be_copied(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "a b")
    assert sent(submit, "--env-from", "none", "--env", "MINE", "true")["env"] == {"MINE": "a b"}


@pytest.mark.parametrize(
    "words",
    [
        ["--gpus", "2", "--", "python", "train.py", "--gpus", "8", "--wait"],
        ["--gpus", "2", "python", "train.py", "--gpus", "8", "--wait"],
    ],
    ids=["after --", "without --"],
)
def test_what_follows_the_program_is_its_own(words: list[str], submit: Submit) -> None:
    body = sent(submit, *words)
    assert body["gpus"] == 2
    assert body["command"] == ["python", "train.py", "--gpus", "8", "--wait"]


@pytest.mark.parametrize(
    "words",
    ["job.toml --gpus 2 --env B=2", "--gpus 2 job.toml --env B=2", "--gpus=2 --env=B=2 job.toml"],
    ids=["after", "around", "before"],
)
def test_options_count_more_than_the_file(words: str, submit: Submit) -> None:
    body = sent(submit, *words.split())
    assert (body["gpus"], body["name"], body["env"]) == (2, "resnet", {"A": "1", "B": "2"})
    assert body["command"] == ["python", "train.py"]


WRONG = {
    "GPUs below 0": (["--gpus", "-1", "true"], "--gpus is '-1'; it must be a number such as 2"),
    "no run time": (["--duration", "0s", "true"], "--duration is 0.0; it must be a number of seconds above 0"),
    "value": (["--gpus", "many", "true"], "--gpus is 'many'; it must be a number such as 2"),
    "range": (["--retries", "500", "true"], "--retries is 500; it must be a whole number from 0 to 100"),
    "field of another name": (["--grace", "2h", "true"], "--grace is 7200.0; it must be a number of"),
    "need of a role": (["--role", "w,gpu=1", "true"], "--role: 'gpu' is not one of name, count, "),
    "need below 0": (["--role", "w,gpus=-1", "true"], "--role: role 'w': gpus is -1; it must be a whole number from 0"),
    "counts": (["--role", "w:3-1", "true"], "--role: role 'w': count is 3; it must be between min_count and max_count"),
    "label without a key": (["--require", "=a", "true"], "--require is ['=a']; it must be labels such as zone=a,b"),
    "label without a value": (["--require", "zone", "true"], "--require: zone has no value"),
    "label twice": (["--require", "z=a", "--require", "z=b", "true"], "--require: z is given twice"),
    "fraction of several": (["--gpus", "2", "--gpu-frac", "0.5", "true"], "--gpu-frac is 0.5"),
    "variable": (["--env", "NO_SUCH_VARIABLE", "true"], "--env NO_SUCH_VARIABLE: you have no such variable"),
    "reserved variable": (["--env", "GPUWISE_X=1", "true"], "--env is ['GPUWISE_X']"),
    "file and command": (["job.toml", "python", "x.py"], "give a job file or a command"),
    "no file": (["nowhere.toml"], "nowhere.toml: No such file"),
    "name of several": (["pair.toml", "--name", "x"], "--name is for one job, and pair.toml has 2"),
    "follow an array": (["--follow", "--array", "3", "true"], "--follow shows the log of one job"),
    "follow several": (["--follow", "pair.toml"], "--follow shows the log of one job"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_before_anything_is_sent(name: str, submit: Submit) -> None:
    words, told = WRONG[name]
    answer, server = submit(*words)
    assert answer.code == 2
    assert answer.err.startswith(f"gpuwise: {told}")
    assert answer.err.count("\n") == 1
    assert (answer.out, server.asked) == ("", [])


# -- what is printed ---------------------------------------------------------------------------------------------------


def test_a_pipe_gets_the_id_alone(submit: Submit) -> None:
    answer, server = submit("true")
    assert answer.out == "17\n"
    assert len(server.asked[0].headers["idempotency-key"]) == 32


def test_an_array_has_one_id(submit: Submit) -> None:
    assert submit("--array", "2", "true", script=(ARRAY,))[0].out == "17\n"


def test_each_submission_has_a_key_of_its_own(submit: Submit) -> None:
    _, server = submit("pair.toml", script=(ONE, reply({"jobs": [job("18")]}, 201)))
    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 2


def test_the_jobs_as_json(submit: Submit) -> None:
    answer, _ = submit("true", "-o", "json")  # belongs to the command
    assert answer.out == "17\n"
    answer, _ = submit("-o", "json", "true")
    assert json.loads(answer.out) == [job("17")]


def test_a_dry_run_says_when_and_where_and_on_what_grounds(submit: Submit) -> None:
    answer, server = submit("--dry-run", "-o", "table", "true", script=(reply(FORECAST),))
    assert server.asked[0].path == "/v1/jobs?dry_run=true"
    assert answer.code == 0
    facts = dict(line.split("  ", 1) for line in answer.out.splitlines())
    assert facts["where"].strip() == "box:0"
    assert facts["run time"].strip() == "1h00m, from earlier runs"
    assert facts["start"].strip().startswith("2033-05-")
    assert facts["ahead"].strip() == "2 jobs"


def test_a_dry_run_for_programs(submit: Submit) -> None:
    answer, _ = submit("--dry-run", "-o", "json", "--name", "x", "true", script=(reply(FORECAST),))
    assert json.loads(answer.out) == [{"job": "x", **FORECAST}]


# -- several jobs ------------------------------------------------------------------------------------------------------


def test_names_of_a_file_become_ids(submit: Submit) -> None:
    answer, server = submit("pair.toml", script=(ONE, reply({"jobs": [job("18")]}, 201)))
    assert answer.out == "17\n18\n"
    first, second = (asked.json for asked in server.asked)
    assert (first["name"], second["name"]) == ("a", "b")
    assert (first["after"], second["after"]) == ([], ["5", "17"])


def test_if_one_is_refused_the_others_are_taken_back(submit: Submit) -> None:
    gone = reply({"jobs": [job("17", status="cancelled")]})
    answer, server = submit("pair.toml", script=(ONE, refused(409, "there is no job '5' to wait for"), gone))
    assert answer.code == 2
    assert answer.out == ""
    assert "job 17 was submitted and is cancelled again" in answer.err
    assert "there is no job '5' to wait for" in answer.err
    assert [asked.path for asked in server.asked] == ["/v1/jobs", "/v1/jobs", "/v1/jobs/17/cancel"]


def test_if_one_cannot_be_taken_back_that_is_said(submit: Submit) -> None:
    answer, _ = submit("pair.toml", script=(ONE, refused(409, "no"), refused(409, "has ended already")))
    assert "job 17 was submitted and could not be cancelled: has ended already" in answer.err


# -- staying with it ---------------------------------------------------------------------------------------------------

LIVE, NONE = reply({"jobs": [job()]}), reply({"jobs": []})


def ended(*jobs: dict[str, Any]) -> tuple[bytes, ...]:
    """A job is submitted, runs, and has ended like this."""
    return ONE, LIVE, NONE, reply({"jobs": list(jobs)})


@pytest.mark.parametrize(
    ("jobs", "code", "told"),
    [
        ([job(status="succeeded", exit_code=0, ended_at=1.7e9 + 180)], 0, "job 17 (resnet) succeeded after 2 min"),
        ([job(status="failed", exit_code=7, why_ended="exited with 7")], 7, "failed (7): exited with 7"),
        ([job(status="failed", exit_code=None, why_ended="could not start")], 1, "failed: could not start"),
        ([job(status="failed", exit_code=0)], 1, "job 17 (resnet) failed"),
        ([job(status="cancelled", exit_code=143)], 143, "cancelled"),
        ([job(status="cancelled")], 1, "cancelled"),
        ([job("17-0", status="succeeded"), job("17-1", status="succeeded")], 0, "2 jobs: 2 succeeded"),
        ([job("17-0", status="failed", exit_code=9), job("17-1", status="succeeded")], 1, "1 failed (17-0)"),
    ],
)
def test_wait_leaves_with_the_jobs_code(jobs: list[dict[str, Any]], code: int, told: str, submit: Submit) -> None:
    answer, _ = submit("--wait", "true", script=ended(*jobs))
    assert answer.code == code
    assert answer.out == "17\n"
    assert told in answer.err
    assert answer.err.count("\n") == 1


# -- forecasts ---------------------------------------------------------------------------------------------------------

MODEL = "import torch\ndef build(batch): return torch.nn.Linear(64, 64), torch.zeros(batch, 64)\n"


def nodes(*types: str) -> bytes:
    return reply({"nodes": [{"gpu_type": each} for each in types]})


@pytest.fixture
def model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("torch", reason="models are traced with PyTorch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (folder / "mine.py").write_text(MODEL)
    return "mine.py:build"


def test_a_model_gives_run_time_memory_and_utilization(submit: Submit, model: str) -> None:
    words = ("--model", model, "--batch", "8", "--steps", "1000", "--", "python", "train.py")
    answer, server = submit(*words, script=(nodes("V100", "K80"), ONE))
    assert answer.code == 0
    assert answer.err.startswith("gpuwise: predicted on K80: step ms")  # the slower of what it may get
    body = server.asked[1].json
    assert 0 < body["predicted_s"] < 1000
    assert body["gpu_memory_bytes"] > 1e8
    assert 0 < body["gpu_util_frac"] <= 1
    assert body["speeds"]["K80"] == 1.0 < body["speeds"]["V100"]  # relative to the one the run time is for
    assert (body["model"], body["batch_per_gpu"], body.get("name")) == (model, 8, None)
    for low, value, high in (
        ("predicted_low_s", "predicted_s", "predicted_high_s"),
        ("gpu_memory_low_bytes", "gpu_memory_bytes", "gpu_memory_high_bytes"),
        ("gpu_util_low_frac", "gpu_util_frac", "gpu_util_high_frac"),
    ):
        assert 0 <= body[low] <= body[value] <= body[high]
    assert body["gpu_memory_source"] == body["gpu_util_source"] == "predicted"


def test_what_is_declared_counts_more_than_what_is_foreseen(submit: Submit, model: str) -> None:
    words = ("--model", model, "--gpu-memory", "1GiB", "--gpus", "2", "--", "true")
    _, server = submit(*words, script=(nodes("V100"), ONE))
    body = server.asked[1].json
    assert body["gpu_memory_bytes"] == 2**30
    assert "predicted_s" not in body  # without the number of steps there is no run time


def test_more_gpus_are_foreseen_to_take_longer_a_step(submit: Submit, model: str) -> None:
    times = []
    for gpus in ("1", "4"):
        words = ("--model", model, "--steps", "100", "--gpus", gpus, "--", "true")
        times.append(submit(*words, script=(nodes("V100"), ONE))[1].asked[1].json["predicted_s"])
    assert times[1] > times[0]


@pytest.mark.parametrize("kind", ["cpu-core", "T4G"])
def test_where_the_speed_of_devices_is_not_known_nothing_is_foreseen(submit: Submit, model: str, kind: str) -> None:
    answer, server = submit("--model", model, "--steps", "9", "--", "true", script=(nodes(kind), ONE))
    assert answer.code == 0
    assert answer.err == f"gpuwise: no forecast for {kind}: its speed is not known\n"
    assert "predicted_s" not in server.asked[1].json


def test_what_only_a_forecast_needs_is_refused_without_a_model(submit: Submit) -> None:
    answer, _ = submit("--precision", "bf16", "--", "true")
    assert answer.code == 2
    assert "--precision is for a forecast; give the model, too" in answer.err


def test_a_batch_may_be_declared_without_a_model(submit: Submit) -> None:
    assert sent(submit, "--batch", "8", "true")["batch_per_gpu"] == 8


def test_a_model_that_cannot_be_built_submits_nothing(submit: Submit, folder: Path, model: str) -> None:
    (folder / "mine.py").write_text("def build(): raise ValueError('no such layer')")
    answer, server = submit("--model", model, "--", "true", script=(nodes("V100"), ONE))
    assert answer.code == 2
    assert "no such layer" in answer.err
    assert len(server.asked) == 1
