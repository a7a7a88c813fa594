"""The audit log: who did what to what."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.records import AuditEntry
from gpuwise.live.controller import Controller
from gpuwise.service.live.access import Caller

Result = TypeVar("Result")


class Audit:
    """Records who did what to what."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def note(self, user: str, action: str, target: str, outcome: str = "ok", address: str = "") -> None:
        """Writes an entry; long ones are cut."""
        entry = AuditEntry(
            at=time.time(), user=user, action=action, target=target[:200], outcome=outcome[:500], address=address
        )
        self._controller.note(entry)

    def by(self, caller: Caller, action: str, target: str, outcome: str = "ok") -> None:
        """Writes an entry about a known caller."""
        self.note(caller.user, action, target, outcome, caller.address)

    async def recorded(
        self,
        caller: Caller,
        action: str,
        target: str,
        doing: Awaitable[Result],
        made: Callable[[Result], str] | None = None,
    ) -> Result:
        """The result of an action, which is recorded with its outcome; the target is what it ``made``, if anything."""
        try:
            result = await doing
        except GpuwiseError as error:
            self.by(caller, action, target, f"refused: {error}")
            raise
        self.by(caller, action, target if made is None else made(result))
        return result
