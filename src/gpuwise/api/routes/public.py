"""Routes that need no token: the health of the service, and exchanging a token for a cookie."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from gpuwise.api.access.authentication import Authenticator, check_origin, cookie_name, is_cross_site
from gpuwise.api.access.middleware import LOGIN_PATH
from gpuwise.api.errors import documented, documented_problems, problem
from gpuwise.api.schema import answers, views
from gpuwise.api.schema.bodies import SessionBody
from gpuwise.service.live.access import Principal
from gpuwise.service.live.errors import ForbiddenError
from gpuwise.service.live.service import Service
from gpuwise.service.live.sessions import SESSION_S

router = APIRouter(tags=["service"])
login_router = APIRouter()


@router.get("/health", responses=documented(answers.Health, "It is healthy."))
async def health(request: Request) -> Response:
    """Show whether the service is healthy; needs no token."""
    service: Service = request.app.state.service
    if not await service.overview.is_healthy():
        return problem(503, "the service is not healthy; see trouble in GET /v1/status")
    return views.json_response({"status": "ok"})


@router.post("/session", responses=documented(answers.Who, "Logged in; the cookie replaces the token."))
async def log_in(request: Request, body: SessionBody) -> Response:
    """Exchange a token for a cookie that scripts cannot read; for the page."""
    _refuse_cross_site(request)
    principal = _principal(request, body.token)
    response = views.json_response({"user": principal.user, "role": str(principal.role)})
    _set_cookie(request, response, principal)
    return response


@router.delete("/session", status_code=204, responses={204: {"description": "Logged out."}, **documented_problems(403)})
async def log_out(request: Request) -> Response:
    """Delete the cookie."""
    check_origin(request.scope, request.headers)
    response = Response(status_code=204)
    response.delete_cookie(cookie_name(request.headers), path="/", httponly=True, samesite="strict")
    return response


@login_router.get(LOGIN_PATH, include_in_schema=False)
async def follow_link(request: Request, token: Annotated[str, Query(max_length=200)]) -> Response:
    """Log in by a link with a token in it, and go to the page."""
    _refuse_cross_site(request)
    principal = _principal(request, token)
    response = RedirectResponse("/", 303)
    _set_cookie(request, response, principal)
    return response


def _principal(request: Request, secret: str) -> Principal:
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator.log_in(request.scope, secret)


def _refuse_cross_site(request: Request) -> None:
    """A page of another server must not log a user in."""
    if is_cross_site(request.headers):
        raise ForbiddenError("this log-in comes from a page of another server; open the URL yourself")


def _set_cookie(request: Request, response: Response, principal: Principal) -> None:
    service: Service = request.app.state.service
    response.set_cookie(
        cookie_name(request.headers),
        service.access.session(principal),
        max_age=int(SESSION_S),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
