"""What needs no token: whether the service works, and exchanging a token for a cookie."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from gpuwise.api.access.authentication import Authenticator, check_origin, cookie_name, is_from_elsewhere
from gpuwise.api.access.limits import LOGIN_PATH
from gpuwise.api.errors import problem
from gpuwise.api.schema import answers, views
from gpuwise.api.schema.bodies import SessionBody
from gpuwise.api.schema.documented import gives, problems
from gpuwise.service.live.access import SESSION_S, Principal
from gpuwise.service.live.refusals import ForbiddenError
from gpuwise.service.live.service import Service

router = APIRouter(tags=["service"])
login_router = APIRouter()


@router.get("/health", responses=gives(answers.Health, "It works."))
async def health(request: Request) -> Response:
    """Say whether the service works; needs no token."""
    service: Service = request.app.state.service
    if not await service.overview.is_well():
        return problem(503, "the service is in trouble; GET /v1/status says which")
    return views.answer({"status": "ok"})


@router.post("/session", responses=gives(answers.Who, "Logged in; the cookie stands for the token."))
async def log_in(request: Request, body: SessionBody) -> Response:
    """Exchange a token for a cookie that scripts cannot read; for the page."""
    _refuse_strangers(request)
    principal = _principal(request, body.token)
    response = views.answer({"user": principal.user, "role": str(principal.role)})
    _set_cookie(request, response, principal)
    return response


@router.delete("/session", status_code=204, responses={204: {"description": "Logged out."}, **problems(403)})
async def log_out(request: Request) -> Response:
    """Forget the cookie."""
    check_origin(request.scope, request.headers)
    response = Response(status_code=204)
    response.delete_cookie(cookie_name(request.headers), path="/", httponly=True, samesite="strict")
    return response


@login_router.get(LOGIN_PATH, include_in_schema=False)
async def follow_link(request: Request, token: Annotated[str, Query(max_length=200)]) -> Response:
    """Log in by a link with a token in it, and go to the page."""
    _refuse_strangers(request)
    principal = _principal(request, token)
    response = RedirectResponse("/", 303)
    _set_cookie(request, response, principal)
    return response


def _principal(request: Request, secret: str) -> Principal:
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator.log_in(request.scope, secret)


def _refuse_strangers(request: Request) -> None:
    """Nobody is to be logged in by a page of another server."""
    if is_from_elsewhere(request.headers):
        raise ForbiddenError("this log-in comes from a page of another server; open the address yourself")


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
