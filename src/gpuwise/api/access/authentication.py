"""Who a request comes from, by its token or the page's session, and whether they send too many.

There are no cookies: a browser sends them to every port of a host, and so to other users' servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.types import Scope

from gpuwise.api.access.limits import Rate, RateLimit
from gpuwise.service.live.access import Caller, Principal
from gpuwise.service.live.errors import TooManyError, UnauthorizedError, WrongTokenError
from gpuwise.service.live.service import Service


@dataclass(frozen=True, slots=True)
class Rates:
    """The most requests that are accepted."""

    requests: Rate = field(default_factory=lambda: Rate(per_s=500.0, burst=20_000.0))
    """Per user, whatever the number of their tokens."""
    failures: Rate = field(default_factory=lambda: Rate(per_s=0.2, burst=20.0))
    """Of wrong tokens, per address."""


class Authenticator:
    """Identifies callers, or refuses them."""

    def __init__(self, service: Service, rates: Rates) -> None:
        self._service = service
        self._requests = RateLimit(rates.requests)
        self._failures = RateLimit(rates.failures)

    def caller(self, scope: Scope, headers: Mapping[str, str]) -> Caller:
        """Who sends a request."""
        try:
            principal = self._principal(headers)
        except UnauthorizedError as error:
            self._record_failure(scope, error)
            raise
        wait_s = self._requests.take(principal.user)
        if wait_s:
            raise TooManyError(f"too many requests of {principal.user}; try again in {wait_s:.1f} s", wait_s)
        return Caller(principal, address_of(scope))

    def log_in(self, scope: Scope, identify: Callable[[], Principal]) -> Principal:
        """The user of a token or code that is exchanged for a session."""
        try:
            principal = identify()
        except UnauthorizedError as error:
            self._record_failure(scope, error)
            raise
        self._service.audit.note(principal.user, "log in", principal.token, address=address_of(scope))
        return principal

    def _principal(self, headers: Mapping[str, str]) -> Principal:
        shown = headers.get("authorization")
        if shown is None:
            raise UnauthorizedError("a token is missing; send it in the header Authorization: Bearer TOKEN")
        kind, _, secret = shown.partition(" ")
        if kind.lower() != "bearer":
            raise UnauthorizedError("the Authorization header must be: Bearer TOKEN")
        return self._service.access.by_secret(secret.strip())

    def _record_failure(self, scope: Scope, error: UnauthorizedError) -> None:
        """Records a failure; too many from one address are not recorded, and wrong tokens then have to wait."""
        address = address_of(scope)
        wait_s = self._failures.take(address)
        if not wait_s:
            self._service.audit.note("", scope["method"], scope["path"], f"refused: {error}", address)
        elif isinstance(error, WrongTokenError):
            raise TooManyError(f"too many wrong tokens from {address}; try again in {wait_s:.0f} s", wait_s) from error


def address_of(scope: Scope) -> str:
    """The address a request comes from."""
    client = scope.get("client")
    return str(client[0]) if client else ""
