"""A process that has imported PyTorch, which takes seconds, and forks one that runs a script whenever it is asked.

It reads a JSON object a line: what to run, or the id of a process to look at; it answers with an id or an exit code.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable

import torch._dynamo


def serve() -> dict:
    """Answers until the input ends; in a forked process, returns what to run."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "pid" in asked:
            pid, status = os.waitpid(asked["pid"], os.WNOHANG)
            print(json.dumps(os.waitstatus_to_exitcode(status) if pid else None), flush=True)
        elif pid := os.fork():
            print(pid, flush=True)
        else:
            return asked
    sys.exit()


def run(argv: list[str], env: dict[str, str], outputs: list[str]) -> None:
    """Runs a script as if it had been started so."""
    os.environ.clear()
    os.environ.update(env)
    for number, path in enumerate([os.devnull, *outputs]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), number)
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")


def ended(script: Callable[[], None]) -> int:
    """Runs to the end, exit handlers included, and returns the exit code."""
    code: object = 0
    try:
        script()
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return code if isinstance(code, int) else 1


if __name__ == "__main__":
    assert torch._dynamo
    asked = serve()
    os._exit(ended(lambda: run(**asked)))  # taking PyTorch apart would copy all of its memory first
