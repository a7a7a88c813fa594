"""Jobs as other accounts through all that happens to jobs: checkpoints, lost supervisors, restarts, hostile files."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_accounts import AccountsUp, Person, change_accounts, open_folder, people
from live_up import until

from gpuwise.cli.client.errors import LiveError

TRAIN = """
import os, time
from gpuwise import sdk

def save(path): path.write_text(str(total))
def load(path):
    global total
    total = int(path.read_text())

total = 0
job = sdk.attach(save=save, load=load)
print(f"from {job.step} as {os.getuid()}", flush=True)
for step in job.steps(60):
    total += step
    if not job.resumed and step == 20:
        print("stands", flush=True)
        while not os.path.exists(os.environ["GPUWISE_ATTEMPT_DIR"] + "/control.json"): time.sleep(0.02)
    job.report(loss=1.0)
print(f"sum {total}")
"""
"""It stands at a step until it is asked to leave; resumed, it runs to its end."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as made:
        yield made


@pytest.fixture
def both(folder: Path) -> Iterator[tuple[Person, Person]]:
    with people(folder) as made:
        yield made


@pytest.fixture
def ada(both: tuple[Person, Person]) -> Person:
    return both[0]


@pytest.fixture
def up(folder: Path, both: tuple[Person, Person]) -> Iterator[AccountsUp]:
    service = AccountsUp(folder)
    yield service
    service.stop()


def restart(up: AccountsUp, as_user: str | None) -> None:
    """Kills the service and starts it with another option."""
    up.kill()
    up.set(as_user)
    up.start()


def test_progress_checkpoint_suspension_and_resumption(up: AccountsUp, ada: Person) -> None:
    job = up.script(ada, TRAIN, grace_s=60.0)
    up.says(job, "stands")
    until(lambda: up.get("jobs", job)["step"], "its progress")
    up.client(ada).post("jobs", job, "suspend")
    until(lambda: up.status(job) == "suspended", "it to be suspended")
    control = up.state / "jobs" / job / "attempts" / "1" / "control.json"
    assert (control.stat().st_uid, stat.S_IMODE(control.stat().st_mode)) == (0, 0o640)
    assert {path.stat().st_uid for path in (up.state / "jobs" / job / "checkpoint").rglob("*")} == {ada.uid}
    assert up.job(job)["launches"][0]["outcome"] == "suspended"
    up.client(ada).post("jobs", job, "resume")
    lines = up.succeeds(job)
    assert lines[0] == f"from 0 as {ada.uid}"
    assert lines[1:3] == ["stands", f"from 21 as {ada.uid}"]
    assert lines[3] == f"sum {sum(range(60))}"


def test_an_option_that_changes_leaves_no_job_without_its_files(folder: Path, both: tuple[Person, Person]) -> None:
    """From root to one account for all, then to the submitter's, with a job that runs all the time."""
    ada, bob = both
    up = AccountsUp(folder, as_user=None)
    try:
        job = up.script(ada, TRAIN, grace_s=60.0)
        up.says(job, "stands")
        up.client(ada).post("jobs", job, "suspend")
        until(lambda: up.status(job) == "suspended", "it to be suspended")
        steady, go = up.begin_job("steady")
        up.says(steady, "begun")
        restart(up, bob.name)
        up.client(ada).post("jobs", job, "resume")
        lines = up.succeeds(job)
        assert lines == ["from 0 as 0", "stands", f"from 21 as {bob.uid}", f"sum {sum(range(60))}"]
        assert up.runs(steady)  # as root, as it was started
        late = up.script(ada, "import os, time\nprint(os.getuid(), flush=True)\n" + UNTIL_GO, up.home / "late")
        up.says(late, f"{bob.uid}\n")
        restart(up, None)
        (up.home / "late").touch()
        assert up.succeeds(late) == [str(bob.uid), "kept"]  # the way to its files stays open
        up.end_job(steady, go)
    finally:
        up.stop()


def test_a_job_waits_while_its_account_is_not_known(up: AccountsUp, both: tuple[Person, Person]) -> None:
    """As while a name service is away, which answers as one that knows no such account."""
    ada, bob = both
    go, away, uid = up.home / "go", f"{ada.name}x", ada.uid
    first = up.script(bob, "import os, time\n" + UNTIL_GO, go, gpus=4)
    job = up.script(ada, "import os; print(os.getuid())")
    change_accounts("usermod", "-l", away, ada.name)
    try:
        go.touch()
        up.succeeds(first)
        until(lambda: "there is no account" in up.run("why", job).out or up.status(job) != "pending", "a refused start")
        assert up.status(job) in ("pending", "starting"), up.job(job)
        with pytest.raises(LiveError, match=f"there is no account '{ada.name}'"):
            up.send(ada, "true")
    finally:
        change_accounts("usermod", "-l", ada.name, away)
    assert up.succeeds(job) == [str(uid)]


UNTIL_GO = """
import sys
while not os.path.exists(sys.argv[1]): time.sleep(0.02)
path = os.environ["GPUWISE_CHECKPOINT_DIR"] + "/kept"
open(path, "w").write("kept")
print(open(path).read())
"""


def test_another_service_takes_over_what_runs(up: AccountsUp, ada: Person) -> None:
    job = up.script(ada, "import os, time\nprint(os.getuid(), flush=True)\n" + UNTIL_GO, up.home / "go")
    up.says(job, str(ada.uid))
    restart(up, "submitter")
    assert up.runs(job)
    (up.home / "go").touch()
    assert up.succeeds(job) == [str(ada.uid), "kept"]
    assert len(up.job(job)["launches"]) == 1


FAMILY = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: os.setsid()
print("runs", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("is_service_up", [True, False])
def test_nothing_outlives_a_supervisor_that_is_killed(up: AccountsUp, ada: Person, is_service_up: bool) -> None:
    job = up.script(ada, FAMILY)
    up.says(job, "runs\n" * 3)
    attempt = up.state / "jobs" / job / "attempts" / "1"
    (first,) = json.loads((attempt / "started.json").read_text())["pids"]
    if not is_service_up:
        up.kill()
    os.kill(json.loads((attempt / "claim").read_text())["pid"], signal.SIGKILL)
    if not is_service_up:
        until(lambda: first not in ada.processes(), "the kernel to end what the supervisor had started")
        up.start()
    assert up.ended(job) == "failed"
    assert "its supervisor was lost" in up.get("jobs", job)["why_ended"]
    until(lambda: not ada.processes(), "its processes to be gone")


HOSTILE = """
import os, shutil, sys, time
secret, attempt, checkpoint = sys.argv[1], os.environ["GPUWISE_ATTEMPT_DIR"], os.environ["GPUWISE_CHECKPOINT_DIR"]
job = os.path.dirname(checkpoint)
os.unlink(attempt + "/control.json")
os.symlink(secret, attempt + "/control.json")
os.mkfifo(attempt + "/sdk.json")
os.symlink("/dev/zero", attempt + "/paused.json")
os.symlink(secret, attempt + "/saved.json")
if not os.path.lexists(checkpoint + "/latest.json"):  # by the attempt before
    os.symlink(secret, checkpoint + "/latest.json")
    os.symlink("/", checkpoint + "/step")
for name in ("output.log", "attempts", "work", "checkpoint"):  # nothing of this may succeed
    for attack in (os.unlink, os.rmdir, lambda path: os.rename(path, path + "2")):
        try: attack(job + "/" + name); print("replaced", name)
        except OSError: pass
for name in ("exit.json", "orders.json", "control.json", ".control.json.1", "claim"):
    try: os.symlink(secret, os.path.dirname(attempt) + "/" + name); print("made", name)
    except OSError: pass
try: os.chown(1, os.getuid(), 0); print("chowned")
except OSError: pass
os.truncate("/proc/self/fd/1", 0)
print("ready", flush=True)
while True: time.sleep(1)
"""


def test_what_a_job_puts_in_its_folders_is_neither_followed_nor_waited_for(
    up: AccountsUp, ada: Person, folder: Path
) -> None:
    secret = folder / "secret"
    secret.write_text(content := json.dumps({"seq": 1, "step": 4711, "steps": 4711, "file": "step", "want": "run"}))
    secret.chmod(0o600)
    job = up.script(ada, HOSTILE, secret, grace_s=1.0)
    up.says(job, "ready")
    assert up.printed(job) == "ready\n"
    up.client(ada).post("jobs", job, "suspend")  # as without the SDK: it is stopped where it is
    until(lambda: up.status(job) == "suspended", "it to be suspended")
    up.succeeds(up.script(ada, "pass"))  # others are not kept waiting
    up.client(ada).post("jobs", job, "resume")
    until(lambda: up.status(job) == "running", "it to run")
    before = up.get("jobs", job)["attempts"]
    up.client(ada).post("jobs", job, "requeue")
    until(lambda: up.get("jobs", job)["attempts"] > before, "its next attempt")
    until(lambda: up.status(job) == "running", "it to run")
    assert up.get("jobs", job)["step"] is None
    up.client(ada).post("jobs", job, "cancel")
    assert up.ended(job) == "cancelled"
    assert secret.read_text() == content
    assert (secret.stat().st_uid, stat.S_IMODE(secret.stat().st_mode)) == (0, 0o600)
    assert "4711" not in json.dumps(up.job(job))
