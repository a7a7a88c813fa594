"""What people see: times, columns that fit, the picture of top, what a shell completes."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command import COMMAND
from live_scripted import TOKEN, job, reply, scripted
from rich.console import Console, RenderableType

from gpuwise.cli.client.errors import UnreachableError
from gpuwise.cli.live.queue import COLUMNS, DROP
from gpuwise.cli.live.top import bar, draw
from gpuwise.cli.options import complete_policies
from gpuwise.cli.show import watch
from gpuwise.cli.show.jobs import ENDED, LIVE, SOURCES, as_shown
from gpuwise.cli.show.tables import fitting, printable, table
from gpuwise.cli.show.times import local, moment, relative, span
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Source

NOW = 1.7e9


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.2, "now"), (1, "in 1 s"), (-89, "89 s ago"), (240, "in 4 min"), (-5399, "90 min ago"), (-7200, "2 h ago"),
        (35 * 3600, "in 35 h"), (-72 * 3600, "3 d ago"), (1e15, "in 11574074074 d"),
    ],
)  # fmt: skip
def test_moments_as_seen_from_now(seconds: float, expected: str) -> None:
    assert relative(NOW + seconds, NOW) == expected


def test_lengths_round_to_the_unit() -> None:
    assert [span(each) for each in (0, 89.4, 90, 5400, 129_600)] == ["0 s", "89 s", "2 min", "2 h", "2 d"]


def test_moments_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(local(NOW, NOW)) == len("12:34:56")
    assert len(local(NOW, NOW + 3 * 86400)) == len("2023-11-14 12:34:56")
    assert moment(NOW, NOW) == f"{local(NOW, NOW)} (now)"
    assert (local(None), relative(None), moment(None)) == ("", "", "")
    assert local(1e20, NOW) == "1e+20"


def loaded_by(*words: str) -> set[str]:
    """The modules that a command loads."""
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('LOADED', *sys.modules))\n"
        f"sys.argv = ['gpuwise', *{words!r}]\n"
        "from gpuwise.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run([COMMAND[0], "-c", program], capture_output=True, text=True, check=False)
    return set(done.stdout.rsplit("LOADED", 1)[1].split())


@pytest.mark.parametrize("words", [[], ["submit"], ["queues", "set"]], ids=str)
def test_help_needs_neither_network_nor_drawing(words: list[str]) -> None:
    loaded = loaded_by(*words, "--help")
    assert "gpuwise.cli.submit.command" in loaded
    assert not {"http.client", "ssl", "urllib3", "rich", "numpy", "gpuwise.core.job.table"} & loaded


@pytest.mark.parametrize("words", [["queue"], ["show", "1"], ["submit", "true"], ["wait", "1"]], ids=str)
def test_a_command_of_the_service_loads_none_of_its_parts(words: list[str]) -> None:
    loaded = loaded_by(*words, "--server", "http://127.0.0.1:1")
    assert "urllib3" in loaded
    assert not {"numpy", "gpuwise.engine.engine", "gpuwise.live.controller", "sqlalchemy", "fastapi"} & loaded


# -- tables ------------------------------------------------------------------------------------------------------------


def printed(what: RenderableType, width: int) -> list[str]:
    """What a terminal of a width shows."""
    file = io.StringIO()
    Console(width=width, file=file).print(what)
    return file.getvalue().splitlines()


def width_of(names: list[str], rows: list[dict[str, object]]) -> int:
    return max(len(line.rstrip()) for line in printed(table(rows, names), 400))


@pytest.mark.parametrize("terminal", [60, 70, 80, 100, 140])
def test_the_queue_fits_the_terminal(terminal: int) -> None:
    rows = [as_shown(job(f"1{n}-{n}", name="a-name-of-a-job-that-is-long-enough", started_at=NOW)) for n in range(5)]
    names = fitting(rows, COLUMNS, DROP, terminal)
    assert {"id", "name", "status"} <= set(names)
    assert width_of(names, rows) <= terminal or set(names) == set(COLUMNS) - set(DROP)
    if terminal == 140:
        assert set(names) == set(COLUMNS)


def test_columns_with_nothing_in_them_are_left_out() -> None:
    rows = [as_shown(job(loss=None, step=None))]
    assert "loss" not in fitting(rows, COLUMNS, DROP, 140)
    assert "progress_frac" not in fitting(rows, COLUMNS, DROP, 140)


def test_what_is_not_printable_is_spelt_out() -> None:
    assert printable("a\x1b[31m\nb ü €") == "a\\x1b[31m\\nb ü €"


def test_every_status_and_every_source_of_a_forecast_is_known() -> None:
    assert {*LIVE, *ENDED} == {status.name.lower() for status in Status if status is not Status.DECLARED}
    assert SOURCES.keys() == set(Source)


# -- top ---------------------------------------------------------------------------------------------------------------


def picture(terminal: int, **changes: object) -> list[str]:
    device = {
        "node": "box", "index": 0, "name": "V100", "lost": False, "util_frac": 0.5, "memory_used_bytes": 4 * 2**30,
        "memory_bytes": 16 * 2**30, "jobs": [{"id": "17", "name": "resnet", "frac": 0.5}], **changes,
    }  # fmt: skip
    return printed(draw([device], [job()], terminal), terminal)


@pytest.mark.parametrize("terminal", [80, 140])
def test_top_fits_the_terminal(terminal: int) -> None:
    lines = picture(terminal)
    assert max(map(len, lines)) <= terminal
    device = next(line for line in lines if "box:0" in line)
    assert ("V100" in device) is (terminal == 140)
    assert device.count("█") == {80: 4 + 2, 140: 10 + 5}[terminal]  # half of the use, a quarter of the memory
    assert "17 resnet (50 %)" in device
    progress = next(line for line in lines if "25 %" in line)
    assert progress.count("█") == {80: 2, 140: 5}[terminal]


def test_top_without_measurements() -> None:
    device = next(line for line in picture(80, util_frac=None, memory_used_bytes=None, jobs=[]) if "box:0" in line)
    assert device.split() == ["box:0", "-", "16", "GiB", "idle"]
    assert "lost" in "".join(picture(80, lost=True))


@pytest.mark.parametrize(("part", "full"), [(0.0, 0), (0.5, 5), (1.0, 10), (1.7, 10), (-1.0, 0)])
def test_bars(part: float, full: int) -> None:
    assert bar(part, 10, "green").plain.count("█") == full


def test_watching_goes_on_while_the_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    answers = iter(["first", "second", UnreachableError("gone"), "back", KeyboardInterrupt()])

    def fetch() -> str:
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def draw_and_note(seen: str) -> str:
        drawn.append(seen)
        return seen

    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with pytest.raises(KeyboardInterrupt):
        watch.watch(fetch, draw_and_note, 0.0)
    assert drawn == ["first", "second", "back"]


def test_watching_without_a_terminal_is_refused() -> None:
    with pytest.raises(GpuwiseError, match="needs a terminal"):
        watch.watch(lambda: "x", str, 0.0)


# -- completion --------------------------------------------------------------------------------------------------------


@pytest.fixture
def completed(tmp_path: Path) -> Callable[..., tuple[int, list[str], str]]:
    """What a shell is offered for an unfinished line."""

    def complete(line: str, url: str) -> tuple[int, list[str], str]:
        environment = {
            **os.environ, "GPUWISE_SERVER": url, "GPUWISE_API_TOKEN": TOKEN, "HOME": str(tmp_path),
            "_GPUWISE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1),
        }  # fmt: skip
        program = [COMMAND[0], "-c", "import sys; sys.argv = ['gpuwise']; from gpuwise.cli.main import main; main()"]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=30, check=False)
        return done.returncode, done.stdout.split(), done.stderr

    return complete


def test_ids_and_queues_are_completed(completed: Callable[..., tuple[int, list[str], str]]) -> None:
    with scripted(reply({"jobs": [job("17"), job("18"), job("9")]})) as server:
        assert completed("gpuwise cancel 1", server.url)[1] == ["17", "18"]
    with scripted(reply({"queues": [{"name": "vision"}, {"name": "text"}]})) as server:
        assert completed("gpuwise submit --queue v", server.url)[1] == ["vision"]


def test_policies_are_completed() -> None:
    offered = dict(complete_policies("srt"))
    assert offered.keys() == {"srtf"}
    assert offered["srtf"]


def test_without_a_server_nothing_is_completed_and_nothing_is_said(
    completed: Callable[..., tuple[int, list[str], str]],
) -> None:
    _, offered, complaint = completed("gpuwise cancel 1", "http://127.0.0.1:9")
    assert (offered, complaint) == ([], "")
