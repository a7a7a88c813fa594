"""The tour of the command line shows what the commands print, and a page that does not is noticed."""

from __future__ import annotations

import re
from ctypes.util import find_library
from pathlib import Path

import pytest
import tour

PAGE = tour.PAGE.read_text(encoding="utf-8")


@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="the tour is of a machine without NVIDIA GPUs")
def test_the_tour_shows_what_its_commands_print() -> None:
    page, differences = tour.replay(PAGE)
    assert not differences, "\n".join(differences)
    assert page == PAGE


def block(*lines: str) -> str:
    return "\n".join(("Text.", "", "```console", *lines, "```", ""))


def test_a_page_is_written_with_what_commands_print() -> None:
    wrong = block("$ echo one; echo two >&2", "one", "$ false", "$ cat <<END", "> in $PWD", "> END", "an old line")
    right = block(
        "$ echo one; echo two >&2", "one", "two", "$ false", "(exit code 1)", "$ cat <<END", "> in $PWD", "> END",
        "in /home/ada",
    )  # fmt: skip
    page, differences = tour.replay(wrong)
    assert page == right
    assert differences
    assert tour.replay(right) == (right, [])


def test_commands_are_on_a_terminal_in_one_shell() -> None:
    page = block(
        "$ name=ada; stty size", "50 100", "$ test -t 0 && test -t 1 && test -t 2 && echo $name $HOME", "ada /home/ada"
    )
    assert tour.replay(page) == (page, [])


def test_control_sequences_are_differences_and_colours_are_not() -> None:
    page = block(r"$ printf '\033[1mbold\033[0m\n'", "bold")
    assert tour.replay(page)[1] == []
    assert tour.replay(page.replace("[1m", "[2J"))[1] != []


def test_nothing_that_was_started_is_left() -> None:
    page, _ = tour.replay(block("$ setsid sleep 1000 > /dev/null & echo started $!"))
    (pid,) = re.findall(r"started (\d+)", page)
    assert _command(pid) != ["setsid", "sleep", "1000"]
    assert _command(pid) != ["sleep", "1000"]


def _command(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")[:-1]
    except OSError:
        return []


TRAIN = " 6    train    ada    running      2   box:0,1  9 s ago     in 60 min"
PROBE = " 7    probe   ada    pending   1   in 60 min   in 2 h (guess)"
USAGE = " ada    default   2026-11-18     14       0.004            -               -"


@pytest.mark.parametrize(
    ("line", "another"),
    [
        (TRAIN, " 6  train  ada  running  2  box:0,1  2 min ago  in 59 min"),
        ("job 1 (where) succeeded after 0 s", "job 1 (where) succeeded after 12 s"),
        ("at http://127.0.0.1:80 since 20:44:16 (16 s ago)", "at http://127.0.0.1:37307 since 02:01:00 (now)"),
        (USAGE, " ada default 2027-01-01 14 0.02 - -"),
        (USAGE, " ada default 2027-01-01 14 0.1 0.02 98.5"),
        ("GPU time       41.8s", "GPU time       1m04s"),
    ],
)
def test_times_and_widths_may_differ(line: str, another: str) -> None:
    assert tour.same([line], [another])


@pytest.mark.parametrize(
    ("line", "another"),
    [
        ("job 7 (probe) is on hold", "job 7 (probe) is pending"),
        ("submitted job 7 (probe)", "submitted job 8 (probe)"),
        (PROBE, PROBE.removesuffix(" (guess)")),
        (PROBE, PROBE.replace("in 60 min", "")),
        (TRAIN, TRAIN.replace("  2  ", "  1  ")),
        (TRAIN, TRAIN.replace("box", "vm")),
        ("environment    API_KEY=***", "environment    API_KEY=abc123"),
        ("job 7 is pending: priority 9, time limit 2h00m", "job 7 is pending: priority 9, time limit 12h00m"),
        (USAGE, USAGE.replace("14", "15")),
        ("one line", "one line\nand another"),
    ],
)
def test_what_a_line_says_may_not_differ(line: str, another: str) -> None:
    assert not tour.same(line.split("\n"), another.split("\n"))
