"""Every verb as a process of its own against a service that really runs jobs, killed and started again on the way."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from live_up import Up, until


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    service = Up(tmp_path_factory.mktemp("up"))
    yield service
    service.stop()


@pytest.fixture(autouse=True)
def _nothing_is_left(up: Up) -> Iterator[None]:
    """A test that fails leaves the devices to the others."""
    yield
    up.cancel_all()


# -- one job -----------------------------------------------------------------------------------------------------------


def test_a_job_from_its_submission_to_its_end(up: Up) -> None:
    uid = up.submit("--name", "hello", "--env", "WHO=world", "--", "sh", "-c", 'echo "hello $WHO"; echo two >&2; pwd')
    answer = up.run("wait", uid)
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith(f"job {uid} (hello) succeeded after ")
    assert up.right("logs", uid) == f"hello world\ntwo\n{up.home}\n"
    assert up.right("logs", uid, "--tail", "2") == f"two\n{up.home}\n"
    (job,) = up.json("show", uid)
    assert (job["status"], job["exit_code"], job["name"]) == ("succeeded", 0, "hello")
    assert [launch["number"] for launch in job["launches"]] == [1]
    assert uid not in {each["id"] for each in up.json("queue")}
    assert uid in {each["id"] for each in up.json("queue", "--all")}
    assert up.right("why", uid).startswith(f"job {uid} ")


def test_the_exit_code_of_a_job_is_passed_on(up: Up) -> None:
    answer = up.run("submit", "--wait", "sh", "-c", "exit 42")
    assert answer.code == 42
    assert "failed (42)" in answer.err
    assert up.run("wait", answer.out.strip()).code == 42


def test_following_shows_the_log_as_it_comes(up: Up) -> None:
    go, script = up.home / "go-follow", 'echo begun; while [ ! -e "$0" ]; do sleep 0.05; done; echo gone; exit 3'
    with up.begin("submit", "--follow", "--", "sh", "-c", script, str(go)) as process:
        assert process.stdout is not None
        uid = process.stdout.readline().strip()
        assert process.stdout.readline() == "begun\n"
        go.touch()
        assert process.stdout.read() == "gone\n"
        assert process.wait(30) == 3
    assert up.job(uid)["exit_code"] == 3


def test_a_program_that_is_not_there(up: Up) -> None:
    answer = up.run("submit", "--wait", "--", "no-such-program")
    assert answer.code not in (0, 2, 3)
    assert "no-such-program" in answer.err


def test_a_dry_run_submits_nothing(up: Up) -> None:
    before = up.json("queue", "--all")
    (forecast,) = json.loads(up.right("submit", "--dry-run", "--duration", "2h", "-o", "json", "true"))
    assert (forecast["duration_s"], forecast["duration_source"]) == (7200, "declared")
    assert forecast["estimated_finish"] - forecast["estimated_start"] == pytest.approx(7200, abs=1)
    assert forecast["placement"]
    assert up.json("queue", "--all") == before


# -- several jobs ------------------------------------------------------------------------------------------------------


def test_an_array_by_its_id(up: Up) -> None:
    answer = up.run("submit", "--array", "0,2", "--wait", "--", "sh", "-c", "exit $GPUWISE_ARRAY_INDEX")
    uid = answer.out.strip()
    assert answer.code == 1
    assert answer.err == f"2 jobs: 1 succeeded, 1 failed ({uid}-2)\n"
    assert [job["id"] for job in up.json("show", uid)] == [f"{uid}-0", f"{uid}-2"]
    assert up.run("wait", f"{uid}-0").code == 0
    assert up.run("wait", f"{uid}-2").code == 2
    assert up.run("logs", uid).code == 5


def test_a_file_of_jobs_that_wait_for_each_other(up: Up) -> None:
    (up.home / "pipe.toml").write_text(
        'gpu_frac = 0.5\n[[job]]\nname = "second"\nafter = "first"\ncommand = "cat made"\n'
        '[[job]]\nname = "first"\ncommand = ["sh", "-c", "echo data > made"]\n'
    )
    answer = up.run("submit", "pipe.toml", "--wait")
    first, second = answer.out.split()
    assert (answer.code, answer.err) == (0, "2 jobs: 2 succeeded\n")
    assert up.job(second)["after"] == [first]
    assert up.right("logs", second) == "data\n"


def test_a_file_is_submitted_whole_or_not_at_all(up: Up) -> None:
    (up.home / "half.toml").write_text('[[job]]\ncommand = "sleep 60"\n[[job]]\ncommand = "true"\nafter = 999999\n')
    answer = up.run("submit", "half.toml")
    assert (answer.code, answer.out) == (2, "")
    taken_back, refused = answer.err.splitlines()
    assert taken_back.endswith("was submitted and is cancelled again")
    assert "999999" in refused
    assert up.status(taken_back.split()[2]) == "cancelled"


# -- steering ----------------------------------------------------------------------------------------------------------


def test_suspend_and_resume(up: Up) -> None:
    uid, go = up.begin_job("suspended")
    until(lambda: up.runs(uid), "the job to run")
    assert up.right("suspend", uid).startswith(f"job {uid} (suspended) is suspend")
    until(lambda: up.status(uid) == "suspended", "the job to leave")
    assert "on hold" in up.right("why", uid)
    go.touch()
    assert up.run("submit", "--wait", "true").code == 0  # it could have been resumed since
    assert up.status(uid) == "suspended"
    assert up.right("resume", uid).startswith(f"job {uid} (suspended) is ")
    assert up.run("wait", uid).code == 0


def test_resize(up: Up) -> None:
    uid, go = up.begin_job("elastic", min_gpus=1, max_gpus=2)
    until(lambda: up.runs(uid), "the job to run")
    assert up.run("resize", uid, "--gpus", "3").code == 2
    assert up.run("resize", uid, "--gpus", "2").code == 0
    until(lambda: up.runs(uid) and up.job(uid)["placement"].count(",") == 1, "the job to run on two devices")
    up.end_job(uid, go)
    assert [launch["outcome"] for launch in up.job(uid)["launches"]] == ["moved", "succeeded"]


def test_cancel_several(up: Up) -> None:
    uids = [up.begin_job(f"cancelled-{n}")[0] for n in range(3)]
    assert {job["id"] for job in up.json("queue")} >= set(uids)
    answer = up.run("cancel", *uids, "999999")
    assert answer.code == 5
    assert answer.out.splitlines() == [f"job {uid} (cancelled-{n}) is cancelled" for n, uid in enumerate(uids)]
    assert up.run("wait", *uids).code == 1
    again = up.run("cancel", uids[0])
    assert again.code == 2
    assert "ended already" in again.err


def test_why_a_job_waits(up: Up) -> None:
    first, go = up.begin_job("both", gpus=2)
    second = up.submit("--name", "waits", "--duration", "5s", "true")
    why, who = up.right("why", second).splitlines()
    cause = "needs 1 GPU; 0 of 2 such GPUs are idle, at most 0 on one node"
    assert why == f"job {second} {cause} (position 1 in the queue)"
    assert re.fullmatch(rf"  job {first} of \S+ has 2 GPUs \(\S+:0,1\) until .+", who), who

    def queued() -> dict[str, Any]:
        return next(job for job in up.json("queue") if job["id"] == second)

    until(lambda: queued()["estimated_start"], "an estimate; one made before may be shown for a second")
    assert queued()["estimated_start"] > time.time()
    assert queued()["position"] == 1
    go.touch()
    assert up.run("wait", first, second).code == 0


def test_the_limits_of_a_queue(up: Up) -> None:
    up.right("queues", "set", "small", "--max-gpus", "1", "--weight", "2")
    first, go = up.begin_job("in-quota", queue="small")
    second = up.submit("--queue", "small", "true")
    assert "queue small may use 1 GPUs" in up.right("why", second)
    assert up.run("submit", "--queue", "small", "--gpus", "2", "true").code == 2
    (queue,) = [queue for queue in up.json("queues") if queue["name"] == "small"]
    assert (queue["max_gpus"], queue["weight"], queue["jobs"]) == (1, 2, 2)
    go.touch()
    assert up.run("wait", first, second).code == 0
    assert up.right("queues", "delete", "small") == "queue small has no limits now\n"
    assert up.run("queues", "delete", "small").code == 2


# -- who may do what ---------------------------------------------------------------------------------------------------


def test_another_users_token(up: Up) -> None:
    mine, go = up.begin_job("mine", gpu_frac=0.5)
    secret = up.new_token("bob", "--expires", "1h")
    bob = {"GPUWISE_API_TOKEN": secret}
    (shown,) = json.loads(up.right("show", mine, "-o", "json", **bob))
    assert (shown["id"], shown["name"], shown["command"]) == (mine, "", [])
    assert up.run("logs", mine, **bob).code == 5
    assert up.run("cancel", mine, **bob).code == 5
    assert up.run("audit", **bob).code == 4
    assert [token["user"] for token in json.loads(up.right("tokens", "list", "-o", "json", **bob))] == ["bob"]
    assert [(job["id"], job["name"]) for job in json.loads(up.right("queue", "-o", "json", **bob))] == [(mine, "")]
    assert json.loads(up.right("queue", "--mine", "-o", "json", **bob)) == []
    assert "bob (user)" in up.right("status", "-o", "table", **bob)
    theirs = up.right("submit", "--gpu-frac", "0.5", "true", **bob).strip()
    assert up.run("wait", theirs, **bob).code == 0
    assert up.job(theirs)["user"] == "bob"
    token = next(each for each in up.json("tokens", "list") if each["user"] == "bob")
    up.right("tokens", "revoke", token["id"])
    refused = up.run("queue", **bob)
    assert (refused.code, refused.err.count("\n")) == (4, 1)
    assert "GPUWISE_API_TOKEN" in refused.err
    assert secret not in refused.err
    actions = [(entry["user"], entry["action"], entry["target"]) for entry in up.json("audit")]
    assert ("bob", "submit", theirs) in actions
    up.end_job(mine, go)


# -- looking at the cluster --------------------------------------------------------------------------------------------


def test_nodes_top_and_status(up: Up) -> None:
    uid, go = up.begin_job("seen")
    until(lambda: up.runs(uid), "the job to run")
    (node,) = up.json("nodes")
    assert len(node["devices"]) == 2
    assert [stay["id"] for device in node["devices"] for stay in device["jobs"]] == [uid]
    devices = up.json("top")
    assert [[stay["id"] for stay in device["jobs"]] for device in devices] in ([[uid], []], [[], [uid]])
    (status,) = up.json("status")
    assert (status["policy"], status["counts"], status["role"]) == ("fifo-backfill", {"running": 1}, "admin")
    up.end_job(uid, go)


def test_events_are_listed_and_followed(up: Up) -> None:
    last = up.json("events")[-1]["seq"]
    uid = up.submit("true")
    up.run("wait", uid)
    texts = [event["text"] for event in up.json("events", "--after", str(last)) if event["job"] == uid]
    assert texts[0] == "was submitted"
    assert texts[-1] == "has succeeded"
    with up.begin("events", "-f", "--after", str(last), "-o", "json") as process:
        assert process.stdout is not None
        followed: list[str] = []
        while not followed or followed[-1] != "has succeeded":
            followed.append(json.loads(process.stdout.readline())["text"])
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert [text for text in followed if text in texts] == texts


# -- interrupted, killed, on a terminal --------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "seen"), [("wait", "waiting for job"), ("logs -f", "begun")])
def test_who_stops_looking_does_not_stop_the_job(verb: str, seen: str, up: Up) -> None:
    uid, go = up.begin_job(f"left-{verb[:4]}")
    code, text = up.on_terminal(*verb.split(), uid, leave_after=seen)
    assert code == 130
    assert f"gpuwise: job {uid} continues; look with gpuwise queue, stop it with gpuwise cancel" in text
    assert up.status(uid) in ("starting", "running")
    up.end_job(uid, go)


def test_a_service_that_is_killed_and_started_again_is_waited_for(up: Up) -> None:
    uid, go = up.begin_job("survivor")
    with up.begin("logs", "-f", uid) as log, up.begin("wait", uid) as wait:
        assert log.stdout is not None
        assert log.stdout.readline() == "begun\n"
        for _ in range(3):  # by then the other command waits, too
            assert up.run("status").code == 0
        up.kill()
        away = up.run("queue")
        assert (away.code, away.err.count("\n")) == (3, 1)
        assert "start it with: gpuwise up" in away.err
        go.touch()
        up.start()
        assert log.communicate(timeout=60)[0] == "gone\n"
        _, text = wait.communicate(timeout=60)
    assert (log.returncode, wait.returncode) == (0, 0)
    assert "jobs continue without it" in text
    assert f"job {uid} (survivor) succeeded" in text
    assert [launch["number"] for launch in up.job(uid)["launches"]] == [1]


def test_tables_fit_a_terminal(up: Up) -> None:
    uid, go = up.begin_job("a-long-name-of-a-job-to-be-shown")
    until(lambda: up.runs(uid), "the job to run")
    for verb in (["queue", "-a"], ["nodes"], ["top", "--once"], ["events"], ["tokens", "list"]):
        code, text = up.on_terminal(*verb, width=80)
        assert code == 0
        assert max(map(len, text.splitlines())) <= 80, text
    for verb in (["top"], ["queue", "--watch"]):
        code, text = up.on_terminal(*verb, width=80, leave_after="Ctrl-C ends this")
        assert code == 130
        assert "a-long-name" in text
    up.end_job(uid, go)


def test_a_terminal_is_shown_more_than_an_id(up: Up) -> None:
    code, text = up.on_terminal("submit", "--name", "short", "true")
    assert code == 0
    assert text.startswith("submitted job ")
    assert text.strip().endswith("(short)")


def test_page_prints_a_link_that_logs_in(up: Up) -> None:
    link = up.right("page").strip()
    url, _, code = link.partition("/#login=")
    body = {"data": json.dumps({"code": code}).encode(), "headers": {"Content-Type": "application/json"}}
    with urlopen(Request(f"{url}/v1/session", **body)) as answer:
        assert json.load(answer)["role"] == "admin"
    refused = up.run("page", GPUWISE_API_TOKEN="wrong")
    assert (refused.code, refused.out) == (4, "")
