"""Errors a user can act on: what was wrong, with the value, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class GpuwiseError(Exception):
    """Something the user can fix; its text is shown as it is, without a traceback."""


class OverAllocationError(GpuwiseError):
    """A placement that takes what is not free."""


class ReadOnlyError(GpuwiseError):
    """A policy that writes to the view it was shown."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what}: a policy's view is read-only; try things on view.draft() and return what it seals")

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.what,)


class UnknownNameError(GpuwiseError):
    """A name that is not in a catalogue or registry, with the nearest valid ones, or the command that lists all."""

    def __init__(self, kind: str, name: str, known: Iterable[str], listed_by: str = "") -> None:
        self.kind = kind
        self.name = name
        known = tuple(known)
        self.nearest = nearest_names(name, known)
        self._given = kind, name, known, listed_by
        hint = f"; see {listed_by}" if listed_by else ""
        if self.nearest:
            hint = f"; did you mean {', '.join(self.nearest)}?"
        super().__init__(f"unknown {kind} {name!r}{hint}")

    def __reduce__(self) -> tuple[type, tuple[str, str, tuple[str, ...], str]]:
        return type(self), self._given


def nearest_names(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """The known names closest to ``name``, best first; all of them when few are known and none is close."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    close = get_close_matches(name.casefold(), by_folded, n=limit, cutoff=0.5)
    if not close and len(by_folded) <= 12:
        close = sorted(by_folded)
    return [by_folded[folded] for folded in close]
