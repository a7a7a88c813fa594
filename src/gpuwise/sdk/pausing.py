"""Standing still between two steps, while other jobs have their turn on the same devices."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from gpuwise.sdk.files import write_json
from gpuwise.sdk.messages import Messages
from gpuwise.sdk.progress import Progress
from gpuwise.sdk.requests import Request, Requests

POLL_S = 0.005


class Pauses:
    """Stands still when the controller asks for it, until it asks for something else; on rank 0."""

    def __init__(self, attempt_dir: Path | None, requests: Requests, messages: Messages, progress: Progress) -> None:
        self._attempt_dir = attempt_dir
        self._requests = requests
        self._messages = messages
        self._progress = progress

    def stand_still(self, request: Request) -> Request:
        """Says that it stands still, and returns what the controller wants next.

        If that cannot be said, for want of disk space, the controller stops the process instead.
        """
        began_s = monotonic()
        if self._attempt_dir is not None:
            with suppress(OSError):
                write_json(self._attempt_dir / "paused.json", {"seq": request.seq}, lasting=False)
        self._messages.send("paused", seq=request.seq)
        while (newer := self._requests.of_controller()) is None:
            sleep(POLL_S)
        self._messages.send("resumed", seq=newer.seq)
        self._progress.leave_out(monotonic() - began_s)
        return newer
