"""A service as a user starts it, with ``gpuwise up`` in a process of its own, and commands that speak to it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command import COMMAND, Answer

from gpuwise.cli.client.http import connect

PATIENCE_S = 60.0


def until(holds: Callable[[], Any], what: str) -> Any:
    """What a question is answered with, as soon as that is true."""
    gives_up = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < gives_up, f"waited {PATIENCE_S:g} s for {what}"
        time.sleep(0.05)
    return found


class Running(subprocess.Popen[str]):
    """A command under way, which ends with its block if that fails: a job that it waits for may never end then."""

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)


class Up:
    """A state folder, the service in it, and a folder from which commands are given."""

    options: tuple[str, ...] = ("--devices", "2")
    """Of ``gpuwise up``."""
    wrapper: tuple[str, ...] = ()
    """A command that becomes ``gpuwise up``."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.home = folder / "home"
        self.home.mkdir()
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "GPUWISE_STATE": str(self.state), "LANG": "C.UTF-8",
        }  # fmt: skip
        self._service: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Starts the service and waits until it listens."""
        command = [*self.wrapper, *COMMAND, "up", "--port", "0", *self.options]
        log = (self.state.parent / "up.log").open("ab")
        with log:
            self._service = subprocess.Popen(command, cwd=self.home, env=self.environment, stdout=log, stderr=log)
        until(self._listens, "the service to start")

    def _listens(self) -> bool:
        assert self._service is not None
        assert self._service.poll() is None, (self.state.parent / "up.log").read_text()
        try:
            pid: int = json.loads((self.state / "endpoint.json").read_text())["pid"]
        except (FileNotFoundError, ValueError):
            return False
        return pid == self.pid

    @property
    def pid(self) -> int:
        """The process of the service."""
        assert self._service is not None
        return self._service.pid

    def kill(self) -> None:
        """Ends the service as a crash would."""
        assert self._service is not None
        self._service.kill()
        self._service.wait()

    def stop(self) -> None:
        """Ends all jobs and the service; the latter in any case."""
        assert self._service is not None
        try:
            self.cancel_all()
            self._service.send_signal(signal.SIGINT)
            self._service.wait(PATIENCE_S)
        finally:
            self.kill()

    def cancel_all(self) -> None:
        """Ends all jobs."""
        if live := [job["id"] for job in self.get("queue")["jobs"]]:
            self.run("cancel", *live)
            until(lambda: not self.processes(), "jobs to be gone")

    def processes(self) -> list[Path]:
        """Attempts that have begun and not ended."""
        begun = (self.state / "jobs").glob("*/attempts/*/started.json")
        return [path for path in begun if not (path.parent / "exit.json").exists()]

    # -- looking behind the commands' backs, which is faster -------------------------------------------------------

    def get(self, *path: str) -> Any:
        """What the service says."""
        return connect(state=self.state).get(*path)

    def job(self, uid: str) -> dict[str, Any]:
        """One job, with its launches."""
        return {**self.get("jobs", uid), "launches": self.get("jobs", uid, "attempts")["attempts"]}

    def runs(self, uid: str) -> bool:
        """Whether a job has begun and not ended."""
        return bool(self.get("jobs", uid)["status"] == "running")

    def status(self, uid: str) -> str:
        """A job's status."""
        return str(self.get("jobs", uid)["status"])

    def begin_job(self, name: str, **fields: object) -> tuple[str, Path]:
        """A job that runs until a file is there: its id, and the file."""
        go = self.home / f"go-{name}"
        command = ["sh", "-c", 'echo begun; while [ ! -e "$0" ]; do sleep 0.05; done; echo gone', str(go)]
        body = {"command": command, "name": name, "workdir": str(self.home), "duration_s": 60.0, **fields}
        uid: str = connect(state=self.state).post("jobs", body=body)["jobs"][0]["id"]
        return uid, go

    def end_job(self, uid: str, go: Path) -> None:
        """Lets such a job end, and waits until it has succeeded."""
        go.touch()
        until(lambda: self.status(uid) == "succeeded", f"job {uid} to succeed")

    # -- commands -------------------------------------------------------------------------------------------------

    def begin(self, *args: str, **variables: str) -> Running:
        """A command under way, its output in pipes."""
        pipe = subprocess.PIPE
        environment = {**self.environment, "PYTHONUNBUFFERED": "1", **variables}
        return Running([*COMMAND, *args], cwd=self.home, env=environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, *args: str, **variables: str) -> Answer:
        """A command that has ended."""
        with self.begin(*args, **variables) as process:
            out, err = process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in err, err
        return Answer(process.returncode, out, err)

    def right(self, *args: str, **variables: str) -> str:
        """The output of a command that must succeed without a word of complaint."""
        answer = self.run(*args, **variables)
        assert (answer.code, answer.err) == (0, ""), answer
        return answer.out

    def new_token(self, user: str, *options: str) -> str:
        """The secret of a new token of another user; what is said of the account of their jobs is left aside."""
        answer = self.run("tokens", "create", user, *options)
        assert answer.code == 0, answer
        return answer.out.strip()

    def json(self, *args: str) -> list[dict[str, Any]]:
        """What a command lists."""
        found: list[dict[str, Any]] = json.loads(self.right(*args, "-o", "json"))
        return found

    def submit(self, *args: str) -> str:
        """The id of a new job."""
        return self.right("submit", *args).strip()

    def on_terminal(
        self, *args: str, width: int = 80, leave_after: str | None = None, colours_only: bool = False
    ) -> tuple[int, str]:
        """Exit code of a command on a terminal, and what it wrote; Ctrl-C after it has written something.

        Control sequences are left out; with ``colours_only`` only those that set colours.
        """
        ours, theirs = pty.openpty()
        environment = {**self.environment, "COLUMNS": str(width), "LINES": "40", "TERM": "xterm"}
        process = subprocess.Popen([*COMMAND, *args], cwd=self.home, env=environment, stdout=theirs, stderr=theirs)
        os.close(theirs)
        written = b""
        while piece := _read(ours):
            written += piece
            if leave_after is not None and leave_after.encode() in written:
                process.send_signal(signal.SIGINT)
                leave_after = None
        os.close(ours)
        text = re.sub(r"\x1b\[[\d;?]*m" if colours_only else r"\x1b\[[\d;?]*[A-Za-z]", "", written.decode())
        return process.wait(PATIENCE_S), text.replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    """What comes next; empty when the other side has closed."""
    assert select.select([terminal], [], [], PATIENCE_S)[0], "the command says nothing"
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other side has closed
        return b""
