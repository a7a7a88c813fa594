"""Sleeps until something happens: a message, a supervisor that ends, a call from another thread, or the time is up."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path

from gpuwise.live.local.attempts.messages import Message, MessageSocket

LONGEST_S = 3600.0
"""No sleep is longer; the kernel takes no more than about 24 days."""


@dataclass(slots=True)
class SupervisorHandle:
    """A supervisor process, by a handle that never means another process."""

    pid: int
    handle: int
    """A pidfd; below 0 once it is closed."""
    folder: Path

    def poke(self) -> None:
        """Lets it look at its orders."""
        self._signal(signal.SIGUSR1)

    def kill(self) -> None:
        """Kills it; the kernel kills the processes it has started."""
        self._signal(signal.SIGKILL)

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""
        poller = select.poll()
        poller.register(self.handle, select.POLLIN)
        return bool(poller.poll(0))

    def close(self) -> None:
        """Closes the handle; if it has ended and was a child of ours, the kernel may forget it."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self.handle, os.WEXITED | os.WNOHANG)
        os.close(self.handle)
        self.handle = -1

    def _signal(self, which: int) -> None:
        if self.handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.handle, which)


@dataclass(slots=True)
class News:
    """What has happened."""

    called: bool = False
    messages: list[Message] = field(default_factory=list)
    gone: list[Path] = field(default_factory=list)
    """The attempt folders whose supervisors have ended."""


class Watch:
    """Everything that is waited for, in one selector."""

    def __init__(self, messages: MessageSocket) -> None:
        self._messages = messages
        self._call = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._call, selectors.EVENT_READ)
        self._selector.register(messages, selectors.EVENT_READ)
        self._supervisors: dict[int, SupervisorHandle] = {}
        self._lock = threading.Lock()
        self._closed = False

    def call(self) -> None:
        """Ends a sleep; may be called from any thread."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if not self._closed:
                os.eventfd_write(self._call, 1)

    def add(self, supervisor: SupervisorHandle) -> None:
        """Waits for the end of a supervisor."""
        self._supervisors[supervisor.pid] = supervisor
        self._selector.register(supervisor.handle, selectors.EVENT_READ, supervisor)

    def supervisor(self, pid: int, folder: Path) -> SupervisorHandle | None:
        """A supervisor that is waited for already."""
        known = self._supervisors.get(pid)
        return known if known is not None and known.folder == folder else None

    def sleep(self, timeout_s: float) -> News:
        """Until something happens, or the time is up."""
        news = News()
        if self._closed:
            return news
        for key, _ in self._selector.select(min(max(timeout_s, 0.0), LONGEST_S)):
            if isinstance(key.data, SupervisorHandle):
                self._drop(key.data)
                news.gone.append(key.data.folder)
            elif key.fd == self._call:
                os.eventfd_read(self._call)
                news.called = True
            else:
                news.messages = self._messages.take()
        return news

    def _drop(self, supervisor: SupervisorHandle) -> None:
        self._selector.unregister(supervisor.handle)
        if self._supervisors.get(supervisor.pid) is supervisor:  # another may have got its number
            del self._supervisors[supervisor.pid]
        supervisor.close()

    def close(self) -> None:
        """Closes everything; supervisors continue to run."""
        if self._closed:
            return
        for supervisor in list(self._supervisors.values()):
            self._drop(supervisor)
        self._selector.close()
        with self._lock:  # its number must not become another file's during a call
            self._closed = True
            os.close(self._call)
