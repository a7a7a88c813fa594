"""The terminal of an interactive job: a pty or pipes, and a socket in its attempt's folder for one client.

A frame is a letter, the length of what follows in four bytes, and that. The client sends input (``I``), its end
(``E``), the size of its window (``W``: rows and columns, two bytes each) and signals (``S``: one byte); it receives
output (``O``) and errors (``R``). The job is ended when the client disconnects, or does not connect in time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import termios
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes milliseconds to load
    from collections.abc import Callable
    from typing import Any

SOCKET = "terminal.sock"
PIPE = "pipe"
CONNECT_S = 60.0
"""How long a job waits for its client."""
HEADER = struct.Struct("!cI")
WINDOW = struct.Struct("!HH")
PIECE_BYTES = 64 * 1024
GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
"""What a client may send to the job."""


def frame(kind: bytes, content: bytes = b"") -> bytes:
    """A message between client and supervisor."""
    return HEADER.pack(kind, len(content)) + content


def take_frames(received: bytearray) -> list[tuple[bytes, bytes]]:
    """The complete messages at the start of what was received, which are removed from it."""
    found = []
    while len(received) >= HEADER.size:
        kind, length = HEADER.unpack_from(received)
        if length > PIECE_BYTES:
            raise OSError(errno.EPROTO, "a message is too long")
        if len(received) < HEADER.size + length:
            break
        found.append((kind, bytes(received[HEADER.size : HEADER.size + length])))
        del received[: HEADER.size + length]
    return found


class Terminal:
    """Both ends of a job's input and output, until its processes are started."""

    def __init__(self, kind: str, owner: dict[str, Any] | None = None) -> None:
        self.is_pty = kind != PIPE
        if self.is_pty:
            self.master, slave = os.openpty()
            resize(self.master, *map(int, kind.partition(":")[2].split("x")))
            self.theirs, self.outputs = (slave, slave, slave), {self.master: b"O"}
        else:
            job_in, self.master = os.pipe()
            out, job_out = os.pipe()
            err, job_err = os.pipe()
            self.theirs, self.outputs = (job_in, job_out, job_err), {out: b"O", err: b"R"}
        for handle in (self.master, *self.outputs):
            os.set_blocking(handle, False)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(SOCKET)  # relative to the attempt's folder: its whole path may be too long
        os.chmod(SOCKET, 0o600)
        if owner:
            self._give(owner["uid"], owner["gid"])
        self.listener.listen(1)

    def _give(self, uid: int, gid: int) -> None:
        """Lets an account connect, and its processes open their input and output by name, as /dev/stderr does."""
        os.chown(SOCKET, uid, gid, follow_symlinks=False)
        for handle in set(self.theirs):
            os.fchown(handle, uid, -1)

    def enter(self) -> None:
        """Makes it the input and output of this process, which leads a session of its own."""
        for target, handle in enumerate(self.theirs):
            os.dup2(handle, target)
        if self.is_pty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def started(self) -> None:
        """Closes the ends that the job's processes have now."""
        for handle in set(self.theirs):
            os.close(handle)


def resize(handle: int, rows: int, columns: int) -> None:
    """Sets the size of a terminal's window; its processes are notified by the kernel."""
    fcntl.ioctl(handle, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Relay(threading.Thread):
    """Carries input and output between a job and its client; what the job prints goes to its log, too."""

    def __init__(self, terminal: Terminal, send_signal: Callable[[int], None], left: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._terminal = terminal
        self._input = terminal.master
        self._outputs = dict(terminal.outputs)
        self._send_signal = send_signal
        self._left = left
        self._to_job, self._to_client, self._received = bytearray(), bytearray(), bytearray()
        self._input_ends = False

    def run(self) -> None:
        """Until all output was passed on, or the client is gone."""
        try:
            with self._accept() as client:
                client.setblocking(False)
                while self._outputs or self._to_client:
                    self._turn(client)
        except OSError:  # the client is gone, or never came
            self._left()
        finally:
            self._close_input()
            for handle in list(self._outputs):
                self._close_output(handle)

    def _accept(self) -> socket.socket:
        listener = self._terminal.listener
        try:
            listener.settimeout(CONNECT_S)
            return listener.accept()[0]
        finally:
            listener.close()
            os.unlink(SOCKET)

    def _turn(self, client: socket.socket) -> None:
        """Waits until something can be carried on, and does that."""
        wanted = select.poll()
        reads = select.POLLIN if len(self._to_job) < PIECE_BYTES else 0
        wanted.register(client, reads | (select.POLLOUT if self._to_client else 0))
        if len(self._to_client) < PIECE_BYTES:
            for handle in self._outputs:
                wanted.register(handle, select.POLLIN)
        if self._to_job and self._input not in self._outputs:
            wanted.register(self._input, select.POLLOUT)
        elif self._to_job:
            wanted.register(self._input, select.POLLOUT | (select.POLLIN if len(self._to_client) < PIECE_BYTES else 0))
        for handle, events in wanted.poll():
            if handle == client.fileno():
                self._serve(client, events)
            elif handle in self._outputs and events & (select.POLLIN | GONE):
                self._read_output(handle)
            if handle == self._input and events & (select.POLLOUT | GONE):
                self._write_input()

    def _serve(self, client: socket.socket, events: int) -> None:
        """Exchanges what there is with the client; OSError if it is gone."""
        if events & select.POLLOUT:
            del self._to_client[: client.send(self._to_client)]
        if events & select.POLLIN:
            piece = client.recv(PIECE_BYTES)
            if not piece:
                raise ConnectionResetError
            self._received += piece
            for kind, content in take_frames(self._received):
                self._obey(kind, content)
        elif events & GONE:
            raise ConnectionResetError

    def _obey(self, kind: bytes, content: bytes) -> None:
        if kind == b"I" and self._input >= 0:
            self._to_job += content
        elif kind == b"E":
            self._input_ends = True
            self._write_input()
        elif kind == b"W" and self._terminal.is_pty and self._input >= 0:
            resize(self._input, *WINDOW.unpack(content[: WINDOW.size].ljust(WINDOW.size, b"\0")))
        elif kind == b"S" and content and content[0] in SIGNALS:
            self._send_signal(content[0])

    def _write_input(self) -> None:
        try:
            if self._to_job and self._input >= 0:
                del self._to_job[: os.write(self._input, self._to_job)]
        except BlockingIOError:
            return
        except OSError:  # the job has closed its input
            self._to_job.clear()
            if not self._terminal.is_pty:
                self._close_input()
        if self._input_ends and not self._to_job and not self._terminal.is_pty:
            self._close_input()

    def _read_output(self, handle: int) -> None:
        try:
            piece = os.read(handle, PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:  # how a pty says that no process has it any more
            piece = b""
        if not piece:
            self._close_output(handle)
            return
        with contextlib.suppress(OSError):  # a full disk costs the log, not the session
            os.write(1, piece)
        self._to_client += frame(self._terminal.outputs[handle], piece)

    def _close_output(self, handle: int) -> None:
        self._outputs.pop(handle, None)
        if handle == self._input:
            self._close_input()
        else:
            os.close(handle)

    def _close_input(self) -> None:
        handle, self._input = self._input, -1
        self._to_job.clear()
        if handle >= 0:
            self._outputs.pop(handle, None)
            os.close(handle)
