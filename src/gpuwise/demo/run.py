"""The demo of ``gpuwise up --demo``: a dozen training jobs, and a line for each of their events."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import JobRecord, JournalLine
from gpuwise.demo.submissions import DEVICES, describe, submit_demo
from gpuwise.devices import this_machine
from gpuwise.service.live.up import LocalDeployment, Settings, owner_name

POLICY = "srtf"
SHOWN = {
    "JobSubmitted": "submitted", "Start": "starts", "Resume": "resumes", "Suspend": "is preempted",
    "JobSuspended": "checkpointed; GPUs released", "JobFinished": "done", "JobFailed": "failed",
    "JobCancelled": "cancelled",
}  # fmt: skip


def demo_settings(settings: Settings, own_state: bool) -> Settings:
    """What the demo changes: a policy that preempts, two stand-ins where there is no GPU, a folder of its own."""
    changed: dict[str, Any] = {}
    if settings.policy == Settings().policy:
        changed["policy"] = POLICY
    if own_state:
        changed["state"] = Path(tempfile.mkdtemp(prefix="gpuwise-demo-"))
    if settings.devices is None and not _has_gpus():
        changed["devices"] = DEVICES
    return replace(settings, **changed)


def _has_gpus() -> bool:

    machine = this_machine()
    try:
        return not machine.stand_in
    finally:
        machine.close()


class Demo:
    """Submits the jobs in a thread, prints their events, and a table at the end."""

    def __init__(self, deployment: LocalDeployment) -> None:
        self._deployment = deployment
        self._begun_s = deployment.clock.now_s()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpuwise-demo", daemon=True)

    def begin(self) -> None:
        """Starts submitting."""
        print()
        self._deployment.controller.listen(self._on_lines)
        self._thread.start()

    def end(self) -> None:
        """Cancels the jobs that have not ended."""
        self._ending.set()
        left = [record.uid for record in self._deployment.controller.live_records()]
        if left:
            self._deployment.controller.cancel(left, "the demo's end").result(10)

    def _run(self) -> None:
        submitted = submit_demo(self._submit, sys.executable, self._deployment.folder.path / "demo", self._ending.wait)
        while not self._ending.wait(0.2):
            if all(self._deployment.controller.live(record.uid) is None for record in submitted):
                break
        else:
            return
        store = self._deployment.store
        records = [record for each in submitted if (record := store.job(each.uid)) is not None]
        print("\nAll jobs have ended:\n\n" + describe(records, store.attempts))
        print("\nThe page still shows them. Ctrl-C ends the service.", flush=True)

    def _submit(self, requests: Sequence[JobRequest]) -> list[JobRecord]:
        if self._ending.is_set():
            return []
        return self._deployment.controller.submit(requests, owner_name()).result(30)

    def _on_lines(self, lines: Sequence[JournalLine]) -> None:
        with contextlib.suppress(OSError, ValueError):  # the output may be closed
            self._print(lines)

    def _print(self, lines: Sequence[JournalLine]) -> None:
        for line in lines:
            if line.uid is not None and line.kind in SHOWN:
                at_s = line.at - self._deployment.clock.epoch - self._begun_s
                print(f"  {at_s:5.1f} s  job {line.uid:<5} {self._name(line.uid):<22} {SHOWN[line.kind]}", flush=True)

    def _name(self, uid: str) -> str:
        record = self._deployment.controller.live(uid) or self._deployment.store.job(uid)
        where = f" on {record.placement}" if record is not None and record.placement else ""
        return f"{record.request.name if record else ''}{where}"
