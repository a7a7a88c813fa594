"""The verbs against a server that plays its part: what they ask, what they print, how they leave."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import Answer, gpuwise
from live_scripted import TOKEN, Scripted, chunked, job, refused, reply, scripted

from gpuwise.cli.client import http as patience
from gpuwise.cli.client.errors import LiveError
from gpuwise.cli.live import wait as waiting
from gpuwise.cli.show.jobs import checked_ids

Run = Callable[..., tuple[Answer, Scripted]]
JOBS = reply({"jobs": [job()]})
NONE = reply({"jobs": []})
TOKENS = {"id": "ab12", "user": "ada", "role": "user", "created_at": 1.7e9, "expires_at": None, "revoked_at": None}
QUEUE = {"name": "q", "max_gpus": 4.0, "max_jobs": None, "weight": 2.0, "users": ["ada"], "used_gpus": 1.0, "jobs": 1}
DEVICE: dict[str, Any] = {
    "index": 0, "id": "GPU-1", "name": "V100", "lost": False, "claimed": False, "claimed_memory_bytes": 0.0,
    "sharing": "shared", "free_frac": 0.5, "memory_bytes": 16 * 2**30,
    "util_frac": 0.75, "memory_used_bytes": 4 * 2**30, "power_w": 250.0, "temperature_c": None,
    "jobs": [{"id": "17", "name": "resnet", "frac": 0.25}, {"id": None, "name": "", "frac": 0.25}],
}  # fmt: skip
NODE: dict[str, Any] = {
    "name": "box", "gpu_type": "V100", "stand_in": False, "lost": False, "drained": True, "labels": {"rack": "r1"},
    "claimed_cpus": 2.0, "claimed_memory_bytes": 0.0, "cpus": 8.0, "free_cpus": 6.0,
    "memory_bytes": None, "free_memory_bytes": None,
    "devices": [DEVICE, {**DEVICE, "index": 1, "lost": True, "jobs": [], "claimed_memory_bytes": 2.0**30}],
}  # fmt: skip
EVENTS = [{"seq": n, "at": 1.7e9 + n, "kind": "JobStarted", "job": "17", "text": "runs"} for n in (3, 4)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command against a server with a script."""
    monkeypatch.setenv("GPUWISE_API_TOKEN", TOKEN)
    monkeypatch.delenv("GPUWISE_TOKEN_FILE", raising=False)
    monkeypatch.setattr(waiting, "FIRST_PAUSE_S", 0.01)

    def command(line: str, *script: bytes) -> tuple[Answer, Scripted]:
        with scripted(*(script or (JOBS,))) as server:
            monkeypatch.setenv("GPUWISE_SERVER", server.url)
            return gpuwise(*line.split(), folder=tmp_path), server

    return command


def right(run: Run, line: str, *script: bytes) -> str:
    """The output of a command that must succeed without a word of complaint."""
    answer, _ = run(line, *script)
    assert (answer.code, answer.err) == (0, "")
    return answer.out


def paths(server: Scripted) -> list[str]:
    return [f"{asked.method} {asked.path.removeprefix('/v1/')}" for asked in server.asked]


def records(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# -- how commands leave ------------------------------------------------------------------------------------------------

VERBS = (
    "submit true", "submit --dry-run true", "queue", "queue -a", "show 17", "why 17", "wait 17", "cancel 17",
    "suspend 17", "resume 17", "resize 17 --gpus 2", "top", "nodes", "nodes drain box", "nodes undrain box",
    "status", "events", "events -f", "queues",
    "queues set q --weight 2", "queues delete q", "tokens list", "tokens create ada", "tokens revoke ab12", "audit",
)  # fmt: skip


@pytest.mark.parametrize("line", VERBS)
def test_not_permitted_is_4(line: str, run: Run) -> None:
    answer, _ = run(line, refused(401, "this token is not known"))
    assert (answer.code, answer.out) == (4, "")
    assert answer.err.startswith("gpuwise: this token is not known; it came from GPUWISE_API_TOKEN")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("line", VERBS)
def test_no_server_is_3(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWISE_STATE", str(tmp_path / "none"))
    monkeypatch.delenv("GPUWISE_SERVER", raising=False)
    answer = gpuwise(*line.split(), folder=tmp_path)
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.endswith("start it with: gpuwise up\n")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["show", "why", "wait", "cancel", "suspend", "resume", "resize --gpus 2", "logs"])
def test_no_such_job_is_5(verb: str, run: Run) -> None:
    missing = NONE if verb in ("show", "why", "wait") else refused(404, "there is no job '99'")
    answer, _ = run(f"{verb} 99", missing)
    assert (answer.code, answer.out) == (5, "")
    assert answer.err == "gpuwise: there is no job '99'\n"


@pytest.mark.parametrize("verb", ["show", "why", "wait", "cancel", "suspend", "resume", "resize --gpus 2", "logs"])
def test_what_is_no_id_is_2_and_never_sent(verb: str, run: Run) -> None:
    answer, server = run(f"{verb} 17*18")
    assert (answer.code, server.asked) == (2, [])
    assert "such as 17" in answer.err


@pytest.mark.parametrize("uid", ["-", ",", "", "-5", "17*", "a;b", "a" * 129])
def test_what_is_no_id(uid: str) -> None:
    with pytest.raises(LiveError, match="such as 17"):
        checked_ids([uid])


def test_ids_joined_by_commas_and_given_twice() -> None:
    assert checked_ids(["17,18-3", "17", "0"]) == ["17", "18-3", "0"]


def test_help_tells_the_exit_codes(run: Run) -> None:
    for verb in ("queue", "queues set", "tokens", "submit"):
        assert "3 the server cannot be reached" in " ".join(right(run, f"{verb} --help").split())


# -- looking -----------------------------------------------------------------------------------------------------------


def test_the_queue_for_programs_is_what_the_server_says(run: Run) -> None:
    queued = job(estimated_start=None, estimated_finish=2e9, position=None, why="")
    assert json.loads(right(run, "queue -o json", reply({"jobs": [queued]}))) == [queued]
    (row,) = records(right(run, "queue", reply({"jobs": [queued]})))
    assert (row["id"], row["command"], row["exit_code"]) == ("17", "python train.py", "")


def test_the_queue_for_people(run: Run) -> None:
    waiting = job("18", status="pending", started_at=None, placement="", step=None, loss=None, estimated_start=2e9)
    shown = right(run, "queue -o table", reply({"jobs": [job(gpu_frac=0.5), waiting]}))
    title, heading, _, first, second = (line for line in shown.splitlines() if line.strip())
    assert title.strip() == "1 running, 1 pending"
    assert heading.split()[:5] == ["id", "name", "user", "status", "gpus"]
    assert first.split()[:8] == ["17", "resnet", "ada", "running", "0.5", "box:0", "25.0", "0.25"]
    assert second.split()[:5] == ["18", "resnet", "ada", "pending", "1"]


def test_the_queue_shows_the_gpus_of_a_job_that_was_resized(run: Run) -> None:
    shown = right(run, "queue -o table", reply({"jobs": [job(held_gpus=3)]}))
    assert shown.strip().splitlines()[-1].split()[:5] == ["17", "resnet", "ada", "running", "3"]


def test_the_queue_is_filtered(run: Run) -> None:
    jobs = [job("1"), job("2", user="bob"), job("3", queue="q"), job("4", status="pending")]
    for options, expected in {
        "--user ada": ["1", "3", "4"], "--queue q": ["3"], "--status pending,suspended": ["4"], "-n 2": ["1", "2"],
    }.items():  # fmt: skip
        assert [row["id"] for row in records(right(run, f"queue {options}", reply({"jobs": jobs})))] == expected


@pytest.mark.parametrize(("options", "status"), [("--all", None), ("--status failed", "failed")])
def test_ended_jobs_are_asked_for(options: str, status: str | None, run: Run) -> None:
    ended = job("9", status="failed", exit_code=3, ended_at=1.7e9 + 90)
    answer, server = run(f"queue {options} --user ada -o table", reply({"jobs": [ended]}))
    assert "failed (3)" in answer.out
    asked = server.asked[0].path
    assert asked.startswith("/v1/jobs?user=ada")
    assert ("status=failed" in asked) is (status is not None)


def test_many_ended_jobs_are_fetched_page_by_page(run: Run) -> None:
    pages = [
        [job(str(n), status="failed") for n in range(2500 - 1000 * page, 1500 - 1000 * page, -1)] for page in (0, 1)
    ]
    pages.append([job("500", status="failed")])
    answer, server = run("queue -a -n 5000", *(reply({"jobs": page}) for page in pages))
    assert len(records(answer.out)) == 2001
    assert ["before=1501" in asked.path for asked in server.asked] == [False, True, False]
    assert "before=501" in server.asked[2].path


def test_a_status_that_is_none(run: Run) -> None:
    answer, server = run("queue --status runing")
    assert (answer.code, server.asked) == (2, [])
    assert "did you mean running" in answer.err


def test_an_empty_queue(run: Run) -> None:
    answer, _ = run("queue -o table", NONE)
    assert (answer.code, answer.out, answer.err) == (0, "", "no jobs\n")
    assert right(run, "queue -o json", NONE) == "[]\n"


ATTEMPT = {
    "number": 1, "placement": "box:0", "started_at": 1.7e9 + 60, "ended_at": 1.7e9 + 120, "exit_code": 75,
    "outcome": "suspended", "detail": "", "peak_memory_bytes": None, "cpu_s": 5.0,
}  # fmt: skip


def test_of_many_variables_the_first_are_shown(run: Run) -> None:
    env = {f"NAME_{n:02}": "***" for n in range(30, 10, -1)}
    script = (JOBS, reply({"jobs": []}), reply({**job(), "env": env}), reply({"attempts": []}))
    shown = right(run, "show 17 -o table", *script)
    (line,) = [line for line in shown.splitlines() if line.startswith("environment")]
    assert line.split()[1:3] == ["NAME_11=***", "NAME_12=***"]
    assert line.endswith(" NAME_20=*** and 10 more (-o json lists all)")


def test_all_about_a_job(run: Run) -> None:
    queued = {**job(), "estimated_start": None, "estimated_finish": 2e9, "position": None, "why": ""}
    details = reply({**job(), "env": {"HF_TOKEN": "***", "LR": "***"}})
    script = (JOBS, reply({"jobs": [queued]}), details, reply({"attempts": [ATTEMPT]}))
    shown = right(run, "show 17 -o table", *script)
    facts = dict(line.split("  ", 1) for line in shown.splitlines() if "  " in line)
    assert facts["command"].strip() == "python train.py"
    assert facts["progress"].strip() == "step 30 of 120 (25 %), loss 0.25, 1,000 samples/s"
    assert facts["run time"].strip() == "1h00m, as declared"
    assert facts["estimated end"].strip().startswith("2033-05-")
    assert facts["environment"].strip() == "HF_TOKEN=*** LR=***"
    assert "suspended" in shown
    assert "\n\n\n" not in shown
    (row,) = json.loads(right(run, "show 17 -o json", *script))
    assert row["launches"] == [ATTEMPT]


def test_what_a_job_is_called_cannot_move_the_cursor(run: Run) -> None:
    evil = job(name="", command=["sh", "-c", "\x1b[2J\x07\n"], status="failed", why_ended="\x1b[3J", started_at=None)
    for line in ("queue -a -o table", "queue -a -o wide"):
        assert "\x1b" not in right(run, line, reply({"jobs": [evil]}))
    answer, _ = run("wait 17", reply({"jobs": [evil]}), NONE, reply({"jobs": [evil]}))
    assert answer.err.endswith("failed: \\x1b[3J\n")
    answer, _ = run("queue", refused(422, "\x1b[3J"))
    assert answer.err == "gpuwise: \\x1b[3J\n"
    shown = right(run, "show 17 -o table", reply({"jobs": [evil]}), reply(evil), reply({"attempts": []}))
    assert "\\x1b[2J\\x07\\n" in shown


def test_an_array_is_shown_by_its_tasks(run: Run) -> None:
    tasks = [job("17-1", status="failed"), job("17-0", status="succeeded")]
    shown = right(run, "show 17 -o table", reply({"jobs": tasks}))
    assert "1 succeeded, 1 failed" in shown
    assert "17-0" in shown


WHY = {
    "id": "17",
    "status": "pending",
    "why": "needs 2 GPUs",
    "code": "NO_ROOM",
    "numbers": {"gpus": 2.0},
    "position": 3,
}


def test_why(run: Run) -> None:
    assert right(run, "why 17", JOBS, reply(WHY)) == "job 17 needs 2 GPUs (position 3 in the queue)\n"
    assert json.loads(right(run, "why 17 -o json", JOBS, reply(WHY))) == [WHY]
    (row,) = records(right(run, "why 17 -o csv", JOBS, reply(WHY)))
    assert json.loads(row["numbers"]) == {"gpus": 2.0}


def test_why_of_a_large_array_is_asked_at_once(run: Run) -> None:
    tasks = [job(f"17-{n}", status="pending" if n else "failed", why_ended="" if n else "broke") for n in range(30)]
    queued = [{**task, "why": "needs 1 GPU", "position": n} for n, task in enumerate(tasks) if n]
    answer, server = run("why 17", reply({"jobs": tasks}), reply({"jobs": queued}))
    assert answer.out.splitlines()[:2] == ["job 17-0 broke", "job 17-1 needs 1 GPU (position 1 in the queue)"]
    assert len(server.asked) == 2


def test_nodes_and_their_devices(run: Run) -> None:
    shown = right(run, "nodes -o table", reply({"nodes": [NODE]}))
    assert shown.splitlines()[3].split()[:5] == ["box", "V100", "2", "1", "6"]
    assert "1 GPUs lost, drained" in shown
    shown = right(run, "nodes -o wide", reply({"nodes": [NODE]}))
    assert "rack=r1" in shown
    assert "GPU 1: 1 GiB, 2 CPUs" in shown
    assert "17, another user's" in shown
    (row,) = records(right(run, "nodes", reply({"nodes": [NODE]})))
    assert json.loads(row["devices"]) == NODE["devices"]


def test_nodes_are_drained_and_undrained(run: Run) -> None:
    for verb, told in (("drain", "takes no new jobs"), ("undrain", "takes jobs again")):
        answer, server = run(f"nodes {verb} box", reply({}))
        assert (answer.code, answer.out) == (0, f"node box {told}\n")
        assert (server.asked[0].method, server.asked[0].path) == ("POST", f"/v1/nodes/box/{verb}")


def test_top_once(run: Run) -> None:
    top = reply({"nodes": [NODE], "jobs": [job()]})
    rows = records(right(run, "top", top))
    assert [(row["node"], row["index"], row["util_frac"]) for row in rows] == [
        ("box", "0", "0.75"),
        ("box", "1", "0.75"),
    ]
    shown = right(run, "top --once -o table", top)
    assert "4 GiB of 16 GiB" in shown
    assert "17 resnet (25 %), another user's (25 %)" in shown


def test_watching_needs_a_terminal(run: Run) -> None:
    answer, _ = run("queue --watch", JOBS)
    assert answer.code == 2
    assert "needs a terminal" in answer.err


def test_status(run: Run) -> None:
    said = {
        "version": "1", "policy": "srtf", "placement": "best-fit", "store": "x.db", "started_at": 1.7e9,
        "uptime_s": 5.0, "counts": {"running": 2}, "trouble": "", "notes": [], "user": "ada", "role": "admin",
        "switches": 40, "switching_s": 2.0,
    }  # fmt: skip
    shown = right(run, "status -o table", reply(said))
    assert "ada (admin)" in shown
    assert "srtf, placement best-fit" in shown
    assert "2 running" in shown
    assert "40 switches have cost 2.0s" in shown
    (row,) = json.loads(right(run, "status -o json", reply(said)))
    assert row.items() >= said.items()


# -- touching ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["cancel", "suspend", "resume"])
def test_several_jobs_at_once(action: str, run: Run) -> None:
    answer, server = run(f"{action} 17,18 19 17", *(reply({"jobs": [job(uid)]}) for uid in ("17", "18", "19")))
    assert answer.code == 0
    assert paths(server) == [f"POST jobs/{uid}/{action}" for uid in ("17", "18", "19")]
    assert answer.out.splitlines() == [f"job {uid} (resnet) is running" for uid in ("17", "18", "19")]


def test_if_one_is_refused_the_others_are_done(run: Run) -> None:
    script = (refused(404, "there is no job '16'"), JOBS, refused(409, "job 18 has ended already"))
    answer, server = run("cancel 16 17 18", *script)
    assert answer.code == 5
    assert len(server.asked) == 3
    assert answer.out == "job 17 (resnet) is running\n"
    assert answer.err.splitlines()[0] == "gpuwise: there is no job '16'"
    assert "job 18 has ended already" in answer.err.splitlines()[1]


def test_many_tasks_are_told_in_a_line(run: Run) -> None:
    tasks = [job(f"17-{n}", status="cancelled") for n in range(50)]
    assert right(run, "cancel 17", reply({"jobs": tasks})) == "50 jobs: 50 cancelled\n"


def test_resize(run: Run) -> None:
    answer, server = run("resize 17 --gpus 3")
    assert answer.code == 0
    assert (paths(server), server.asked[0].json) == (["POST jobs/17/resize"], {"gpus": 3})


# -- staying -----------------------------------------------------------------------------------------------------------


def test_wait_for_several(run: Run) -> None:
    ends = [job("17", status="succeeded"), job("18-0", status="failed", exit_code=4), job("18-1", status="succeeded")]
    answer, server = run("wait 17 18", reply({"jobs": ends}), JOBS, JOBS, NONE, reply({"jobs": ends}))
    assert answer.code == 1
    assert answer.err == "3 jobs: 2 succeeded, 1 failed (18-0)\n"
    assert all("uids=17%2C18" in asked.path for asked in server.asked)
    assert "status=running%2Cstarting%2Csuspending%2Csuspended%2Cpending&limit=1" in server.asked[1].path


def test_a_server_that_goes_and_comes_is_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_S", 0.01)
    done = reply({"jobs": [job(status="succeeded")]})
    answer, _ = run("wait 17", JOBS, JOBS, *[refused(503, "stopping", Retry_After="0")] * 9, NONE, done)
    assert answer.code == 0
    first, last = answer.err.splitlines()
    assert first == "gpuwise: stopping; jobs continue without it; waiting for it to return"
    assert last.startswith("job 17 (resnet) succeeded")


def test_patience_ends(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_S", 0.01)
    monkeypatch.setattr(patience, "PATIENCE_S", 0.1)
    answer, _ = run("wait 17", JOBS, refused(503, "stopping", Retry_After="0"))
    assert answer.code == 3


# -- events ------------------------------------------------------------------------------------------------------------


def sse(*events: dict[str, Any]) -> bytes:
    said = "".join(f"id: {each['seq']}\nevent: {each['kind']}\ndata: {json.dumps(each)}\n\n" for each in events)
    return b"retry: 1000\n\n: nothing new\n\n" + said.encode()


def test_events_are_listed_to_the_last(run: Run) -> None:
    pages = [{"events": EVENTS[:1], "last": 1002}, {"events": [], "last": 2002}, {"events": EVENTS[1:], "last": 2500}]
    answer, server = run("events --after 2 -o json", *map(reply, pages))
    assert json.loads(answer.out) == EVENTS
    assert paths(server) == [f"GET events?after={seq}&follow=false&limit=1000" for seq in (2, 1002, 2002)]


def test_without_a_beginning_one_page_is_enough(run: Run) -> None:
    answer, server = run("events -o json", reply({"events": EVENTS, "last": 9}))
    assert json.loads(answer.out) == EVENTS
    assert paths(server) == ["GET events?follow=false&limit=1000"]


def test_a_broken_stream_of_events_goes_on_after_the_last_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_S", 0.01)
    halves = chunked([sse(EVENTS[0])[:60], sse(EVENTS[0])[60:]], whole=False)
    answer, server = run("events -f -o json", halves, chunked([sse(EVENTS[1])]), refused(403, "revoked"))
    assert answer.code == 4
    assert [json.loads(line) for line in answer.out.splitlines()] == EVENTS
    assert paths(server) == ["GET events", "GET events?after=3", "GET events?after=4"]


def test_events_as_csv_have_one_header(run: Run) -> None:
    answer, _ = run("events -f", chunked([sse(*EVENTS)]), refused(403, "revoked"))
    assert [row["seq"] for row in records(answer.out)] == ["3", "4"]


# -- queues and tokens -------------------------------------------------------------------------------------------------


def test_a_queue_keeps_what_is_not_said(run: Run) -> None:
    answer, server = run("queues set q --max-gpus none --max-jobs 5", reply({"queues": [QUEUE]}), reply(QUEUE))
    assert answer.code == 0
    assert paths(server) == ["GET queues", "PUT queues/q"]
    assert server.asked[1].json == {"max_gpus": None, "max_jobs": 5, "weight": 2.0, "users": ["ada"]}


def test_a_new_queue(run: Run) -> None:
    _, server = run("queues set new --users a,b --max-gpus 1.5", reply({"queues": [QUEUE]}), reply(QUEUE))
    assert server.asked[1].json == {"users": ["a", "b"], "max_gpus": 1.5}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("queues set q", "say what to set"),
        ("queues set q --max-gpus x", "--max-gpus is 'x'; it must be a number, or none"),
        ("tokens create ada --expires soon", "'soon' is not a duration"),
    ],
)
def test_what_is_wrong_is_not_sent(line: str, told: str, run: Run) -> None:
    answer, server = run(line)
    assert (answer.code, server.asked) == (2, [])
    assert told in answer.err


def test_queues_are_listed_and_deleted(run: Run) -> None:
    shown = right(run, "queues -o table", reply({"queues": [QUEUE]}))
    assert shown.splitlines()[3].split() == ["q", "1", "1", "4", "-", "2", "ada"]
    answer, server = run("queues delete q", reply(None, 204))
    assert (answer.code, answer.out, paths(server)) == (0, "queue q has no limits now\n", ["DELETE queues/q"])


def test_a_new_tokens_secret_is_all_a_pipe_gets(run: Run) -> None:
    answer, server = run("tokens create ada --role viewer --expires 30d", reply({**TOKENS, "secret": "s3cret"}, 201))
    assert (answer.code, answer.out, answer.err) == (0, "s3cret\n", "")
    assert server.asked[0].json == {"user": "ada", "role": "viewer", "expires_in_s": 30 * 86400.0}


def test_tokens_are_listed_and_revoked(run: Run) -> None:
    tokens = [TOKENS, {**TOKENS, "id": "cd", "expires_at": 1.0}, {**TOKENS, "id": "ef", "revoked_at": 1.7e9}]
    shown = right(run, "tokens list -o table", reply({"tokens": tokens}))
    assert [line.split()[-1] for line in shown.splitlines()[3:6]] == ["valid", "expired", "revoked"]
    assert right(run, "tokens revoke ef", reply(tokens[2])) == "token ef of ada is revoked\n"


def test_the_audit(run: Run) -> None:
    entry = {
        "id": 1,
        "at": 1.7e9,
        "user": "a",
        "action": "submit",
        "target": "\x1b[2J",
        "outcome": "ok",
        "address": "::1",
    }
    shown = right(run, "audit -o table", reply({"audit": [entry]}))
    assert "\\x1b[2J" in shown
    assert json.loads(right(run, "audit -o json", reply({"audit": [entry]}))) == [entry]
