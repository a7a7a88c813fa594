"""What is asked of a job at a step boundary: by the controller in a file, by signals, or by the script itself."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gpuwise.sdk.files import WatchedFile

RUN, CHECKPOINT, LEAVE, PAUSE = "run", "checkpoint", "leave", "pause"


class Request(NamedTuple):
    """Save and go on, save and leave, stand still, or simply run on."""

    want: str
    seq: int | None = None
    """The controller's number for it; None if it is not the controller's."""


class Requests:
    """The newest request that was not looked at yet."""

    def __init__(self, attempt_dir: Path | None) -> None:
        self._asked: Request | None = None
        self._control = None if attempt_dir is None else WatchedFile(attempt_dir / "control.json")
        self._seq: int | None = None

    def ask(self, want: str) -> None:
        """Asks from within the process; safe in a signal handler. A checkpoint does not take back leaving."""
        if self._asked is None or self._asked.want != LEAVE:
            self._asked = Request(want)

    def look(self) -> Request | None:
        """What is asked for now; None if nothing new is."""
        if self._asked is not None:
            asked, self._asked = self._asked, None
            return asked
        return self.of_controller()

    def of_controller(self) -> Request | None:
        """What the controller asks for now; None if that is nothing new."""
        return None if self._control is None else self._numbered(self._control.content())

    def _numbered(self, content: dict[str, object]) -> Request | None:
        """A request with a number not seen before; anything that is no request is passed over."""
        seq, want = content.get("seq"), content.get("want")
        if seq == self._seq or type(seq) is not int or want not in (RUN, CHECKPOINT, LEAVE, PAUSE):
            return None
        self._seq = seq
        return Request(str(want), seq)
