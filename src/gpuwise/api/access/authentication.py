"""Who a request comes from, by its token or the page's cookie, and whether they send too many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.types import Scope

from gpuwise.api.access.limits import Rate, RateLimit
from gpuwise.service.live.access import Caller, Principal
from gpuwise.service.live.errors import ForbiddenError, TooManyError, UnauthorizedError, WrongTokenError
from gpuwise.service.live.service import Service

COOKIE = "gpuwise_session"
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))


@dataclass(frozen=True, slots=True)
class Rates:
    """The most requests that are accepted."""

    requests: Rate = field(default_factory=lambda: Rate(per_s=500.0, burst=20_000.0))
    """Per token."""
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
        address = address_of(scope)
        try:
            principal = self._principal(scope, headers)
        except UnauthorizedError as error:
            self._record_failure(scope, error)
            raise
        except ForbiddenError as error:
            self._service.audit.note("", scope["method"], scope["path"], f"refused: {error}", address)
            raise
        wait_s = self._requests.take(principal.token)
        if wait_s:
            raise TooManyError(f"too many requests of {principal.user}; try again in {wait_s:.1f} s", wait_s)
        return Caller(principal, address)

    def log_in(self, scope: Scope, secret: str) -> Principal:
        """The user of a token that is exchanged for a cookie."""
        try:
            principal = self._service.access.by_secret(secret)
        except UnauthorizedError as error:
            self._record_failure(scope, error)
            raise
        self._service.audit.note(principal.user, "log in", principal.token, address=address_of(scope))
        return principal

    def _principal(self, scope: Scope, headers: Mapping[str, str]) -> Principal:
        shown = headers.get("authorization")
        if shown is not None:
            kind, _, secret = shown.partition(" ")
            if kind.lower() != "bearer":
                raise UnauthorizedError("the Authorization header must be: Bearer TOKEN")
            return self._service.access.by_secret(secret.strip())
        cookie = _cookie(headers)
        if cookie is None:
            raise UnauthorizedError("a token is missing; send it in the header Authorization: Bearer TOKEN")
        check_origin(scope, headers)
        return self._service.access.by_session(cookie)

    def _record_failure(self, scope: Scope, error: UnauthorizedError) -> None:
        """Records a failure; too many from one address are not recorded, and wrong tokens then have to wait."""
        address = address_of(scope)
        wait_s = self._failures.take(address)
        if not wait_s:
            self._service.audit.note("", scope["method"], scope["path"], f"refused: {error}", address)
        elif isinstance(error, WrongTokenError):
            raise TooManyError(f"too many wrong tokens from {address}; try again in {wait_s:.0f} s", wait_s) from error


def check_origin(scope: Scope, headers: Mapping[str, str]) -> None:
    """Refuses what a page of another server makes a browser send with our cookie."""
    known = "origin" in headers or headers.get("sec-fetch-site") == "same-origin"
    if is_cross_site(headers) or not (known or scope["method"] in SAFE):
        raise ForbiddenError("this request may come from a page of another server; use a token instead of the cookie")


def is_cross_site(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that a page of another server, or of another port, sent a request."""
    origin = headers.get("origin")
    if origin is not None and _netloc(origin) != headers.get("host"):
        return True
    return headers.get("sec-fetch-site") in ("cross-site", "same-site")


def cookie_name(headers: Mapping[str, str]) -> str:
    """The cookie of this server; by port, since browsers share cookies between the ports of a host."""
    _, _, port = headers.get("host", "").rpartition(":")
    return f"{COOKIE}_{port}" if port.isdigit() else COOKIE


def address_of(scope: Scope) -> str:
    """The address a request comes from."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _cookie(headers: Mapping[str, str]) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(cookie_name(headers))
    except CookieError:
        return None
    return None if found is None else found.value
