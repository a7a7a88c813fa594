"""The gate before all routes: whom a request is for, who sends it, and how often."""

from __future__ import annotations

from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gpuwise.api.access.authentication import Authenticator
from gpuwise.api.errors import problem, refused
from gpuwise.core.errors import GpuwiseError

OPEN = frozenset(("/v1/health", "/v1/session"))
"""Paths under /v1 that need no token; the latter looks at one itself."""


class AccessMiddleware:
    """Turns away what is not for this server, from nobody known, or too much; the rest gets its caller."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, hosts: frozenset[str]) -> None:
        self._app = app
        self._authenticator = authenticator
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request through, or answers it."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host = headers.get("host", "")
            if not self._is_ours(_name(host)):
                answer = problem(400, f"this server is not called {host[:100]!r}; an administrator can allow that name")
                return await answer(scope, receive, send)
            path: str = scope["path"]
            if path.startswith("/v1/") and path not in OPEN:
                try:
                    scope["gpuwise.caller"] = self._authenticator.caller(scope, headers)
                except GpuwiseError as error:
                    return await refused(error)(scope, receive, send)
        await self._app(scope, receive, send)

    def _is_ours(self, name: str) -> bool:
        """Whether this server may be called so: a name that others can point at it would let their pages in.

        Addresses in numbers are nobody's to point.
        """
        if name in self._hosts:
            return True
        try:
            ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


def _name(host: str) -> str:
    """A host without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()
