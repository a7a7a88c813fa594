"""The API as one application: its routes, and the layers around them."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from gpuwise.api import errors
from gpuwise.api.access.authentication import Authenticator, Rates
from gpuwise.api.access.limits import MAX_BODY_BYTES, Shield, SizeLimit
from gpuwise.api.access.middleware import AccessMiddleware
from gpuwise.api.access.streams import Streams
from gpuwise.api.routes import admin as routes_admin
from gpuwise.api.routes import cluster as routes_cluster
from gpuwise.api.routes import jobs as routes_jobs
from gpuwise.api.routes import logs as routes_logs
from gpuwise.api.routes import public as routes_open
from gpuwise.api.schema.documented import ANYWHERE, problems
from gpuwise.core import __version__
from gpuwise.core.errors import GpuwiseError
from gpuwise.service.live.service import Service
from gpuwise.web.page import mount

DESCRIPTION = """Runs deep learning jobs on shared GPUs.

Every call carries a token: `Authorization: Bearer SECRET`. Errors have one shape:
`{"error": {"code": "...", "message": "..."}}`. Another user's job is not found. Times are Unix times in seconds.
"""
LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """How the API guards itself."""

    hosts: frozenset[str] = LOOPBACK
    """Names this server may be called by, without ports, beside its addresses in numbers."""
    rates: Rates = field(default_factory=Rates)
    max_body_bytes: int = MAX_BODY_BYTES
    page: bool = True
    """Whether the page is served at ``/``."""


def create_app(service: Service, settings: ApiSettings | None = None) -> FastAPI:
    """The application; whoever runs it closes the service when the server stops."""
    settings = settings or ApiSettings()
    app = FastAPI(
        title="gpuwise",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        responses=problems(*ANYWHERE),
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.streams = Streams()
    app.state.authenticator = Authenticator(service, settings.rates)
    _add_routes(app)
    if settings.page:
        mount(app)
    app.add_exception_handler(GpuwiseError, errors.on_refusal)
    app.add_exception_handler(RequestValidationError, errors.on_invalid)
    app.add_exception_handler(HTTPException, errors.on_http)
    app.add_middleware(AccessMiddleware, authenticator=app.state.authenticator, hosts=settings.hosts)
    app.add_middleware(SizeLimit, max_body_bytes=settings.max_body_bytes)
    app.add_middleware(Shield)
    return app


def _add_routes(app: FastAPI) -> None:
    for routes in (routes_jobs, routes_logs, routes_cluster, routes_admin, routes_open):
        app.include_router(routes.router, prefix="/v1")
    app.include_router(routes_open.login_router)
