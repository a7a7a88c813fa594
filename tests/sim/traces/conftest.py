"""Small traces written for a test, in the layouts that others use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write lines to a file in a fresh folder and give its path."""

    def write_lines(name: str, *lines: str, end: str = "\n") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((end.join(lines) + end).encode())
        return path

    return write_lines
