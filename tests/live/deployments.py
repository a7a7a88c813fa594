"""Services on this machine, for tests: real processes on CPU stand-ins."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gpuwise.core.records import JobRecord
from gpuwise.service.live.up import LocalDeployment

PATIENCE_S = 30.0


def until(holds: Callable[[], Any], what: str = "it", patience_s: float = PATIENCE_S) -> Any:
    """What `holds` gives, as soon as it is true."""
    gives_up = time.monotonic() + patience_s
    while not (found := holds()):
        assert time.monotonic() < gives_up, f"waited {patience_s:g} s for {what}"
        time.sleep(0.01)
    return found


def ended(deployment: LocalDeployment, uid: str) -> JobRecord:
    """A job's record, once it has ended."""
    until(lambda: deployment.controller.live(uid) is None and deployment.store.job(uid), f"job {uid} to end")
    record = deployment.store.job(uid)
    assert record is not None
    return record


def running(deployment: LocalDeployment, uid: str) -> JobRecord:
    """A job's record, once it runs."""
    return until(
        lambda: (found := deployment.controller.live(uid)) and found.status == "running" and found, f"{uid} to run"
    )
