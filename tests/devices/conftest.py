import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of measurements made by others; tests that need it skip where it is absent."""
    named = os.environ.get("GPUWISE_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / ".." / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the folder of measured data (set GPUWISE_DATA)")
    return folder
