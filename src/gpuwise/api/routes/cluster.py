"""The cluster, the line and what happens."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query, Response

from gpuwise.api.access.caller import AsViewer, Call
from gpuwise.api.schema import answers, views
from gpuwise.api.schema.documented import gives
from gpuwise.api.schema.parameters import LastEventId, Limit, Sequence
from gpuwise.api.sse import as_events
from gpuwise.core import __version__

router = APIRouter(tags=["cluster"])

BACKLOG = 100
"""How many lines back events begin if nothing else is asked for."""
Follow = Annotated[bool, Query(description="Go on without end, as server-sent events; else a list.")]


@router.get("/queue", responses=gives(answers.Queue, "Jobs that have not ended."))
async def queue(call: AsViewer, limit: Limit = 1000) -> Response:
    """List who runs and who waits, with estimates."""
    found = await call.service.overview.queue(call.caller, limit)
    return views.answer({"jobs": [views.queued(each) for each in found]})


@router.get("/nodes", responses=gives(answers.Nodes, "All nodes."))
async def nodes(call: AsViewer) -> Response:
    """Show the devices and who is on them."""
    return views.answer({"nodes": await _nodes(call)})


@router.get("/top", responses=gives(answers.Top, "What is measured now."))
async def top(call: AsViewer) -> Response:
    """Show the use of the devices, and how far the jobs on them are."""
    running = [record for record in call.service.overview.visible(call.caller) if record.placement]
    return views.answer({"nodes": await _nodes(call), "jobs": [views.job(record) for record in running]})


async def _nodes(call: Call) -> list[views.View]:
    overview = call.service.overview
    states, readings = await overview.nodes(), await overview.readings()
    mine = {record.uid: record for record in overview.visible(call.caller)}
    return [views.node(state, readings, mine) for state in states]


@router.get(
    "/events",
    responses={
        200: {
            "model": answers.Events,
            "description": "What happens, as server-sent events; a list with follow=false.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
    },
)
async def events(
    call: AsViewer, after: Sequence = None, last_seen: LastEventId = None, follow: Follow = True, limit: Limit = 1000
) -> Response:
    """Tell what happens to one's jobs and to the nodes; begins a little back unless told where."""
    feed, principal = call.service.feed, call.caller.principal
    begin, last = int(last_seen) if last_seen is not None else after, await feed.last()
    begin = max(0, last - BACKLOG) if begin is None else min(begin, last)
    if follow:
        return call.stream(as_events(feed.stream(principal, begin)), "text/event-stream")
    page = await feed.page(principal, begin, limit)
    return views.answer({"events": [views.event(each) for each in page.events], "last": page.last})


@router.get("/status", responses=gives(answers.Status, "The service at a glance."))
async def status(call: AsViewer) -> Response:
    """Show what runs here and how it is."""
    overview, about, principal = call.service.overview, call.service.overview.about, call.caller.principal
    switching = overview.switching()
    return views.answer(
        {
            "version": __version__,
            "policy": overview.policy(),
            "placement": about.placement,
            "store": about.store,
            "started_at": about.started_at,
            "uptime_s": max(0.0, time.time() - about.started_at),
            "counts": overview.counts(),
            "trouble": overview.trouble(),
            "notes": about.notes,
            "switches": switching.switches,
            "switching_s": switching.lost_s,
            "user": principal.user,
            "role": str(principal.role),
        }
    )
