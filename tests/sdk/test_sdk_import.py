"""Importing the SDK is light: the standard library, and nothing of gpuwise but itself."""

from __future__ import annotations

import json
import subprocess
import sys

from controller_double import PROJECT

import gpuwise.sdk

IMPORTED = """
import json, sys
sys.path.insert(0, sys.argv[1])
from gpuwise import sdk
print(json.dumps(sorted(sys.modules)))
"""


def test_nothing_but_the_standard_library() -> None:
    # -I and -S: without site-packages there is nothing else that could be imported.
    command = [sys.executable, "-I", "-S", "-c", IMPORTED, str(PROJECT / "src")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    modules = json.loads(done.stdout)
    foreign = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"gpuwise", "__main__"}
    assert not foreign
    ours = {name for name in modules if name.startswith("gpuwise.") and not name.startswith("gpuwise.sdk")}
    assert ours == {"gpuwise.core", "gpuwise.predict"}  # docstrings, the version and no more
    assert "gpuwise.sdk.torch" not in modules


def test_public_names() -> None:
    assert set(gpuwise.sdk.__all__) == {"CheckpointError", "Job", "Leave", "attach", "torch"}
    assert all(hasattr(gpuwise.sdk, name) for name in gpuwise.sdk.__all__)
