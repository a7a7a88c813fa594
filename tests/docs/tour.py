"""Replays docs/tour.md: runs its commands in order, in one shell on a terminal, with a service of their own.

    python tests/docs/tour.py            # writes the output of this run to the page, where it differs
    python tests/docs/tour.py --check    # shows what differs, and fails if anything does: what the test does

The commands are the lines that begin with ``$`` in blocks marked ``console``, ``>`` continues one, and what follows is
their output. A comment before a block waits for a job, for up to a minute: ``<!-- 3 is running -->``.
"""

from __future__ import annotations

import argparse
import difflib
import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuwise.cli.client.http import connect
from gpuwise.cli.show.jobs import resolved
from gpuwise.service.live.up import JOBS_ARE_ROOT

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tour.md"
PATIENCE_S = 60.0
ROWS, COLUMNS = 50, 100
BLOCK = re.compile(r"^```console\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
CONDITION = re.compile(r"^<!-- (?P<job>\S+) is (?P<status>\w+) -->$", re.MULTILINE)
READY = "Ctrl-C ends it\n"
"""What a service prints last when it is up; a command in the background is one."""
SHELL = r"""
while IFS= read -r -d '' command <&3; do eval "$command"; printf '\036%s\036' $?; done
"""
STYLE = re.compile(r"\x1b\[[\d;]*m")
"""Colours and bold text, which the page does not have; any other control sequence is a difference."""
CURSOR = re.compile(r"\x1b\[\?25[lh]|\r")
ERASED = re.compile(r"[^\n]*\n\x1b\[1A\x1b\[2K|[^\n]*\x1b\[2K")
"""A progress bar, which is erased when it is done."""
EXIT_CODE = "(exit code {})"
USER, HOME, HOST = "ada", "/home/ada", "box"
"""How the user, the home directory and the machine are called on the page, where nobody is root."""

MASKS = [
    (re.compile(pattern), name)
    for pattern, name in (
        (r"http://127\.0\.0\.1:\d+", "URL"),
        (r"login=[\w-]+", "login=CODE"),
        (r"\bgw_[\w-]+|\b[\w-]{43}\b", "SECRET"),
        (r"\b[0-9a-f]{12}\b", "ID"),
        (r"\b\d{8}-\d{6}\b", "TIME"),
        (r"\b\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?\b|\b\d\d:\d\d:\d\d\b", "TIME"),
        (r"\bin (?:\d+ (?:s|min|h|d)|\d+[dh]\d+[hm])\b|\b(?:\d+ (?:s|min|h|d)|\d+d\d+h) ago\b", "WHEN"),
        (r"(?<=\()now(?=\))|(?<= {3})now\b", "WHEN"),
        (r"(?<=after )\d+ (?:s|min)\b|\b\d+(?:\.\d+s|m\d\ds)\b", "LENGTH"),
        (r"\b\d+(?:\.\d+)? [KMG]iB\b", "SIZE"),
        (r"\b0(?:\.\d+)?\s+(?:-|0(?:\.\d+)?)\s+(?:-|\d+\.\d)$", "HOURS"),
        (r"─+", "─"),
        (r"\s+", " "),
    )
]
"""What differs from run to run; the widths of columns do, too."""


@dataclass
class Step:
    """A command on the page, what the page shows after it, and what is waited for before it."""

    command: str
    shown: list[str]
    conditions: list[tuple[str, str]] = field(default_factory=list)

    def text(self, output: Sequence[str]) -> str:
        """The step as it is on the page, with an output."""
        first, *others = self.command.split("\n")
        lines = [f"$ {first}", *(f"> {line}" for line in others), *output]
        return "".join(f"{line}\n" for line in lines)


def steps_of(page: str) -> list[list[Step]]:
    """The steps of each block of a page."""
    blocks, at = [], 0
    for block in BLOCK.finditer(page):
        steps: list[Step] = []
        for line in block["text"].splitlines():
            if line.startswith("$ "):
                steps.append(Step(line[2:], []))
            elif line.startswith("> ") and not steps[-1].shown:
                steps[-1].command += "\n" + line[2:]
            else:
                steps[-1].shown.append(line)
        found = CONDITION.finditer(page, at, block.start())
        steps[0].conditions = [(condition["job"], condition["status"]) for condition in found]
        blocks.append(steps)
        at = block.end()
    return blocks


def masked(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, name in MASKS:
        line = pattern.sub(name, line)
    return line.strip()


def same(shown: Sequence[str], output: Sequence[str]) -> bool:
    """Whether two outputs differ in nothing but what differs from run to run."""
    return [masked(line) for line in shown] == [masked(line) for line in output]


class Terminal:
    """A shell whose input and output are a terminal, in a home directory of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        commands, self._commands = os.pipe()
        search = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        self._shell = subprocess.Popen(
            ["bash", "--norc", "-c", f"exec 3<&{commands} {commands}<&-; {SHELL}"], cwd=home, pass_fds=[commands],
            env={"PATH": search, "HOME": str(home), "USER": USER, "LOGNAME": USER, "LANG": "C.UTF-8", "TERM": "xterm"},
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)
        os.close(commands)
        self._rest = ""

    def run(self, command: str) -> list[str]:
        """What a command writes until it has ended; one in the background, until it is ready."""
        os.write(self._commands, command.encode() + b"\0")
        written, code = self._until(r"\x1e(\d+)\x1e")
        if command.endswith("&"):
            written += self._until(re.escape(READY))[0] + READY
        shown = STYLE.sub("", ERASED.sub("", CURSOR.sub("", written)))
        lines = [self._renamed(line.rstrip()) for line in shown.split("\n") if JOBS_ARE_ROOT not in line]
        while lines and not lines[-1]:
            lines.pop()
        return lines + ([EXIT_CODE.format(code)] if code != "0" else [])

    def _until(self, pattern: str) -> tuple[str, str]:
        """What is written before a text, and the text's group."""
        gives_up = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self._rest)):
            left_s = gives_up - time.monotonic()
            if left_s <= 0 or not select.select([self._ours], [], [], left_s)[0]:
                raise TimeoutError(f"not there after {PATIENCE_S:g} s: {pattern}; written was {self._rest!r}")
            self._rest += os.read(self._ours, 65536).decode(errors="replace").replace("\r\n", "\n")
        written, self._rest = self._rest[: found.start()], self._rest[found.end() :]
        return written, found[1] if found.groups() else ""

    def _renamed(self, line: str) -> str:
        """A line with the names that home and machine have on the page; columns stay where they are."""

        def aligned(found: re.Match[str]) -> str:
            longer = len(HOST) - len(socket.gethostname())
            return HOST + found[1] + " " * max(1, len(found[2]) - longer)

        name = re.escape(socket.gethostname())
        line = re.sub(rf"\b{name}(:[\d,-]+|\b)( {{2,}})", aligned, line.replace(str(self.home), HOME))
        return re.sub(rf"\b{name}\b", HOST, line)

    def await_status(self, job: str, status: str) -> None:
        """Waits until a job has a status."""
        gives_up = time.monotonic() + PATIENCE_S
        client = connect(state=self.home / ".local" / "state" / "gpuwise")
        (uid,) = resolved(client, [job])
        while (found := client.get("jobs", uid)["status"]) != status:
            if time.monotonic() > gives_up:
                raise TimeoutError(f"job {job} is {found} and not {status} after {PATIENCE_S:g} s")
            time.sleep(0.05)

    def close(self) -> None:
        """Ends everything that was started here, jobs too: it is recognised by its home directory."""
        while found := [pid for pid in _processes() if self._is_ours(pid)]:
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self._shell.poll()
        self._shell.wait()
        os.close(self._commands)
        os.close(self._ours)

    def _is_ours(self, pid: int) -> bool:
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        return f"HOME={self.home}".encode() in variables


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def replay(page: str) -> tuple[str, list[str]]:
    """The page with the output of this run, and what differs."""
    differences: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tour-") as folder:
        terminal = Terminal(Path(folder))
        try:
            texts = ["".join(_replay(terminal, step, differences) for step in steps) for steps in steps_of(page)]
        finally:
            terminal.close()
    fresh = iter(texts)
    return BLOCK.sub(lambda _: f"```console\n{next(fresh)}```", page), differences


def _replay(terminal: Terminal, step: Step, differences: list[str]) -> str:
    for job, status in step.conditions:
        terminal.await_status(job, status)
    output = terminal.run(step.command)
    print(step.text(output), end="", flush=True)
    if same(step.shown, output):
        return step.text(step.shown)
    differences += [f"$ {step.command}", *difflib.ndiff(step.shown, output)]
    return step.text(output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if anything differs")
    args = parser.parse_args()
    page, differences = replay(PAGE.read_text(encoding="utf-8"))
    print("\n".join(differences) or "nothing differs")
    if args.check:
        raise SystemExit(bool(differences))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
