"""What jobs print reaches a terminal without control sequences, but for colours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_up import Up, until

from gpuwise.cli.client.http import connect
from gpuwise.cli.show.terminal import TerminalFilter

ESC, ST, BEL = "\x1b", "\x1b\\", "\x07"
CLIPBOARD = f"{ESC}]52;c;ZWNobyBoaQ=={BEL}"
COLOURS = f"{ESC}[1;31mred{ESC}[m {ESC}[38:5:208morange{ESC}[0m"
TITLE = f"{ESC}]0;title{ST}"


def cleaned(*pieces: str | bytes) -> str:
    terminal = TerminalFilter()
    return b"".join(terminal.clean(each.encode() if isinstance(each, str) else each) for each in pieces).decode()


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("plain\ttext\r\n", "plain\ttext\r\n"),
        ("10 %\r20 %\r", "10 %\r20 %\r"),
        ("12\b3", "12\b3"),
        (
            f"{ESC}[1;31mred{ESC}[m {ESC}[38:5:208morange{ESC}[0m",
            f"{ESC}[1;31mred{ESC}[m {ESC}[38:5:208morange{ESC}[0m",
        ),
        (f"a{CLIPBOARD}b{TITLE}c", "abc"),
        (f"a{ESC}Pq#0;2{ST}b{ESC}_Gi=1;AAAA{ST}c{ESC}^private{ST}d{ESC}Xsos{ST}e", "abcde"),  # DCS, APC, PM, SOS
        ("a\x9d0;title\x9cb\x90dcs\x9cc\x9b2Jd", "abcd"),  # the same with C1 controls
        (f"a{ESC}]8;;http://evil.example{ST}link{ESC}]8;;{ST}b", "alinkb"),
        (f"a{ESC}[2J{ESC}[1;1H{ESC}[6n{ESC}[?1049h{ESC}[>4;2m{ESC}[5ib", "ab"),
        (f"a{ESC}c{ESC}(0{ESC}=b{ESC}#8c", "abc"),
        ("a\x00\x05\x07\x0e\x0f\x7f\x85b", "ab"),
        (f"a{ESC}]0;no end\nnext line\n", "a\nnext line\n"),
        (f"a{ESC}]0;no end{ESC}[31mred", f"a{ESC}[31mred"),
        (f"a{ESC}]0;cancelled\x18b", "ab"),
        (f"a{ESC}[12\nb", "a12\nb"),
        (f"a{ESC}{ESC}]0;x{BEL}b", "ab"),
        (f"a{ESC}[{ESC}[2Jb", "ab"),
        (f"a{ESC}[31", "a"),
        (f"a{ESC}]0;no end", "a"),
        (f"{ESC}[" + "1;" * 500 + "m", "1;" * 500 + "m"),
        ("grüße, 日本, 🎉", "grüße, 日本, 🎉"),
    ],
)
def test_what_stays_and_what_goes(printed: str, shown: str) -> None:
    assert cleaned(printed) == shown
    assert cleaned(*printed) == cleaned(*(printed[at : at + 2] for at in range(0, len(printed), 2)))


def test_a_sequence_may_be_split_over_pieces() -> None:
    assert cleaned("a\x1b", "]0;tit", "le\x1b", "\\b", "\x1b[", "31", "mred") == "ab\x1b[31mred"
    assert cleaned("a\x1b]0;ti", "tle", "\x07b") == "ab"
    assert cleaned("é".encode()[:1], "é".encode()[1:], b"\xc2", b"\x9d0;x\x07!") == "é!"


PARTS = st.sampled_from(
    [ESC, ST, BEL, "[", "]", "P", "m", "31;1", "\n", "\r", "a", "é", "\x9b", "\x9d", "\x9c", "\x18"]
)


@given(st.lists(PARTS, max_size=30), st.lists(st.integers(0, 60), max_size=5))
def test_nothing_dangerous_gets_through_however_it_is_split(parts: list[str], cuts: list[int]) -> None:
    data = "".join(parts).encode()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    shown = cleaned(*(data[begin:end] for begin, end in pairwise(places)))
    left = re.sub(r"\x1b\[[0-9;:]*m", "", shown)
    assert not re.search(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]", left)
    assert shown == cleaned(data)
    assert shown.count("\n") == "".join(parts).count("\n")  # no line is hidden


# -- with a real service -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    service = Up(tmp_path_factory.mktemp("up"))
    yield service
    service.stop()


def test_a_terminal_is_not_written_to_by_jobs(up: Up) -> None:
    hostile = f"begin {CLIPBOARD}{TITLE}middle\x9d0;c1\x9c{ESC}[2J{ESC}[31m\x9b2J end\n"
    body = {"command": ["sh", "-c", 'printf "%s" "$0"; exit 3', hostile]}  # without a name: that is its command
    uid = connect(state=up.state).post("jobs", body=body)["jobs"][0]["id"]
    until(lambda: up.status(uid) == "failed", "the job to end")
    body = {"command": ["sh", "-c", "sleep 60", hostile]}
    running = connect(state=up.state).post("jobs", body=body)["jobs"][0]["id"]
    until(lambda: up.runs(running), "the other job to run")
    assert up.right("logs", uid) == hostile  # a pipe gets the bytes as they are
    for verb in (("logs", uid), ("logs", "-f", uid), ("logs", "--tail", "1", uid)):
        assert up.on_terminal(*verb, colours_only=True) == (0, "begin middle end\n")
    verbs = (
        f"show {uid}", f"show {running}", f"show {uid} -o csv", "queue -a", "queue -a -o wide", "queue -a -o csv",
        f"why {uid}", f"why {running}", f"why {running} -o csv", "top --once", "events --after 0", "events -o csv",
        "audit", f"suspend {running}", f"resume {running}", f"update {running} --priority 2", f"wait {uid}",
        f"requeue {uid}", f"cancel {running}",
    )  # fmt: skip
    for verb in verbs:
        _, text = up.on_terminal(*verb.split(), width=250, colours_only=True)
        assert text
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text.replace("\r", "")), verb


@pytest.mark.parametrize(
    "words", [("backup", "{}/x"), ("backup", "x", "--state", "{}"), ("convert", "{}", "x.csv"), ("show", "{}")]
)
def test_names_in_errors_are_no_commands_for_the_terminal(up: Up, words: tuple[str, ...]) -> None:
    hostile = f"{up.home}/no{TITLE}\x9d0;c1\x9c"
    answer = up.run(*(word.format(hostile) for word in words))
    assert answer.code == 2
    assert "\\x1b]0;title" in answer.err
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", answer.err)


def test_the_top_of_jobs_whose_commands_look_like_markup(up: Up) -> None:
    body = {"command": ["sh", "-c", "[/]||sleep 60"]}  # without a name, which gpuwise submit gives it
    uid = connect(state=up.state).post("jobs", body=body)["jobs"][0]["id"]
    until(lambda: up.runs(uid), "the job to run")
    _, text = up.on_terminal("top", width=200, leave_after="||sleep")
    up.right("cancel", uid)
    assert "[/]||sleep" in text
