"""Processes of a job: made from a fork, confined, signalled, moved to other cores, recognised by more than a number."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal

from .account import become_account

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes milliseconds to load, and this runs once for each attempt
    from collections.abc import Callable
    from typing import Any, NoReturn

    AnyPath = str | os.PathLike[str]

NOT_EXECUTED = 126
TOKEN = b"GPUWISE_TOKEN="
FIRST_TO_KILL = "500"
"""When the machine runs out of memory, jobs are killed before supervisors and the controller."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def become(
    process: dict[str, Any],
    launch: dict[str, Any],
    parent: int,
    complaints: int,
    enter_terminal: Callable[[], None] | None = None,
) -> NoReturn:
    """Turns a fresh child into a process of the job; what goes wrong is written to ``complaints``."""
    doing = "start"
    try:
        os.setsid()
        if enter_terminal is not None:
            enter_terminal()
        die_with(parent)
        doing = "confine"
        confine(process, launch)
        if launch.get("account"):
            doing = "account"
            import warnings  # noqa: F401  # execvpe imports it, from where the account may not be able to read

            become_account(launch["account"])
            die_with(parent)  # a change of account ends that
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
    write_if_possible("/proc/self/oom_score_adj", FIRST_TO_KILL)
    for name, limit in launch.get("rlimits", {}).items():
        hard = resource.getrlimit(getattr(resource, name))[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(getattr(resource, name), (limit, hard))
    if process.get("affinity"):
        os.sched_setaffinity(0, process["affinity"])


def die_with(parent: int) -> None:
    """Lets the kernel kill this process when its parent ends, and ends it if the parent is gone already."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(NOT_EXECUTED)


def restore_signals() -> None:
    """Every signal does what it does by default, and none is blocked."""
    for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(each, signal.SIG_DFL)
        except OSError:
            continue  # the C library keeps some for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def prctl(option: int, value: int) -> None:
    """Sets a property of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def write(path: AnyPath, text: str) -> None:
    """Writes to a file of the kernel."""
    handle = os.open(path, os.O_WRONLY)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def write_if_possible(path: AnyPath, text: str) -> None:
    """Writes to a file of the kernel that not every machine has, or lets us write to."""
    try:
        write(path, text)
    except OSError:
        return


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


def has_stopped(pid: int) -> bool:
    """Whether a process of ours has stopped or ended; it stays to be waited for."""
    flags = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, pid, flags) is not None


def next_ended() -> int | None:
    """A child that has ended and was not waited for; ChildProcessError if there are no children."""
    found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return found.si_pid if found is not None else None


def all_processes() -> dict[int, tuple[int, int]]:
    """The parent of every process, and when it was started."""
    found: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = stat_of(name)
                found[int(name)] = int(fields[1]), int(fields[19])
            except (OSError, IndexError):
                continue
    return found


def below(roots: list[int], known: dict[int, tuple[int, int]]) -> list[int]:
    """The children of some processes and theirs, parents first."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in known.items():
        children.setdefault(parent, []).append(pid)
    found = [child for root in roots for child in children.get(root, ())]
    for each in found:
        found += children.get(each, ())
    return found


def family(root: int) -> dict[int, int]:
    """A process, its children and theirs, parents first, each with its start time."""
    known = all_processes()
    return {pid: known[pid][1] for pid in (root, *below([root], known)) if pid in known}


def members(token: str) -> dict[int, int]:
    """The processes of this supervisor's attempt: its descendants, and what others started with the attempt's token.

    Each with its start time, since its number may be another process's by the time it is used.

    A container is started by its engine's daemon; its processes have the token in their environment, or an ancestor
    that has it. What is older than this supervisor is not looked at.
    """
    me, known = os.getpid(), all_processes()
    since, ours = known[me][1], below([me], known)
    others = known.keys() - {me, *ours}
    elsewhere = [pid for pid in others if known[pid][1] >= since and carries(pid, token)]
    return {pid: known[pid][1] for pid in ours + elsewhere + below(elsewhere, known)}


def tokens_of(pid: int) -> list[str]:
    """The tokens of attempts in a process's environment; one that has ended, or is not ours, has none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            found = file.read().split(b"\0")
    except OSError:
        return []
    return [each[len(TOKEN) :].decode(errors="replace") for each in found if each.startswith(TOKEN)]


def carries(pid: int, token: str) -> bool:
    """Whether a process has an attempt's token in its environment."""
    return token in tokens_of(pid)


def machine_oom_kills() -> int:
    """Processes killed so far on this machine because memory ran out."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0


def signal_group(leader: int, which: int) -> None:
    """Signals a process group whose leader was not waited for."""
    try:
        os.killpg(leader, which)
    except (ProcessLookupError, PermissionError):
        return


def signal_all(which: int, token: str) -> dict[int, int]:
    """Signals every process of the attempt, those that come into being meanwhile too; all with their start times."""
    seen: dict[int, int] = {}
    while new := {pid: started for pid, started in members(token).items() if seen.get(pid) != started}:
        seen |= new
        for pid, started in new.items():
            signal_process(pid, started, which)
    return seen


def signal_process(pid: int, started: int, which: int) -> None:
    """Signals the process that was started at a time; nothing if its number is another's by now."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # The handle means one process from here on, whatever becomes of the number; so now see which one it is.
        if start_time(pid) == started:
            signal.pidfd_send_signal(handle, which)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        os.close(handle)


def is_running(pid: int, started: int) -> bool:
    """Whether a process that was started at a time has not ended; one that ends has no environment any more."""
    try:
        fields = stat_of(pid)
        return int(fields[19]) == started and fields[0] != b"Z"
    except (OSError, IndexError):
        return False


def pin(found: dict[int, int], cores: list[int]) -> None:
    """Moves processes, each with its start time, with all their threads to cores."""
    for pid, started in found.items():
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                # No handle can be given for this: the number is used right after it was seen whose it is.
                if start_time(pid) != started:
                    break
                os.sched_setaffinity(int(thread), cores)
        except OSError:
            continue
