"""What a job waits for, read from text."""

from __future__ import annotations

import pytest

from gpuwise.core.job.dependency import Dependency, Until


@pytest.mark.parametrize(
    ("text", "until", "name"),
    [
        ("17", Until.OK, "17"),
        ("afterok:17-3", Until.OK, "17-3"),
        ("afterany:17", Until.ANY, "17"),
        ("afternotok:prepare", Until.NOT_OK, "prepare"),
        ("prepare:all", Until.OK, "prepare:all"),
        ("afterany:prepare:all", Until.ANY, "prepare:all"),
        ("afterany", Until.OK, "afterany"),
    ],
)
def test_a_dependency_is_read_from_text(text: str, until: Until, name: str) -> None:
    assert Dependency.parse(text) == (until, name)
