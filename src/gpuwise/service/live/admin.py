"""The use cases of administrators: queues, tokens, who did what."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.records import AuditEntry, QueueRecord, Role, TokenRecord
from gpuwise.live.controller import Controller
from gpuwise.service.live.access import Access, Caller
from gpuwise.service.live.jobs import Audit
from gpuwise.service.live.refusals import NotFoundError
from gpuwise.service.live.threads import Readers, answer

Result = TypeVar("Result")


class Admin:
    """Changes to what is shared; each is noted. Writes happen in the controller's thread, the only one that writes."""

    def __init__(self, controller: Controller, access: Access, readers: Readers, audit: Audit) -> None:
        self._controller = controller
        self._access = access
        self._readers = readers
        self._audit = audit

    async def queues(self) -> list[QueueRecord]:
        """All queues that have limits, by name."""
        return await self._readers.run(self._controller.store.queues)

    async def set_queue(self, caller: Caller, queue: QueueRecord) -> QueueRecord:
        """Gives a queue limits, in place of those it had."""
        await self._noted(caller, "set queue", queue.name, answer(self._controller.set_queue(queue)))
        return queue

    async def forget_queue(self, caller: Caller, name: str) -> None:
        """Takes a queue's limits away."""

        async def forget() -> None:
            if not await answer(self._controller.remove_queue(name)):
                raise NotFoundError(f"queue {name!r} has no limits that could be taken away")

        await self._noted(caller, "forget queue", name, forget())

    async def drain(self, caller: Caller, node: str, *, drained: bool = True) -> None:
        """Lets no more jobs on a node, until it is undrained; those that run there stay."""

        async def change() -> None:
            if not await answer(self._controller.set_schedulable(node, not drained)):
                raise NotFoundError(f"there is no node {node!r}; see gpuwise nodes")

        await self._noted(caller, "drain node" if drained else "undrain node", node, change())

    def tokens(self) -> list[TokenRecord]:
        """All tokens, oldest first, revoked ones too."""
        return self._access.tokens()

    async def add_token(
        self, caller: Caller, user: str, role: Role, expires_in_s: float | None
    ) -> tuple[TokenRecord, str]:
        """A new token, and its secret, which is told once."""
        adding = self._controller.ask(lambda _: self._access.add(user, role, expires_in_s))
        return await self._noted(caller, f"add {role} token", user, answer(adding))

    async def revoke_token(self, caller: Caller, token_id: str) -> TokenRecord:
        """Ends a token at once."""
        revoking = self._controller.ask(lambda _: self._access.revoke(token_id))
        return await self._noted(caller, "revoke token", token_id, answer(revoking))

    async def audit(self, before: int | None, limit: int) -> list[tuple[int, AuditEntry]]:
        """Who did what, newest first."""
        return await self._readers.run(self._controller.store.audit, before=before, limit=limit)

    async def _noted(self, caller: Caller, action: str, target: str, doing: Awaitable[Result]) -> Result:
        try:
            result = await doing
        except GpuwiseError as error:
            self._audit.by(caller, action, target, f"refused: {error}")
            raise
        self._audit.by(caller, action, target)
        return result
