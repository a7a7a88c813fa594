"""Who a request comes from, as the routes see it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.responses import StreamingResponse
from fastapi.security.base import SecurityBase

from gpuwise.api.access.streams import Streams
from gpuwise.core.errors import nearest_names
from gpuwise.core.records import UserRole
from gpuwise.service.live.access import Caller
from gpuwise.service.live.refusals import ForbiddenError, InvalidError
from gpuwise.service.live.service import Service


@dataclass(frozen=True, slots=True)
class Call:
    """A caller, and what they can ask for."""

    caller: Caller
    service: Service
    streams: Streams

    def stream(
        self, pieces: AsyncIterator[bytes], media_type: str, headers: Mapping[str, str] | None = None
    ) -> StreamingResponse:
        """An answer that goes on as long as there are pieces."""
        counted = self.streams.open(self.caller.principal.token, pieces)
        return StreamingResponse(counted, media_type=media_type, headers={"X-Accel-Buffering": "no", **(headers or {})})


class Signed(SecurityBase):
    """Lets a request through whose caller has a role, or a higher one."""

    scheme_name = "token"
    model = HTTPBearer(description="A token's secret. The page shows a cookie in its place.")

    def __init__(self, role: UserRole) -> None:
        self._role = role

    async def __call__(self, request: Request) -> Call:
        """The call; refused without the role."""
        caller: Caller = request.scope["gpuwise.caller"]
        service: Service = request.app.state.service
        if not caller.principal.at_least(self._role):
            action, target = request.method, request.url.path
            service.audit.by(caller, action, target, f"refused: needs the role {self._role}")
            raise ForbiddenError(
                f"this needs the role {self._role}; {caller.user}'s token has the role {caller.principal.role}"
            )
        if request.scope["query_string"]:
            _refuse_unknown(request)
        return Call(caller, service, request.app.state.streams)


def _refuse_unknown(request: Request) -> None:
    """A misspelt parameter would otherwise be as if it were not there."""
    known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    for name in request.query_params:
        if name not in known:
            nearest = ", ".join(nearest_names(name, known))
            raise InvalidError(f"unknown parameter {name[:80]!r}" + (f"; did you mean {nearest}?" if nearest else ""))


AsViewer = Annotated[Call, Depends(Signed(UserRole.VIEWER))]
AsUser = Annotated[Call, Depends(Signed(UserRole.USER))]
AsAdmin = Annotated[Call, Depends(Signed(UserRole.ADMIN))]
