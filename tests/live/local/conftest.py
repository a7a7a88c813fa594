"""A bench for each test, cleared afterwards of whatever the test left running."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import Bench, clear


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(devices: int = 4, folder: str = "state", **options: Any) -> Bench:
        made.append(Bench(tmp_path / folder, devices, **options))
        return made[-1]

    yield make
    for each in made:
        clear(each)


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()
