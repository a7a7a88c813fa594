"""Routes about the cluster, the queue, events and the service."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Response

from gpuwise.api.access.caller import AsViewer, Call
from gpuwise.api.errors import documented
from gpuwise.api.schema import answers, views
from gpuwise.api.schema.parameters import LastEventId, Limit, Moment, Name, Sequence, Words, split
from gpuwise.core import __version__
from gpuwise.service.live.events import EventPage

router = APIRouter(tags=["cluster"])

BACKLOG = 100
"""The number of journal lines that events start back by default."""
USAGE_S = 7 * 86400.0
RETRY_MS = 1000
"""After how long a browser reconnects."""
Follow = Annotated[bool, Query(description="Stream without end, as server-sent events; else a list.")]


@router.get("/queue", responses=documented(answers.Queue, "Jobs that have not ended."))
async def queue(call: AsViewer, limit: Limit = 1000, user: Name = None) -> Response:
    """List the running and waiting jobs of all users, with estimates; details are of one's own jobs."""
    found = await call.service.overview.queue(limit, user)
    may_see = call.caller.principal.may_see
    return views.json_response({"jobs": [views.queued(each, details=may_see(each.job)) for each in found]})


@router.get("/usage", responses=documented(answers.Usage, "What was used."))
async def usage(call: AsViewer, since: Moment = None, until: Moment = None, by: Words = ["user"]) -> Response:  # noqa: B006
    """Show the GPU time that was allocated and used; by default of the last seven days, by user."""
    now, words = time.time(), split(by)
    end = now if until is None else min(until, now)
    found = await call.service.usage.report(end - USAGE_S if since is None else since, end, words)
    return views.json_response({"usage": [views.usage(each, words) for each in found]})


@router.get("/nodes", responses=documented(answers.Nodes, "All nodes."))
async def nodes(call: AsViewer) -> Response:
    """Show the devices and the jobs on them."""
    return views.json_response({"nodes": await _nodes(call)})


@router.get("/top", responses=documented(answers.Top, "What is measured now."))
async def top(call: AsViewer) -> Response:
    """Show the use of the devices, and the progress of the jobs on them."""
    running = [record for record in call.service.overview.visible(call.caller) if record.placement]
    return views.json_response({"nodes": await _nodes(call), "jobs": [views.job(record) for record in running]})


async def _nodes(call: Call) -> list[views.View]:
    overview = call.service.overview
    states, readings = await overview.nodes(), await overview.readings()
    records = {
        share.uid: overview.record(share.uid) for state in states for device in state.devices for share in device.jobs
    }
    known = {uid: record for uid, record in records.items() if record is not None}
    return [views.node(state, readings, known, call.caller.principal.may_see) for state in states]


@router.get(
    "/events",
    responses={
        200: {
            "model": answers.Events,
            "description": "Server-sent events; a list with follow=false.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
    },
)
async def events(
    call: AsViewer, after: Sequence = None, last_seen: LastEventId = None, follow: Follow = True, limit: Limit = 1000
) -> Response:
    """Stream the events of one's jobs and of nodes; starts a little back by default."""
    feed, principal = call.service.feed, call.caller.principal
    first, last = int(last_seen) if last_seen is not None else after, await feed.last()
    first = max(0, last - BACKLOG) if first is None else min(first, last)
    if follow:
        return call.stream(server_sent(feed.stream(principal, first)), "text/event-stream")
    page = await feed.page(principal, first, limit)
    return views.json_response({"events": [views.event(each) for each in page.events], "last": page.last})


async def server_sent(pages: AsyncIterator[EventPage]) -> AsyncIterator[bytes]:
    """Pages of events as server-sent events; an empty page is a comment, which shows that the stream is alive."""
    yield f"retry: {RETRY_MS}\n\n".encode()
    async for page in pages:
        if not page.events:
            yield b": nothing new\n\n"
            continue
        shown = [(each, json.dumps(views.event(each), separators=(",", ":"))) for each in page.events]
        yield "".join(f"id: {each.seq}\nevent: {each.kind}\ndata: {data}\n\n" for each, data in shown).encode()


@router.get("/status", responses=documented(answers.Status, "The service at a glance."))
async def status(call: AsViewer) -> Response:
    """Show the service's version, settings, counts and trouble."""
    overview, principal = call.service.overview, call.caller.principal
    info, switching = overview.info, overview.switching()
    return views.json_response(
        {
            "version": __version__,
            "policy": overview.policy(),
            "placement": info.placement,
            "store": info.store,
            "started_at": info.started_at,
            "uptime_s": max(0.0, time.time() - info.started_at),
            "counts": overview.counts(),
            "trouble": overview.trouble(),
            "notes": info.notes,
            "account": info.account,
            "jobs_run_as": info.jobs_run_as,
            "switches": switching.switches,
            "switching_s": switching.lost_s,
            "user": principal.user,
            "role": str(principal.role),
        }
    )
