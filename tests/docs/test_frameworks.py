"""The commands of the page about torchrun, conda, containers and systemd run, and the unit of systemd is valid."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_up import Up

PROJECT = Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs" / "frameworks.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]
TRAINING_S = 300.0
UNIT = PROJECT / "examples" / "gpuwise.service"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    service = Up(tmp_path_factory.mktemp("up"))
    (service.home / "examples").symlink_to(PROJECT / "examples")
    (service.home / "bin").mkdir()
    torchrun = service.home / "bin" / "torchrun"  # what pip installs, which is not there if torch is another venv's
    torchrun.write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
    torchrun.chmod(0o755)
    yield service
    service.stop()


def test_the_page_has_commands_that_are_run() -> None:
    assert len(COMMANDS) == 3


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_trains(up: Up, command: str) -> None:
    pytest.importorskip("torch")
    program, *words = shlex.split(command)
    assert program == "gpuwise"
    search = os.pathsep.join((str(up.home / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))
    uid = up.right(*words, PATH=search).strip()
    with up.begin("wait", uid) as process:
        process.communicate(timeout=TRAINING_S)
    gpus = words[words.index("--gpus") + 1]
    assert f"{gpus} workers from step 0" in up.right("logs", uid)
    assert up.status(uid) == "succeeded"


def test_a_conda_environment_that_is_active_at_submission_is_active_in_the_job(up: Up, tmp_path: Path) -> None:
    """Conda is imitated by what activation sets: variables, and a python that is found first."""
    prefix = tmp_path / "conda" / "envs" / "lab"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").write_text('#!/bin/sh\necho "lab: $CONDA_DEFAULT_ENV in $CONDA_PREFIX"\n')
    (prefix / "bin" / "python").chmod(0o755)
    search = os.pathsep.join((str(prefix / "bin"), os.environ["PATH"]))
    active = {"PATH": search, "CONDA_PREFIX": str(prefix), "CONDA_DEFAULT_ENV": "lab", "CONDA_SHLVL": "1"}
    for take in ("all", "path"):
        uid = up.right("submit", "--env-from", take, "--", "python", "train.py", **active).strip()
        assert up.run("wait", uid).code == 0
        assert up.right("logs", uid) == f"lab: lab in {prefix}\n"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8").replace("/opt/gpuwise/bin/gpuwise", str(Path(sys.executable)))
    assert _complaints(tmp_path / "gpuwise.service", text) == ""
    assert "kill mode" in _complaints(tmp_path / "wrong.service", text.replace("=process", "=wrong"))
    assert "Delgate" in _complaints(tmp_path / "wrong.service", text.replace("Delegate", "Delgate"))


def _complaints(unit: Path, text: str) -> str:
    unit.write_text(text, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=120)
    return "\n".join(line for line in done.stderr.splitlines() if unit.name in line)


def test_the_unit_leaves_jobs_running_and_has_control_groups() -> None:
    unit = configparser.ConfigParser()
    unit.read(UNIT, encoding="utf-8")
    service = unit["Service"]
    assert (service["KillMode"], service["Delegate"]) == ("process", "yes")
    assert " up --state /var/lib/gpuwise" in service["ExecStart"]
