"""Folders of attempts, and steps as jobs and the engine count them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import mig, on
from gpuwise.core.job.needs import Sharing
from gpuwise.engine.journal import plain
from gpuwise.live.local.attempts.endings import last_line
from gpuwise.live.local.attempts.folders import (
    Attempt,
    AttemptState,
    Exit,
    Folders,
    attempt_token,
    finite,
)
from gpuwise.live.local.attempts.runs import Run
from gpuwise.live.local.supervisor.files import read_json, write_json


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    folders = Folders(tmp_path / "state")
    found = folders.attempt("17-3", 2)
    folders.make(found)
    return found


def test_tokens_differ_by_job_attempt_and_secret() -> None:
    tokens = [attempt_token(secret, uid, n) for secret in (b"a", b"b") for uid in ("1", "11") for n in (1, 11)]
    assert len(set(tokens)) == 8
    assert all(len(token) == 32 and int(token, 16) >= 0 for token in tokens)
    assert attempt_token(b"a", "1", 1) == attempt_token(b"a", "1", 1)


def test_an_attempt_that_nobody_has_claimed(attempt: Attempt) -> None:
    assert attempt.state() is AttemptState.ABSENT
    (attempt.folder / "claim").touch()
    assert attempt.state() is AttemptState.LOST
    (attempt.folder / "exit.json").touch()
    assert attempt.state() is AttemptState.LOST  # it says nothing
    assert attempt.exit() == Exit()
    (attempt.folder / "exit.json").write_text('{"code": 3}')
    assert attempt.state() is AttemptState.ENDED
    assert attempt.exit() == Exit(code=3)


def test_live_attempts_are_listed_until_they_are_closed(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    made = [folders.attempt(uid, number) for uid, number in (("1", 1), ("17-3", 12))]
    for each in made:
        folders.make(each)
    for name in ("x", ".5", "7.", "7.x", ".hidden.3"):
        (tmp_path / "live" / name).touch()
    assert list(folders.live()) == made
    folders.close(made[0])
    folders.close(made[0])
    assert list(folders.live()) == made[1:]


@pytest.mark.parametrize("uid", ["", "../x", "a/b", ".hidden"])
def test_a_name_that_is_no_folder(tmp_path: Path, uid: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a folder"):
        Folders(tmp_path).attempt(uid, 1)


def test_orders_and_requests_are_numbered(attempt: Attempt) -> None:
    assert [
        attempt.order("park"),
        attempt.order("stop", why="late", final=True),
        attempt.order("run", **{"as": 3}),
    ] == [1, 2, 3]
    assert attempt.read("orders") == {"seq": 3, "want": "run", "why": "", "final": False, "as": 3}
    attempt.ask("leave")
    attempt.ask("run")
    assert attempt.read("control") == {"seq": 2, "want": "run"}


def test_leaving_as_asked_takes_what_was_saved_and_the_number(attempt: Attempt) -> None:
    saved = attempt.folder / "job" / "saved.json"
    assert not attempt.left_as_asked()
    write_json(saved, {"seq": 1, "step": 5})
    assert not attempt.left_as_asked()  # it was never asked
    attempt.ask("leave")
    assert attempt.left_as_asked()
    write_json(saved, {"seq": 2, "step": 5})
    assert not attempt.left_as_asked()


def test_where_an_attempt_is(attempt: Attempt) -> None:
    assert attempt.place() == (2, on())
    half = on((0, 1), sharing=Sharing.SHARED, milli=500)
    attempt.write("launch", {"placement": plain(half)})
    assert attempt.place() == (2, half)
    attempt.order("run", **{"as": 3, "placement": plain(mig(0, 0, 4))})
    assert attempt.place() == (3, mig(0, 0, 4))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = (
    "seq",
    "want",
    "as",
    "placement",
    "code",
    "signal",
    "trouble",
    "asked",
    "at",
    "pids",
    "grace_s",
    "time_limit_s",
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(NAMES), ANYTHING))
def test_no_content_of_a_file_raises(tmp_path_factory: pytest.TempPathFactory, content: dict[str, object]) -> None:
    attempt = Attempt("1", 1, tmp_path_factory.getbasetemp())
    for name in ("launch", "orders", "control", "saved", "started", "exit", "sdk"):
        attempt.write(name, content)
    run = Run.of(attempt)
    run.actual()
    assert all(type(pid) is int for pid in run.pids())
    assert isinstance(run.placement.devices(), list)
    ended = attempt.exit()
    assert ended.code is None or 0 <= ended.code <= 255


def test_numbers_that_are_none() -> None:
    for value in (True, "1", None, float("nan"), float("inf"), 10**400, [1]):
        assert finite({"x": value}, "x", -1.0) == -1.0
    assert finite({"x": 3}, "x") == 3.0


def test_deeply_nested_garbage(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" * 100_000)
    assert read_json(tmp_path / "x.json") == {}


def test_what_a_checkpoint_keeps(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders.checkpoint("1").mkdir(parents=True)
    latest = folders.checkpoint("1") / "latest.json"
    assert folders.saved_steps("1") == (0.0, None)
    latest.write_text(json.dumps({"file": "step-5", "step": 5, "steps": 10}))
    assert folders.saved_steps("1") == (0.0, None)  # it names what is not there
    (folders.checkpoint("1") / "step-5").touch()
    assert folders.saved_steps("1") == (5.0, 10.0)
    latest.write_text("garbage")
    assert folders.saved_steps("1") == (0.0, None)


def test_the_last_thing_that_was_printed() -> None:
    assert last_line(b"") == ""
    assert last_line(b"one\ntwo\n\n  \n") == "two"
    assert last_line(b"\x1b[31mred\xff\0\n") == "[31mred\ufffd"
    assert last_line(b"x" * 500) == "x" * 200


def test_an_attempt_of_the_version_before_has_its_job_s_files_beside_its_own(attempt: Attempt) -> None:
    (attempt.folder / "job" / "control.json").unlink()
    (attempt.folder / "job").rmdir()
    attempt.write("sdk", {"can_suspend": True, "can_pause": True})
    attempt.write("paused", {"seq": 1})
    attempt.ask("leave")
    assert (attempt.can_suspend, attempt.can_pause, attempt.is_paused(1)) == (True, True, True)
    attempt.write("saved", {"seq": 1, "step": 5})
    assert attempt.left_as_asked()
    assert attempt.read("control") == {"seq": 1, "want": "leave"}


def test_a_job_reads_what_it_is_asked_in_its_own_folder(attempt: Attempt) -> None:
    attempt.ask("pause")
    assert json.loads((attempt.folder / "job" / "control.json").read_text()) == {"seq": 1, "want": "pause"}
