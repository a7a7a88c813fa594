"""The page about the command line and the command line itself agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from gpuwise.cli.client.errors import EXIT_CODES
from gpuwise.cli.main import add_live_commands, app
from gpuwise.cli.submit.fields import FIELDS
from gpuwise.cli.submit.job_file import read_jobfile

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def commands() -> dict[str, typer.core.TyperCommand]:
    """The verbs by their names, those of groups with the group's."""
    live = typer.Typer()
    add_live_commands(live)
    found = {}
    for name, command in typer.main.get_group(live).commands.items():
        below = getattr(command, "commands", {})
        found |= {f"{name} {each}": below[each] for each in below} or {name: command}
    return found


def test_every_verb_is_on_the_page(commands: dict[str, typer.core.TyperCommand]) -> None:
    verbs = {name.partition(" ")[0] for name in commands}
    assert len(verbs) == 24
    assert not [verb for verb in verbs if f"`{verb}" not in PAGE]


def test_every_option_of_submit_is_on_the_page(commands: dict[str, typer.core.TyperCommand]) -> None:
    options = {option for each in commands["submit"].params for option in each.opts if option.startswith("--")}
    assert not [each for each in options - {"--server", "--state", "--output"} if f"`{each}" not in PAGE]


def test_every_key_of_a_file_is_on_the_page_and_is_an_option(commands: dict[str, typer.core.TyperCommand]) -> None:
    options = {option for each in commands["submit"].params for option in each.opts}
    assert not [key for key in FIELDS if not re.search(rf"`\[?{key}\]?`", PAGE)]
    assert not [key for key in FIELDS.keys() - {"command"} if "--" + key.replace("_", "-") not in options]


def test_every_verb_has_a_server_and_a_state_folder(commands: dict[str, typer.core.TyperCommand]) -> None:
    for name, command in commands.items():
        assert {"--server", "--state"} <= {option for each in command.params for option in each.opts}, name
        assert command.epilog == EXIT_CODES


def test_first_sentences_of_help_are_whole_in_the_list_of_commands(
    commands: dict[str, typer.core.TyperCommand],
) -> None:
    every = {**commands, **typer.main.get_group(app).commands}
    assert not [name for name, command in every.items() if command.get_short_help_str(63).endswith("...")]


def test_exit_codes_are_on_the_page() -> None:
    told = set(re.findall(r"\b(\d+) ", EXIT_CODES))
    assert told == set(re.findall(r"^\| (\d+) \|", PAGE, flags=re.MULTILINE)) == {"0", "1", "2", "3", "4", "5", "130"}


def test_job_files_on_the_page_are_right(tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    for text, jobs in zip(blocks, (1, 2, 1), strict=True):
        (tmp_path / "job.toml").write_text(text)
        assert len([draft.body() for draft in read_jobfile(tmp_path / "job.toml")]) == jobs
