"""What a job takes along of its submitter's environment: what is sent, and what a real job sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import gpuwise
from live_scripted import TOKEN, job, reply, scripted
from live_up import Up

from gpuwise.cli.submit.environment import NEVER, EnvFrom, job_environment
from gpuwise.core.job.request import MAX_ENV_BYTES, JobRequest

MINE = {
    "PATH": "/venv/bin:/bin", "VIRTUAL_ENV": "/venv", "LR": "0.1", "GPUWISE_API_TOKEN": "secret", "HOME": "/home/ada",
    "BASH_FUNC_module%%": "() { :; }", "CUDA_VISIBLE_DEVICES": "7", "RANK": "3", "_": "/bin/env", "PWD": "/tmp",
}  # fmt: skip


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    service = Up(tmp_path_factory.mktemp("up"))
    yield service
    service.stop()


def test_what_is_taken_along() -> None:
    assert job_environment({}, EnvFrom.NONE, MINE).variables == {}
    assert job_environment({}, EnvFrom.PATH, MINE).variables == {"PATH": "/venv/bin:/bin", "VIRTUAL_ENV": "/venv"}
    everything = job_environment({"LR": "0.2"}, EnvFrom.ALL, MINE)
    assert everything.variables == {"PATH": "/venv/bin:/bin", "VIRTUAL_ENV": "/venv", "LR": "0.2"}
    assert everything.note == ""


def test_what_there_is_no_room_for_is_left_out_largest_first_and_named() -> None:
    mine = {"PATH": "/" + "p" * 60_000, "HUGE": "x" * 100_000, "SMALL": "1", "ODD": "\udcff"}
    found = job_environment({"OWN": "y" * 60_000}, EnvFrom.ALL, mine)
    assert found.variables.keys() == {"OWN", "PATH", "SMALL"}
    assert found.left_out.keys() == {"HUGE", "ODD"}
    assert "HUGE (97.7 KiB)" in found.note
    assert "ODD (not UTF-8)" in found.note
    JobRequest(command=("true",), env=found.variables)  # within the limit
    full = job_environment({}, EnvFrom.ALL, {"AB": "x" * (MAX_ENV_BYTES - 2)})
    assert full.left_out == {}
    JobRequest(command=("true",), env=full.variables)


@pytest.mark.parametrize("take", ["", "all", "path", "none"])
def test_what_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, take: str) -> None:
    monkeypatch.setenv("GPUWISE_API_TOKEN", TOKEN)
    monkeypatch.delenv("GPUWISE_TOKEN_FILE", raising=False)
    monkeypatch.setenv("OF_MINE", "1")
    monkeypatch.setenv("BIG", "b" * MAX_ENV_BYTES)
    option = ["--env-from", take] if take else []
    with scripted(reply({"jobs": [job("17")]}, 201)) as server:
        monkeypatch.setenv("GPUWISE_SERVER", server.url)
        answer = gpuwise("submit", *option, "--env", "PATH=/own", "true", folder=tmp_path)
    env = server.asked[0].json["env"]
    assert (answer.code, env["PATH"]) == (0, "/own")
    assert ("OF_MINE" in env, "BIG (128 KiB)" in answer.err) == (take in ("", "all"),) * 2
    assert not [name for name in env if name.startswith("GPUWISE_") or name in NEVER]


def test_a_word_that_is_none_of_the_three_is_refused(tmp_path: Path) -> None:
    answer = gpuwise("submit", "--env-from", "some", "true", folder=tmp_path)
    assert (answer.code, answer.err) == (2, "gpuwise: --env-from is 'some'; it must be none, path or all\n")
    (tmp_path / "job.toml").write_text('command = "true"\nenv_from = 3\n')
    assert gpuwise("submit", "job.toml", folder=tmp_path).err.startswith("gpuwise: job.toml:2: env_from is 3; ")


def test_a_venv_that_is_active_at_submit_is_active_in_the_job(up: Up) -> None:
    venv = up.home / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    active = {"VIRTUAL_ENV": str(venv), "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    show = "import os, sys; print(sys.prefix, os.environ.get('VIRTUAL_ENV'))"
    seen = {}
    for take in ("all", "path", "none"):
        uid = up.right("submit", "--env-from", take, "--", "python3", "-c", show, **active).strip()
        assert up.run("wait", uid).code == 0, up.run("logs", uid).out
        seen[take] = up.right("logs", uid).strip()
    assert seen["all"] == seen["path"] == f"{venv} {venv}"
    assert not seen["none"].startswith(str(venv))


def test_the_services_own_variables_win_and_its_secrets_stay(up: Up) -> None:
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    given = {"OMP_NUM_THREADS": "77", "OF_MINE": "hello", "GPUWISE_DEVICES": "all"}
    uid = up.right("submit", "--env", "CUDA_VISIBLE_DEVICES=9", sys.executable, "-c", show, **given).strip()
    assert up.run("wait", uid).code == 0
    seen = json.loads(up.right("logs", uid))
    assert (seen["OF_MINE"], seen["GPUWISE_JOB_ID"]) == ("hello", uid)
    assert (seen["OMP_NUM_THREADS"], seen["CUDA_VISIBLE_DEVICES"]) == ("1", "")
    assert seen["GPUWISE_DEVICES"] != "all"
    assert "GPUWISE_STATE" not in seen
    assert "hello" not in json.dumps(up.job(uid))
