"""What a job waits for of another: its success, its end or its failure, as in ``afterany:17``."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Until(enum.StrEnum):
    """What a job waits for."""

    OK = "afterok"
    """That the other succeeds; of an array, all its tasks."""
    ANY = "afterany"
    """That the other ends, however; of an array, all its tasks."""
    NOT_OK = "afternotok"
    """That the other fails or is cancelled; of an array, one of its tasks."""


class Dependency(NamedTuple):
    """A job or array that another job waits for."""

    until: Until
    name: str

    @classmethod
    def parse(cls, text: str) -> Dependency:
        """From ``afterany:17``; ``17`` alone is ``afterok:17``, and a name may have colons of its own."""
        for until in Until:
            if text.startswith(f"{until}:"):
                return cls(until, text.removeprefix(f"{until}:"))
        return cls(Until.OK, text)
