"""Options that are grouped in dataclasses reach typer one by one, and the command as groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from gpuwise.cli.commands import with_options


@dataclass(frozen=True, slots=True)
class Size:
    width: Annotated[int, typer.Option(help="Required.")]
    height: Annotated[int, typer.Option("-y", "--height", min=1)] = 3


@dataclass(frozen=True, slots=True)
class Colour:
    name: Annotated[str | None, typer.Option()] = None


seen: list[Any] = []


def draw(
    what: Annotated[str, typer.Argument()], times: Annotated[int, typer.Option()] = 1, *, size: Size, colour: Colour
):
    """Draw something."""
    seen.append((what, times, size, colour))


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(with_options(draw))
    seen.clear()
    return made


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("house --width 4", ("house", 1, Size(4), Colour())),
        ("house --times 2 --width 4 -y 5 --name red", ("house", 2, Size(4, 5), Colour("red"))),
    ],
)
def test_fields_of_groups_are_options(app: typer.Typer, words: str, expected: tuple[Any, ...]) -> None:
    assert CliRunner().invoke(app, words.split()).exit_code == 0
    assert seen == [expected]


@pytest.mark.parametrize("words", ["house", "house --width 4 -y 0", "--width 4", "house --width 4 --size 5"])
def test_what_a_field_does_not_allow_is_refused(app: typer.Typer, words: str) -> None:
    assert CliRunner().invoke(app, words.split()).exit_code == 2
    assert seen == []


def test_help_is_that_of_the_command_and_its_fields(app: typer.Typer) -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "Draw something." in shown
    assert all(option in shown for option in ("--times", "--width", "-y", "--name", "Required."))
