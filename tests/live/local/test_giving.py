"""Folders that are given to another account: all of the account before, and nothing that only looks like it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwise.live.local.supervisor.account import DEEPEST, give

BEFORE, AFTER, OTHER = 61_001, 61_002, 61_003
"""Numbers of users that need not be there."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of the account before."""
    (made := tmp_path / "work").mkdir()
    os.chown(made, BEFORE, BEFORE)
    return made


def owned(path: Path, by: int) -> Path:
    """A file with an owner."""
    path.touch()
    os.chown(path, by, by)
    return path


def owner(path: Path) -> int:
    return path.lstat().st_uid


def test_files_and_folders_of_the_account_before_are_given(folder: Path) -> None:
    (inner := folder / "inner").mkdir(mode=0o700)
    os.chown(inner, BEFORE, BEFORE)
    found = [owned(folder / "file", BEFORE), owned(inner / "file", BEFORE), inner, folder]
    give(str(folder), AFTER, AFTER)
    assert [(path.stat().st_uid, path.stat().st_gid) for path in found] == [(AFTER, AFTER)] * 4


def test_nothing_else_is(folder: Path, tmp_path: Path) -> None:
    secret, outside = owned(tmp_path / "secret", 0), tmp_path / "outside"
    outside.mkdir()
    inside = owned(outside / "file", BEFORE)
    (folder / "to-secret").symlink_to(secret)
    (folder / "to-folder").symlink_to(outside)
    os.link(secret, folder / "second-name")
    os.link(twice := owned(tmp_path / "twice", BEFORE), folder / "twice")
    other = owned(folder / "other", OTHER)
    os.mkfifo(folder / "pipe")
    os.chown(folder / "pipe", BEFORE, BEFORE)
    give(str(folder), AFTER, AFTER)
    assert [owner(path) for path in (secret, outside, inside, twice, other)] == [0, 0, BEFORE, BEFORE, OTHER]
    assert owner(folder) == AFTER


def test_one_that_is_the_account_s_already_is_left_as_it_is(folder: Path) -> None:
    inner = owned(folder / "file", BEFORE)
    os.chown(folder, AFTER, AFTER)
    give(str(folder), AFTER, AFTER)
    assert owner(inner) == BEFORE


def test_a_link_in_the_place_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(OSError, match="link"):
        give(str(tmp_path / "link"), AFTER, AFTER)
    assert owner(folder) == BEFORE


def test_folders_without_end_are_refused_and_can_be_given_later(folder: Path) -> None:
    deepest = folder
    for _ in range(DEEPEST + 1):
        deepest = deepest / "d"
        deepest.mkdir()
        os.chown(deepest, BEFORE, BEFORE)
    with pytest.raises(OSError, match="too many folders"):
        give(str(folder), AFTER, AFTER)
    assert owner(folder) == BEFORE
    deepest.rmdir()
    give(str(folder), AFTER, AFTER)
    assert owner(folder) == AFTER
