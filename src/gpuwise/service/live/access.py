"""Who calls and what they may do: tokens and roles."""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuwise.core.records import JobRecord, Store, TokenRecord, UserRole
from gpuwise.live.inbox import NotPossibleError
from gpuwise.service.live.errors import (
    ForbiddenError,
    InvalidError,
    NotFoundError,
    TooManyError,
    UnauthorizedError,
    WrongTokenError,
)
from gpuwise.service.live.sessions import (
    CODE_S,
    SECRET_BYTES,
    SESSION_PREFIX,
    SESSION_S,
    TemporarySecrets,
    digest_of,
)

LONGEST_GRACE_S = 30 * 86400.0
MOST_NEW_TOKENS, NEW_S = 20, 3600.0
"""A user with this number of new tokens within this time rotates later; administrators need not wait."""
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
    session: str = ""
    """The hash of the session's secret; empty if they use the token itself."""

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
    """All tokens in memory, read from the store at the start and after each change; sessions are only in memory.

    `add`, `create`, `rotate` and `revoke` write to the store in the thread that calls them.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._codes = TemporarySecrets(CODE_S, clock)
        self._sessions = TemporarySecrets(SESSION_S, clock, SESSION_PREFIX)
        self._by_id: dict[str, TokenRecord] = {}
        self._by_digest: dict[str, TokenRecord] = {}
        self.on_change: Callable[[], object] = lambda: None
        """Called after each change of the tokens, and when a session was ended."""
        self.on_rotate: Callable[[TokenRecord, str], object] = lambda old, secret: None
        """Called with a token that is about to end, and the secret of the one in its place."""
        self.refresh()

    def refresh(self) -> None:
        """Reads the tokens again."""
        tokens = self._store.tokens()
        self._by_id = {token.id: token for token in tokens}
        self._by_digest = {token.digest: token for token in tokens}

    # -- authentication -------------------------------------------------------------------------------------------

    def by_secret(self, secret: str) -> Principal:
        """The user of a token, or of the token that a session stands for."""
        return self._by_session(digest_of(secret)) if secret.startswith(SESSION_PREFIX) else self.by_token(secret)

    def by_token(self, secret: str) -> Principal:
        """The user of a token."""
        token = self._by_digest.get(digest_of(secret))
        if token is None:
            raise WrongTokenError("this token is not known; ask an administrator for another")
        return self._principal(token)

    def _by_session(self, digest: str) -> Principal:
        grant = self._sessions.find(digest)
        token = None if grant is None else self._by_id.get(grant.token)  # its row may have become unreadable
        if token is None:
            raise UnauthorizedError("this session has ended; log in again")
        return self._principal(token, digest)

    def _principal(self, token: TokenRecord, session: str = "") -> Principal:
        if not self._is_valid(token):
            what = "was revoked" if self._is_revoked(token) else f"expired at {_moment(token.expires_at)}"
            raise WrongTokenError(f"this token {what}; ask an administrator for another")
        return Principal(token.user, token.role, token.id, session)

    def is_valid(self, principal: Principal) -> bool:
        """Whether the principal's token is still valid, and the session if it is one."""
        token = self._by_id.get(principal.token)
        ended = principal.session and self._sessions.find(principal.session) is None
        return token is not None and not ended and self._is_valid(token)

    def _is_valid(self, token: TokenRecord) -> bool:
        return not self._is_revoked(token) and (token.expires_at is None or self._clock() < token.expires_at)

    def _is_revoked(self, token: TokenRecord) -> bool:
        return token.revoked_at is not None and token.revoked_at <= self._clock()

    # -- the page -------------------------------------------------------------------------------------------------

    def issue_code(self, principal: Principal) -> tuple[str, float]:
        """A code that logs a page in once, and until when."""
        _require_token(principal, "make a link")
        code, grant = self._codes.issue(principal.token)
        return code, grant.expires_at

    def by_code(self, code: str) -> Principal:
        """The user whom a code logs in; it does so only once."""
        grant = self._codes.end(digest_of(code))
        token = None if grant is None else self._by_id.get(grant.token)
        if token is None:
            raise WrongTokenError("this link was used before, or has expired; for another, run: gpuwise page")
        return self._principal(token)

    def log_in(self, principal: Principal) -> tuple[str, float]:
        """The secret of a new session, and until when it is valid at most."""
        token = self._by_id.get(principal.token)
        if token is None:
            raise WrongTokenError("this token is not known; ask an administrator for another")
        secret, grant = self._sessions.issue(principal.token)
        expires_at = token.expires_at
        return secret, grant.expires_at if expires_at is None else min(expires_at, grant.expires_at)

    def log_out(self, principal: Principal) -> None:
        """Ends a session, its streams too."""
        if not principal.session:
            raise InvalidError("this is a token and not a session; end it with: gpuwise tokens revoke")
        self._sessions.end(principal.session)
        self.on_change()

    # -- administration -------------------------------------------------------------------------------------------

    def tokens(self) -> list[TokenRecord]:
        """All tokens, oldest first."""
        return sorted(self._by_id.values(), key=lambda token: (token.created_at, token.id))

    def add(self, user: str, role: UserRole, expires_in_s: float | None = None) -> tuple[TokenRecord, str]:
        """A new token and its secret, of which only the hash is stored."""
        if not re.fullmatch(USER_PATTERN, user):
            raise InvalidError(f"user is {user!r}; it must be up to 64 letters, digits and _.@-")
        return self._add(user, role, self._expiry(expires_in_s))

    def create(self, by: Principal, user: str, role: UserRole, expires_in_s: float | None) -> tuple[TokenRecord, str]:
        """A new token that an administrator asks for, and its secret; not from a session."""
        _require_token(by, "make tokens")
        return self.add(user, role, expires_in_s)

    def rotate(
        self, by: Principal, token_id: str, expires_in_s: float | None = None, grace_s: float = 0.0
    ) -> tuple[TokenRecord, str]:
        """A token in the place of another, which ends at once, or after some grace; it expires when that one would.

        Of a user's tokens, no more stay in their grace than are valid otherwise, so that rotating gives no user more.
        """
        _require_token(by, "rotate tokens")
        old, is_admin = self._by_id.get(token_id), by.role is UserRole.ADMIN
        if old is None or not (is_admin or (by.user == old.user and by.at_least(old.role))):
            raise NotFoundError(f"there is no token {token_id!r} of yours; see gpuwise tokens list")
        if old.revoked_at is not None or not self._is_valid(old):
            raise NotPossibleError(f"token {token_id} is not valid any more; make another with: gpuwise tokens create")
        if not 0 <= grace_s <= LONGEST_GRACE_S:
            raise InvalidError(f"grace_s is {grace_s!r}; it must be from 0 to {LONGEST_GRACE_S:.0f} (30 days)")
        expires_at = old.expires_at if expires_in_s is None else self._expiry(expires_in_s)
        if not is_admin and (expires_at or math.inf) > (old.expires_at or math.inf):
            raise ForbiddenError("only an administrator can make a token valid for longer than it was")
        if not is_admin:
            self._check_pace(old.user)
        new, secret = self._add(old.user, old.role, expires_at)
        self.on_rotate(old, secret)
        self._put(replace(old, revoked_at=self._clock() + grace_s))
        self._end_graces(old)
        return new, secret

    def _check_pace(self, user: str) -> None:
        now = self._clock()
        recent = [token.created_at for token in self.tokens() if token.user == user and token.created_at > now - NEW_S]
        if len(recent) >= MOST_NEW_TOKENS:
            wait_s = recent[-MOST_NEW_TOKENS] + NEW_S - now
            text = f"{user} got {len(recent)} new tokens within an hour; try again in {wait_s:.0f} s"
            raise TooManyError(text, wait_s)

    def _end_graces(self, rotated: TokenRecord) -> None:
        """Ends the graces of a user's oldest tokens, if there are too many; not of the one that was just rotated."""
        alike = [token for token in self.tokens() if (token.user, token.role) == (rotated.user, rotated.role)]
        valid = [token for token in alike if self._is_valid(token)]
        in_grace = [token for token in valid if token.revoked_at is not None]
        older = [token for token in in_grace if token.id != rotated.id]
        for token in older[: max(0, len(in_grace) - (len(valid) - len(in_grace)))]:
            self._put(replace(token, revoked_at=self._clock()))

    def revoke(self, token_id: str) -> TokenRecord:
        """Ends a token, at once and for good."""
        token = self._by_id.get(token_id)
        if token is None:
            raise NotFoundError(f"there is no token {token_id!r}")
        if self._is_revoked(token):
            return token
        others = [other for other in self._by_id.values() if other.id != token_id and self._is_valid(other)]
        if not any(other.role is UserRole.ADMIN and other.revoked_at is None for other in others):
            raise NotPossibleError("this is the last token of an administrator; make another before you revoke it")
        revoked = replace(token, revoked_at=self._clock())
        self._put(revoked)
        return revoked

    def _expiry(self, expires_in_s: float | None) -> float | None:
        if expires_in_s is None:
            return None
        if not 0 < expires_in_s <= _LONGEST_VALIDITY_S:
            raise InvalidError(f"expires_in_s is {expires_in_s!r}; it must be above 0 and at most 100 years")
        return self._clock() + expires_in_s

    def _add(self, user: str, role: UserRole, expires_at: float | None) -> tuple[TokenRecord, str]:
        secret, now = secrets.token_urlsafe(SECRET_BYTES), self._clock()
        token = TokenRecord(
            id=secrets.token_hex(6), digest=digest_of(secret), user=user, role=role, created_at=now,
            expires_at=expires_at,
        )  # fmt: skip
        self._put(token)
        return token, secret

    def _put(self, token: TokenRecord) -> None:
        self._store.put_token(token)
        self.refresh()
        self.on_change()


def _require_token(principal: Principal, what: str) -> None:
    """A secret of a session that was stolen must not give more than that session."""
    if principal.session:
        raise ForbiddenError(f"a page cannot {what}; use a token, as the command gpuwise does")


def _moment(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
