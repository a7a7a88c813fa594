"""The API as one application: its routes, and the layers around them."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from gpuwise.api import errors
from gpuwise.api.access.authentication import Authenticator, Rates
from gpuwise.api.access.connection_limits import MAX_STREAMS
from gpuwise.api.access.limits import StreamLimit
from gpuwise.api.access.middleware import (
    MAX_BODY_BYTES,
    AccessMiddleware,
    SecurityHeadersMiddleware,
    SizeLimitMiddleware,
)
from gpuwise.api.routes import admin, cluster, jobs, logs, public, tables, terminals
from gpuwise.core import __version__
from gpuwise.core.errors import GpuwiseError
from gpuwise.service.live.service import Service
from gpuwise.web.page import mount

DESCRIPTION = """Runs deep learning jobs on shared GPUs.

Every call carries a token: `Authorization: Bearer SECRET`. Errors have one shape:
`{"error": {"code": "...", "message": "..."}}`. Of another user's job only what the queue shows is visible. Times are
Unix times in seconds.
"""
LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """How the API protects itself."""

    hosts: frozenset[str] = LOOPBACK
    """Names this server may be called by, without ports, besides its IP addresses."""
    rates: Rates = field(default_factory=Rates)
    max_body_bytes: int = MAX_BODY_BYTES
    max_streams: int = MAX_STREAMS


def create_app(service: Service, settings: ApiSettings | None = None) -> FastAPI:
    """The application; its caller closes the service when the server stops."""
    settings = settings or ApiSettings()
    app = FastAPI(
        title="gpuwise",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        responses=errors.documented_problems(*errors.ANYWHERE),
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.streams = StreamLimit(settings.max_streams)
    app.state.authenticator = Authenticator(service, settings.rates)
    for routes in (jobs, logs, terminals, cluster, tables, admin, public):
        app.include_router(routes.router, prefix="/v1")
    mount(app)
    app.add_exception_handler(GpuwiseError, errors.on_gpuwise_error)
    app.add_exception_handler(RequestValidationError, errors.on_invalid)
    app.add_exception_handler(HTTPException, errors.on_http_error)
    app.add_middleware(AccessMiddleware, authenticator=app.state.authenticator, hosts=settings.hosts)
    app.add_middleware(SizeLimitMiddleware, max_body_bytes=settings.max_body_bytes)
    app.add_middleware(SecurityHeadersMiddleware)
    return app
