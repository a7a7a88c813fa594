"""Unix accounts of this machine that are there for one test process, and a service that runs jobs as them."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from live_up import Up, until

import gpuwise
from gpuwise.cli.client.http import Client, connect

SOURCE = Path(gpuwise.__file__).parent
PYTHON = "/usr/bin/python3"
"""Of the system: the one of the tests may be where other accounts cannot enter."""
BUSY = 10
"""The exit code of useradd while another process changes the accounts."""
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Person:
    """An account, with a group beside its own."""

    name: str
    group: str

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self.name).pw_uid

    @property
    def home(self) -> Path:
        return Path(pwd.getpwnam(self.name).pw_dir)

    def processes(self) -> list[int]:
        """The processes of this account that have not ended."""
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self._runs(name)]

    def _runs(self, pid: str) -> bool:
        try:
            fields = dict(line.split(":", 1) for line in Path("/proc", pid, "status").read_text().splitlines())
        except (OSError, ValueError):
            return False
        return str(self.uid) in fields["Uid"].split() and not fields["State"].strip().startswith("Z")


def change_accounts(*command: str) -> None:
    """Runs useradd and its like, again while another process has the accounts locked."""
    gives_up = time.monotonic() + PATIENCE_S
    while (done := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
        locked = done.returncode == BUSY or "lock" in done.stderr
        assert locked, (command, done.stderr)
        assert time.monotonic() < gives_up, (command, done.stderr)
        time.sleep(0.1)


@contextmanager
def people(folder: Path) -> Iterator[tuple[Person, Person]]:
    """Two accounts, with homes in a folder; skips where they cannot be made."""
    if os.geteuid() != 0:
        pytest.skip("only root can make accounts and run jobs as them")
    if not (shutil.which("useradd") and os.path.exists(PYTHON)):
        pytest.skip(f"no useradd, or no {PYTHON}, on this machine")
    made = []
    try:
        for each in ("a", "b"):
            person = Person(f"gw{each}{os.getpid()}", f"gwg{each}{os.getpid()}")
            made.append(person)
            change_accounts("groupadd", person.group)
            home = str(folder / person.name)
            change_accounts("useradd", "-U", "-G", person.group, "-m", "-d", home, "-s", "/bin/sh", person.name)
        yield made[0], made[1]
    finally:
        for person in made:
            remove(person)


def remove(person: Person) -> None:
    """Ends what is left of an account, and deletes it."""
    with contextlib.suppress(KeyError):
        for pid in person.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not person.processes(), f"{person.name} to have no process")
        change_accounts("userdel", person.name)
    change_accounts("groupdel", "-f", person.group)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every account may enter, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp(prefix="gpuwise-accounts-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class AccountsUp(Up):
    """A service of root whose jobs run as other accounts."""

    def __init__(self, folder: Path, as_user: str | None = "submitter") -> None:
        self.set(as_user)
        self._clients: dict[str, Client] = {}
        self._tokens: dict[str, str] = {}
        copy = folder / "python" / "gpuwise"  # the sources may be where other accounts cannot enter
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("*.json", "*.toml", "static", "__pycache__"))
        self.python_path = str(copy.parent)
        super().__init__(folder)

    def set(self, as_user: str | None) -> None:
        """What the service is started with the next time."""
        self.options = ("--devices", "4", *(("--as-user", as_user) if as_user else ()))

    def token(self, person: Person) -> str:
        """A person's token, of a user."""
        if person.name not in self._tokens:
            body = {"user": person.name, "role": "user", "expires_in_s": None}
            self._tokens[person.name] = connect(state=self.state).post("tokens", body=body)["secret"]
        return self._tokens[person.name]

    def client(self, person: Person) -> Client:
        """The service as a person with a token of their own sees it."""
        return Client(replace(connect(state=self.state).target, token=self.token(person)))

    def send(self, person: Person, *command: str, **fields: Any) -> str:
        """Submits a job of a person; its id."""
        env = {"PYTHONPATH": self.python_path, "PYTHONUNBUFFERED": "1"}
        body = {"command": list(command), "duration_s": 60.0, "env": env, **fields}
        return str(self.client(person).post("jobs", body=body)["jobs"][0]["id"])

    def script(self, person: Person, text: str, *arguments: object, **fields: Any) -> str:
        """Submits a Python script; its id."""
        return self.send(person, PYTHON, "-c", text, *map(str, arguments), **fields)

    def ended(self, uid: str) -> str:
        """How a job has ended."""
        until(lambda: self.status(uid) in ("succeeded", "failed", "cancelled"), f"job {uid} to end")
        return self.status(uid)

    def succeeds(self, uid: str) -> list[str]:
        """What a job printed, which must succeed."""
        assert self.ended(uid) == "succeeded", (self.job(uid), self.printed(uid))
        return self.printed(uid).splitlines()

    def printed(self, uid: str) -> str:
        """What a job has printed so far."""
        log = self.state / "jobs" / uid / "output.log"
        return log.read_text() if log.exists() else ""

    def says(self, uid: str, text: str) -> None:
        """Waits until a job has printed something."""
        until(lambda: text in self.printed(uid), f"job {uid} to print {text!r}")

    def log(self) -> str:
        """What the service has written."""
        return (self.state.parent / "up.log").read_text()
