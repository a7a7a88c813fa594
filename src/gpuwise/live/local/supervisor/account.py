"""Another Unix account: becoming it for good, and giving it the folders of its job."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes milliseconds to load, and this runs once for each attempt
    from typing import Any

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
UNOPENED = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
DEEPEST = 200
"""Folders within folders; each keeps a file open while it is gone through."""
ROOT = 0


def become_account(account: dict[str, Any]) -> None:
    """Gives up being root for good: groups first, since only root may change them; OSError unless it is certain."""
    uid, gid = account["uid"], account["gid"]
    os.initgroups(account["name"], gid)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if uid == ROOT or os.getresuid() != (uid,) * 3 or os.getresgid() != (gid,) * 3:
        raise OSError(errno.EPERM, "still another account")
    if _is_root_again():
        raise OSError(errno.EPERM, "root can be had back")


def _is_root_again() -> bool:
    try:
        os.setresuid(ROOT, ROOT, ROOT)
    except PermissionError:
        return False
    return True


def give(folder: str, uid: int, gid: int) -> None:
    """Makes a folder an account's, and in it all that belonged to the owner before.

    That owner may still have processes, which replace what is here at any moment: no link is followed, nothing but
    folders is opened, and what has another owner or a second name, which may be another's file, is left alone.
    """
    top = os.open(folder, FOLDER)
    try:
        owner = os.fstat(top).st_uid
        if owner != uid:
            _give_content(top, owner, uid, gid, DEEPEST)
            os.fchown(top, uid, gid)  # last: if it fails before, the next attempt begins again
    finally:
        os.close(top)


def _give_content(folder: int, owner: int, uid: int, gid: int, depth: int) -> None:
    if depth < 0:
        raise OSError(errno.ELOOP, "too many folders within folders")
    with os.scandir(folder) as found:
        names = [each.name for each in found]
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(name, UNOPENED, dir_fd=folder)
            try:
                _give_one(handle, owner, uid, gid, depth)
            finally:
                os.close(handle)


def _give_one(handle: int, owner: int, uid: int, gid: int, depth: int) -> None:
    """The handle means one file from here on, whatever its name comes to mean."""
    found, itself = os.fstat(handle), f"/proc/self/fd/{handle}"
    if found.st_uid not in (owner, uid):
        return
    if stat.S_ISDIR(found.st_mode):
        inner = os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _give_content(inner, owner, uid, gid, depth - 1)
            os.fchown(inner, uid, gid)
        finally:
            os.close(inner)
    elif stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        os.chown(itself, uid, gid)
