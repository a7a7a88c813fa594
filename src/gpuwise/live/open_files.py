"""How many files this process may open: the service takes more than its jobs get."""

from __future__ import annotations

import resource

WANTED_FILES = 8192
"""Enough for connections, the database and a handle per running job; programs that count up to the limit stay fast."""
ORIGINAL_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""The limit this process was started with. Jobs get it: programs that use select(2) fail beyond 1,024 files."""


def raise_file_limit() -> int:
    """Raises this process's limit as far as it is useful and allowed; the limit from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= WANTED_FILES:
        return WANTED_FILES
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
