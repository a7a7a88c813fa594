"""What happens, as a stream and as a list."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpuwise.api.access.limits import StreamLimit
from gpuwise.api.app import create_app
from gpuwise.api.schema import answers
from gpuwise.core.records import UserRole
from gpuwise.service.live.events import EventFeed
from running import Person, Running, Server, wait_for


def last_of(person: Person) -> int:
    return int(person.get("/v1/events?follow=false").json()["last"])


def events_of(answer: Any) -> Iterator[dict[str, Any]]:
    """The events of a stream as they come, checked for their form."""
    block: dict[str, str] = {}
    for line in answer.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            block[name] = value
        else:
            if "data" in block:
                event = json.loads(block["data"])
                assert (block["id"], block["event"]) == (str(event["seq"]), event["kind"])
                assert set(event) == set(answers.Event.model_fields)
                yield event
            block = {}


def until_finished(events: Iterator[dict[str, Any]], uid: str) -> list[dict[str, Any]]:
    seen = []
    for event in events:
        seen.append(event)
        if (event["kind"], event["job"]) == ("JobFinished", uid):
            break
    return seen


def test_a_stream_tells_what_happens_as_it_happens(running: Running) -> None:
    with running.bob.stream(f"/v1/events?after={last_of(running.bob)}") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        uid = running.bob.submit("true")
        seen = until_finished(events_of(answer), uid)
    assert [event["kind"] for event in seen] == ["JobSubmitted", "Start", "JobStarted", "JobFinished"]
    assert {event["job"] for event in seen} == {uid}
    assert [event["seq"] for event in seen] == sorted(event["seq"] for event in seen)
    assert seen[1]["text"].startswith("starts on ")


def test_a_stream_goes_on_after_the_last_event_that_was_seen(running: Running) -> None:
    begin = last_of(running.bob)
    uid = running.bob.submit("true")
    with running.bob.stream(f"/v1/events?after={begin}") as answer:
        seen = until_finished(events_of(answer), uid)
    later = {"Last-Event-ID": str(seen[1]["seq"])}
    with running.bob.stream(f"/v1/events?after={begin}", **later) as answer:
        assert until_finished(events_of(answer), uid) == seen[2:]


def test_a_stream_from_beyond_the_end_begins_at_the_end(running: Running) -> None:
    with running.bob.stream("/v1/events", **{"Last-Event-ID": "9" * 18}) as answer:  # of a service that is no more
        uid = running.bob.submit("true")
        assert until_finished(events_of(answer), uid)[-1]["job"] == uid


def test_old_events_come_from_the_store(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = last_of(running.bob)
    uid = running.bob.submit("true")
    running.bob.ended(uid)
    from_memory = running.bob.get(f"/v1/events?follow=false&after={begin}").json()
    with restarted_feed(running, monkeypatch):
        from_store = running.bob.get(f"/v1/events?follow=false&after={begin}").json()
    assert from_store == from_memory
    assert [event["kind"] for event in from_store["events"]][:2] == ["JobSubmitted", "Start"]


@contextmanager
def restarted_feed(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A feed that has nothing in memory, as after a restart."""
    with monkeypatch.context() as patch:
        patch.setattr(running.service.access, "on_change", running.service.access.on_change)  # put back afterwards
        fresh = EventFeed(running.controller, running.service.access, running.service.workers)
        patch.setattr(running.service, "feed", fresh)
        yield
        fresh.close()


def test_a_list_goes_on_page_by_page(running: Running) -> None:
    begin = last_of(running.bob)
    running.bob.ended(running.bob.submit("true"))
    whole = running.bob.get(f"/v1/events?follow=false&after={begin}").json()["events"]
    paged, after = [], begin
    while True:
        page = running.bob.get(f"/v1/events?follow=false&after={after}&limit=1").json()
        if page["last"] == after:
            break
        paged += page["events"]
        after = page["last"]
    assert paged == whole


def test_nobody_hears_of_the_jobs_of_others(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = last_of(running.bob)
    uid = running.cy.submit("true")
    running.cy.ended(uid)

    def heard_by(person: Person) -> list[str]:
        events = person.get(f"/v1/events?follow=false&after={begin}").json()["events"]
        return [event["job"] for event in events]

    assert heard_by(running.bob) == heard_by(running.vi) == []
    assert set(heard_by(running.cy)) == set(heard_by(running.ada)) == {uid}
    with restarted_feed(running, monkeypatch):  # whose a job is now comes from the store
        assert heard_by(running.bob) == []
        assert set(heard_by(running.cy)) == {uid}


def test_a_revoked_token_hears_no_more(running: Running) -> None:
    made = running.ada.post("/v1/tokens", {"user": "dee", "role": "user"}).json()
    dee = Person(running.client, made["secret"])
    ended = threading.Event()
    opened = threading.Event()

    begin = last_of(running.ada)

    def listen() -> None:
        with dee.stream(f"/v1/events?after={begin}") as answer:
            for _ in answer.iter_bytes():
                opened.set()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    assert opened.wait(10)
    assert dee.get("/v1/status").status_code == 200  # through the same event loop: the stream now waits for events
    assert running.ada.delete(f"/v1/tokens/{made['id']}").status_code == 200
    assert ended.wait(5)
    assert dee.get("/v1/events").status_code == 401


def test_a_silent_stream_shows_that_it_is_alive(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwise.service.live.events.HEARTBEAT_S", 0.05)
    silent = Person(running.client, running.token("silent", UserRole.VIEWER))
    with silent.stream(f"/v1/events?after={last_of(running.ada)}") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "retry: 1000"
        assert [next(lines) for _ in range(3)] == ["", ": nothing new", ""]


@pytest.mark.parametrize("query", ["after=-1", "after=x", f"after={2**64}", "limit=0", "follow=perhaps"])
def test_wrong_queries_are_refused(running: Running, query: str) -> None:
    assert running.bob.get(f"/v1/events?{query}").status_code == 422


def test_a_wrong_last_event_id_is_refused(running: Running) -> None:
    assert running.bob.get("/v1/events", headers={"Last-Event-ID": "-1"}).status_code == 422


def test_streams_are_limited_per_user(running: Running) -> None:
    app = create_app(running.service)
    app.state.streams = StreamLimit(per_user=1)
    server = Server(app)
    person, other = (Person(running.client, running.token("one", UserRole.VIEWER)) for _ in range(2))
    url = f"{server.url}/v1/events"
    with person.stream(url) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "retry: 1000"
        for same in (person, other):
            with same.stream(url) as refused:
                assert refused.status_code == 429
                assert int(refused.headers["Retry-After"]) > 0
    wait_for(lambda: len(app.state.streams) == 0, "the stream to be closed")
    with person.stream(url) as answer:
        assert answer.status_code == 200
    server.close()


def test_a_line_that_cannot_be_read_does_not_hide_the_others(
    own_running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_running.bob.ended(own_running.bob.submit("true"))
    spoil = "UPDATE journal SET body = '{' WHERE kind = 'JobStarted'"
    own_running.deployment.store.database.write(lambda connection: connection.exec_driver_sql(spoil))
    with restarted_feed(own_running, monkeypatch):
        events = own_running.bob.get("/v1/events?follow=false&after=0").json()["events"]
    assert {event["kind"]: "cannot be read" in event["text"] for event in events} == {
        "JobSubmitted": False, "Start": False, "JobStarted": True, "JobFinished": False,
    }  # fmt: skip
