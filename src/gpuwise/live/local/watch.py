"""Sleeps until something happens: mail, a supervisor that ends, a call from another thread, or the time is up."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
from dataclasses import dataclass, field
from pathlib import Path

from gpuwise.live.local.attempts.mailbox import Mailbox, Message
from gpuwise.live.local.supervisor.processes import Supervisor

LONGEST_S = 3600.0
"""No sleep is longer; the kernel takes no more than about 24 days."""


@dataclass(slots=True)
class News:
    """What has happened."""

    called: bool = False
    mail: list[Message] = field(default_factory=list)
    gone: list[Path] = field(default_factory=list)
    """The attempt folders whose supervisors have ended."""


class Watch:
    """Everything that is waited for, in one selector."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._call = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._call, selectors.EVENT_READ)
        self._selector.register(mailbox, selectors.EVENT_READ)
        self._supervisors: dict[int, Supervisor] = {}
        self._lock = threading.Lock()
        self._closed = False

    def call(self) -> None:
        """Ends a sleep; may be called from any thread."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if not self._closed:
                os.eventfd_write(self._call, 1)

    def add(self, supervisor: Supervisor) -> None:
        """Waits for the end of a supervisor."""
        self._supervisors[supervisor.pid] = supervisor
        self._selector.register(supervisor.handle, selectors.EVENT_READ, supervisor)

    def supervisor(self, pid: int, folder: Path) -> Supervisor | None:
        """A supervisor that is waited for already."""
        known = self._supervisors.get(pid)
        return known if known is not None and known.folder == folder else None

    def sleep(self, timeout_s: float) -> News:
        """Until something happens, or the time is up."""
        news = News()
        if self._closed:
            return news
        for key, _ in self._selector.select(min(max(timeout_s, 0.0), LONGEST_S)):
            if isinstance(key.data, Supervisor):
                self._drop(key.data)
                news.gone.append(key.data.folder)
            elif key.fd == self._call:
                os.eventfd_read(self._call)
                news.called = True
            else:
                news.mail = self._mailbox.take()
        return news

    def _drop(self, supervisor: Supervisor) -> None:
        self._selector.unregister(supervisor.handle)
        if self._supervisors.get(supervisor.pid) is supervisor:  # another may have got its number
            del self._supervisors[supervisor.pid]
        supervisor.let_go()

    def close(self) -> None:
        """Lets go of everything; supervisors go on."""
        if self._closed:
            return
        for supervisor in list(self._supervisors.values()):
            self._drop(supervisor)
        self._selector.close()
        with self._lock:  # its number must not become another file's while somebody calls
            self._closed = True
            os.close(self._call)
