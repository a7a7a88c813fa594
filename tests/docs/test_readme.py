"""The commands of the README work, and one that does not is noticed."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import readme

PAGE = readme.README.read_text(encoding="utf-8")


def block(*commands: str) -> str:
    return "\n".join(("```sh", *commands, "```"))


@pytest.mark.skipif(
    find_spec("torchvision") is None, reason="torchvision is not installed; the README predicts ResNet-50"
)
def test_commands_of_the_readme_work(tmp_path: Path) -> None:
    code, output = readme.run(PAGE, tmp_path, readme.Mode())
    assert code == 0, output
    assert "succeeded" in output


def test_readme_leads_to_a_first_job_in_five_commands() -> None:
    first = readme.BLOCK.search(PAGE)
    assert first is not None
    assert first["commands"].count("\n") == 5
    assert {"make run", "make test", "gpuwise up &"} <= set(readme.commands(PAGE))


def test_no_command_is_outside_of_the_blocks_that_are_run() -> None:
    others = re.findall(r"^```(?!sh$|python$)\w*\n(.*?)^```$", re.sub(readme.BLOCK, "", PAGE), re.MULTILINE | re.DOTALL)
    assert not [text for text in others if re.search(r"^\$? ?(?:gpuwise|make|python3?|pip|git) ", text, re.MULTILINE)]


@pytest.mark.parametrize(
    "wrong",
    [
        "gpuwise simulate gen:gavel --cluster 8x8:V100 --policy no-such-policy",
        "gpuwise no-such-verb && gpuwise --help",
        "make no-such-target",
        "gpuwise up --policy no-such-policy &",
        "gpuwise wait no-such-job",
    ],
)
def test_a_command_that_fails_fails_the_run(wrong: str, tmp_path: Path) -> None:
    code, output = readme.run(block(wrong, "echo not reached"), tmp_path, readme.Mode())
    assert code != 0
    assert "no-such" in output
    assert "$ echo not reached" not in output


def test_comments_are_left_out_and_lines_joined() -> None:
    page = block("gpuwise queue      # who waits", "gpuwise simulate TRACE \\", "    --policy fifo", "", "# a remark")
    assert readme.commands(page) == ["gpuwise queue", "gpuwise simulate TRACE      --policy fifo"]
