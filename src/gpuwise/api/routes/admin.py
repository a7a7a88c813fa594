"""Routes for administrators: queues, nodes, tokens, the audit log; all users may see the queues and their tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from gpuwise.api.access.caller import AsAdmin, AsViewer
from gpuwise.api.errors import Responses, documented, documented_problems
from gpuwise.api.schema import answers, views
from gpuwise.api.schema.bodies import QueueBody, RotateBody, TokenBody
from gpuwise.api.schema.parameters import Limit, NodeName, QueueName, TokenId
from gpuwise.core.records import QueueRecord, UserRole

router = APIRouter()

_NO_USE = (0.0, 0)
_DONE: Responses = {204: {"description": "Done."}}


@router.get("/queues", tags=["queues"], responses=documented(answers.Queues, "All queues."))
async def queues(call: AsViewer) -> Response:
    """List the queues, their limits and their use."""
    usage = await call.service.overview.queue_usage()
    limited = {record.name: record for record in await call.service.admin.queues()}
    names = sorted(limited.keys() | usage.keys())
    found = [views.queue(limited.get(name, QueueRecord(name=name)), usage.get(name, _NO_USE)) for name in names]
    return views.json_response({"queues": found})


@router.put("/queues/{name:path}", tags=["queues"], responses=documented(answers.QueueLimits, "The queue.", 404))
async def set_queue(call: AsAdmin, name: QueueName, body: QueueBody) -> Response:
    """Set a queue's limits, in place of those it had."""
    record = await call.service.admin.set_queue(call.caller, body.record(name))
    usage = await call.service.overview.queue_usage()
    return views.json_response(views.queue(record, usage.get(name, _NO_USE)))


@router.delete("/queues/{name:path}", tags=["queues"], status_code=204, responses={**_DONE, **documented_problems(404)})
async def delete_queue(call: AsAdmin, name: QueueName) -> Response:
    """Remove a queue's limits."""
    await call.service.admin.delete_queue(call.caller, name)
    return Response(status_code=204)


@router.post("/nodes/{node}/drain", tags=["cluster"], status_code=204, responses={**_DONE, **documented_problems(404)})
async def drain(call: AsAdmin, node: NodeName) -> Response:
    """Start no more jobs on a node; those that run there stay."""
    await call.service.admin.drain(call.caller, node)
    return Response(status_code=204)


@router.post(
    "/nodes/{node}/undrain", tags=["cluster"], status_code=204, responses={**_DONE, **documented_problems(404)}
)
async def undrain(call: AsAdmin, node: NodeName) -> Response:
    """Start jobs on a drained node again."""
    await call.service.admin.drain(call.caller, node, drained=False)
    return Response(status_code=204)


@router.get("/tokens", tags=["tokens"], responses=documented(answers.Tokens, "The tokens."))
async def tokens(call: AsViewer) -> Response:
    """List the tokens, without their secrets; administrators see those of all users."""
    return views.json_response({"tokens": [views.token(each) for each in call.service.admin.tokens(call.caller)]})


@router.post(
    "/tokens", tags=["tokens"], status_code=201, responses=documented(answers.NewToken, "The token.", status=201)
)
async def add_token(call: AsAdmin, body: TokenBody) -> Response:
    """Make a token; its secret is shown this once."""
    record, secret = await call.service.admin.add_token(call.caller, body.user, UserRole(body.role), body.expires_in_s)
    return views.json_response(views.token(record) | {"secret": secret}, 201)


@router.post(
    "/tokens/{token_id}/rotate",
    tags=["tokens"],
    status_code=201,
    responses=documented(answers.NewToken, "The new token.", 404, 409, status=201),
)
async def rotate_token(call: AsViewer, token_id: TokenId, body: RotateBody) -> Response:
    """Make a token in the place of another of one's own, which ends; its secret is shown this once."""
    found = await call.service.admin.rotate_token(call.caller, token_id, body.expires_in_s, body.grace_s)
    return views.json_response(views.token(found[0]) | {"secret": found[1]}, 201)


@router.delete("/tokens/{token_id}", tags=["tokens"], responses=documented(answers.Token, "The token.", 404, 409))
async def revoke_token(call: AsAdmin, token_id: TokenId) -> Response:
    """Revoke a token; it is refused from now on."""
    return views.json_response(views.token(await call.service.admin.revoke_token(call.caller, token_id)))


@router.get("/audit", tags=["audit"], responses=documented(answers.AuditLines, "Who did what, newest first."))
async def audit(
    call: AsAdmin,
    before: Annotated[int | None, Query(ge=0, le=2**63 - 1, description="Entries older than this one.")] = None,
    limit: Limit = 100,
) -> Response:
    """List the audit log: who did what to what, and what was refused."""
    found = await call.service.admin.audit(before, limit)
    return views.json_response({"audit": [views.audit(number, entry) for number, entry in found]})
