"""Sessions of the page: a signed cookie that stands for a token, valid for a day and no longer than the token."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

from gpuwise.core.records import Store
from gpuwise.service.live.errors import UnauthorizedError

SESSION_S = 24 * 3600.0
"""How long a page stays logged in."""
EXPIRED = "this session has expired; log in again"


class PageSessions:
    """Signs and checks cookies with a key that the store keeps."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._key = bytes.fromhex(store.meta("session_key", secrets.token_hex(32)))
        self._clock = clock

    def cookie(self, token_id: str) -> str:
        """A cookie for the user of a token."""
        until = f"{self._clock() + SESSION_S:.0f}"
        return f"{token_id}.{until}.{self._sign(token_id, until)}"

    def token_of(self, cookie: str) -> str:
        """The id of the token that a cookie stands for."""
        token_id, _, rest = cookie.partition(".")
        until, _, signature = rest.partition(".")
        signed = hmac.compare_digest(self._sign(token_id, until).encode(), signature.encode("utf-8", "replace"))
        if not signed or float(until) <= self._clock():
            raise UnauthorizedError(EXPIRED)
        return token_id

    def _sign(self, token_id: str, until: str) -> str:
        text = f"{token_id}.{until}".encode("utf-8", "replace")
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()
