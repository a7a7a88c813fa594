"""Where the measurements and traces of others are."""

from __future__ import annotations

import os
from pathlib import Path

from gpuwise.core.errors import GpuwiseError


def data_dir() -> Path:
    """The folder of measured data: ``GPUWISE_DATA``, else ``../shared/data`` beside the project."""
    given = os.environ.get("GPUWISE_DATA")
    beside = (Path.cwd().parent, Path(__file__).resolve().parents[5])
    candidates = [Path(given)] if given else [root / "shared" / "data" for root in beside]
    for path in candidates:
        if path.is_dir():
            return path
    raise GpuwiseError(f"no measured data at {candidates[0]}; set GPUWISE_DATA to the folder that holds it")
