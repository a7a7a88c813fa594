"""Tests of the SDK know no controller but their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from controller_double import ControllerDouble, clean_environment


@pytest.fixture(autouse=True)
def no_controller_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerDouble]:
    with ControllerDouble(tmp_path / "state") as double:
        yield double
