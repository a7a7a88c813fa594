"""Routes to the terminals of interactive jobs."""

from __future__ import annotations

from fastapi import APIRouter, Response

from gpuwise.api.access.caller import AsUser
from gpuwise.api.errors import documented
from gpuwise.api.schema import views
from gpuwise.api.schema.parameters import JobId
from gpuwise.api.schema.terminals import Terminal, TerminalHost

router = APIRouter(tags=["jobs"])


@router.get("/terminals", responses=documented(TerminalHost, "The machine, the folder and the account.", 409))
async def terminals(call: AsUser) -> Response:
    """Show where clients can use the terminals of interactive jobs."""
    return views.json_response(await call.service.terminals.host(call.caller))


@router.get("/jobs/{uid}/terminal", responses=documented(Terminal, "Its socket.", 404, 409))
async def terminal(call: AsUser, uid: JobId) -> Response:
    """Show where the terminal of an interactive job is."""
    return views.json_response({"path": await call.service.terminals.path(call.caller, uid)})
