"""Routes about the health of the service, which needs no token, and log-in to the page."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from gpuwise.api.access.authentication import Authenticator
from gpuwise.api.access.caller import AsViewer
from gpuwise.api.errors import documented, documented_problems, problem
from gpuwise.api.schema import answers, views
from gpuwise.api.schema.session import LogInCode, Session, SessionBody
from gpuwise.service.live.service import Service

router = APIRouter(tags=["service"])


@router.get("/health", responses=documented(answers.Health, "It is healthy."))
async def health(request: Request) -> Response:
    """Show whether the service is healthy; needs no token."""
    service: Service = request.app.state.service
    if not await service.overview.is_healthy():
        return problem(503, "the service is not healthy; see trouble in GET /v1/status")
    return views.json_response({"status": "ok"})


@router.post("/session", responses=documented(Session, "Logged in; the secret is sent as a token is."))
async def log_in(request: Request, body: SessionBody) -> Response:
    """Exchange a token or a log-in code for a session, for the page."""
    service: Service = request.app.state.service
    authenticator: Authenticator = request.app.state.authenticator
    principal = authenticator.log_in(request.scope, lambda: body.principal(service.access))
    secret, expires_at = service.access.log_in(principal)
    about = {"user": principal.user, "role": str(principal.role)}
    return views.json_response({**about, "secret": secret, "expires_at": expires_at})


@router.delete("/session", status_code=204, responses={204: {"description": "Logged out."}, **documented_problems(422)})
async def log_out(call: AsViewer) -> Response:
    """End the session that this is sent with, at once."""
    call.service.access.log_out(call.caller.principal)
    call.service.audit.by(call.caller, "log out", call.caller.principal.token)
    return Response(status_code=204)


@router.post("/session/code", status_code=201, responses=documented(LogInCode, "A code that works once.", status=201))
async def log_in_code(call: AsViewer) -> Response:
    """Make a code for a link that logs in to the page once: /#login=CODE."""
    code, expires_at = call.service.access.issue_code(call.caller.principal)
    return views.json_response({"code": code, "expires_at": expires_at}, 201)
