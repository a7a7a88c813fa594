"""Who calls and what they may do: tokens and roles."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuwise.core.records import JobRecord, Store, TokenRecord, UserRole
from gpuwise.live.inbox import NotPossibleError
from gpuwise.service.live.errors import InvalidError, NotFoundError, UnauthorizedError, WrongTokenError
from gpuwise.service.live.sessions import EXPIRED, PageSessions

SECRET_BYTES = 32
USER_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.@\-]{0,63}"
_RANK = {UserRole.VIEWER: 0, UserRole.USER: 1, UserRole.ADMIN: 2}
_LONGEST_VALIDITY_S = 100 * 365 * 86400.0


@dataclass(frozen=True, slots=True)
class Principal:
    """The user of a valid token."""

    user: str
    role: UserRole
    token: str
    """The id of the token."""

    def at_least(self, role: UserRole) -> bool:
        """Whether they may do what a role may do."""
        return _RANK[self.role] >= _RANK[role]

    def may_see(self, job: JobRecord) -> bool:
        """Whether a job is theirs, or they are an administrator."""
        return self.role is UserRole.ADMIN or job.user == self.user


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal, and the address they call from."""

    principal: Principal
    address: str = ""

    @property
    def user(self) -> str:
        """Their name."""
        return self.principal.user


class Access:
    """All tokens in memory, read from the store at the start and after each change.

    `add` and `revoke` write to the store in the thread that calls them.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._sessions = PageSessions(store, clock)
        self._by_id: dict[str, TokenRecord] = {}
        self._by_digest: dict[str, TokenRecord] = {}
        self.on_change: Callable[[], object] = lambda: None
        """Called after each change of the tokens."""
        self.refresh()

    def refresh(self) -> None:
        """Reads the tokens again."""
        tokens = self._store.tokens()
        self._by_id = {token.id: token for token in tokens}
        self._by_digest = {token.digest: token for token in tokens}

    # -- authentication -------------------------------------------------------------------------------------------

    def by_secret(self, secret: str) -> Principal:
        """The user of a token."""
        digest = digest_of(secret)
        token = self._by_digest.get(digest)
        if token is None or not hmac.compare_digest(token.digest, digest) or not self._is_valid(token):
            raise WrongTokenError("this token is not known, or no longer valid; ask an administrator for another")
        return Principal(token.user, token.role, token.id)

    def by_session(self, cookie: str) -> Principal:
        """The user of the token that a page logged in with."""
        token = self._by_id.get(self._sessions.token_of(cookie))
        if token is None or not self._is_valid(token):
            raise UnauthorizedError(EXPIRED)
        return Principal(token.user, token.role, token.id)

    def session(self, principal: Principal) -> str:
        """The cookie that a page sends in place of the token."""
        return self._sessions.cookie(principal.token)

    def is_valid(self, principal: Principal) -> bool:
        """Whether the principal's token is still valid."""
        token = self._by_id.get(principal.token)
        return token is not None and self._is_valid(token)

    def _is_valid(self, token: TokenRecord) -> bool:
        return token.revoked_at is None and (token.expires_at is None or self._clock() < token.expires_at)

    # -- administration -------------------------------------------------------------------------------------------

    def tokens(self) -> list[TokenRecord]:
        """All tokens, oldest first."""
        return sorted(self._by_id.values(), key=lambda token: (token.created_at, token.id))

    def add(self, user: str, role: UserRole, expires_in_s: float | None = None) -> tuple[TokenRecord, str]:
        """A new token and its secret, of which only the hash is stored."""
        if not re.fullmatch(USER_PATTERN, user):
            raise InvalidError(f"user is {user!r}; it must be up to 64 letters, digits and _.@-")
        if expires_in_s is not None and not 0 < expires_in_s <= _LONGEST_VALIDITY_S:
            raise InvalidError(f"expires_in_s is {expires_in_s!r}; it must be above 0 and at most 100 years")
        secret, now = secrets.token_urlsafe(SECRET_BYTES), self._clock()
        token = TokenRecord(
            id=secrets.token_hex(6),
            digest=digest_of(secret),
            user=user,
            role=role,
            created_at=now,
            expires_at=None if expires_in_s is None else now + expires_in_s,
        )
        self._put(token)
        return token, secret

    def revoke(self, token_id: str) -> TokenRecord:
        """Ends a token, at once and for good."""
        token = self._by_id.get(token_id)
        if token is None:
            raise NotFoundError(f"there is no token {token_id!r}")
        if token.revoked_at is not None:
            return token
        others = [other for other in self._by_id.values() if other.id != token_id and self._is_valid(other)]
        if not any(other.role is UserRole.ADMIN for other in others):
            raise NotPossibleError("this is the last token of an administrator; make another before you revoke it")
        revoked = replace(token, revoked_at=self._clock())
        self._put(revoked)
        return revoked

    def _put(self, token: TokenRecord) -> None:
        self._store.put_token(token)
        self.refresh()
        self.on_change()


def digest_of(secret: str) -> str:
    """The hash that is stored of a secret; a plain one is enough, since secrets are random and long."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
