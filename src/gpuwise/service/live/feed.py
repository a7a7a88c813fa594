"""What happens, as it happens: the journal's lines for those who may see them."""

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
from gpuwise.service.live.journal_text import NOISE, tell
from gpuwise.service.live.threads import Readers

REMEMBERED_LINES = 10_000
REMEMBERED_OWNERS = 100_000
PAGE_LINES = 1000
BEAT_S = 15.0
"""A stream with nothing to say shows so often that it is still there."""
REST_S = 0.05
"""A stream rests this long between two pages, so that a busy controller does not wake it at each turn."""


@dataclass(frozen=True, slots=True)
class Happening:
    """A line of the journal for people."""

    seq: int
    at: float
    kind: str
    job: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """Some happenings, and the sequence number up to which the journal was looked through for them."""

    events: list[Happening]
    last: int


class Feed:
    """The newest lines in memory, older ones from the store. A slow reader only reads later; nothing waits for it."""

    def __init__(self, controller: Controller, access: Access, readers: Readers) -> None:
        self._controller = controller
        self._access = access
        self._readers = readers
        self._lock = threading.Lock()
        self._lines: deque[JournalLine] = deque(maxlen=REMEMBERED_LINES)
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._closed = False
        self._stop = controller.listen(self._heard)
        access.on_change = self._wake

    def close(self) -> None:
        """Ends all streams; may be called from any thread."""
        with contextlib.suppress(ValueError):
            self._stop()
        self._closed = True
        self._wake()

    @property
    def closed(self) -> bool:
        """Whether streams are to end."""
        return self._closed

    def _heard(self, lines: Sequence[JournalLine]) -> None:
        """In the controller's thread."""
        with self._lock:
            self._lines.extend(lines)
        self._wake()

    def _wake(self) -> None:
        for event, loop in list(self._waiting.items()):
            with contextlib.suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(event.set)

    # -- reading --------------------------------------------------------------------------------------------------

    async def last(self) -> int:
        """The newest sequence number."""
        with self._lock:
            if self._lines:
                return self._lines[-1].sequence
        return await self._readers.run(self._controller.store.last_sequence)

    async def page(self, principal: Principal, after: int, limit: int = PAGE_LINES) -> Page:
        """What happened after a sequence number, of what the principal may see."""
        lines = self._remembered(after, limit)
        if lines is None:
            lines = await self._readers.run(self._controller.store.lines, after=after, limit=limit)
        owners = await self._owners_of(lines) if principal.role is not UserRole.ADMIN else {}
        names = self._controller.engine.state.nodes.names
        events = [
            Happening(line.sequence, line.at, line.kind, line.uid, tell(line.kind, json.loads(line.body), names))
            for line in lines
            if line.kind not in NOISE and _may_see(principal, line, owners)
        ]
        return Page(events, lines[-1].sequence if lines else after)

    def _remembered(self, after: int, limit: int) -> list[JournalLine] | None:
        """Lines from memory; None if some that were asked for are no longer there."""
        with self._lock:
            if not self._lines or after + 1 < self._lines[0].sequence:
                return None
            skip = after + 1 - self._lines[0].sequence
            return [self._lines[place] for place in range(skip, min(skip + limit, len(self._lines)))]

    async def _owners_of(self, lines: Sequence[JournalLine]) -> dict[str, str]:
        """Whose the jobs of some lines are."""
        uids = {line.uid for line in lines if line.uid is not None}
        unknown = [uid for uid in uids if uid not in self._owners]
        for uid in list(unknown):
            if (record := self._controller.live(uid)) is not None:
                self._owners[uid] = record.user
                unknown.remove(uid)
        if unknown:
            found = await self._readers.run(self._controller.store.jobs, uids=unknown, limit=len(unknown))
            self._owners.update({record.uid: record.user for record in found})
        owners = {uid: self._owners[uid] for uid in uids if uid in self._owners}
        while len(self._owners) > REMEMBERED_OWNERS:
            self._owners.popitem(last=False)
        return owners

    async def stream(self, principal: Principal, after: int) -> AsyncIterator[Page]:
        """Pages as they come, without end; an empty one now and then. Ends when the token is revoked."""
        event = asyncio.Event()
        self._waiting[event] = asyncio.get_running_loop()
        try:
            while not self._closed and self._access.is_valid(principal):
                event.clear()
                page = await self.page(principal, after)
                if page.last > after:
                    after = page.last
                    if page.events:
                        yield page
                    await asyncio.sleep(REST_S)
                elif not await _happens(event):
                    yield page
        finally:
            self._waiting.pop(event, None)


async def _happens(event: asyncio.Event) -> bool:
    """Waits for an event; whether it came in time."""
    try:
        async with asyncio.timeout(BEAT_S):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _may_see(principal: Principal, line: JournalLine, owners: dict[str, str]) -> bool:
    """Lines of one's own jobs, and those about nodes; a line about several jobs is for administrators."""
    if principal.role is UserRole.ADMIN:
        return True
    if line.uid is not None:
        return owners.get(line.uid) == principal.user
    return line.kind != "Rearrange"
