"""Supervisors and the controller are killed over sixty jobs: none without retries runs twice, all others end once."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_up import Up, until

from gpuwise.cli.client.http import connect

SUPERVISORS, CONTROLLERS, JOBS = 12, 13, 60
SCRIPT = """
echo "$GPUWISE_JOB_ID" >> "$0/begun"
until [ -e "$0/go-$GPUWISE_JOB_ID" ] || [ -e "$0/go" ]; do sleep 0.05; done
echo "result of $GPUWISE_JOB_ID"
"""
"""Runs until it, or all, may end."""
CONTROLLER = "the controller"
ONCE: dict[str, object] = {"retries": 0}
AGAIN: list[dict[str, object]] = [{"retries": 0, "requeue": True}, {"retries": 3}]


class Killed(Up):
    """A service with four devices, whose supervisors can be killed, too."""

    options = ("--devices", "4")

    def kill_supervisor(self, rng: random.Random) -> str:
        """Kills the supervisor of a job that runs; the job's id."""
        attempt = until(lambda: (runs := sorted(self.supervised())) and rng.choice(runs), "a job that runs")
        os.kill(json.loads((attempt / "claim").read_text())["pid"], signal.SIGKILL)
        return attempt.parent.parent.name

    def supervised(self) -> list[Path]:
        """Attempts that have begun, with a supervisor that lives."""
        return [path.parent for path in self.processes() if _lives(path.parent / "claim")]


def _lives(claim: Path) -> bool:
    try:
        pid = json.loads(claim.read_text())["pid"]
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, ValueError):
        return False


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Killed]:
    service = Killed(tmp_path)
    yield service
    service.stop()


def _kill_all(up: Killed, rng: random.Random, folder: Path) -> Counter[str]:
    """Kills while jobs run, in no order, a supervisor now and then while there is no controller; how often each was."""
    kills = ["supervisor"] * SUPERVISORS + ["controller"] * CONTROLLERS
    rng.shuffle(kills)
    killed: Counter[str] = Counter()
    while kills:
        what = kills.pop()
        until(up.supervised, "a job that runs")
        if what == "controller":
            up.kill()
            killed[CONTROLLER] += 1
        if what == "supervisor" or (up.supervised() and "supervisor" in kills and rng.random() < 0.5):
            kills.remove("supervisor") if what == "controller" else None
            killed[up.kill_supervisor(rng)] += 1
        if running := up.supervised():  # one may end, so that others run
            (folder / f"go-{rng.choice(running).parent.parent.name}").touch()
        if what == "controller":
            up.start()
    return killed


def _ends(up: Killed) -> Counter[str]:
    """How often each job ended for good, by the journal."""
    ends = [line for line in up.json("events", "--after", "0") if line["kind"] in ("JobFinished", "JobFailed")]
    return Counter(line["job"] for line in ends if "will be retried" not in line["text"])


def test_killed_supervisors_and_controllers_run_nothing_twice_that_must_not_be(up: Killed, tmp_path: Path) -> None:
    options = [ONCE if number % 2 else AGAIN[number // 2 % 2] for number in range(JOBS)]
    command = {"command": ["sh", "-c", SCRIPT, str(tmp_path)], "duration_s": 1.0}
    client = connect(state=up.state)
    uids = [client.post("jobs", body={**command, **given})["jobs"][0]["id"] for given in options]
    killed = _kill_all(up, random.Random(7), tmp_path)
    (tmp_path / "go").touch()
    assert killed.pop(CONTROLLER) == CONTROLLERS
    assert sum(killed.values()) == SUPERVISORS
    until(lambda: not up.get("queue")["jobs"], "all jobs to end")
    starts = Counter((tmp_path / "begun").read_text().split())
    once = {uid for uid, given in zip(uids, options, strict=True) if given is ONCE}
    assert once & killed.keys()
    assert killed.keys() - once
    for uid in uids:
        log = (up.state / "jobs" / uid / "output.log").read_text().splitlines()
        if uid in once and uid in killed:  # it may have been killed after its last line
            assert log in ([], [f"result of {uid}"])
            assert up.status(uid) in (("failed",) if not log else ("failed", "succeeded"))
        else:
            assert up.status(uid) == "succeeded", up.job(uid)
            assert set(log) == {f"result of {uid}"}
        assert starts[uid] <= (1 if uid in once else 1 + killed[uid])
    assert _ends(up) == Counter(uids)
