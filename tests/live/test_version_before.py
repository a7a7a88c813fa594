"""A state folder of the version before, made by its own service, opens and goes on.

``data/before`` is what that service left when it was killed with jobs waiting, parked and running: its database as SQL,
and the files of its jobs. Its journal begins with a snapshot that was taken after some jobs had failed.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployments import ended

import gpuwise
from gpuwise.live.intake import JobIntake
from gpuwise.service.live.up import LocalDeployment, Settings

BEFORE = Path(__file__).parent / "data" / "before"
SOURCE = Path(gpuwise.__file__).parent.parent
DONE, FAILED, CANCELLED = "1", "2", "3"
SAVED, FLAKY, OUT_OF_MEMORY, PLAIN, STEPPING, PARKED, SHORT = "4", "5", "6", "7", "8", "9", "10"
ARRAY, DEPENDENT, QUEUED = ("11-3", "11-5"), "12", ("13", "14")
RUNNING = (OUT_OF_MEMORY, PLAIN, STEPPING, SHORT)
LIVE = {SAVED, FLAKY, *RUNNING, PARKED, *ARRAY, DEPENDENT, *QUEUED}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, on a machine with the name of the one it was made on."""
    monkeypatch.setattr("gpuwise.devices.host.socket.gethostname", lambda: "vm")

    def here(text: str) -> str:
        here = {"@ROOT@": str(tmp_path), "@PYTHON@": sys.executable, "@SOURCE@": str(SOURCE)}
        for name, value in here.items():
            text = text.replace(name, value)
        return text

    for name, content in json.loads((BEFORE / "files.json").read_text()).items():
        path = tmp_path / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(here(content))
    (tmp_path / "files" / "restored").touch()  # from here on the steps are quick
    with sqlite3.connect(tmp_path / "state" / "gpuwise.db") as database:
        database.executescript(here((BEFORE / "gpuwise.sql").read_text()))
    database.close()
    return tmp_path / "state"


@pytest.fixture
def deployment(state: Path) -> Iterator[LocalDeployment]:
    deployment = LocalDeployment(Settings(state=state, devices=4, policy="srtf", coalesce_s=0.0, keep_days=36_500.0))
    yield deployment
    deployment.close()


def rows(state: Path, columns: str) -> dict[str, tuple[object, ...]]:
    """What a database says of each job."""
    database = sqlite3.connect(state / "gpuwise.db")
    found = {row[0]: row[1:] for row in database.execute(f"SELECT uid, {columns} FROM jobs")}
    database.close()
    return found


def attempts(deployment: LocalDeployment, uid: str) -> list[tuple[int, str]]:
    """The attempts of a job, and how each ended."""
    return [(attempt.number, attempt.outcome) for attempt in deployment.store.attempts(uid)]


def printed(deployment: LocalDeployment, uid: str) -> str:
    return (deployment.folder.jobs / uid / "output.log").read_text()


ENDED_COLUMNS = "status, why_ended, submitted_at, started_at, ended_at, exit_code, attempts, failures, gpu_s, request"


def test_everything_in_it_goes_on(state: Path, request: pytest.FixtureRequest) -> None:
    before = rows(state, ENDED_COLUMNS)
    deployment: LocalDeployment = request.getfixturevalue("deployment")
    queue = deployment.store.queues()[0]
    assert (queue.name, queue.max_gpus, queue.weight) == ("small", 1, 2.0)
    deployment.controller.resume([FLAKY, PARKED]).result(10)
    for uid in LIVE:
        assert ended(deployment, uid).status == "succeeded", uid
    after = rows(state, ENDED_COLUMNS)
    assert {uid: after[uid] for uid in (DONE, FAILED, CANCELLED)} == {
        uid: before[uid] for uid in (DONE, FAILED, CANCELLED)
    }
    assert after.keys() == before.keys() == {DONE, FAILED, CANCELLED} | LIVE

    for uid in (PLAIN, SHORT):  # what ran is gone with the machine, and is started again
        assert attempts(deployment, uid) == [(1, "lost"), (2, "succeeded")]
    # It had saved 14 of 400 steps; a sum over all of them shows that it began there.
    assert attempts(deployment, STEPPING) == [(1, "suspended"), (2, "lost"), (3, "succeeded")]
    assert printed(deployment, STEPPING) == f"sum {sum(range(400))}\n"
    assert printed(deployment, SAVED) == f"sum {sum(range(60))}\n"
    assert [printed(deployment, uid) for uid in ARRAY] == ["task 3\n", "task 5\n"]


def test_counts_of_failures_are_kept(deployment: LocalDeployment) -> None:
    """The snapshot of the version before has no counts, and its journal not the cause of each failure."""
    flaky, memory = (deployment.controller.live(uid) for uid in (FLAKY, OUT_OF_MEMORY))
    assert flaky is not None
    assert memory is not None
    assert (flaky.failures, memory.out_of_memory) == (1, 1)

    def counts(uid: str) -> tuple[int, int]:
        def ask(intake: JobIntake) -> tuple[int, int]:
            jobs = intake.engine.state.jobs
            row = jobs.row_of[uid]
            return jobs.failures.item(row), jobs.out_of_memory.item(row)

        return deployment.controller.ask(ask).result(10)

    assert counts(FLAKY) == (1, 0)
    deployment.controller.resume([FLAKY]).result(10)
    flaky, memory = ended(deployment, FLAKY), ended(deployment, OUT_OF_MEMORY)
    # It failed once before and was parked; it fails once more, and has retries left to succeed.
    assert flaky.failures == 2
    assert attempts(deployment, FLAKY) == [(1, "failed"), (2, "suspended"), (3, "failed"), (4, "succeeded")]
    assert (memory.failures, memory.out_of_memory) == (1, 1)
    assert attempts(deployment, OUT_OF_MEMORY) == [(1, "out of memory"), (2, "lost"), (3, "succeeded")]


def test_what_is_read_once_is_read_again(state: Path) -> None:
    """A service of today that is stopped at once leaves a folder that it can open."""
    settings = Settings(state=state, devices=4, policy="srtf", coalesce_s=0.0, keep_days=36_500.0)
    for _ in range(2):
        deployment = LocalDeployment(settings)
        assert {record.uid for record in deployment.controller.live_records()} <= LIVE
        deployment.close()
    deployment = LocalDeployment(settings)
    deployment.controller.resume([FLAKY, PARKED]).result(10)
    try:
        for uid in LIVE:
            assert ended(deployment, uid).status == "succeeded", uid
    finally:
        deployment.close()
