"""``run``: a command on GPUs with the terminal it was given on."""

from __future__ import annotations

import os
import signal
import sys
import time
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.client.errors import LiveError
from gpuwise.cli.commands import parameters_of, set_parameters
from gpuwise.cli.options import Server
from gpuwise.cli.submit.command import SUFFIX, drafts_of, option_of, options_of
from gpuwise.cli.submit.fields import FIELDS

if TYPE_CHECKING:
    from socket import socket

    from gpuwise.cli.client.http import Client, Reconnect
    from gpuwise.cli.show.jobs import Job

NOT_INTERACTIVE = ("command", "array", "retries", "processes", "role")
"""Properties that a job with a terminal cannot have."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
ASK_WHY_S = 2.0
"""How often the queue is asked why a job waits, and how long."""


def run_command(**given: Any) -> None:
    """Run a command on GPUs with this terminal.

    As in: gpuwise run --gpus 1 -- bash. The job ends when you leave. Without a terminal, input and output are passed
    on as in a pipe.
    """
    from gpuwise.cli.live.wait import exit_code, summary

    server = Server(given["server"], given["state"])
    client = server.connect()
    check_machine(client)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGHUP, _leave)
    uid = _submit(server.connect, given)
    try:
        terminal = _await_start(server.connect, uid)
        if terminal is not None:
            _use(terminal)
    except BaseException:
        _cancel(client, uid)
        raise
    job = _ended(server.connect, uid)
    if code := exit_code([job]):
        print("gpuwise: " + summary([job]), file=sys.stderr)
        raise typer.Exit(code)


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


def check_machine(client: Client) -> None:
    """Refuses before anything is submitted if jobs' terminals cannot be reached from here."""
    from gpuwise.service.live.terminal_session import boot_id

    host = client.get("terminals")
    instead = "use gpuwise submit --follow"
    if host["machine"] != boot_id():
        raise LiveError(f"{client.target.url} is on another machine; use gpuwise run there, or {instead}")
    if not os.access(host["folder"], os.X_OK):
        raise LiveError(
            f"{host['folder']}: you may not enter this folder, where the terminals of jobs are; it is another user's. "
            f"In its place {instead}"
        )
    if host.get("uid") not in (None, os.geteuid()) and os.geteuid() != 0:
        raise LiveError(
            f"your jobs run as account {host['account']}, and only that account and root may use their terminals; run "
            f"this command as {host['account']}, or {instead}"
        )


def _submit(reconnect: Reconnect, given: dict[str, Any]) -> str:
    from gpuwise.cli.submit.submission import Submission
    from gpuwise.service.live.terminal_session import kind_of_terminal

    if given["words"][0].endswith(SUFFIX):
        raise LiveError(f"run takes a command, not a job file; submit it with: gpuwise submit {given['words'][0]}")
    options, kind = options_of(given), kind_of_terminal()
    if kind != "pipe":
        shown = {name: os.environ[name] for name in ("TERM", "COLORTERM") if name in os.environ}
        options["env"] = shown | options.get("env", {})
    (uid,) = Submission(reconnect, drafts_of(given["words"], options), terminal=kind).post()
    return uid


def _await_start(reconnect: Reconnect, uid: str) -> socket | None:
    """A connection to the job's terminal once it is there; None if the job has ended without one."""
    from gpuwise.cli.client.http import ask_until_back
    from gpuwise.cli.show.jobs import ENDED

    pause_s, queue = FIRST_PAUSE_S, _Queue(reconnect)
    while True:
        job = ask_until_back(reconnect, lambda client: client.get("jobs", uid))
        if job["attempts"]:
            path = ask_until_back(reconnect, lambda client: client.get("jobs", uid, "terminal"))["path"]
            if (terminal := _connect(path)) is not None:
                return terminal
        if job["status"] in ENDED:
            return None
        if not job["attempts"]:
            queue.say_why(job)
        time.sleep(pause_s)
        pause_s = min(1.3 * pause_s, LONGEST_PAUSE_S)


def _connect(path: str) -> socket | None:
    from gpuwise.service.live.terminal_session import connect

    try:
        return connect(path)
    except (FileNotFoundError, ConnectionRefusedError, PermissionError):
        return None  # not yet: its folder, its socket, and their owner and mode come one after the other


class _Queue:
    """Says why a job waits and how long, whenever that has changed."""

    def __init__(self, reconnect: Reconnect) -> None:
        self._reconnect = reconnect
        self._said = ""
        self._ask_s = time.monotonic() + FIRST_PAUSE_S

    def say_why(self, job: Job) -> None:
        """Asks now and then, and writes to the error output."""
        from gpuwise.cli.client.http import ask_until_back
        from gpuwise.cli.show.jobs import with_estimates
        from gpuwise.cli.show.tables import printable
        from gpuwise.cli.show.times import relative

        if time.monotonic() < self._ask_s:
            return
        self._ask_s = time.monotonic() + ASK_WHY_S
        (known,) = ask_until_back(self._reconnect, lambda client: with_estimates(client, [job]))
        why = printable(known.get("why") or "")
        if why and why != self._said:
            start = relative(known.get("estimated_start"))
            print(f"gpuwise: job {job['id']} {why}" + (f"; estimated start {start}" if start else ""), file=sys.stderr)
            self._said = why


def _use(terminal: socket) -> None:
    from gpuwise.service.live.terminal_session import Session

    with terminal:
        Session(terminal).run()


def _cancel(client: Client, uid: str) -> None:
    """The client leaves: so does the job."""
    try:
        client.post("jobs", uid, "cancel")
    except LiveError:
        return  # it has ended, or its supervisor ends it as no client is connected


def _ended(reconnect: Reconnect, uid: str) -> Job:
    """The job once it has ended; one that is to be started again, as after a lost GPU, is cancelled.

    Its next attempt would have another terminal, which no client uses.
    """
    from gpuwise.cli.client.http import ask_until_back
    from gpuwise.cli.show.jobs import ENDED

    pause_s = FIRST_PAUSE_S
    while True:
        job: Job = ask_until_back(reconnect, lambda client: client.get("jobs", uid))
        if job["status"] in ENDED:
            return job
        if job["attempts"] > 1 or job["status"] in ("pending", "suspended"):
            print(f"gpuwise: job {uid} was interrupted; it is cancelled, not started again", file=sys.stderr)
            _cancel(reconnect(), uid)
        time.sleep(pause_s)
        pause_s = min(1.3 * pause_s, LONGEST_PAUSE_S)


def _parameters() -> list[Parameter]:
    words = typer.Argument(metavar="[--] COMMAND...", help="A program and its arguments.")
    made = [Parameter("words", Parameter.KEYWORD_ONLY, annotation=Annotated[list[str], words])]
    made += [option_of(key, field) for key, field in FIELDS.items() if key not in NOT_INTERACTIVE]
    return [*made, *parameters_of(Server)]


set_parameters(run_command, _parameters())
