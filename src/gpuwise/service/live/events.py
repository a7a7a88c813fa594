"""Events as they happen: the journal's lines for those who may see them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from gpuwise.core.records import JournalLine, UserRole
from gpuwise.live.controller import Controller
from gpuwise.service.live.access import Access, Principal
from gpuwise.service.live.journal_text import NOT_SHOWN, describe_record
from gpuwise.service.live.threads import WorkerPool

CACHED_LINES = 10_000
CACHED_OWNERS = 100_000
PAGE_LINES = 1000
HEARTBEAT_S = 15.0
"""How often a stream without events sends an empty page."""
PAUSE_S = 0.05
"""Between two pages, so that a busy controller does not wake a stream at each turn."""


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """A line of the journal in words, about a job or a node."""

    seq: int
    at: float
    kind: str
    job: str | None
    text: str


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some events, and the sequence number up to which the journal was read for them."""

    events: list[FeedEvent]
    last: int


class EventFeed:
    """The newest lines in memory, older ones from the store; nothing waits for a slow reader."""

    def __init__(self, controller: Controller, access: Access, workers: WorkerPool) -> None:
        self._controller = controller
        self._access = access
        self._workers = workers
        self._lock = threading.Lock()
        self._lines: deque[JournalLine] = deque(maxlen=CACHED_LINES)
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self.closed = False
        """Whether streams are to end."""
        self._stop = controller.listen(self._received)
        access.on_change = self._wake

    def close(self) -> None:
        """Ends all streams; may be called from any thread."""
        with contextlib.suppress(ValueError):
            self._stop()
        self.closed = True
        self._wake()

    def _received(self, lines: Sequence[JournalLine]) -> None:
        """In the controller's thread."""
        with self._lock:
            self._lines.extend(lines)
        self._wake()

    def _wake(self) -> None:
        for event, loop in list(self._waiting.items()):
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(event.set)

    async def last(self) -> int:
        """The newest sequence number."""
        with self._lock:
            if self._lines:
                return self._lines[-1].sequence
        return await self._workers.run(self._controller.store.last_sequence)

    async def page(self, principal: Principal, after: int, limit: int = PAGE_LINES) -> EventPage:
        """The events after a sequence number that the principal may see."""
        lines = self._cached(after, limit)
        if lines is None:
            lines = await self._workers.run(self._controller.store.lines, after=after, limit=limit)
        owners = await self._owners_of(lines) if principal.role is not UserRole.ADMIN else {}
        names = self._controller.engine.state.nodes.names
        events = [
            FeedEvent(line.sequence, line.at, line.kind, line.uid, _in_words(line, names))
            for line in lines
            if line.kind not in NOT_SHOWN and _may_see(principal, line, owners)
        ]
        return EventPage(events, lines[-1].sequence if lines else after)

    def _cached(self, after: int, limit: int) -> list[JournalLine] | None:
        """Lines from memory; None if some of them are no longer there."""
        with self._lock:
            if not self._lines or after + 1 < self._lines[0].sequence:
                return None
            skip = after + 1 - self._lines[0].sequence
            return [self._lines[place] for place in range(skip, min(skip + limit, len(self._lines)))]

    async def _owners_of(self, lines: Sequence[JournalLine]) -> dict[str, str]:
        """The users of the jobs in some lines."""
        uids = {line.uid for line in lines if line.uid is not None}
        unknown = [uid for uid in uids if uid not in self._owners]
        for uid in list(unknown):
            if (record := self._controller.live(uid)) is not None:
                self._owners[uid] = record.user
                unknown.remove(uid)
        if unknown:
            found = await self._workers.run(self._controller.store.jobs, uids=unknown, limit=len(unknown))
            self._owners.update({record.uid: record.user for record in found})
        owners = {uid: self._owners[uid] for uid in uids if uid in self._owners}
        while len(self._owners) > CACHED_OWNERS:
            self._owners.popitem(last=False)
        return owners

    async def stream(self, principal: Principal, after: int) -> AsyncIterator[EventPage]:
        """Pages as they come, with an empty one as heartbeat; ends when the token is revoked."""
        event = asyncio.Event()
        self._waiting[event] = asyncio.get_running_loop()
        try:
            while not self.closed and self._access.is_valid(principal):
                event.clear()
                page = await self.page(principal, after)
                if page.last > after:
                    after = page.last
                    if page.events:
                        yield page
                    await asyncio.sleep(PAUSE_S)
                elif not await _is_set_in_time(event):
                    yield page
        finally:
            self._waiting.pop(event, None)


async def _is_set_in_time(event: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _in_words(line: JournalLine, names: Sequence[str]) -> str:
    """A line in words; a damaged one does not hide the others."""
    try:
        return describe_record(line.kind, json.loads(line.body), names)
    except (ValueError, LookupError, TypeError, AttributeError):
        return "(this line of the journal cannot be read)"


def _may_see(principal: Principal, line: JournalLine, owners: dict[str, str]) -> bool:
    """Lines of one's own jobs, and those about nodes; a line about several jobs is for administrators."""
    if principal.role is UserRole.ADMIN:
        return True
    if line.uid is not None:
        return owners.get(line.uid) == principal.user
    return line.kind != "Rearrange"
