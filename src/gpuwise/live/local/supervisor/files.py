"""Files in an attempt's folder: its job may have put a pipe, a link or terabytes in their place, and disks become full.

Reading never waits, except on a file system that a user's process serves, and is bounded; what is written is seen
whole or not at all.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time

from .processes import boot_id, start_time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes milliseconds to load, and this runs once for each attempt
    from collections.abc import Callable, Mapping
    from typing import Any

    AnyPath = str | os.PathLike[str]

LARGEST_BYTES = 64 * 1024
"""No more is read of any file, but for launch.json, which has the environments of all processes."""
LARGEST_LAUNCH_BYTES = 64 * 1024 * 1024
RESERVED_BYTES = 4096


def open_regular(path: AnyPath) -> int:
    """A handle to read a file; OSError if it is not a regular one. The last part of its path may not be a link."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_end(path: AnyPath, offset: int, most_bytes: int) -> bytes:
    """The end of a file from ``offset`` on."""
    with open(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(min(offset, size), size - most_bytes))
        return file.read(most_bytes)


def read_json(path: AnyPath, most_bytes: int = LARGEST_BYTES) -> dict[str, Any]:
    """The object in a file; empty if there is none, or none that could be ours."""
    try:
        with open(open_regular(path), "rb") as file:
            content = file.read(most_bytes + 1)
        found = json.loads(content) if len(content) <= most_bytes else None
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: AnyPath, found: Mapping[str, Any], group: int | None = None) -> None:
    """Replaces a file; what is in the way where it is prepared is removed. A group may read it, if one is given."""
    folder, name = os.path.split(path)
    fresh = os.path.join(folder, f".{name}.{os.getpid()}")
    if os.path.lexists(fresh):
        os.unlink(fresh)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(json.dumps(found).encode())
        if group is not None:
            os.fchown(file.fileno(), -1, group)
            os.fchmod(file.fileno(), 0o640)
    os.replace(fresh, path)


# -- the supervisor's own files, in the folder it runs in ------------------------------------------------------------


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


def reserve(name: str) -> None:
    """Takes the space for a file that will have to be written, however full the disk is then."""
    handle = os.open(f"{name}.reserved", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(handle, 0, RESERVED_BYTES)
    finally:
        os.close(handle)


def commit(name: str, found: dict[str, Any], *, lasting: bool = False) -> None:
    """Writes a JSON file into the space reserved for it; a lasting one is there after a power failure, too."""
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
        _sync_folder()


def _sync_folder() -> None:
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


def open_output(log: str, owner: dict[str, Any] | None = None) -> int:
    """Input from nowhere, both outputs to the end of the log; how long that is already.

    The log becomes its owner's, so that processes of that account can open it by name, as /dev/stderr does.
    """
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
        if owner and found.st_nlink == 1:  # by a second name it may be another's file
            os.fchown(handle, owner["uid"], owner["gid"])
        os.set_blocking(handle, True)
        for target in (1, 2):
            os.dup2(handle, target)
    finally:
        os.close(handle)
    return found.st_size
