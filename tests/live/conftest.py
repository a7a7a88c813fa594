"""What tests of the live system share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwise.core.records import Store
from gpuwise.store.sql import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of its own."""
    opened = open_store(tmp_path / "gpuwise.db")
    yield opened
    opened.close()
