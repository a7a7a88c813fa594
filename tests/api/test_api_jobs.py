"""Jobs over the API: submit, list, look at, cancel, hold back, resize."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwise.api.schema import answers
from running import Running, wait_for


def message(answer: Any) -> str:
    return str(answer.json()["error"]["message"])


def test_a_job_runs_and_tells_what_came_of_it(running: Running) -> None:
    answer = running.bob.post("/v1/jobs", {"command": ["sh", "-c", "exit 3"], "name": "three", "duration_s": 5})
    assert answer.status_code == 201
    (new,) = answer.json()["jobs"]
    assert set(new) == set(answers.Job.model_fields)
    job = running.bob.ended(new["id"])
    assert (job["status"], job["exit_code"], job["failures"]) == ("failed", 3, 1)
    assert (job["name"], job["user"], job["queue"], job["command"]) == (
        "three",
        "bob",
        "default",
        ["sh", "-c", "exit 3"],
    )
    assert new["submitted_at"] <= job["started_at"] <= job["ended_at"]
    assert (job["duration_s"], job["duration_source"]) == (5.0, "declared")
    (attempt,) = running.bob.get(f"/v1/jobs/{job['id']}/attempts").json()["attempts"]
    assert (attempt["number"], attempt["outcome"], attempt["exit_code"]) == (1, "failed", 3)
    why = running.bob.get(f"/v1/jobs/{job['id']}/why").json()
    assert (why["code"], why["position"]) == (None, None)
    assert why["why"].startswith("has failed: ")


def test_an_array_is_one_job_for_each_index(running: Running) -> None:
    body = {"command": ["sh", "-c", "echo task $GPUWISE_ARRAY_INDEX"], "array": [0, 3, 7], "name": "tasks"}
    new = running.bob.post("/v1/jobs", body).json()["jobs"]
    number = new[0]["id"].partition("-")[0]
    assert [(job["id"], job["array_index"]) for job in new] == [(f"{number}-{index}", index) for index in (0, 3, 7)]
    for job in new:
        assert running.bob.ended(job["id"])["status"] == "succeeded"
    assert running.bob.get(f"/v1/jobs/{number}-3/logs").text == "task 3\n"
    assert running.bob.get(f"/v1/jobs/{number}").status_code == 404
    listed = running.bob.get(f"/v1/jobs?uids={number}").json()["jobs"]
    assert {job["id"] for job in listed} == {job["id"] for job in new}


def test_an_array_is_held_back_resumed_and_cancelled_as_one(running: Running) -> None:
    new = running.bob.post("/v1/jobs", {"command": ["sleep", "60"], "array": [1, 2]}).json()["jobs"]
    number = new[0]["id"].partition("-")[0]
    held = running.bob.post(f"/v1/jobs/{number}/suspend").json()["jobs"]
    assert [(job["id"], job["held"]) for job in held] == [(f"{number}-1", "user"), (f"{number}-2", "user")]
    released = running.bob.post(f"/v1/jobs/{number}/resume").json()["jobs"]
    assert [job["held"] for job in released] == ["", ""]
    one = running.bob.post(f"/v1/jobs/{number}-2/cancel").json()["jobs"]
    assert [(job["id"], job["status"]) for job in one] == [(f"{number}-2", "cancelled")]
    rest = running.bob.post(f"/v1/jobs/{number}/cancel").json()["jobs"]
    assert [(job["id"], job["status"]) for job in rest] == [(f"{number}-1", "cancelled"), (f"{number}-2", "cancelled")]
    assert rest[0]["why_ended"] == "cancelled by bob"
    again = running.bob.post(f"/v1/jobs/{number}/cancel")
    assert again.status_code == 409
    assert "has ended already" in message(again)


def test_a_submission_sent_again_is_not_done_again(running: Running) -> None:
    body = {"command": ["sleep", "60"], "name": "once"}
    key = {"Idempotency-Key": "d6c1-once"}
    first = running.bob.post("/v1/jobs", body, headers=key)
    second = running.bob.post("/v1/jobs", body, headers=key)
    assert (first.status_code, second.status_code) == (201, 201)
    uid = first.json()["jobs"][0]["id"]
    assert [job["id"] for job in second.json()["jobs"]] == [uid]
    assert running.cy.post("/v1/jobs", body, headers=key).json()["jobs"][0]["id"] != uid
    running.bob.post(f"/v1/jobs/{uid}/cancel")
    assert [job["id"] for job in running.bob.post("/v1/jobs", body, headers=key).json()["jobs"]] == [uid]
    other = running.bob.post("/v1/jobs", {**body, "gpus": 2}, headers=key)
    assert other.status_code == 409
    assert "was used for another job" in message(other)
    for job in running.cy.get("/v1/jobs?name=once").json()["jobs"]:
        running.cy.post(f"/v1/jobs/{job['id']}/cancel")


def test_an_array_sent_again_is_the_same_array(running: Running) -> None:
    body = {"command": ["true"], "array": [4, 2]}
    key = {"Idempotency-Key": "array-once"}
    first, second = (running.bob.post("/v1/jobs", body, headers=key).json()["jobs"] for _ in range(2))
    assert sorted(job["id"] for job in first) == sorted(job["id"] for job in second)
    assert len(first) == 2


@pytest.mark.parametrize("key", ["", "a b", "ä", "x" * 129])
def test_keys_are_words(running: Running, key: str) -> None:
    answer = running.bob.call("POST", "/v1/jobs", json={"command": ["true"]}, headers={"Idempotency-Key": key.encode()})
    assert answer.status_code == 422
    assert "Idempotency-Key" in message(answer)


def test_lists_go_on_page_by_page(running: Running) -> None:
    uids = [running.bob.submit("true", name="paged") for _ in range(5)]
    for uid in uids:
        running.bob.ended(uid)
    newest = uids[::-1]
    first = running.bob.get("/v1/jobs?name=paged&limit=2").json()["jobs"]
    second = running.bob.get(f"/v1/jobs?name=paged&limit=2&before={first[-1]['id']}").json()["jobs"]
    third = running.bob.get(f"/v1/jobs?name=paged&limit=2&before={second[-1]['id']}").json()["jobs"]
    assert [job["id"] for job in (*first, *second, *third)] == newest


def test_lists_are_filtered(running: Running) -> None:
    good, bad = running.bob.submit("true", name="sorted"), running.bob.submit("false", name="sorted", queue="night")
    running.bob.ended(good)
    running.bob.ended(bad)

    def listed(query: str) -> list[str]:
        return [job["id"] for job in running.bob.get(f"/v1/jobs?name=sorted&{query}").json()["jobs"]]

    assert listed("status=failed") == [bad]
    assert listed("status=succeeded,failed") == listed("status=succeeded&status=failed") == [bad, good]
    assert listed("status=running") == []
    assert listed("queue=night") == [bad]
    assert listed(f"uids={good},999999") == [good]
    assert listed(f"uids={good}&uids={bad}") == [bad, good]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("status=runing", "did you mean running"),
        ("staus=failed", "unknown parameter 'staus'; did you mean status"),
        ("limit=0", "limit is '0'"),
        ("limit=1001", "limit is '1001'"),
        ("limit=x", "limit is 'x'"),
        ("before=seventeen", "before is 'seventeen'"),
        ("before=9999999999999999999", "before is"),
        ("uids=../../etc", "uids has '../../etc'"),
        ("uids=" + ",".join(map(str, range(1001))), "uids has 1001 ids"),
        ("name=%00", "name is"),
        ("queue=" + "q" * 200, "queue is"),
    ],
)
def test_wrong_queries_are_told(running: Running, query: str, told: str) -> None:
    answer = running.bob.get(f"/v1/jobs?{query}")
    assert answer.status_code == 422
    assert told in message(answer)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "command is missing"),
        ({"command": []}, "command is a list"),
        ({"command": [""]}, "command is"),
        ({"command": "python train.py"}, "command is 'python train.py'"),
        ({"command": ["a\0b"]}, "command.0"),
        ({"command": ["x"], "gpuss": 1}, "unknown field 'gpuss'; did you mean gpus"),
        ({"command": ["x"], "gpus": "2"}, "gpus is '2'"),
        ({"command": ["x"], "gpus": True}, "gpus is True"),
        ({"command": ["x"], "gpus": 1.5}, "gpus is 1.5"),
        ({"command": ["x"], "gpus": -1}, "gpus is -1"),
        ({"command": ["x"], "gpus": 10**30}, "gpus is"),
        ({"command": ["x"], "gpus": 2, "min_gpus": 3}, "gpus is 2; it must be between min_gpus and max_gpus"),
        ({"command": ["x"], "gpus": 2, "gpu_frac": 0.5}, "gpu_frac is 0.5"),
        ({"command": ["x"], "gpu_frac": 0}, "gpu_frac is 0"),
        ({"command": ["x"], "duration_s": 1e300}, "duration_s is 1e+300"),
        ({"command": ["x"], "memory_bytes": -1}, "memory_bytes is -1"),
        ({"command": ["x"], "workdir": "here"}, "workdir is 'here'"),
        ({"command": ["x"], "env": {"GPUWISE_TOKEN": "x"}}, "GPUWISE_"),
        ({"command": ["x"], "env": {"A B": "x"}}, "env is ['A B']"),
        ({"command": ["x"], "env": {"A": 1}}, "env.A is ***"),
        ({"command": ["x"], "name": "a\nb"}, "name is"),
        ({"command": ["x"], "array": [1, 1]}, "array is (1, 1)"),
        ({"command": ["x"], "array": [-1]}, "array.0 is -1"),
        ({"command": ["x"], "array": list(range(10_001))}, "array is a list"),
        ({"command": ["x"], "after": ["../1"]}, "after.0 is '../1'"),
        ({"command": ["x"], "sharing": ["mine"]}, "sharing.0 is 'mine'"),
        ({"command": ["x"], "sharing": []}, "sharing is a list"),
        ({"command": ["x"], "processes": "two"}, "processes is 'two'"),
        ({"command": ["x"], "priority": 10**16}, "priority is 10000000000000000"),
        ({"command": ["x"] * 5000}, "command is a list"),
        ([], "the body is a list"),
        ("x", "the body is 'x'"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_wrong_jobs_are_told_which_value_is_wrong(running: Running, body: Any, told: str) -> None:
    answer = running.bob.call("POST", "/v1/jobs", json=body)
    assert answer.status_code == 422, answer.text
    assert told in message(answer)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"gpus": 70_000}, "gpus"),  # a bound
        ({"array": [1_000_000_000]}, "array"),  # one more than the largest index there is
        ({"gpu_frac": 0.5, "gpus": 2}, "gpu_frac"),  # two fields that contradict each other
        ({"env": {"A B": ""}}, "env"),
        ({"require": {"zone": []}}, "require"),
        ({"roles": [{"name": "ps", "count": 2}], "cpus": 4}, "cpus"),
    ],
)
def test_an_error_names_the_field_for_programs(running: Running, wrong: dict[str, Any], field: str) -> None:
    answer = running.bob.call("POST", "/v1/jobs", json={"command": ["x"], **wrong})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == field


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_are_finite(running: Running, number: str) -> None:
    body = '{"command": ["x"], "duration_s": ' + number + "}"
    answer = running.bob.call("POST", "/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert "duration_s is" in message(answer)


def test_a_body_is_json_and_says_so(running: Running) -> None:
    no_json = running.bob.call("POST", "/v1/jobs", content="{", headers={"Content-Type": "application/json"})
    no_type = running.bob.call("POST", "/v1/jobs", content='{"command": ["x"]}', headers={"Content-Type": "text/plain"})
    nothing = running.bob.call("POST", "/v1/jobs")
    assert [each.status_code for each in (no_json, no_type, nothing)] == [422, 422, 422]
    assert "not JSON" in message(no_json)
    assert "application/json" in message(no_type)


def test_what_can_never_run_here_is_refused(running: Running) -> None:
    answer = running.bob.post("/v1/jobs", {"command": ["x"], "gpus": 5})
    assert answer.status_code == 409
    assert "can never run here" in message(answer)
    dry = running.bob.post("/v1/jobs?dry_run=true", {"command": ["x"], "gpus": 5})
    assert dry.status_code == 409


def test_a_dry_run_submits_nothing(running: Running) -> None:
    before = running.bob.get("/v1/jobs?limit=1").json()["jobs"]
    answer = running.bob.post("/v1/jobs?dry_run=true", {"command": ["x"], "gpus": 2, "duration_s": 60})
    assert answer.status_code == 200
    told = answer.json()
    assert set(told) == set(answers.DryRunAnswer.model_fields)
    assert (told["duration_s"], told["duration_source"]) == (60.0, "declared")
    assert told["estimated_finish"] - told["estimated_start"] == pytest.approx(60.0)
    assert running.bob.get("/v1/jobs?limit=1").json()["jobs"] == before


def test_who_waits_is_told_why_and_where_in_line(running: Running) -> None:
    wait_for(lambda: not running.ada.get("/v1/queue").json()["jobs"], "an empty cluster")
    first = running.bob.submit("sleep", "60", gpus=4, duration_s=60)
    second, third = (running.bob.submit("sleep", "60", gpus=4, duration_s=60) for _ in range(2))
    try:
        running.bob.sees(first, "running")
        why = running.bob.get(f"/v1/jobs/{second}/why").json()
        assert (why["code"], why["position"], why["status"]) == ("NO_ROOM", 1, "pending")
        assert why["numbers"]["gpus"] == 4
        assert "needs 4 GPUs" in why["why"]
        running_why = running.bob.get(f"/v1/jobs/{first}/why").json()
        assert (running_why["code"], running_why["why"]) == (None, "does not wait: it is running")
        queue = running.bob.get("/v1/queue").json()["jobs"]
        assert [(job["id"], job["position"]) for job in queue] == [(first, None), (second, 1), (third, 2)]
        assert queue[0]["why"] == ""
        assert queue[1]["why"]
        starts = wait_for(lambda: _starts(running, second, third), "estimates")
        assert starts[1] - starts[0] == pytest.approx(60.0)
        assert [job["id"] for job in running.bob.get("/v1/queue?limit=2").json()["jobs"]] == [first, second]
        held = running.bob.post(f"/v1/jobs/{second}/suspend").json()["jobs"][0]
        assert held["held"] == "user"
        why = running.bob.get(f"/v1/jobs/{second}/why").json()
        assert (why["code"], why["position"]) == ("HELD", None)
        assert [job["id"] for job in running.bob.get("/v1/queue").json()["jobs"]] == [first, third, second]
    finally:
        for uid in (third, second, first):
            running.bob.post(f"/v1/jobs/{uid}/cancel")


def _starts(running: Running, *uids: str) -> list[float] | None:
    """When jobs are believed to start; None while that is not known of all."""
    found = {job["id"]: job["estimated_start"] for job in running.bob.get("/v1/queue").json()["jobs"]}
    starts = [found[uid] for uid in uids]
    return None if None in starts else starts


def test_an_elastic_job_is_resized(running: Running) -> None:
    wait_for(lambda: not running.ada.get("/v1/queue").json()["jobs"], "an empty cluster")
    uid = running.bob.submit("sleep", "60", gpus=1, min_gpus=1, max_gpus=3)
    running.bob.sees(uid, "running")
    too_many = running.bob.post(f"/v1/jobs/{uid}/resize", {"gpus": 4})
    assert too_many.status_code == 409
    assert "1 to 3 GPUs" in message(too_many)
    assert running.bob.post(f"/v1/jobs/{uid}/resize", {"gpus": 3}).status_code == 200
    wait_for(lambda: running.bob.job(uid)["placement"].endswith(":0,1,2"), "three devices")
    (queued,) = [job for job in running.bob.get("/v1/queue").json()["jobs"] if job["id"] == uid]
    assert (queued["gpus"], queued["held_gpus"]) == (1, 3)
    running.bob.post(f"/v1/jobs/{uid}/cancel")
    ended = running.bob.post(f"/v1/jobs/{uid}/resize", {"gpus": 2})
    assert ended.status_code == 409


def test_top_shows_what_is_measured(running: Running) -> None:
    wait_for(lambda: not running.ada.get("/v1/queue").json()["jobs"], "an empty cluster")
    uid = running.bob.submit("sleep", "60")
    running.bob.sees(uid, "running")
    top, seen = running.bob.get("/v1/top").json(), running.cy.get("/v1/nodes").json()
    running.bob.post(f"/v1/jobs/{uid}/cancel")
    assert [job["id"] for job in top["jobs"]] == [uid]
    (node,) = top["nodes"]
    assert node["stand_in"] is True
    assert len(node["devices"]) == 4
    assert {device["index"]: device["free_frac"] for device in node["devices"]} == {0: 0.0, 1: 1.0, 2: 1.0, 3: 1.0}
    assert node["devices"][0]["jobs"] == [{"id": uid, "user": "bob", "name": "", "frac": 1.0}]
    assert seen["nodes"][0]["devices"][0]["jobs"] == [{"id": None, "user": "bob", "name": "", "frac": 1.0}]
    assert all(0 <= device["util_frac"] <= 1 for device in node["devices"])


@pytest.mark.parametrize("uid", ["x", "1-", "-1", "01", "1-2-3", "1 ", "9" * 19, "..", "%2e%2e", "1%00", "1%0a"])
def test_ids_are_numbers(running: Running, uid: str) -> None:
    for path in (f"/v1/jobs/{uid}", f"/v1/jobs/{uid}/logs", f"/v1/jobs/{uid}/why"):
        assert running.ada.get(path).status_code in (400, 404, 422)
    assert running.ada.post(f"/v1/jobs/{uid}/cancel").status_code in (400, 404, 422)
