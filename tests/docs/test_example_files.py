"""The files in examples/ run, and a policy of another package is found by its entry point."""

from __future__ import annotations

import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuwise
from gpuwise.policies.registry import ENTRY_POINTS, make_policy, policies

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PACKAGE = EXAMPLES / "entry_point"


SCRIPTS = [script for script in sorted(EXAMPLES.glob("*.py")) if not script.name.startswith("train_")]
"""Those that train are run by the tests of the SDK."""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_script_runs(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert "fifo" in capsys.readouterr().out


@pytest.fixture
def installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The example package as an installer leaves it: its module, and the entry points in its metadata."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")
    for module in PACKAGE.glob("*.py"):
        (tmp_path / module.name).write_text(module.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    policies.cache_clear()
    yield "gpuwise_least_work"
    sys.modules.pop("gpuwise_least_work", None)
    policies.cache_clear()


def test_policy_of_another_package_is_found_by_name(installed_package: str) -> None:
    assert "least-work" in policies()
    assert installed_package not in sys.modules  # imported only when it is asked for
    assert make_policy("least-work").name == "least-work"


def test_policy_of_another_package_runs(installed_package: str) -> None:
    # Both jobs wait at 0 s for the only GPU: 10 GPU-seconds go before 100, so they end at 10 s and 110 s.
    jobs = [gpuwise.JobSpec(id="long", duration_s=100.0), gpuwise.JobSpec(id="short", duration_s=10.0)]
    result = gpuwise.simulate(jobs, "1x1:V100", "least-work")
    assert dict(result.to_frame().select("id", "finish_s").iter_rows()) == {"short": 10.0, "long": 110.0}


def test_without_the_package_there_is_no_such_policy() -> None:
    policies.cache_clear()
    assert ENTRY_POINTS == "gpuwise.policies"
    assert "least-work" not in policies()
