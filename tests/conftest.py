"""What all tests share: no time limits on examples, and where measured data and traces lie, if they are here at all."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of measured data: $GPUWISE_DATA, else ../shared/data; a test that needs it is skipped without."""
    named = os.environ.get("GPUWISE_DATA")
    folder = Path(named) if named else PROJECT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no measured data: {'$GPUWISE_DATA' if named else '../shared/data'} is not a folder")
    return folder
