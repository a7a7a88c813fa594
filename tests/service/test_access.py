"""Tokens, sessions and how often somebody may ask."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwise.api.access.limits import MAX_KEYS, Rate, RateLimit
from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import JobRecord, UserRole
from gpuwise.live.inbox import NotPossibleError
from gpuwise.service.live.access import MOST_NEW_TOKENS, NEW_S, Access, Principal
from gpuwise.service.live.errors import (
    ForbiddenError,
    InvalidError,
    NotFoundError,
    TooManyError,
    UnauthorizedError,
    WrongTokenError,
)
from gpuwise.service.live.sessions import MOST_PER_TOKEN, SESSION_S
from gpuwise.store.sql import SqlStore, open_store


class Time:
    """A clock that a test sets."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    opened = open_store(tmp_path / "store.db")
    yield opened
    opened.close()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def access(store: SqlStore, time: Time) -> Access:
    return Access(store, time)


def test_a_token_says_who_its_holder_is(access: Access) -> None:
    token, secret = access.add("bob", UserRole.USER)
    assert access.by_secret(secret) == Principal("bob", UserRole.USER, token.id)


def test_secrets_are_long_random_and_kept_as_a_hash(access: Access, store: SqlStore) -> None:
    made = [access.add("bob", UserRole.USER) for _ in range(20)]
    assert len({secret for _, secret in made}) == len({token.id for token, _ in made}) == 20
    assert all(len(secret) >= 43 for _, secret in made)  # 32 bytes, 6 bits a character
    kept = {token.id: token.digest for token in store.tokens()}
    assert kept == {token.id: hashlib.sha256(secret.encode()).hexdigest() for token, secret in made}


@pytest.mark.parametrize("wrong", ["", "x", "{}x", " {}", "{}\0", "\ud800"])
def test_what_is_nobodys_token_is_refused(access: Access, wrong: str) -> None:
    _, secret = access.add("bob", UserRole.USER)
    with pytest.raises(WrongTokenError):
        access.by_secret(wrong.format(secret))


def test_the_hash_of_a_secret_does_not_open(access: Access) -> None:
    token, _ = access.add("bob", UserRole.USER)
    with pytest.raises(WrongTokenError):
        access.by_secret(token.digest)


def test_a_token_is_good_until_it_expires(access: Access, time: Time) -> None:
    _, secret = access.add("bob", UserRole.USER, expires_in_s=10)
    time.now += 9.9
    principal = access.by_secret(secret)
    assert access.is_valid(principal)
    time.now += 0.1
    assert not access.is_valid(principal)
    with pytest.raises(WrongTokenError):
        access.by_secret(secret)


def test_a_revoked_token_is_refused_at_once_and_for_good(access: Access, store: SqlStore, time: Time) -> None:
    access.add("ada", UserRole.ADMIN)
    token, secret = access.add("bob", UserRole.USER)
    principal = access.by_secret(secret)
    session, _ = access.log_in(principal)
    changes: list[str] = []
    access.on_change = lambda: changes.append("changed")
    assert access.revoke(token.id).revoked_at == time.now
    assert changes == ["changed"]
    assert not access.is_valid(principal)
    for again in (access, Access(store, time)):
        with pytest.raises(WrongTokenError):
            again.by_secret(secret)
        with pytest.raises(UnauthorizedError):
            again.by_secret(session)
    time.now += 5
    assert access.revoke(token.id).revoked_at == time.now - 5  # when it was revoked first


def test_tokens_that_others_wrote_are_seen_after_a_refresh(access: Access, store: SqlStore, time: Time) -> None:
    _, secret = Access(store, time).add("bob", UserRole.USER)
    with pytest.raises(WrongTokenError):
        access.by_secret(secret)
    access.refresh()
    assert access.by_secret(secret).user == "bob"


def test_one_administrator_stays(access: Access, time: Time) -> None:
    first, _ = access.add("ada", UserRole.ADMIN)
    brief, _ = access.add("ava", UserRole.ADMIN, expires_in_s=10)
    access.add("bob", UserRole.USER)
    time.now += 10  # the second one is no administrator any more
    with pytest.raises(NotPossibleError, match="last token of an administrator"):
        access.revoke(first.id)
    second, _ = access.add("amy", UserRole.ADMIN)
    access.revoke(first.id)
    access.revoke(brief.id)
    with pytest.raises(NotPossibleError):
        access.revoke(second.id)


def test_an_unknown_token_cannot_be_revoked(access: Access) -> None:
    with pytest.raises(NotFoundError, match="no token 'abc'"):
        access.revoke("abc")


@pytest.mark.parametrize("user", ["", "a b", "../x", "a\n", "é", "x" * 65, "-x"])
def test_names_are_words(access: Access, user: str) -> None:
    with pytest.raises(InvalidError, match="user is"):
        access.add(user, UserRole.USER)
    assert access.tokens() == []


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e11])
def test_a_token_lasts_a_time_that_can_be(access: Access, seconds: float) -> None:
    with pytest.raises(InvalidError, match="expires_in_s"):
        access.add("bob", UserRole.USER, seconds)


# -- rotation -----------------------------------------------------------------------------------------------------


def test_a_rotated_token_ends_after_its_grace(access: Access, time: Time) -> None:
    admin = access.by_secret(access.add("ada", UserRole.ADMIN)[1])
    old, secret = access.add("bob", UserRole.USER, expires_in_s=100)
    new, fresh = access.rotate(admin, old.id, grace_s=10)
    assert (new.user, new.role, new.expires_at) == ("bob", UserRole.USER, old.expires_at)
    assert (access.by_secret(secret).token, access.by_secret(fresh).token) == (old.id, new.id)
    with pytest.raises(NotPossibleError):
        access.rotate(admin, old.id)
    time.now += 10
    assert access.by_secret(fresh).token == new.id
    with pytest.raises(WrongTokenError, match="was revoked"):
        access.by_secret(secret)


def test_the_last_administrator_cannot_be_rotated_away(access: Access, time: Time) -> None:
    first, secret = access.add("ada", UserRole.ADMIN)
    second, fresh = access.rotate(access.by_secret(secret), first.id, grace_s=10)
    with pytest.raises(NotPossibleError, match="last token of an administrator"):
        access.revoke(second.id)  # the first one counts no more: it ends soon
    assert access.revoke(first.id).revoked_at == time.now
    assert access.by_secret(fresh).role is UserRole.ADMIN


@pytest.mark.parametrize("role", [UserRole.VIEWER, UserRole.USER])
def test_a_token_does_not_get_its_user_more_than_it_may(access: Access, role: UserRole) -> None:
    own, secret = access.add("bob", role, expires_in_s=100)
    higher, _ = access.add("bob", UserRole.ADMIN)
    foreign, _ = access.add("cy", role)
    bob = access.by_secret(secret)
    for other in (higher, foreign):
        with pytest.raises(NotFoundError):
            access.rotate(bob, other.id)
    with pytest.raises(ForbiddenError, match="longer"):
        access.rotate(bob, own.id, expires_in_s=101)
    assert access.rotate(bob, own.id, expires_in_s=50)[0].role is role


def valid_ones(access: Access, secrets: list[str]) -> list[bool]:
    """Which secrets open."""
    found = []
    for secret in secrets:
        try:
            found.append(access.is_valid(access.by_secret(secret)))
        except UnauthorizedError:
            found.append(False)
    return found


@pytest.mark.parametrize("again", [False, True], ids=["one service", "a restart before each"])
def test_rotating_again_and_again_leaves_two_valid_tokens(
    access: Access, store: SqlStore, time: Time, again: bool
) -> None:
    secrets = [access.add("bob", UserRole.VIEWER)[1]]
    for _ in range(4):
        time.now += 1
        access = Access(store, time) if again else access
        by = access.by_secret(secrets[-1])
        secrets.append(access.rotate(by, by.token, grace_s=3600)[1])
        assert valid_ones(access, secrets) == [False] * (len(secrets) - 2) + [True] * 2


def test_each_of_two_tokens_has_its_grace(access: Access, time: Time) -> None:
    first, second = (access.add("bob", UserRole.USER)[1] for _ in range(2))
    secrets = [first, second]
    for secret in (second, first):
        time.now += 1
        by = access.by_secret(secret)
        secrets.append(access.rotate(by, by.token, grace_s=3600)[1])
    assert valid_ones(access, secrets) == [True] * 4
    for _ in range(2):
        time.now += 1
        by = access.by_secret(secrets[-1])
        secrets.append(access.rotate(by, by.token, grace_s=3600)[1])
        assert valid_ones(access, secrets)[-2:] == [True, True]  # the one just rotated has its grace
        assert sum(valid_ones(access, secrets)) == 4


def test_a_user_rotates_only_so_often_and_an_administrator_as_they_like(access: Access, time: Time) -> None:
    admin = access.by_secret(access.add("ada", UserRole.ADMIN)[1])
    latest = access.add("bob", UserRole.USER)[1]
    for _ in range(MOST_NEW_TOKENS - 1):
        time.now += 1
        latest = access.rotate(by := access.by_secret(latest), by.token)[1]
    bob, before = access.by_secret(latest), access.tokens()
    with pytest.raises(TooManyError, match=f"bob got {MOST_NEW_TOKENS} new tokens within an hour") as refused:
        access.rotate(bob, bob.token)
    assert access.tokens() == before
    latest = access.rotate(admin, bob.token)[1]
    bob = access.by_secret(latest)
    time.now += refused.value.retry_after_s
    with pytest.raises(TooManyError) as refused:
        access.rotate(bob, bob.token)
    time.now += refused.value.retry_after_s
    assert time.now < 1000 + NEW_S + MOST_NEW_TOKENS
    assert access.rotate(bob, bob.token)[0].user == "bob"


# -- sessions -----------------------------------------------------------------------------------------------------


def test_a_session_lasts_a_day_and_ends_with_the_service(access: Access, store: SqlStore, time: Time) -> None:
    token, secret = access.add("bob", UserRole.USER)
    session, expires_at = access.log_in(access.by_secret(secret))
    assert secret not in session
    assert expires_at == time.now + SESSION_S
    assert (access.by_secret(session).user, access.by_secret(session).token) == ("bob", token.id)
    with pytest.raises(UnauthorizedError):
        Access(store, time).by_secret(session)
    time.now += SESSION_S - 1
    principal = access.by_secret(session)
    assert access.is_valid(principal)
    time.now += 1
    assert not access.is_valid(principal)
    with pytest.raises(UnauthorizedError):
        access.by_secret(session)


def test_logging_out_ends_one_session_and_tells(access: Access) -> None:
    _, secret = access.add("bob", UserRole.USER)
    first, second = (access.by_secret(access.log_in(access.by_secret(secret))[0]) for _ in range(2))
    changes: list[str] = []
    access.on_change = lambda: changes.append("changed")
    access.log_out(first)
    assert changes == ["changed"]
    assert [access.is_valid(each) for each in (first, second, access.by_secret(secret))] == [False, True, True]


def test_what_stands_for_a_token_that_cannot_be_read_is_refused(access: Access, store: SqlStore) -> None:
    token, secret = access.add("bob", UserRole.USER)
    bob = access.by_secret(secret)
    session, code = access.log_in(bob)[0], access.issue_code(bob)[0]
    principal = access.by_secret(session)
    spoil = f"UPDATE tokens SET role = 'king' WHERE id = '{token.id}'"
    store.database.write(lambda connection: connection.exec_driver_sql(spoil))
    access.add("cy", UserRole.USER)  # reads all again
    assert token.id not in {each.id for each in access.tokens()}
    assert not access.is_valid(principal)
    with pytest.raises(UnauthorizedError, match="log in again"):
        access.by_secret(session)
    with pytest.raises(WrongTokenError, match="gpuwise page"):
        access.by_code(code)
    for no_more in (lambda: access.by_secret(secret), lambda: access.log_in(bob)):
        with pytest.raises(WrongTokenError, match="not known"):
            no_more()


def test_a_code_works_once_and_not_for_long(access: Access, time: Time) -> None:
    bob = access.by_secret(access.add("bob", UserRole.USER)[1])
    code, _ = access.issue_code(bob)
    assert access.by_code(code) == bob
    late, expires_at = access.issue_code(bob)
    time.now = expires_at
    for each in (code, late, "", "x"):
        with pytest.raises(WrongTokenError, match="gpuwise page"):
            access.by_code(each)


def test_a_user_has_only_so_many_sessions(access: Access) -> None:
    bob, cy = (access.by_secret(access.add(name, UserRole.USER)[1]) for name in ("bob", "cy"))
    other = access.by_secret(access.log_in(cy)[0])
    sessions = [access.by_secret(access.log_in(bob)[0]) for _ in range(MOST_PER_TOKEN + 1)]
    assert [access.is_valid(each) for each in sessions] == [False] + [True] * MOST_PER_TOKEN
    assert access.is_valid(other)


def test_who_may_see_a_job() -> None:
    job = JobRecord(uid="1", user="bob", request=JobRequest(command=("x",)))
    sees = {
        (user, role): Principal(user, role, "t").may_see(job) for user in ("ada", "bob") for role in UserRole
    }  # fmt: skip
    assert {who for who, may in sees.items() if may} == {("ada", UserRole.ADMIN), *(("bob", role) for role in UserRole)}


def test_roles_have_an_order() -> None:
    may = {role: [other for other in UserRole if Principal("x", role, "t").at_least(other)] for role in UserRole}
    assert may[UserRole.ADMIN] == [UserRole.ADMIN, UserRole.USER, UserRole.VIEWER]
    assert may[UserRole.USER] == [UserRole.USER, UserRole.VIEWER]
    assert may[UserRole.VIEWER] == [UserRole.VIEWER]


# -- how often ----------------------------------------------------------------------------------------------------


def test_a_bucket_holds_a_burst_and_fills_again() -> None:
    time = Time(0.0)
    limit = RateLimit(Rate(per_s=2.0, burst=3.0), time)
    assert [limit.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]  # the next one comes after 1/2 s
    time.now += 0.25
    assert limit.take("a") == 0.25
    time.now += 0.25
    assert (limit.take("a"), limit.take("a")) == (0.0, 0.5)
    time.now += 1000
    assert [limit.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_buckets_are_apart() -> None:
    limit = RateLimit(Rate(per_s=1.0, burst=1.0), Time())
    assert (limit.take("a"), limit.take("b"), limit.take("a")) == (0.0, 0.0, 1.0)


def test_only_so_many_buckets_are_remembered() -> None:
    limit = RateLimit(Rate(per_s=1.0, burst=1.0), Time())
    for number in range(MAX_KEYS):
        limit.take(str(number))
    assert limit.take("0") == 1.0  # used last, so remembered longest
    limit.take("new")
    assert len(limit) == MAX_KEYS
    assert limit.take("0") == 1.0
    assert limit.take("1") == 0.0
