"""How the ranks of a job agree to leave at the same step, through two files in a folder that all of them see.

Rank 0 writes agreed.json with a step that no rank has passed: in synchronous training no rank completes a step without
the others, so that all have read the file by then. At that step the others wait for saved.json. If rank 0 could not
save, or need not leave any more, it removes agreed.json, which needs no space on a full disk, and all continue.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gpuwise.sdk.files import WatchedFile, write_json
from gpuwise.sdk.requests import PAUSE, Request


class Agreement:
    """Whether the job leaves, at which step, and whether it is saved."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._agreed_path, self._saved_path = folder / "agreed.json", folder / "saved.json"
        self._agreed, self._saved = WatchedFile(self._agreed_path), WatchedFile(self._saved_path)

    def clear(self) -> None:
        """Removes what an earlier run left; rank 0 does, before its first step."""
        for path in (self._agreed_path, self._saved_path):
            with suppress(OSError):
                path.unlink()

    def propose(self, request: Request, at_step: int) -> None:
        """Asks all ranks to leave at a step."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_json(self._agreed_path, {"seq": request.seq, "want": request.want, "at_step": at_step})

    def withdraw(self) -> None:
        """Lets all ranks continue."""
        with suppress(OSError):
            self._agreed_path.unlink()

    def conclude(self, request: Request, step: int, steps: int | None) -> None:
        """Notifies all ranks, and the controller, that the job is saved and leaves."""
        write_json(self._saved_path, {"seq": request.seq, "step": step, "steps": steps})

    @property
    def at_step(self) -> int | None:
        """The step at which to leave; None to continue."""
        at_step = self._agreed.content().get("at_step")
        return at_step if isinstance(at_step, int) else None

    @property
    def is_pause(self) -> bool:
        """Whether the ranks only pause at that step, however long."""
        return self._agreed.content().get("want") == PAUSE

    @property
    def concluded(self) -> bool:
        """Whether rank 0 has saved."""
        return bool(self._saved.content())
