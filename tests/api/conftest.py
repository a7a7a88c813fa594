"""One service for all tests of the API that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwise.api.access.authentication import Rates
from gpuwise.api.access.limits import Rate
from gpuwise.api.app import ApiSettings
from running import Running


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    many = Rate(per_s=1000.0, burst=100_000.0)
    service = Running(tmp_path_factory.mktemp("service"), ApiSettings(rates=Rates(requests=many, failures=many)))
    yield service
    service.close()


@pytest.fixture
def own_running(tmp_path: Path) -> Iterator[Running]:
    """A service of a test's own, to be harmed."""
    service = Running(tmp_path / "state")
    yield service
    service.close()
