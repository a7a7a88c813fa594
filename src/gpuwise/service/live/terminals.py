"""Where clients on this machine find the terminals of interactive jobs."""

from __future__ import annotations

from pathlib import Path

from gpuwise.live.inbox import NotPossibleError
from gpuwise.live.local.supervisor.processes import boot_id
from gpuwise.live.local.supervisor.terminal import SOCKET
from gpuwise.service.live.access import Caller
from gpuwise.service.live.jobs import Jobs


class Terminals:
    """The terminals of the jobs in a folder."""

    def __init__(self, jobs: Jobs, folder: Path) -> None:
        self._jobs = jobs
        self._folder = folder

    async def host(self, caller: Caller) -> dict[str, str | int | None]:
        """The machine, by this start of it, the folder of the jobs on it, and who may use terminals of the caller."""
        account = await self._jobs.account(caller)
        name, uid = ("", None) if account is None else (account.name, account.uid)
        return {"machine": boot_id(), "folder": str(self._folder), "account": name, "uid": uid}

    async def path(self, caller: Caller, uid: str) -> str:
        """The socket of a job's newest attempt; only its owner and administrators may use it."""
        record = await self._jobs.job(caller, uid)
        if not record.request.terminal:
            raise NotPossibleError(f"job {uid} has no terminal; only jobs of gpuwise run have one")
        if not record.attempts:
            raise NotPossibleError(f"job {uid} was not started yet")
        return str(self._folder / uid / "attempts" / str(record.attempts) / SOCKET)
