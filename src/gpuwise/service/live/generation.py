"""Which history of the store a state folder goes with: notices a database that is older than its folder, or another.

The store and the folder both have the generation, a random id. The folder also notes the last journal line and
job number. A database that was put back is behind that, or has another generation.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.records import RESTORE, StoreError
from gpuwise.live.local.attempts.folders import whole
from gpuwise.live.local.supervisor.files import read_json, write_json
from gpuwise.store.place import missing_file
from gpuwise.store.sql import SqlStore

log = logging.getLogger("gpuwise.up")
NAME = "generation"
"""Of the setting in the store."""
FILE = "generation.json"
MARK_EVERY_S = 1.0
UNMARKED = 1000
"""Jobs that may have been submitted after the last mark."""


def require_database(folder: Path, place: str | os.PathLike[str]) -> None:
    """Refuses to begin with an empty database in a folder that had one: all jobs that run would be unknown, and end."""
    if (folder / FILE).exists() and (missing := missing_file(place)):
        raise GpuwiseError(
            f"{missing} does not exist or is empty, and {folder} had a database, by its {FILE}; {RESTORE}, or remove "
            f"{folder / FILE} to start with an empty database, which ends all jobs that still run"
        )


class Generation:
    """The generation of a store in its state folder."""

    def __init__(self, folder: Path, store: SqlStore) -> None:
        self._path = folder / FILE
        self._store = store
        self._marked: dict[str, object] = {}
        self.note = ""
        """What was found at the start, for people; empty if all is as it was left."""
        known = read_json(self._path)
        used = max([whole(known, "number"), *(_number_of(path.name) for path in (folder / "jobs").glob("*"))])
        if why := self._difference(known, used):
            self._fence(folder, used, why)
        self.id = store.meta(NAME, secrets.token_hex(8))
        self.mark()

    def _difference(self, known: dict[str, object], used: int) -> str:
        if known and self._store.meta(NAME, "none") != known.get("id"):
            return "the database is not the one that was used here last"
        if self._store.last_sequence() < whole(known, "sequence") or self._store.last_job_number() < used:
            return "the database is older than the jobs in the state folder"
        return ""

    def _fence(self, folder: Path, used: int, why: str) -> None:
        """Begins a new generation, in which no number of a job is used that one had in the generation before."""
        self._store.skip_job_numbers(used + UNMARKED)
        self._store.put_meta(NAME, secrets.token_hex(8))
        known_jobs = {record.uid for record in self._store.live_jobs()}
        live = sorted({path.name.rpartition(".")[0] for path in (folder / "live").glob("*.*")}, key=_number_of)
        ended = [uid for uid in live if uid not in known_jobs]
        kept = [uid for uid in live if uid in known_jobs]
        self.note = (
            f"{why}: it was put back, or replaced. Running jobs that it knows and that continue: {_jobs(kept)}; "
        )
        self.note += f"that it does not know and that are ended: {_jobs(ended)}. New jobs have numbers from "
        self.note += f"{used + UNMARKED + 1}"
        log.warning("%s", self.note)

    def mark(self) -> None:
        """Notes the last journal line and job number; if the disk is full, the next time."""
        try:
            found = {"sequence": self._store.last_sequence(), "number": self._store.last_job_number(), "id": self.id}
            if found != self._marked:
                write_json(self._path, found)
                self._marked = found
        except (OSError, StoreError) as error:
            log.info("%s cannot be written: %s", self._path, error)


def _jobs(uids: Sequence[str]) -> str:
    return ", ".join(uids[:10]) + (", ..." if len(uids) > 10 else "") or "none"


def _number_of(uid: str) -> int:
    number = uid.partition("-")[0]
    return int(number) if number.isdecimal() and len(number) < 19 else 0
