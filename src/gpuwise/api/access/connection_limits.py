"""How many connections may be open, and which is closed when there is one more."""

from __future__ import annotations

from enum import Enum, auto
from typing import Generic, Protocol, TypeVar

from starlette.types import Scope

MAX_CONNECTIONS = 4096
MAX_STREAMS = 500
"""Each event is written to each of them."""
Member = TypeVar("Member")


class Stage(Enum):
    """What a connection is used for."""

    NEW = auto()
    """No request on it was authenticated yet: half-sent, silent, or of a client without a token."""
    IDLE = auto()
    """Waits for the next request after one that was authenticated."""
    AT_WORK = auto()
    """A request that was authenticated is read or answered."""
    STREAM = auto()
    """Events or a log are streamed on it; `StreamLimit` bounds their number."""


class Droppable(Protocol):
    """What can be closed from this side."""

    def drop(self) -> None:
        """Closes it at once."""


class OpenConnection(Droppable, Protocol):
    """The connection a request came on, for those who answer it."""

    def authenticated(self, user: str) -> None:
        """Notes whose the request is."""

    def streams(self) -> None:
        """Notes that the response is a stream."""


def connection_of(scope: Scope) -> OpenConnection | None:
    """The connection of a request; None where another server than ours serves the application."""
    found: OpenConnection | None = scope.get("state", {}).get("connection")
    return found


class Shares(Generic[Member]):
    """Members that are counted by a key, such as an address or a user."""

    def __init__(self) -> None:
        self._by_key: dict[str, dict[Member, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def count(self, key: str) -> int:
        """The number of members of a key."""
        return len(self._by_key.get(key, ()))

    def most(self) -> int:
        """The number of members of the key that has most."""
        return max(map(len, self._by_key.values()), default=0)

    def add(self, key: str, member: Member) -> None:
        """Adds a member as the youngest of its key."""
        self._by_key.setdefault(key, {})[member] = None
        self._count += 1

    def discard(self, key: str, member: Member) -> None:
        """Removes a member, if it is one."""
        members = self._by_key.get(key, {})
        if member in members:
            del members[member]
            self._count -= 1
        if not members:
            self._by_key.pop(key, None)

    def oldest_of_most(self) -> tuple[str, Member]:
        """The key that has most members, and the oldest of these."""
        key = max(self._by_key, key=lambda each: len(self._by_key[each]))
        return key, next(iter(self._by_key[key]))


class ConnectionLimits:
    """All open connections. One more than allowed closes the one that matters least; no client is refused.

    That is the oldest without an authenticated request, of the address that has most of these. A quarter of all is kept
    for such newcomers, since every client begins as one: while they have no more, an idle connection is closed, else
    one at work, of the user that has most. At most half of all are streams, so there is always another to close.
    """

    def __init__(self, files: int) -> None:
        self.most = min(MAX_CONNECTIONS, files // 2)
        """The other files are for the database, logs, and a handle per running job."""
        self._stages: dict[Stage, Shares[Droppable]] = {stage: Shares() for stage in Stage}
        self._places: dict[Droppable, tuple[Stage, str]] = {}

    def __len__(self) -> int:
        return len(self._places)

    @property
    def max_streams(self) -> int:
        """How many of the connections may be streams."""
        return min(MAX_STREAMS, self.most // 2)

    def enter(self, connection: Droppable, stage: Stage, key: str) -> None:
        """Notes the stage of a connection, and whose it is: its address if it is new, else its user."""
        self.leave(connection)
        if len(self) >= self.most:
            self._drop_one()
        self._places[connection] = stage, key
        self._stages[stage].add(key, connection)

    def leave(self, connection: Droppable) -> None:
        """Forgets a connection that was closed."""
        place = self._places.pop(connection, None)
        if place is not None:
            stage, key = place
            self._stages[stage].discard(key, connection)

    def _drop_one(self) -> None:
        enough = len(self._stages[Stage.NEW]) > self.most // 4
        order = (Stage.NEW, Stage.IDLE, Stage.AT_WORK) if enough else (Stage.IDLE, Stage.AT_WORK, Stage.NEW)
        stage = next(each for each in (*order, Stage.STREAM) if self._stages[each])
        _, connection = self._stages[stage].oldest_of_most()
        self.leave(connection)
        connection.drop()
