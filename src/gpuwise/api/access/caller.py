"""An authenticated request, as the routes see it, and the role it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.responses import StreamingResponse
from fastapi.security.base import SecurityBase

from gpuwise.api.access.connection_limits import OpenConnection, connection_of
from gpuwise.api.access.limits import StreamLimit
from gpuwise.core.errors import nearest_names
from gpuwise.core.records import UserRole
from gpuwise.service.live.access import Caller
from gpuwise.service.live.errors import ForbiddenError, InvalidError
from gpuwise.service.live.service import Service


@dataclass(frozen=True, slots=True)
class Call:
    """An authenticated request."""

    caller: Caller
    service: Service
    streams: StreamLimit
    connection: OpenConnection | None = None

    def stream(
        self, pieces: AsyncIterator[bytes], media_type: str, headers: Mapping[str, str] | None = None
    ) -> StreamingResponse:
        """A response that is sent piece by piece."""
        counted = self.streams.counted(self.caller.user, pieces, self.connection)
        return StreamingResponse(counted, media_type=media_type, headers={"X-Accel-Buffering": "no", **(headers or {})})


class RequiredRole(SecurityBase):
    """Accepts a request whose caller has a role, or a higher one."""

    scheme_name = "token"
    model = HTTPBearer(description="A token's secret, or a session's.")

    def __init__(self, role: UserRole) -> None:
        self._role = role

    async def __call__(self, request: Request) -> Call:
        """The authenticated request."""
        caller: Caller = request.scope["gpuwise.caller"]
        service: Service = request.app.state.service
        if not caller.principal.at_least(self._role):
            action, target = request.method, request.url.path
            service.audit.by(caller, action, target, f"refused: needs the role {self._role}")
            raise ForbiddenError(
                f"this needs the role {self._role}, and {caller.user}'s token has the role {caller.principal.role}; "
                "ask an administrator"
            )
        if request.scope["query_string"]:
            _refuse_unknown(request)
        return Call(caller, service, request.app.state.streams, connection_of(request.scope))


def _refuse_unknown(request: Request) -> None:
    """Refuses misspelt parameters, which would otherwise be ignored."""
    known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    for name in request.query_params:
        if name not in known:
            nearest = ", ".join(nearest_names(name, known))
            raise InvalidError(f"unknown parameter {name[:80]!r}" + (f"; did you mean {nearest}?" if nearest else ""))


AsViewer = Annotated[Call, Depends(RequiredRole(UserRole.VIEWER))]
AsUser = Annotated[Call, Depends(RequiredRole(UserRole.USER))]
AsAdmin = Annotated[Call, Depends(RequiredRole(UserRole.ADMIN))]
