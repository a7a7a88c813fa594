"""What all tests share: no time limits on examples, and where measured data and traces lie, if they are here at all."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

PROJECT = Path(__file__).resolve().parent.parent
LONG = (
    "test_kill.py",
    "test_soak.py",
    "test_machine.py",
    "test_live_end_to_end.py",
    "test_memory_need.py",
    "test_tour.py",
    "test_remote.py",
)
"""Files that take longest; a file is run by one worker."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the longest files, so that no worker is left with one when the others have ended."""
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of measured data: $GPUWISE_DATA, else ../shared/data; a test that needs it is skipped without."""
    named = os.environ.get("GPUWISE_DATA")
    folder = Path(named) if named else PROJECT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no measured data: {'$GPUWISE_DATA' if named else '../shared/data'} is not a folder")
    return folder
