"""Tables of jobs, a page at a time: searched, sorted, grouped, with totals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuwise.api.schema import views
from gpuwise.core.job.request import JobRequest
from gpuwise.core.records import JobRecord
from gpuwise.core.search import FIELDS
from gpuwise.service.live.estimates import Estimate, QueueEstimates
from gpuwise.service.live.overview import QueueEntry
from gpuwise.service.live.table_rows import SORTS, Viewpoint
from running import Person, Running

ARRAY = [0, 1, 2, 3, 4]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """bob has jobs 1 (which runs), 2 (in another queue) and array 3, of which tasks 0 and 1 are cancelled; cy has 4."""
    service = Running(tmp_path_factory.mktemp("service"), devices=1)
    service.bob.submit("sleep", "600", name="first", duration_s=600.0)
    service.bob.submit("sleep", "600", name="Bert", queue="night", duration_s=20.0)
    service.bob.submit("sleep", "600", name="sweep", array=ARRAY, duration_s=30.0)
    service.cy.submit("sleep", "600", name="secret-bert", duration_s=10.0)
    service.bob.sees("1", "running")
    for uid in ("3-0", "3-1"):
        assert service.bob.post(f"/v1/jobs/{uid}/cancel").status_code == 200
    yield service
    service.close()


def table(person: Person, name: str, **query: Any) -> dict[str, Any]:
    answer = person.get(f"/v1/tables/{name}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ids(person: Person, name: str, **query: Any) -> list[str]:
    """The ids of a page's rows; a row of an array is in brackets."""
    rows = table(person, name, **query)["rows"]
    return [f"[{row['array']['id']}]" if row["array"] else row["job"]["id"] for row in rows]


def test_counts_are_of_all_jobs_whatever_the_page(filled: Running) -> None:
    page = table(filled.bob, "waiting", limit=1, search="user:bob")
    assert [len(page["rows"]), page["total"], page["matching"], page["row_count"]] == [1, 5, 4, 2]
    page = table(filled.bob, "ended", limit=1, grouped=False)
    assert [len(page["rows"]), page["total"], page["matching"], page["row_count"]] == [1, 2, 2, 2]


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("id:2", ["2"]), ("id:3", ["[3]"]), ("3-2", ["3-2"]), ("bert", ["2"]), ("name:BERT", ["2"]), ("night", ["2"]),
        ("queue:night", ["2"]), ("user:cy", ["4"]), ("user:bob sweep", ["[3]"]), ("status:pend queue:night", ["2"]),
        ("nothing", []), ("user:", ["2", "[3]", "4"]),
    ],
)  # fmt: skip
def test_a_search_finds_by_id_name_user_queue_and_status(filled: Running, search: str, expected: list[str]) -> None:
    assert ids(filled.bob, "waiting", search=search) == expected


def test_details_of_others_are_neither_found_nor_sorted_by(filled: Running) -> None:
    assert ids(filled.ada, "waiting", search="bert") == ["2", "4"]
    assert ids(filled.bob, "waiting", search="secret") == []
    assert ids(filled.ada, "waiting", sort="name") == ["2", "4", "[3]"]
    assert ids(filled.bob, "waiting", sort="name") == ["2", "[3]", "4"]  # without a name for bob, so last


def test_what_others_see_of_a_job_it_is_found_and_sorted_by(filled: Running) -> None:
    assert ids(filled.cy, "waiting", search="queue:night") == ids(filled.cy, "waiting", search="night") == ["2"]
    assert ids(filled.cy, "waiting", sort="queue", descending=True)[0] == "2"
    assert ids(filled.cy, "waiting", sort="submitted", descending=True) == ["4", "[3]", "2"]
    assert ids(filled.cy, "waiting", sort="duration", descending=True) == ["[3]", "2", "4"]


SHOWN_BY_SORT = {
    "job": "id", "user": "user", "status": "status", "gpus": "gpus", "name": "name", "queue": "queue",
    "where": "placement", "progress": "step", "loss": "loss", "speed": "samples_per_s", "duration": "duration_s",
    "submitted": "submitted_at", "started": "started_at", "start": "estimated_start", "finish": "estimated_finish",
}  # fmt: skip


@pytest.mark.parametrize("all_of_it", [True, False], ids=["one's own", "another's"])
def test_a_job_is_sorted_and_found_by_what_is_shown_of_it_and_by_nothing_else(all_of_it: bool) -> None:
    record = JobRecord(
        uid="7", user="bob", request=JobRequest(command=("x",), name="bert", queue="night"), status="running",
        submitted_at=1.0, started_at=2.0, placement="n0:0", duration_s=60.0, step=1, steps=10, loss=0.5,
        samples_per_s=9.0,
    )  # fmt: skip
    estimate = Estimate(start_at=2.0, finish_at=62.0)
    view = Viewpoint(lambda _: all_of_it, QueueEstimates({"7": estimate}, {"7": ("running", 0, False, 0)}))
    shown = views.queued(QueueEntry(record, 1.0, None, "", estimate), details=all_of_it)
    assert {sort for sort in SORTS if view.key(sort, record) is not None} == {
        sort for sort, name in SHOWN_BY_SORT.items() if shown[name] not in (None, "")
    }
    assert set(view.texts(record)) == {name for name in FIELDS if shown[name]}


@pytest.mark.parametrize("name", ["waiting", "ended"])
def test_every_column_sorts_up_and_down(filled: Running, name: str) -> None:
    refusal = filled.bob.get(f"/v1/tables/{name}?sort=beauty").json()["error"]["message"]
    columns = refusal.partition("one of ")[2].split(", ")
    assert {"job", "name", "user", "queue", "status"} <= set(columns)
    for column in columns:
        up = ids(filled.bob, name, sort=column, grouped=False)
        down = ids(filled.bob, name, sort=column, grouped=False, descending=True)
        assert sorted(up) == sorted(down) != [], column
    assert (
        ids(filled.ada, name, sort="job", grouped=False)
        == ids(filled.ada, name, sort="job", grouped=False, descending=True)[::-1]
    )


def test_an_array_is_one_row_with_all_its_tasks_counted_and_opens(filled: Running) -> None:
    assert ids(filled.bob, "waiting") == ["2", "[3]", "4"]
    assert ids(filled.bob, "waiting", open="3") == ["2", "[3]", "3-2", "3-3", "3-4", "4"]
    for name, tasks in (("waiting", 3), ("ended", 2)):
        (row,) = [row for row in table(filled.bob, name)["rows"] if row["array"]]
        counts = {"pending": 3, "cancelled": 2}
        assert row["array"] == {"id": "3", "tasks": tasks, "open": False, "counts": counts}


def test_an_offset_beyond_the_end_is_the_last_page(filled: Running) -> None:
    page = table(filled.bob, "waiting", offset=1000, limit=2)
    assert [page["offset"], page["row_count"], len(page["rows"])] == [2, 3, 1]
    page = table(filled.bob, "ended", offset=1000, limit=1, grouped=False)
    assert [page["offset"], page["row_count"], len(page["rows"])] == [1, 2, 1]
    page = table(filled.cy, "ended", offset=1000, limit=1)
    assert [page["offset"], page["row_count"], len(page["rows"])] == [0, 0, 0]


def test_an_array_has_its_tasks_counted_for_all_and_details_for_its_user(own_running: Running) -> None:
    service = own_running
    service.bob.submit("sleep", "600", name="sweep", array=ARRAY, gpus=2, duration_s=600.0)
    for uid in ("1-0", "1-1"):
        service.bob.sees(uid, "running")
    assert service.bob.post("/v1/jobs/1-4/cancel").status_code == 200
    assert service.bob.post("/v1/jobs/1-3/hold").status_code == 200
    counts = {"running": 2, "pending": 2, "cancelled": 1}
    for person, name in ((service.bob, "sweep"), (service.ada, "sweep"), (service.cy, "")):
        array = person.get("/v1/arrays/1").json()
        assert (array["tasks"], array["counts"], array["held"], array["job"]["name"]) == (5, counts, 1, name)
    service.bob.submit("sleep", "600")
    assert service.bob.get("/v1/arrays/2").json()["error"]["message"] == "there is no array '2'"
    assert service.bob.post("/v1/jobs/1/cancel").status_code == 200
    assert service.bob.get("/v1/arrays/1").json()["counts"] == {"cancelled": 5}


def test_status_reason_and_estimate_of_a_row_are_of_one_moment(own_running: Running) -> None:
    """A job that waits has a reason and no place, one that runs has a place and no reason, whatever happens."""
    service = own_running
    for _ in range(6):
        service.bob.submit("sleep", "0.05", gpus=4, duration_s=0.05)
    left = 6
    while left:
        rows = table(service.bob, "queue")["rows"]
        left = len(rows)
        for row in rows:
            job = row["job"]
            if job["status"] == "pending":
                assert (job["placement"], bool(job["why"]), job["started_at"]) == ("", True, None), job
            if job["status"] == "running":
                assert (bool(job["placement"]), job["why"]) == (True, ""), job
                assert job["estimated_start"] is None or job["estimated_start"] <= job["started_at"] + 60, job
