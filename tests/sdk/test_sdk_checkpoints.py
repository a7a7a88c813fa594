"""The folder of checkpoints: each complete or not there, the one before kept, damaged ones passed over."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from controller_double import clean_environment

from gpuwise import sdk
from gpuwise.sdk.checkpoints import Checkpoints


def writes(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A folder with checkpoints of step 10 and step 20."""
    for step in (10, 20):
        Checkpoints(tmp_path).save(writes(f"state of {step}"), step, 100)
    return tmp_path


def newest(folder: Path) -> tuple[int, str]:
    found = Checkpoints(folder).newest()
    assert found is not None
    return found.step, found.state.read_text()


def test_newest_is_found(two: Path) -> None:
    assert newest(two) == (20, "state of 20")
    assert names(two) == ["000001-step-10", "000002-step-20", "latest.json"]
    assert json.loads((two / "latest.json").read_text()) == {"file": "000002-step-20", "step": 20, "steps": 100}


def test_no_folder_is_no_checkpoint(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").newest() is None
    assert not (tmp_path / "none").exists()


def flip_a_byte(checkpoint: Path) -> None:
    content = bytearray((checkpoint / "state").read_bytes())
    content[3] ^= 1
    (checkpoint / "state").write_bytes(content)


def cut_off_the_end(checkpoint: Path) -> None:
    (checkpoint / "state").write_bytes((checkpoint / "state").read_bytes()[:-1])


def delete_the_state(checkpoint: Path) -> None:
    (checkpoint / "state").unlink()


def delete_the_manifest(checkpoint: Path) -> None:
    (checkpoint / "manifest.json").unlink()


def cut_the_manifest(checkpoint: Path) -> None:
    (checkpoint / "manifest.json").write_text('{"step": 20, "fi')


def empty_the_manifest(checkpoint: Path) -> None:
    (checkpoint / "manifest.json").write_text("")


DAMAGES = [
    flip_a_byte, cut_off_the_end, delete_the_state, delete_the_manifest, cut_the_manifest, empty_the_manifest
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_passed_over_and_told(two: Path, damage: Callable[[Path], None], caplog) -> None:
    damage(two / "000002-step-20")
    loaded: list[str] = []
    job = sdk.attach(save=writes("new"), load=lambda path: loaded.append(path.read_text()), checkpoint_dir=two)
    assert (job.step, loaded) == (10, ["state of 10"])
    assert "000002-step-20" in caplog.text


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_one_that_was_resumed_from_outlives_the_damaged_one(two: Path, damage: Callable[[Path], None]) -> None:
    damage(two / "000002-step-20")
    checkpoints = Checkpoints(two)
    checkpoints.newest()
    checkpoints.save(writes("state of 15"), 15, 100)
    assert names(two) == ["000001-step-10", "000003-step-15", "latest.json"]


@pytest.mark.parametrize("torn", ["", "{", '{"file": "no such", "step": 7}'])
def test_latest_json_may_be_torn(two: Path, torn: str) -> None:
    (two / "latest.json").write_text(torn)
    assert newest(two) == (20, "state of 20")


def test_nothing_intact_is_an_error_and_not_a_new_beginning(two: Path) -> None:
    for checkpoint in ("000001-step-10", "000002-step-20"):
        flip_a_byte(two / checkpoint)
    with pytest.raises(sdk.CheckpointError, match=r"none of the checkpoints in .* is intact.*move them away"):
        sdk.attach(save=writes("x"), load=lambda path: None, checkpoint_dir=two)


def test_a_load_that_fails_is_the_scripts_own_error(two: Path) -> None:
    def load(path: Path) -> None:
        raise KeyError("layer3.weight")

    with pytest.raises(KeyError, match="layer3"):
        sdk.attach(save=writes("x"), load=load, checkpoint_dir=two)


def test_a_save_that_fails_leaves_the_folder_as_it_was(two: Path) -> None:
    def fails(path: Path) -> None:
        path.write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Checkpoints(two).save(fails, 30, 100)
    assert names(two) == ["000001-step-10", "000002-step-20", "latest.json"]
    assert newest(two)[0] == 20


def test_a_save_that_writes_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(sdk.CheckpointError, match="wrote nothing"):
        Checkpoints(tmp_path).save(lambda path: None, 1, None)
    assert names(tmp_path) == []


def test_the_path_of_a_save_is_new_and_in_the_folder(tmp_path: Path) -> None:
    seen: list[tuple[bool, bool]] = []

    def save(path: Path) -> None:
        seen.append((path.exists(), tmp_path in path.parents))
        path.write_text("x")

    for step in (1, 2):
        Checkpoints(tmp_path).save(save, step, None)
    assert seen == [(False, True), (False, True)]


def test_one_that_is_being_saved_is_not_there_yet(tmp_path: Path) -> None:
    found = []

    def save(path: Path) -> None:
        path.write_text("x")
        found.append(Checkpoints(tmp_path).newest())

    Checkpoints(tmp_path).save(save, 1, None)
    assert found == [None]


def test_a_folder_can_be_saved(tmp_path: Path) -> None:
    def save(path: Path) -> None:
        (path / "deep").mkdir(parents=True)
        (path / "deep" / "weights").write_text("w")
        (path / "config").write_text("c")

    Checkpoints(tmp_path).save(save, 1, None)
    found = Checkpoints(tmp_path).newest()
    assert found is not None
    assert (found.state / "deep" / "weights").read_text() == "w"
    (found.state / "deep" / "weights").write_text("v")
    with pytest.raises(sdk.CheckpointError):
        Checkpoints(tmp_path).newest()


def test_load_gets_the_path_with_the_ending_that_save_added(tmp_path: Path) -> None:
    Checkpoints(tmp_path).save(lambda path: path.with_suffix(".npz").write_text("x"), 1, None)
    found = Checkpoints(tmp_path).newest()
    assert found is not None
    assert found.state.name == "state.npz"


def test_many_files(tmp_path: Path) -> None:
    def save(path: Path) -> None:
        path.mkdir()
        for number in range(500):
            (path / f"a-rather-long-name-of-a-shard-{number}").touch()

    Checkpoints(tmp_path).save(save, 1, None)
    assert Checkpoints(tmp_path).newest() is not None


def test_the_same_step_can_be_saved_again(two: Path) -> None:
    Checkpoints(two).save(writes("state of 20, again"), 20, 100)
    assert newest(two) == (20, "state of 20, again")


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_so_many_are_kept(tmp_path: Path, keep: int) -> None:
    for step in range(6):
        Checkpoints(tmp_path, keep).save(writes("x"), step, None)
    assert names(tmp_path) == [f"{step + 1:06d}-step-{step}" for step in range(6 - keep, 6)] + ["latest.json"]


def test_what_was_left_unfinished_is_removed_and_what_is_not_ours_is_not(two: Path) -> None:
    (two / ".000003-step-30").mkdir()
    (two / ".000003-step-30" / "state").write_text("half")
    (two / "notes.txt").write_text("mine")
    (two / ".hidden").mkdir()
    Checkpoints(two).save(writes("x"), 30, None)
    assert names(two) == [".hidden", "000002-step-20", "000003-step-30", "latest.json", "notes.txt"]


SAVES_FOR_EVER = """
import sys
from pathlib import Path
from gpuwise.sdk.checkpoints import Checkpoints

checkpoints = Checkpoints(Path(sys.argv[1]))
found = checkpoints.newest()
step = found.step if found else 0
while True:
    step += 1
    checkpoints.save(lambda path: path.write_text(str(step) * 10_000), step, None)
    print(step, flush=True)
"""


def test_killed_at_any_moment_the_last_checkpoint_that_was_complete_is_there(tmp_path: Path) -> None:
    rng = random.Random(7)
    for _ in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVES_FOR_EVER, tmp_path], env=clean_environment(), stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        said = process.communicate()[0].split()
        step, text = newest(tmp_path)
        assert text == str(step) * 10_000
        assert step >= (int(said[-1]) if said else 1)
