"""The supervisor of one attempt: starts its processes, carries out orders, and writes down how they ended.

It runs as ``python -I -S shim.py ATTEMPT_FOLDER`` in a session of its own, outlives whoever started it, and needs the
standard library only. Descendants that lose their parent become its children, so that nothing of an attempt outlives
it; if it is killed itself, the kernel kills the processes it started.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import math
import os
import resource
import signal
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes milliseconds to load, and this runs once for each attempt
    from collections.abc import Callable
    from socket import socket
    from typing import Any, NoReturn

AWAITED = {signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM}
BLOCKED = AWAITED | {signal.SIGHUP, signal.SIGINT}
"""Whoever starts a supervisor blocks these already, so that none is lost before it listens."""
SUSPENDED = 75
"""The exit code of a job that left as it was asked to."""
NOT_EXECUTED = 126
STOP_S = 1.0
RESERVED_BYTES = 4096
LARGEST_BYTES = 64 * 1024 * 1024
"""No more is read of any file."""
FIRST_TO_KILL = "500"
"""When the machine runs out of memory, jobs are killed before supervisors and the controller."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main(folder: str) -> None:
    """Runs the attempt in ``folder``, unless another supervisor does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(folder)
    launch = read("launch.json")
    if claim(launch["token"]):
        for name in ("started", "exit"):
            insist(reserve, name)
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
        self.oom_kills = machine_oom_kills()
        self.mail: socket | None = None

    def run(self) -> None:
        """From the first process to exit.json."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.asked = read("orders.json").get("want")
        if self.asked in ("stop", "kill"):
            self.codes.append(-signal.SIGTERM)
        else:
            self.asked = None
            self.start()
        while self.alive:
            self.await_news()
        self.clear_away()
        insist(commit, "exit", self.outcome(), lasting=True)
        self.notify("exited")

    def start(self) -> None:
        """Starts all processes, or none."""
        doing = "log"
        try:
            begun = {"at": time.time(), "offset": open_streams(self.launch["output"])}
            doing = "start"
            self.trouble = self.fork()
        except OSError as error:
            self.trouble = {"doing": doing, "errno": error.errno}
        if self.trouble is not None:
            self.kill()
            return
        insist(commit, "started", begun | {"pids": self.alive})
        self.notify("started")
        self.obey()

    def fork(self) -> dict[str, Any] | None:
        """Makes the processes, and returns once each runs its program; else what went wrong with one."""
        reader, writer = os.pipe()
        me = os.getpid()
        for process in self.launch["processes"]:
            child = os.fork()
            if child == 0:
                become(process, self.launch, me, writer)
            self.alive.append(child)
            self.ranks.append(child)
        os.close(writer)
        self.sender()  # loading sockets takes milliseconds; the processes get ready meanwhile
        with open(reader, "rb") as complaints:
            first = complaints.readline()  # ends when no process has the pipe any more: exec closes it
        return json.loads(first) if first else None

    # -- while it runs --------------------------------------------------------------------------------------------

    def await_news(self) -> None:
        """Sleeps until a process ends, an order comes, or the time to leave is over."""
        if self.deadline < math.inf:
            news = signal.sigtimedwait(AWAITED, max(0.0, self.deadline - time.monotonic()))
        else:
            news = signal.sigwaitinfo(AWAITED)
        self.reap()
        if news is None:
            self.kill()
        elif news.si_signo == signal.SIGUSR1:
            self.obey()
        elif news.si_signo == signal.SIGTERM:
            self.asked = self.asked or "shutdown"
            self.end(self.launch["grace_s"])

    def reap(self) -> None:
        """Takes note of what has ended; a process not waited for keeps its number, so its group is signalled safely."""
        while self.alive and (ended := next_ended()) is not None:
            if ended not in self.alive:
                self.collect(ended)
                continue
            signal_group(ended, signal.SIGKILL)
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

    def obey(self) -> None:
        """Carries out the order in orders.json, once, and says so."""
        order = read("orders.json")
        seq, want = order.get("seq"), order.get("want")
        if not isinstance(seq, int) or not self.alive:
            return
        if seq > self.seq:
            self.seq = seq
            if want == "park":
                self.park()
            elif want == "run":
                self.go_on(order.get("affinity"))
            elif want in ("stop", "kill"):
                self.asked = want
                self.end(float(order.get("grace_s", 0.0)) if want == "stop" else 0.0)
        if self.alive:  # what has come to its end meanwhile is told as that
            self.notify("obeyed", seq)

    def park(self) -> None:
        """Stops the processes and sees to it that they have stopped: one that was just ending ends instead."""
        signal_all(signal.SIGSTOP)
        gives_up = time.monotonic() + STOP_S
        while time.monotonic() < gives_up and not all(has_settled(pid) for pid in self.alive):
            time.sleep(0.001)
        self.reap()

    def go_on(self, affinity: list[list[int] | None] | None) -> None:
        """Lets stopped processes go on, on other cores if some are given."""
        if affinity is not None and len(affinity) == len(self.ranks):
            for pid, cores in zip(self.ranks, affinity, strict=True):
                if cores and pid in self.alive:
                    pin([pid, *descendants(pid)], cores)
        signal_all(signal.SIGCONT)

    def end(self, grace_s: float) -> None:
        """Asks the processes to end, now or by a deadline."""
        if grace_s <= 0:
            self.kill()
        elif self.deadline == math.inf:
            self.deadline = time.monotonic() + grace_s
            for pid in self.alive:
                signal_group(pid, signal.SIGTERM)
            signal_all(signal.SIGCONT)

    # -- the end --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kills everything there is of the attempt."""
        self.deadline = math.inf
        if self.launch.get("cgroup"):
            write_if_there(f"{self.launch['cgroup']}/cgroup.kill", "1")
        for pid in self.alive:
            signal_group(pid, signal.SIGKILL)
        signal_all(signal.SIGKILL)

    def clear_away(self) -> None:
        """Kills what the processes left behind, and returns when there is nothing left."""
        while True:
            try:
                ended = next_ended()
            except ChildProcessError:
                return
            if ended is not None:
                self.collect(ended)
            else:
                self.kill()
                signal.sigtimedwait(AWAITED, 0.1)

    def outcome(self) -> dict[str, Any]:
        """What exit.json says; of several processes, the first that failed counts."""
        failed = [code for code in self.codes if code not in (0, SUSPENDED)] or [code for code in self.codes if code]
        code = NOT_EXECUTED if self.trouble else failed[0] if failed else 0
        return {
            "code": 128 - code if code < 0 else code, "signal": -code if code < 0 else None, "trouble": self.trouble,
            "asked": self.asked, "seq": self.seq, "max_rss_bytes": self.max_rss_bytes, "cpu_s": round(self.cpu_s, 3),
            "machine_oom_kills": machine_oom_kills() - self.oom_kills, "at": time.time(),
        }  # fmt: skip

    def notify(self, kind: str, seq: int = 0) -> None:
        """Tells the controller, if there is one; it would find out without, but later."""
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
    return code != 0 and not (code == SUSPENDED and read("control.json").get("want") == "leave")


# -- a new process ---------------------------------------------------------------------------------------------------


def become(process: dict[str, Any], launch: dict[str, Any], parent: int, complaints: int) -> NoReturn:
    """Turns a fresh child into a process of the job; what goes wrong is written to ``complaints``."""
    doing = "start"
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            doing = "confine"
            confine(process, launch)
            doing = "chdir"
            os.chdir(launch["cwd"])
            doing = "exec"
            restore_signals()
            os.execvpe(process["argv"][0], process["argv"], process["env"])
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else errno.EINVAL
        os.write(complaints, json.dumps({"doing": doing, "errno": number}).encode() + b"\n")
    finally:
        os._exit(NOT_EXECUTED)


def confine(process: dict[str, Any], launch: dict[str, Any]) -> None:
    """Joins the control group, sets resource limits and cores."""
    if launch.get("cgroup"):
        write(f"{launch['cgroup']}/cgroup.procs", "0")
    write_if_there("/proc/self/oom_score_adj", FIRST_TO_KILL)
    for name, limit in launch.get("rlimits", {}).items():
        hard = resource.getrlimit(getattr(resource, name))[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(getattr(resource, name), (limit, hard))
    if process.get("affinity"):
        os.sched_setaffinity(0, process["affinity"])


def restore_signals() -> None:
    """Every signal does what it does by default, and none is blocked."""
    for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(each, signal.SIG_DFL)
        except OSError:
            continue  # the C library keeps some for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def open_streams(log: str) -> int:
    """Input from nowhere, both outputs to the end of the log; how long that is already."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # An earlier attempt may have put anything in its place: a link is not followed, a pipe not waited for.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    handle = os.open(log, flags, 0o600)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        os.set_blocking(handle, True)
        for target in (1, 2):
            os.dup2(handle, target)
    finally:
        os.close(handle)
    return found.st_size


# -- files -----------------------------------------------------------------------------------------------------------


def claim(token: str) -> bool:
    """Makes this process the only supervisor of the attempt, for as long as it lives; False if there is or was one."""
    mine = f"claim.{os.getpid()}"
    if os.path.lexists(mine):  # of a process that had this number before; it may be locked, or anything
        os.unlink(mine)
    lock = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    me = {"pid": os.getpid(), "started": start_time("self"), "boot": boot_id(), "token": token}
    os.write(lock, json.dumps(me).encode())
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        os.link(mine, "claim")
    except FileExistsError:
        return False
    finally:
        os.unlink(mine)
    return True


def read(name: str) -> dict[str, Any]:
    """The object in a JSON file; empty if there is none. What a job has put in its place is not waited for."""
    try:
        with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return {}
            found = json.loads(file.read(LARGEST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def reserve(name: str) -> None:
    """Takes the space for a file that will have to be written, however full the disk is then."""
    handle = os.open(f"{name}.reserved", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(handle, 0, RESERVED_BYTES)
    finally:
        os.close(handle)


def commit(name: str, found: dict[str, Any], *, lasting: bool = False) -> None:
    """Writes a JSON file into the space reserved for it; readers see all of it or nothing.

    A lasting one is there after a power failure too, whole or not at all.
    """
    reserved = f"{name}.reserved"
    if os.path.lexists(reserved) and not stat.S_ISREG(os.lstat(reserved).st_mode):
        os.unlink(reserved)
    handle = os.open(reserved, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        os.pwrite(handle, json.dumps(found).encode().ljust(RESERVED_BYTES), 0)
        if lasting:
            os.fsync(handle)
    finally:
        os.close(handle)
    os.rename(reserved, f"{name}.json")
    if lasting:
        sync_folder()


def sync_folder() -> None:
    """Makes names in this folder last; where that cannot be done, they last a little later."""
    try:
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError:
        return


def insist(action: Callable[..., None], *arguments: Any, **options: Any) -> None:
    """Does what must be done, for as long as the disk is in trouble; nothing if the folder is gone."""
    while True:
        try:
            return action(*arguments, **options)
        except FileNotFoundError:
            return None
        except OSError:
            time.sleep(1.0)


def write(path: str, text: str) -> None:
    """Writes to a file of the kernel."""
    handle = os.open(path, os.O_WRONLY)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def write_if_there(path: str, text: str) -> None:
    """Writes to a file of the kernel that not every machine has, or lets us write to."""
    try:
        write(path, text)
    except OSError:
        return


# -- the kernel ------------------------------------------------------------------------------------------------------


def prctl(option: int, value: int) -> None:
    """Sets a property of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def boot_id() -> str:
    """Which start of the machine this is."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def stat_of(pid: int | str) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; the name before may contain anything."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def start_time(pid: int | str) -> int | None:
    """When a process was started, in clock ticks since the machine was; with its number this is unique."""
    try:
        return int(stat_of(pid)[19])
    except (OSError, IndexError):
        return None


def has_settled(pid: int) -> bool:
    """Whether a process of ours has stopped or ended; it stays to be waited for."""
    flags = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, pid, flags) is not None


def next_ended() -> int | None:
    """A child that has ended and was not waited for; ChildProcessError if there are no children."""
    found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return found.si_pid if found is not None else None


def descendants(root: int) -> list[int]:
    """The children of a process and theirs, parents first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                children.setdefault(int(stat_of(name)[1]), []).append(int(name))
            except (OSError, IndexError):
                continue
    found = list(children.get(root, ()))
    for each in found:
        found += children.get(each, ())
    return found


def signal_group(leader: int, which: int) -> None:
    """Signals a process group whose leader was not waited for."""
    try:
        os.killpg(leader, which)
    except (ProcessLookupError, PermissionError):
        return


def signal_all(which: int) -> None:
    """Signals every descendant, those that come into being meanwhile too."""
    seen: set[int] = set()
    while new := [pid for pid in descendants(os.getpid()) if pid not in seen]:
        seen.update(new)
        for pid in new:
            try:
                os.kill(pid, which)
            except (ProcessLookupError, PermissionError):
                continue


def pin(pids: list[int], cores: list[int]) -> None:
    """Moves processes with all their threads to cores."""
    for pid in pids:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(thread), cores)
        except OSError:
            continue


def machine_oom_kills() -> int:
    """Processes killed so far on this machine because memory ran out."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)
