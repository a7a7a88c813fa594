"""The supervisor of one attempt: starts its processes, carries out orders, and records how they ended.

It runs as ``python -I -S supervise.py ATTEMPT_FOLDER`` in a session of its own and outlives the controller that started
it. Descendants that lose their parent become its children, so that nothing of an attempt outlives it; if it is killed
itself, the kernel kills the processes it started.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time

if __name__ != "__main__":
    from . import account, files, processes
else:  # run as a file: only what is beside it is imported, since all of gpuwise would take too long
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from supervisor import account, files, processes  # type: ignore[import-not-found,no-redef]

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes milliseconds to load, and this runs once for each attempt
    from socket import socket
    from typing import Any

    from .terminal import Relay, Terminal

AWAITED = {signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP}
"""SIGHUP is what the thread that serves an interactive job's client sends when that is gone."""
BLOCKED = AWAITED | {signal.SIGINT}
"""Blocked already when a supervisor is started, so that none is lost before it waits for them."""
SUSPENDED = 75
"""The exit code of a job that left as it was asked to."""
STOP_S = 1.0
LINGER_S = 60.0
"""How long the last output of an interactive job waits for its client, after its end was recorded."""


def main(folder: str) -> None:
    """Runs the attempt in ``folder``, unless another supervisor does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(folder)
    launch = files.read_json("launch.json", files.LARGEST_LAUNCH_BYTES)
    if files.claim(launch["token"]):
        for name in ("started", "exit"):
            files.insist(files.reserve, name)
        Supervisor(launch).run()


class Supervisor:
    """The processes of an attempt, and what is known of those that have ended."""

    def __init__(self, launch: dict[str, Any]) -> None:
        self.launch = launch
        self.alive: list[int] = []
        self.ranks: list[int] = []
        """All processes it has started, those that have ended too, by their rank."""
        self.codes: list[int] = []
        """Exit codes in the order they came; a signal is its number below 0."""
        self.max_rss_bytes = 0
        self.cpu_s = 0.0
        self.seq = 0
        """Of the last order carried out."""
        self.asked: str | None = None
        """The order that ended it."""
        self.trouble: dict[str, Any] | None = None
        """What kept it from being started."""
        self.deadline = math.inf
        self.killed: dict[int, int] = {}
        """Processes that were killed, with their start times."""
        self.oom_kills = processes.machine_oom_kills()
        self.mail: socket | None = None
        self.relay: Relay | None = None
        """What serves the client of an interactive job."""

    def run(self) -> None:
        """From the first process to exit.json."""
        processes.prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
        self.asked = files.read_json("orders.json").get("want")
        if self.asked in ("stop", "kill"):
            self.codes.append(-signal.SIGTERM)
        else:
            self.asked = None
            self.start()
        while self.alive:
            self.await_news()
        self.clear_away()
        files.insist(files.commit, "exit", self.outcome(), lasting=True)
        self.notify("exited")
        if self.relay is not None:
            self.relay.join(LINGER_S)

    def start(self) -> None:
        """Starts all processes, or none."""
        doing = "log"
        try:
            owner = self.launch.get("account")
            started = {"at": time.time(), "offset": files.open_output(self.launch["output"], owner)}
            doing = "give"
            self.give_folders(owner)
            doing = "start"
            self.trouble = self.fork()
        except OSError as error:
            self.trouble = {"doing": doing, "errno": error.errno}
        if self.trouble is not None:
            self.kill()
            return
        files.insist(files.commit, "started", started | {"pids": self.alive})
        self.notify("started")
        self.carry_out_order()

    def give_folders(self, owner: dict[str, Any] | None) -> None:
        """Gives the job's folders to the account it runs as; an earlier attempt may have run as another."""
        if os.geteuid() == account.ROOT:
            uid, gid = (owner["uid"], owner["gid"]) if owner else (os.geteuid(), os.getegid())
            for folder in self.launch.get("folders", ()):
                if owner or not os.path.islink(folder):  # only a job of root itself could put a link there
                    account.give(folder, uid, gid)

    def fork(self) -> dict[str, Any] | None:
        """Makes the processes, and returns once each runs its program; else what went wrong with one."""
        reader, writer = os.pipe()
        me = os.getpid()
        terminal = self.open_terminal()
        for process in self.launch["processes"]:
            child = os.fork()
            if child == 0:
                processes.become(process, self.launch, me, writer, terminal.enter if terminal is not None else None)
            self.alive.append(child)
            self.ranks.append(child)
        os.close(writer)
        self.sender()  # loading sockets takes milliseconds; the processes get ready meanwhile
        with open(reader, "rb") as complaints:
            first = complaints.readline()  # ends when no process has the pipe any more: exec closes it
        if terminal is not None and not first:
            self.serve(terminal)
        return json.loads(first) if first else None

    def open_terminal(self) -> Terminal | None:
        """The terminal of an interactive job; None is no such job."""
        if not self.launch.get("terminal"):
            return None
        from importlib import import_module  # what it needs takes milliseconds to load, and most jobs have none

        terminal: Terminal = import_module(f"{files.__package__}.terminal").Terminal(
            self.launch["terminal"], self.launch.get("account")
        )
        return terminal

    def serve(self, terminal: Terminal) -> None:
        """Lets a client use the terminal; the job is ended when that leaves."""
        from importlib import import_module

        terminal.started()
        relay: Relay = import_module(f"{files.__package__}.terminal").Relay(
            terminal,
            lambda which: processes.signal_group(self.ranks[0], which) if self.alive else None,
            lambda: os.kill(os.getpid(), signal.SIGHUP),
        )
        self.relay = relay
        relay.start()

    def await_news(self) -> None:
        """Sleeps until a process ends, an order comes, or the grace period is over."""
        if self.deadline < math.inf:
            news = signal.sigtimedwait(AWAITED, max(0.0, self.deadline - time.monotonic()))
        else:
            news = signal.sigwaitinfo(AWAITED)
        self.reap()
        if news is None:
            self.kill()
        elif news.si_signo == signal.SIGUSR1:
            self.carry_out_order()
        elif news.si_signo == signal.SIGTERM:
            self.asked = self.asked or "shutdown"
            self.end(self.launch["grace_s"])
        elif news.si_signo == signal.SIGHUP and self.relay is not None:
            self.asked = self.asked or "left"
            self.end(self.launch["grace_s"])

    def reap(self) -> None:
        """Notes what has ended; a process not waited for keeps its number, so its group is signalled safely."""
        while self.alive and (ended := processes.next_ended()) is not None:
            if ended not in self.alive:
                self.collect(ended)
                continue
            processes.signal_group(ended, signal.SIGKILL)
            self.alive.remove(ended)
            code, rss_bytes = self.collect(ended)
            self.codes.append(code)
            self.max_rss_bytes += rss_bytes
            if self.alive and has_failed(code):
                self.end(self.launch["grace_s"])

    def collect(self, pid: int) -> tuple[int, int]:
        """Waits for a process that has ended; its exit code and largest resident set."""
        _, status, usage = os.wait4(pid, 0)
        self.cpu_s += usage.ru_utime + usage.ru_stime
        return os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024

    def carry_out_order(self) -> None:
        """Carries out the order in orders.json, once, and reports that."""
        order = files.read_json("orders.json")
        seq, want = order.get("seq"), order.get("want")
        if not isinstance(seq, int) or not self.alive:
            return
        if seq > self.seq:
            self.seq = seq
            if want == "park":
                self.park()
            elif want == "run":
                self.resume(order.get("affinity"))
            elif want in ("stop", "kill"):
                self.asked = want
                self.end(float(order.get("grace_s", 0.0)) if want == "stop" else 0.0)
        if self.alive:  # if all has ended meanwhile, its end is reported instead
            self.notify("obeyed", seq)

    def park(self) -> None:
        """Stops the processes and sees to it that they have stopped: one that was just ending ends instead."""
        processes.signal_all(signal.SIGSTOP, self.launch["token"])
        gives_up = time.monotonic() + STOP_S
        while time.monotonic() < gives_up and not all(processes.has_stopped(pid) for pid in self.alive):
            time.sleep(0.001)
        self.reap()

    def resume(self, affinity: list[list[int] | None] | None) -> None:
        """Lets stopped processes continue, on other cores if some are given."""
        if affinity is not None and len(affinity) == len(self.ranks):
            for pid, cores in zip(self.ranks, affinity, strict=True):
                if cores and pid in self.alive:
                    processes.pin(processes.family(pid), cores)
        processes.signal_all(signal.SIGCONT, self.launch["token"])

    def end(self, grace_s: float) -> None:
        """Asks the processes to end, now or by a deadline."""
        if grace_s <= 0:
            self.kill()
        elif self.deadline == math.inf:
            self.deadline = time.monotonic() + grace_s
            for pid in self.alive:
                processes.signal_group(pid, signal.SIGTERM)
                if self.relay is not None:  # an interactive shell ignores SIGTERM
                    processes.signal_group(pid, signal.SIGHUP)
            processes.signal_all(signal.SIGCONT, self.launch["token"])

    def kill(self) -> None:
        """Kills everything there is of the attempt."""
        self.deadline = math.inf
        if self.launch.get("cgroup"):
            processes.write_if_possible(f"{self.launch['cgroup']}/cgroup.kill", "1")
        for pid in self.alive:
            processes.signal_group(pid, signal.SIGKILL)
        self.killed |= processes.signal_all(signal.SIGKILL, self.launch["token"])

    def clear_away(self) -> None:
        """Kills what the processes left behind, and returns when there is nothing left."""
        while True:
            try:
                ended = processes.next_ended()
            except ChildProcessError:
                if not self.has_members():
                    return
                ended = None
            if ended is not None:
                self.collect(ended)
            else:
                self.kill()
                signal.sigtimedwait(AWAITED, 0.1)

    def has_members(self) -> bool:
        """Whether processes of the attempt are left, such as those of a container that was killed and still ends."""
        ending = any(processes.is_running(pid, started) for pid, started in self.killed.items())
        return ending or bool(processes.members(self.launch["token"]))

    def outcome(self) -> dict[str, Any]:
        """What exit.json says; of several processes, the first that failed counts."""
        failed = [code for code in self.codes if code not in (0, SUSPENDED)] or [code for code in self.codes if code]
        code = processes.NOT_EXECUTED if self.trouble else failed[0] if failed else 0
        return {
            "code": 128 - code if code < 0 else code, "signal": -code if code < 0 else None, "trouble": self.trouble,
            "asked": self.asked, "seq": self.seq, "max_rss_bytes": self.max_rss_bytes, "cpu_s": round(self.cpu_s, 3),
            "machine_oom_kills": processes.machine_oom_kills() - self.oom_kills, "at": time.time(),
        }  # fmt: skip

    def notify(self, kind: str, seq: int = 0) -> None:
        """Sends the controller a message, if there is one; it would find out without, but later."""
        known = {"v": 1, "job": self.launch["uid"], "attempt": self.launch["attempt"], "token": self.launch["token"]}
        text = json.dumps(known | {"rank": 0, "kind": kind, "seq": seq})
        folder, name = os.path.split(self.launch["socket"])
        try:
            home = os.open(folder, os.O_PATH)  # the whole path may be longer than an address can be
            try:
                self.sender().sendto(text.encode(), f"/proc/self/fd/{home}/{name}")
            finally:
                os.close(home)
        except OSError:
            return

    def sender(self) -> socket:
        """What messages are sent with."""
        if self.mail is None:
            from socket import AF_UNIX, SOCK_DGRAM, socket

            self.mail = socket(AF_UNIX, SOCK_DGRAM)
            self.mail.settimeout(0.2)
        return self.mail


def has_failed(code: int) -> bool:
    """Whether a process that ended so takes the others with it."""
    return code != 0 and not (code == SUSPENDED and files.read_json("control.json").get("want") == "leave")


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)
