"""The use cases of administrators: queues, nodes, tokens, the audit log."""

from __future__ import annotations

from gpuwise.core.records import AuditEntry, QueueRecord, TokenRecord, UserRole
from gpuwise.live.controller import Controller
from gpuwise.service.live.access import Access, Caller
from gpuwise.service.live.audit import Audit
from gpuwise.service.live.errors import NotFoundError
from gpuwise.service.live.threads import WorkerPool, result_of


class Admin:
    """Changes to what is shared, each recorded in the audit log. Only the controller's thread writes."""

    def __init__(self, controller: Controller, access: Access, workers: WorkerPool, audit: Audit) -> None:
        self._controller = controller
        self._access = access
        self._workers = workers
        self._audit = audit

    async def queues(self) -> list[QueueRecord]:
        """All queues that have limits, by name."""
        return await self._workers.run(self._controller.store.queues)

    async def set_queue(self, caller: Caller, queue: QueueRecord) -> QueueRecord:
        """Sets a queue's limits, in place of those it had."""
        setting = result_of(self._controller.set_queue(queue))
        await self._audit.recorded(caller, "set queue", queue.name, setting)
        return queue

    async def delete_queue(self, caller: Caller, name: str) -> None:
        """Removes a queue's limits."""

        async def remove() -> None:
            if not await result_of(self._controller.remove_queue(name)):
                raise NotFoundError(f"queue {name!r} has no limits to remove; see gpuwise queues")

        await self._audit.recorded(caller, "delete queue", name, remove())

    async def drain(self, caller: Caller, node: str, *, drained: bool = True) -> None:
        """Starts no more jobs on a node until it is undrained; those that run there stay."""

        async def change() -> None:
            if not await result_of(self._controller.set_schedulable(node, not drained)):
                raise NotFoundError(f"there is no node {node!r}; see gpuwise nodes")

        await self._audit.recorded(caller, "drain node" if drained else "undrain node", node, change())

    def tokens(self, caller: Caller) -> list[TokenRecord]:
        """All tokens, oldest first, revoked ones too; users see their own."""
        every = caller.principal.role is UserRole.ADMIN
        return [token for token in self._access.tokens() if every or token.user == caller.user]

    async def add_token(
        self, caller: Caller, user: str, role: UserRole, expires_in_s: float | None
    ) -> tuple[TokenRecord, str]:
        """A new token, and its secret, which is shown once."""
        adding = self._controller.ask(lambda _: self._access.create(caller.principal, user, role, expires_in_s))
        return await self._audit.recorded(caller, f"add {role} token", user, result_of(adding))

    async def rotate_token(
        self, caller: Caller, token_id: str, expires_in_s: float | None, grace_s: float
    ) -> tuple[TokenRecord, str]:
        """A new token in the place of another, and its secret, which is shown once."""
        by = caller.principal
        rotating = self._controller.ask(lambda _: self._access.rotate(by, token_id, expires_in_s, grace_s))
        return await self._audit.recorded(caller, "rotate token", token_id, result_of(rotating))

    async def revoke_token(self, caller: Caller, token_id: str) -> TokenRecord:
        """Ends a token at once."""
        revoking = self._controller.ask(lambda _: self._access.revoke(token_id))
        return await self._audit.recorded(caller, "revoke token", token_id, result_of(revoking))

    async def audit(self, before: int | None, limit: int) -> list[tuple[int, AuditEntry]]:
        """Who did what, newest first."""
        return await self._workers.run(self._controller.store.audit, before=before, limit=limit)
