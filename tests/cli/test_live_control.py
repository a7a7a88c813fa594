"""Jobs that are changed, put on hold, requeued and named after they were submitted; by commands, with real jobs."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator

import pytest
from command import COMMAND
from live_up import Up, until

from gpuwise.cli.client.http import connect


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    service = Up(tmp_path_factory.mktemp("up"))
    yield service
    service.stop()


def test_a_job_on_hold_starts_when_it_is_released(up: Up) -> None:
    first, go = up.begin_job("busy", gpus=2)
    waiting = up.submit("--name", "patient", "true")
    assert up.right("hold", "patient") == f"job {waiting} (patient) is on hold\n"
    refused = up.run("hold", first)
    assert refused.code == 2
    assert "suspend" in refused.err
    up.end_job(first, go)
    assert up.status(waiting) == "pending"
    up.right("release", waiting)
    until(lambda: up.status(waiting) == "succeeded", "the released job")


def test_a_requeued_job_is_started_again(up: Up) -> None:
    uid, go = up.begin_job("again")
    until(lambda: up.runs(uid), "the job to run")
    up.right("requeue", "again")
    until(lambda: len(up.job(uid)["launches"]) == 2 and up.runs(uid), "the second attempt")
    assert until(lambda: up.job(uid)["launches"][0]["outcome"], "the end of the first") == "requeued"
    up.end_job(uid, go)
    assert (up.job(uid)["failures"], up.right("logs", uid)) == (0, "begun\nbegun\ngone\n")
    assert up.run("requeue", uid).code == 2


def test_priority_deadline_and_time_limit_are_changed(up: Up) -> None:
    blocker, go = up.begin_job("blocker", gpus=2)
    uid = up.submit("--name", "changed", "sleep", "60")
    answer = up.right("update", uid, "--priority", "7", "--deadline", "+2h", "--time-limit", "5m")
    assert answer.startswith(f"job {uid} (changed) is pending: priority 7, time limit 5m00s, deadline ")
    (job,) = up.json("show", uid)
    assert (job["priority"], job["time_limit_s"]) == (7, 300)
    assert job["deadline_s"] == pytest.approx(time.time() + 7200, abs=120)
    assert up.right("update", uid, "--deadline", "none") == f"job {uid} (changed) is pending: deadline none\n"
    assert up.job(uid)["deadline_s"] is None
    past = up.run("update", uid, "--deadline", "2020-01-01T00:00")
    assert (past.code, "ago; give a later one" in past.err) == (2, True)
    assert up.run("update", uid).code == 2
    up.run("cancel", uid)
    up.right("update", blocker, "--time-limit", "1s")  # of an attempt that runs
    until(lambda: up.status(blocker) == "failed", "the time limit")
    assert "time limit of 1 s" in up.job(blocker)["why_ended"]
    go.touch()


def test_a_name_of_several_jobs_is_refused_with_their_ids(up: Up) -> None:
    ids = [up.submit("--name", "twin", "sleep", "60") for _ in range(2)]
    answer = up.run("cancel", "twin")
    assert answer.code == 2
    assert all(uid in answer.err for uid in ids)
    assert up.run("cancel", "nobody-is-called-that").code == 5
    up.right("cancel", ids[0])
    assert up.right("cancel", "twin") == f"job {ids[1]} (twin) is cancelled\n"


def test_a_name_means_a_job_of_ones_own_even_to_an_administrator(up: Up) -> None:
    bob = {"GPUWISE_API_TOKEN": up.new_token("bob")}
    uid = up.right("submit", "--name", "shared-name", "--", "sleep", "60", **bob).strip()
    answer = up.run("cancel", "shared-name")
    assert (answer.code, "you have no job called 'shared-name'" in answer.err) == (5, True)
    assert up.status(uid) in ("pending", "starting", "running")
    assert up.right("cancel", "shared-name", **bob).startswith(f"job {uid} (shared-name) is cancelled")


def test_a_word_that_looks_like_an_id_is_an_id(up: Up) -> None:
    first, second = up.submit("--", "true"), up.submit("--", "sleep", "60")
    named = up.submit("--name", second, "--begin", "+1h", "--", "true")
    assert up.right("cancel", second).startswith(f"job {second} ")
    assert up.status(named) == "pending"
    up.right("cancel", named)
    assert up.run("wait", first).code == 0


def test_jobs_wait_for_success_end_or_failure(up: Up) -> None:
    first, go = up.begin_job("first")
    ok = up.submit("--after", "afterok:first", "true")
    ended = up.submit("--after", f"afterany:{first}", "true")
    failed = up.submit("--name", "cleanup", "--after", f"afternotok:{first}", "true")
    assert up.right("why", failed) == f"job {failed} waits for job {first}, which has not failed yet\n"
    up.right("cancel", first)
    for uid in (ended, failed):
        until(lambda: up.status(uid) == "succeeded", "those that do not need its success")  # noqa: B023
    assert up.status(ok) == "cancelled"
    fine = up.submit("true")
    assert up.run("wait", fine).code == 0
    never = up.run("submit", "--after", f"afternotok:{fine}", "true")
    assert (never.code, "would never start" in never.err) == (2, True)
    go.touch()


def test_an_array_runs_some_of_its_tasks_at_one_time(up: Up) -> None:
    gate = up.home / "gate"
    script = 'while [ ! -e "$0" ]; do sleep 0.05; done'
    array = up.submit("--array", "0-2%1", "--", "sh", "-c", script, str(gate))
    until(lambda: up.runs(f"{array}-0"), "the first task")  # there are two devices
    assert {job["held"] for job in up.json("show", array) if job["id"] != f"{array}-0"} == {"array"}
    up.right("suspend", f"{array}-0")
    until(lambda: up.runs(f"{array}-1"), "the next task in place of one on hold")
    up.right("resume", f"{array}-0")
    gate.touch()
    until(lambda: all(job["status"] == "succeeded" for job in up.json("show", array)), "all tasks")


def test_a_job_begins_later(up: Up) -> None:
    begin = time.time() + 3
    uid = up.submit("--begin", "+3s", "true")
    later = up.submit("--begin", "+1h", "true")
    assert "at the earliest, as its user asked" in up.right("why", later)
    up.right("cancel", later)
    until(lambda: up.status(uid) == "succeeded", "the job")
    assert up.job(uid)["started_at"] >= begin - 0.1


def test_a_job_that_begins_later_is_listed_with_its_earliest_start(up: Up) -> None:
    uid = up.submit("--begin", "+6h", "--name", "tonight", "true")
    assert re.search(r"tonight .* in 6 h", up.right("queue", "-o", "table"))
    up.right("cancel", uid)
    assert not re.search(r"tonight .* in 6 h", up.right("queue", "--all", "-o", "table"))
    assert up.right("why", uid).startswith(f"job {uid} was cancelled")


def test_estimates_do_not_outlive_a_hold_or_another_priority(up: Up) -> None:
    blocker, go = up.begin_job("estimated", gpus=2)
    until(lambda: up.runs(blocker), "the job to run")
    uid = up.submit("--name", "put-aside", "sleep", "60")

    def start() -> float | None:
        (job,) = [job for job in up.get("queue")["jobs"] if job["id"] == uid]
        return job["estimated_start"]

    assert until(start, "an estimate")
    connect(state=up.state).post("jobs", uid, "hold")
    assert start() is None
    connect(state=up.state).post("jobs", uid, "release")
    until(start, "an estimate after the hold")
    connect(state=up.state).patch("jobs", uid, body={"priority": -3})
    until(start, "an estimate with the other priority")
    up.right("cancel", uid)
    up.end_job(blocker, go)


def test_what_cannot_be_is_refused_with_the_reason(up: Up) -> None:
    late = up.run("submit", "--deadline", "2020-01-01T00:00", "true")
    assert late.code == 2
    assert re.search(r"deadline_s is 15778\d{5} \(20(19-12-31|20-01-01) \d\d:00 UTC\), which was .* ago", late.err)
    nowhere = up.run("submit", "--workdir", "/no/such/folder", "true")
    assert nowhere.code == 2
    assert "workdir is '/no/such/folder', which does not exist" in nowhere.err


def test_a_folder_that_was_removed_is_refused_with_the_reason(up: Up) -> None:
    gone = up.home / "gone"
    gone.mkdir()
    command = [*COMMAND, "submit", "true"]
    leave = ["sh", "-c", 'rmdir "$0" && exec "$@"', str(gone), *command]
    done = subprocess.run(leave, cwd=gone, env=up.environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "the folder you are in was removed" in done.stderr) == (2, True)


def test_why_names_the_jobs_that_have_the_gpus(up: Up) -> None:
    owner = up.get("status")["user"]
    busy, go = up.begin_job("busy-again", gpus=2, duration_s=None)
    until(lambda: up.runs(busy), "the job to run")
    waiting = up.submit("--gpus", "2", "true")
    lines = up.right("why", waiting).splitlines()
    assert lines[0].startswith(f"job {waiting} needs 2 GPUs")
    assert lines[1].startswith(f"  job {busy} of {owner} has 2 GPUs (")
    assert lines[1].endswith(", a guess")
    assert "(guess)" in up.right("queue", "-o", "table")
    up.end_job(busy, go)


def test_usage_leaves_out_the_time_in_which_a_job_was_suspended(up: Up) -> None:
    uid, go = up.begin_job("paused", queue="paused", gpu_frac=0.5)
    until(lambda: up.runs(uid), "the job to run")
    up.right("suspend", uid)
    until(lambda: up.status(uid) == "suspended", "it to be suspended")
    up.right("resume", uid)
    until(lambda: up.runs(uid), "it to run again")
    up.right("requeue", uid)
    until(lambda: len(up.job(uid)["launches"]) == 3 and up.runs(uid), "the third attempt")
    up.end_job(uid, go)
    launches = until(lambda: all((found := up.job(uid)["launches"])[at]["ended_at"] for at in range(3)) and found, "")
    assert [each["outcome"] for each in launches] == ["suspended", "requeued", "succeeded"]
    assert launches[1]["started_at"] > launches[0]["ended_at"]
    rows = {row["queue"]: row for row in up.json("usage", "--by", "queue")}
    ran_s = sum(each["ended_at"] - each["started_at"] for each in launches)
    assert rows["paused"]["allocated_gpu_s"] == pytest.approx(0.5 * ran_s, abs=0.01)
    assert rows["paused"]["jobs"] == 1


def test_usage_counts_what_jobs_had(up: Up) -> None:
    uid = up.submit("--queue", "metered", "--gpus", "2", "sleep", "1")
    assert up.run("wait", uid).code == 0
    (launch,) = up.job(uid)["launches"]
    took_s = launch["ended_at"] - launch["started_at"]
    rows = {row["queue"]: row for row in up.json("usage", "--since", "1d", "--by", "queue")}
    assert rows["metered"]["jobs"] == 1
    assert rows["metered"]["allocated_gpu_s"] == pytest.approx(2 * took_s, abs=0.01)
    (row,) = [row for row in up.json("usage", "--by", "user,queue,day") if row["queue"] == "metered"][:1]
    assert row.keys() == {"user", "queue", "day", "jobs", "allocated_gpu_s", "used_gpu_s", "utilization_frac"}
    assert "GPU hours" in up.right("usage", "-o", "table")
    assert up.run("usage", "--by", "colour").code == 2
    assert "--since is 'soon'" in up.run("usage", "--since", "soon").err
