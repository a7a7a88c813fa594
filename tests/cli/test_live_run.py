"""``gpuwise run`` from a real terminal and from pipes, against a service that really runs jobs."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command import COMMAND
from live_up import PATIENCE_S, Up, until

from gpuwise.cli.client.errors import NoSuchJobError
from gpuwise.cli.client.http import Client, connect
from gpuwise.cli.submit import run


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    service = Up(tmp_path_factory.mktemp("up"))
    yield service
    service.stop()


OPENED: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _no_seat_is_left() -> Iterator[None]:
    """A test that fails leaves no job behind."""
    yield
    while OPENED:
        process = OPENED.pop()
        process.kill()
        process.wait()


class Seat:
    """A terminal, with ``gpuwise run`` on it."""

    def __init__(self, up: Up, *args: str, rows: int = 30, columns: int = 100) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(theirs)
        environment = {**up.environment, "TERM": "xterm-test"}
        self.process = subprocess.Popen(
            [*COMMAND, "run", *args], cwd=up.home, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self.theirs = theirs
        OPENED.append(self.process)
        self.seen = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def sees(self, pattern: str) -> str:
        """What is on the terminal as soon as a pattern is; what was seen up to it is not looked at again."""
        gives_up = time.monotonic() + PATIENCE_S
        while not (match := re.search(pattern.encode(), self.seen)):
            left = gives_up - time.monotonic()
            assert left > 0, (pattern, self.seen)
            if select.select([self.ours], [], [], min(left, 0.2))[0]:
                self.seen += os.read(self.ours, 65536)
            else:
                assert self.process.poll() is None or left > PATIENCE_S - 10, (pattern, self.seen)
        self.seen = self.seen[match.end() :]
        return match[0].decode()

    def leave(self) -> int:
        """The exit code; the terminal must be as it was."""
        code = self.process.wait(PATIENCE_S)
        assert termios.tcgetattr(self.theirs) == self.before
        os.close(self.theirs)
        os.close(self.ours)
        return code


def newest(up: Up) -> str:
    return str(connect(state=up.state).get("jobs", query={"limit": 1})["jobs"][0]["id"])


def piped(up: Up, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, "run", *args], cwd=up.home, env=up.environment, input=stdin, capture_output=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip


# -- on a terminal -----------------------------------------------------------------------------------------------------


def test_a_command_has_the_terminal_it_was_given_on(up: Up) -> None:
    seat = Seat(up, "--", "sh", "-c", "tty; stty size; echo $TERM; test -t 0 && test -t 1 && test -t 2 && echo all")
    seat.sees(r"/dev/pts/\d+\r\n30 100\r\nxterm-test\r\nall\r\n")
    assert seat.leave() == 0
    assert "30 100" in up.right("logs", newest(up))


def test_a_shell_reads_what_is_typed_and_its_exit_code_is_passed_on(up: Up) -> None:
    seat = Seat(up, "--", "sh")
    seat.type("echo $((40 + 2))\n")
    seat.sees(r"42\r\n")
    seat.type("exit 7\n")
    assert seat.leave() == 7
    assert up.job(newest(up))["exit_code"] == 7


def test_ctrl_c_reaches_the_program_and_not_the_client(up: Up) -> None:
    seat = Seat(up, "--", "sh", "-c", "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done")
    seat.sees("ready")
    seat.type("\x03")
    seat.sees("caught")
    assert seat.leave() == 5


def test_ctrl_c_stops_a_program_in_a_shell_and_the_shell_stays(up: Up) -> None:
    seat = Seat(up, "--", "bash", "--norc", "-i")
    seat.type("sh -c 'echo begun; exec sleep 1000'\n")  # once that is printed, Ctrl-C is for it and not for bash
    seat.sees(r"begun\r\n")
    seat.type("\x03")
    seat.sees(r"\^C[^$#]*[$#] ")
    seat.type("echo still-$((1 + 1))\n")
    seat.sees(r"still-2\r\n")
    seat.type("exit\n")
    assert seat.leave() == 0
    assert up.status(newest(up)) == "succeeded"


def test_the_size_of_the_window_is_passed_on_as_it_changes(up: Up) -> None:
    script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done"
    seat = Seat(up, "--", "bash", "-c", script)
    seat.sees("ready")
    seat.resize(41, 133)
    os.kill(seat.process.pid, signal.SIGWINCH)
    seat.sees("41 133")
    assert seat.leave() == 0


def test_it_waits_in_the_queue_and_says_why(up: Up) -> None:
    busy = [up.begin_job(f"busy-{number}") for number in range(2)]
    until(lambda: all(up.runs(uid) for uid, _ in busy), "both devices to be busy")
    seat = Seat(up, "--", "echo", "my turn")
    seat.sees(r"gpuwise: job \d+ .*estimated start in ")
    for uid, go in busy:
        up.end_job(uid, go)
    seat.sees("my turn")
    assert seat.leave() == 0


def test_ctrl_c_in_the_queue_cancels_the_job(up: Up) -> None:
    busy = [up.begin_job(f"full-{number}") for number in range(2)]
    until(lambda: all(up.runs(uid) for uid, _ in busy), "both devices to be busy")
    seat = Seat(up, "--", "echo", "never")
    seat.sees("gpuwise: job ")
    seat.type("\x03")
    assert seat.leave() == 130
    assert up.status(newest(up)) == "cancelled"
    for uid, go in busy:
        up.end_job(uid, go)


COUNT = "i=0; while :; do i=$((i + 1)); echo count $i; sleep 0.05; done"


def test_a_session_that_is_suspended_continues_where_it_was(up: Up) -> None:
    seat = Seat(up, "--", "sh", "-c", COUNT)
    seat.sees(r"count 1\r")
    uid = newest(up)
    up.right("suspend", uid)
    until(lambda: up.status(uid) == "suspended", "it to be suspended")
    up.right("resume", uid)
    until(lambda: up.runs(uid), "it to run again")
    counted = [int(seat.sees(r"count \d+\r").split()[1]) for _ in range(100)]
    assert counted == list(range(2, 102))
    up.right("cancel", uid)
    seat.sees(f"job {uid} .* cancelled")
    assert seat.leave() == 1


def test_a_session_that_is_interrupted_ends_and_is_not_started_again(up: Up) -> None:
    begun = up.home / "begun"
    seat = Seat(up, "--", "sh", "-c", f"echo x >> {begun}; {COUNT}")
    seat.sees(r"count 1\r")
    uid = newest(up)
    up.right("requeue", uid)
    seat.sees(f"job {uid} .*(is cancelled, not started again|an interactive job is not started again)")
    assert seat.leave() != 0
    assert up.status(uid) in ("cancelled", "failed")
    assert begun.read_text() == "x\n"


def test_a_job_whose_client_is_gone_is_not_started_again(up: Up) -> None:
    begun = up.home / "begun-alone"
    body = {"command": ["sh", "-c", f"echo x >> {begun}; {COUNT}"], "terminal": "pipe", "requeue": True}
    uid = connect(state=up.state).post("jobs", body=body)["jobs"][0]["id"]
    until(begun.exists, "it to begin")
    up.right("requeue", uid)
    until(lambda: up.status(uid) == "failed", "it to end")
    assert "an interactive job is not started again" in up.job(uid)["why_ended"]
    assert begun.read_text() == "x\n"


@pytest.mark.parametrize("which", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_the_job_ends_when_its_client_is_gone(up: Up, which: signal.Signals) -> None:
    seat = Seat(up, "--", "bash", "-c", "trap '' HUP TERM; echo pid $$; while :; do sleep 0.05; done")
    pid = int(seat.sees(r"pid (\d+)\r").split()[1])
    uid = newest(up)
    seat.process.send_signal(which)
    seat.process.wait(PATIENCE_S)
    until(lambda: up.status(uid) in ("failed", "cancelled"), "the job to end")
    until(lambda: not Path(f"/proc/{pid}").exists(), "its process to be gone")
    if which == signal.SIGKILL:
        assert "its client disconnected" in up.job(uid)["why_ended"]


def test_a_session_survives_a_service_that_is_killed(up: Up) -> None:
    seat = Seat(up, "--", "sh")
    seat.type("echo first-$((1 + 1))\n")
    seat.sees("first-2")
    up.kill()
    seat.type("echo second-$((1 + 1))\n")
    seat.sees("second-2")
    up.start()
    seat.type("exit 3\n")
    assert seat.leave() == 3


# -- without a terminal ------------------------------------------------------------------------------------------------


def test_input_output_and_errors_are_passed_on_as_in_a_pipe(up: Up) -> None:
    done = piped(up, "--", "sh", "-c", "cat; echo wrong >&2; test -t 0 || test -t 1 || exit 4", stdin=b"one\ntwo\n")
    assert (done.returncode, done.stdout) == (4, b"one\ntwo\n")
    assert done.stderr.startswith(b"wrong\ngpuwise: job ")


def test_nothing_is_lost_of_much_input_and_output(up: Up) -> None:
    sent = os.urandom(1 << 20) * 8
    done = piped(up, "--", "cat", stdin=sent)
    assert (done.returncode, done.stderr) == (0, b"")
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(sent).digest()


def test_a_program_that_reads_nothing_does_not_block(up: Up) -> None:
    done = piped(up, "--", "echo", "done", stdin=b"x" * (1 << 20))
    assert (done.returncode, done.stdout) == (0, b"done\n")


def test_ctrl_c_is_forwarded_without_a_terminal(up: Up) -> None:
    script = "trap 'echo caught; exit 6' INT; echo ready; while :; do sleep 0.05; done"
    with up.begin("run", "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "caught\n"
        assert process.wait(PATIENCE_S) == 6


def test_a_program_that_is_not_there(up: Up) -> None:
    done = piped(up, "--", "no-such-program")
    assert done.returncode == 126
    assert b"its program was not found" in done.stderr


# -- submitted as by submit -------------------------------------------------------------------------------------------


def test_it_waits_for_a_job_by_its_name(up: Up) -> None:
    first, go = up.begin_job("prepare")
    with up.begin("run", "--after", "afterany:prepare", "--", "echo", "after it") as process:
        until(lambda: newest(up) != first or process.poll() is not None, "the job to be submitted")
        go.touch()
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "after it\n"), err
    assert up.get("jobs", newest(up))["after"] == [f"afterany:{first}"]


def test_a_model_is_for_a_forecast(up: Up) -> None:
    done = piped(up, "--model", "torchvision:resnet18", "--", "echo", "done")
    assert (done.returncode, done.stdout) == (0, b"done\n")
    assert b"gpuwise: no forecast for cpu-core: its speed is not known\n" in done.stderr
    before = newest(up)
    done = piped(up, "--image", "224", "--", "true")
    assert done.returncode == 2
    assert b"--image is for a forecast; give the model, too" in done.stderr
    assert newest(up) == before


def test_variables_that_are_left_out_are_named(up: Up) -> None:
    with up.begin("run", "--", "sh", "-c", "echo ${ODD-none}", ODD="\udcff") as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "none\n"), err
    assert err.startswith("gpuwise: left out of the job's environment: ODD (not UTF-8);")


def test_a_terminal_that_may_not_be_used_yet_is_waited_for() -> None:
    """Its socket is root's for a moment before it is its account's."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # which every account can reach
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "terminal.sock"))
            listener.listen(1)
            folder.chmod(0o755)
            (folder / "terminal.sock").chmod(0)
            assert as_another_account(lambda: run._connect(str(folder / "terminal.sock")) is None)
            folder.chmod(0)
            assert as_another_account(lambda: run._connect(str(folder / "terminal.sock")) is None)
    finally:
        shutil.rmtree(folder)


def as_another_account(holds: Callable[[], bool]) -> bool:
    """Whether something is so in a process that is not root's."""
    from gpuwise.service.live import terminal_session  # noqa: F401  # while it can be read

    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            code = 0 if holds() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- what cannot be ----------------------------------------------------------------------------------------------------


def test_a_job_file_is_refused(up: Up) -> None:
    done = piped(up, "job.toml")
    assert done.returncode == 2
    assert b"gpuwise submit job.toml" in done.stderr


def test_a_server_on_another_machine_is_refused_before_anything_is_submitted(up: Up, tmp_path: Path) -> None:
    before = newest(up)
    program = (
        "import sys; from gpuwise.service.live import terminal_session as session;"
        "session.boot_id = lambda: 'another'; from gpuwise.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "run", "--", "true"], env=up.environment, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"is on another machine; use gpuwise run there, or use gpuwise submit --follow" in done.stderr
    assert newest(up) == before


def test_only_its_owner_is_shown_where_a_terminal_is(up: Up) -> None:
    secret = up.new_token("bob", "--role", "user")
    seat = Seat(up, "--", "sh", "-c", "echo ready; read line")
    seat.sees("ready")
    owner = connect(state=up.state)
    assert owner.get("jobs", newest(up), "terminal")["path"].startswith(str(up.state))
    with pytest.raises(NoSuchJobError):
        Client(replace(owner.target, token=secret)).get("jobs", newest(up), "terminal")
    seat.type("\n")
    assert seat.leave() == 0
