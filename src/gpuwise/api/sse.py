"""Server-sent events: lines of text that a browser or `curl -N` reads as they come."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from gpuwise.api.schema import views
from gpuwise.service.live.feed import Happening, Page

RETRY_MS = 1000
"""How soon a browser comes back after a broken connection."""


async def as_events(pages: AsyncIterator[Page]) -> AsyncIterator[bytes]:
    """Pages of happenings in the format of server-sent events; an empty page shows that the stream is alive."""
    yield f"retry: {RETRY_MS}\n\n".encode()
    async for page in pages:
        yield b"".join(_event(each) for each in page.events) if page.events else b": nothing new\n\n"


def _event(happening: Happening) -> bytes:
    data = json.dumps(views.event(happening), separators=(",", ":"))
    return f"id: {happening.seq}\nevent: {happening.kind}\ndata: {data}\n\n".encode()
