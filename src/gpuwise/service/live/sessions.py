"""Secrets that stand for a token for a while: log-in codes, which work once, and sessions of the page."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass

CODE_S = 15 * 60.0
"""How long a link to the page can be used."""
SESSION_S = 24 * 3600.0
"""How long a page stays logged in."""
SESSION_PREFIX = "session-"
MOST_PER_TOKEN = 100
"""Beyond that, the oldest one ends."""
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Grant:
    """What a secret stands for."""

    token: str
    """The id of the token."""
    expires_at: float


class TemporarySecrets:
    """Secrets that expire, by their hashes.

    They are in memory only, and so end with the service: another process that gets its port while it is away, and is
    sent the secrets of pages that are still open, has nothing that a later service accepts.
    """

    def __init__(self, lifetime_s: float, clock: Callable[[], float], prefix: str = "") -> None:
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._prefix = prefix
        self._grants: dict[str, Grant] = {}

    def issue(self, token: str) -> tuple[str, Grant]:
        """A new secret for a token."""
        now = self._clock()
        self._grants = {digest: each for digest, each in self._grants.items() if now < each.expires_at}
        same = [digest for digest, each in self._grants.items() if each.token == token]
        for digest in same[: max(0, len(same) + 1 - MOST_PER_TOKEN)]:
            del self._grants[digest]
        secret, grant = self._prefix + secrets.token_urlsafe(SECRET_BYTES), Grant(token, now + self._lifetime_s)
        self._grants[digest_of(secret)] = grant
        return secret, grant

    def find(self, digest: str) -> Grant | None:
        """What the secret with a hash stands for; None if it has ended."""
        grant = self._grants.get(digest)
        return grant if grant is not None and self._clock() < grant.expires_at else None

    def end(self, digest: str) -> Grant | None:
        """Ends a secret; what it stood for until now."""
        grant = self.find(digest)
        self._grants.pop(digest, None)
        return grant


def digest_of(secret: str) -> str:
    """The hash that is kept of a secret; a plain one is enough, since secrets are random and long."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
