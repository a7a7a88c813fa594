"""Runs the commands of the README, in its order and in one shell.

    python tests/docs/readme.py            # here, with the installed gpuwise: what the tests do
    python tests/docs/readme.py --fresh    # as a newcomer: a fresh clone, a fresh virtual environment, an empty home
    python tests/docs/readme.py --fresh --slow    # `make test` too, which is only looked up otherwise

The commands are the blocks marked ``sh``. A command that fails ends the run with its exit code.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
README = PROJECT / "README.md"
BLOCK = re.compile(r"^```sh\n(?P<commands>.*?)^```$", flags=re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"(?:^|\s+)# .*$")
INSTALLS = re.compile(r"git clone |python3 -m venv |pip install ")
SLOW = ("make test",)
READY = {"gpuwise up": "gpuwise is up", "make run": "page: http"}
"""Commands that run until they are stopped, and what they print when they are ready."""
DONE = READY | {"make run": "All jobs have ended"}
"""What a newcomer waits for."""
TIMEOUT_S = {False: 300, True: 7200}
"""For all commands: here, and with everything installed first."""

SHELL = """
set -euo pipefail
trap 'running=$(jobs -pr); if [ "$running" ]; then kill $running; wait; fi' EXIT
ready() {  # FILE TEXT: waits until the last command in the background has written the text to the file
    for _ in $(seq 1800); do
        grep -q "$2" "$1" && return
        kill -0 $! 2>/dev/null || break
        sleep 0.1
    done
    cat "$1"
    echo "did not print: $2"
    return 1
}
"""
MAKE = """#!/bin/sh
exec {make} -o .venv/.installed -o .venv/.installed-dev BIN={bin} "$@"
"""
"""A make that installs nothing."""


@dataclass(frozen=True)
class Mode:
    """How the commands are run: with the gpuwise that is installed, or as a newcomer; with slow ones, or without."""

    fresh: bool = False
    slow: bool = False

    def lines(self, command: str) -> list[str]:
        """What the shell does for a command."""
        if not self.fresh and INSTALLS.search(command):
            return []
        shown = f"echo {shlex.quote('$ ' + command)}"
        if command in SLOW and not self.slow:
            command = command.replace("make ", "make --dry-run ")
        background = command.endswith(" &")
        command = command.removesuffix(" &")
        texts = DONE if self.fresh else READY
        if text := next((texts[each] for each in texts if command.startswith(each)), None):
            log, text = shlex.quote(f"{command}.log"), shlex.quote(text)
            start = f"{self.on_free_port(command)} >{log} 2>&1 &"
            stop = [] if background else ["kill $!", "wait $! || true"]
            return [shown, start, f"ready {log} {text}", *stop]
        lines = [shown, f"{{ {command.replace('REPOSITORY', str(PROJECT))}; }} || exit $?"]
        return [*lines, command.replace("kill", "wait") + " || true"] if command.startswith("kill %") else lines

    def on_free_port(self, command: str) -> str:
        """The command with a port that no other process uses; a newcomer takes the usual one."""
        if self.fresh:
            return command
        return f'{command} ARGS="--port 0"' if command.startswith("make") else f"{command} --port 0"

    def search_path(self, folder: Path) -> str:
        """Where programs are found: in the folder and this environment first, or in no environment."""
        inherited = os.environ["PATH"].split(os.pathsep)
        if self.fresh:
            return os.pathsep.join(each for each in inherited if not (Path(each).parent / "pyvenv.cfg").exists())
        return os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), *inherited])


def commands(page: str) -> list[str]:
    """The commands of a page: continued lines are joined, comments left out."""
    lines = "".join(block["commands"] for block in BLOCK.finditer(page)).replace("\\\n", " ").splitlines()
    return [command for line in lines if (command := COMMENT.sub("", line).strip())]


def prepare(folder: Path) -> None:
    """Makes a folder look like a clone in which gpuwise is installed."""
    for name in ("Makefile", "pyproject.toml", "examples"):
        (folder / name).symlink_to(PROJECT / name)
    make = folder / "bin" / "make"
    make.parent.mkdir()
    make.write_text(MAKE.format(make=shutil.which("make"), bin=Path(sys.executable).parent), encoding="utf-8")
    make.chmod(0o755)


def run(page: str, folder: Path, mode: Mode, capture: bool = True) -> tuple[int, str]:
    """Runs the commands of a page in a folder; returns the exit code and, if captured, what was printed."""
    script = SHELL + "\n".join(line for command in commands(page) for line in mode.lines(command))
    (folder / "home").mkdir()
    if not mode.fresh:
        prepare(folder)
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env={"HOME": str(folder / "home"), "PATH": mode.search_path(folder), "LANG": "C.UTF-8"},
        stdout=subprocess.PIPE if capture else None,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = shell.communicate(timeout=TIMEOUT_S[mode.fresh])
    except BaseException:
        os.killpg(shell.pid, signal.SIGTERM)
        raise
    return shell.returncode, output or ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="clone and install first, as the README says")
    parser.add_argument("--slow", action="store_true", help="run `make test` too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mode = Mode(args.fresh, args.slow)
        code, _ = run(README.read_text(encoding="utf-8"), Path(folder), mode, capture=False)
        print(f"exit code {code}", flush=True)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
