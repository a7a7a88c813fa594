"""Who is notified of a job's end is checked when it is submitted, and shown without what is secret in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwise.service.live.notify.settings import NotifySettings, mail_server, webhook_hosts
from receivers import MailReceiver, Receiver
from running import Running, wait_for

SECRET = "T0hunter2"


@pytest.fixture(scope="module")
def mail() -> Iterator[MailReceiver]:
    receiver = MailReceiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def notifying(tmp_path_factory: pytest.TempPathFactory, mail: MailReceiver) -> Iterator[Running]:
    """A service that sends mail, and posts to this machine."""
    smtp = mail_server(f"127.0.0.1:{mail.port}", "gpuwise@example.org", {})
    settings = NotifySettings(webhook_hosts("public,127.0.0.1"), smtp)
    service = Running(tmp_path_factory.mktemp("notifying") / "state", notify=settings)
    yield service
    service.close()


@pytest.fixture
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    opened = Receiver(*getattr(request, "param", ()))
    yield opened
    opened.close()


def test_ends_are_sent_to_webhook_and_mailbox(notifying: Running, receiver: Receiver, mail: MailReceiver) -> None:
    hook = f"{receiver.url}/{SECRET}"
    uid = notifying.bob.submit("sh", "-c", "exit 3", name="try", notify=[hook, "mailto:bob@example.org"])
    assert notifying.bob.ended(uid)["status"] == "failed"
    wait_for(lambda: receiver.received and mail.received, "both")
    ((to, letter),) = mail.received
    body = receiver.received[0].body
    assert (body["id"], body["status"], body["exit_code"], body["attempt"]) == (uid, "failed", 3, 1)
    assert body["placement"].endswith(":0")
    assert to == ["bob@example.org"]
    assert letter["Subject"] == f"[gpuwise] job {uid} (try) has failed"
    wait_for(lambda: notifying.bob.job(uid)["unsent"] == [], "nothing to be left")


def test_a_requeued_job_is_notified_of_once_with_the_number_of_its_attempt(
    notifying: Running, receiver: Receiver, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    command = ("sh", "-c", 'while [ ! -e "$0" ]; do sleep 0.05; done', str(go))
    uid = notifying.bob.submit(*command, notify=[f"{receiver.url}/x"])
    notifying.bob.sees(uid, "running")
    assert notifying.bob.post(f"/v1/jobs/{uid}/requeue").status_code == 200
    wait_for(
        lambda: (job := notifying.bob.job(uid))["status"] == "running" and job["attempts"] == 2, "a second attempt"
    )
    go.touch()
    notifying.bob.ended(uid)
    wait_for(lambda: receiver.received, "the notification")
    wait_for(lambda: notifying.bob.job(uid)["unsent"] == [], "nothing to be left")
    assert [(each.body["status"], each.body["attempt"]) for each in receiver.received] == [("succeeded", 2)]


@pytest.mark.parametrize("receiver", [(500,)], indirect=True)
def test_what_cannot_be_sent_is_shown_to_the_jobs_user_and_administrators(
    notifying: Running, receiver: Receiver
) -> None:
    hook, shown = f"{receiver.url}/{SECRET}?a={SECRET}", f"{receiver.url}/***"
    uid = notifying.bob.submit("true", notify=[hook])
    notifying.bob.ended(uid)
    wait_for(lambda: (unsent := notifying.bob.job(uid)["unsent"]) and unsent[0]["tries"], "a failure")
    for person in (notifying.bob, notifying.ada):
        job = person.job(uid)
        assert job["notify"] == [shown]
        (unsent,) = job["unsent"]
        assert (unsent["address"], unsent["error"]) == (shown, "it answered with HTTP 500")
        assert unsent["next_at"] is not None
    others = notifying.cy.job(uid)
    assert (others["notify"], others["unsent"]) == ([], [])


def test_no_answer_has_the_path_of_a_webhook(notifying: Running) -> None:
    uid = notifying.bob.submit("true", begin_s=4e9, notify=[f"https://hooks.example.org/{SECRET}"])
    paths = [
        "jobs", f"jobs?uids={uid}", f"jobs/{uid}", f"jobs/{uid}/why", "queue", "top", "events?follow=false&after=0",
        "audit", "status", "tables/queue",
    ]  # fmt: skip
    for person in (notifying.bob, notifying.ada, notifying.cy):
        for path in paths:
            answer = person.get(f"/v1/{path}")
            assert (answer.status_code == 200) >= (person is notifying.ada)
            assert SECRET not in answer.text
    lines = notifying.deployment.store.lines(after=0, limit=100_000)
    assert not any(SECRET in line.body for line in lines)


@pytest.mark.parametrize(
    "notify",
    [
        [f"ftp://host/{SECRET}"],
        [f"https://user:{SECRET}@host/x"],
        [f"https://host/{SECRET}\r\nX: y"],
        [f"https://host/{SECRET}\0"],
        [f"https://host:99999/{SECRET}"],
        [f"https://host/{SECRET * 300}"],
        [f"https://host/{SECRET}"] * 5,
        [f"http://169.254.169.254/{SECRET}"],
        [{"url": SECRET}],
        f"https://host/{SECRET}",
    ],
)
@pytest.mark.parametrize("dry_run", ["", "?dry_run=true"])
def test_a_refusal_names_the_field_and_does_not_quote_the_address(
    notifying: Running, notify: Any, dry_run: str
) -> None:
    answer = notifying.bob.post(f"/v1/jobs{dry_run}", {"command": ["true"], "notify": notify})
    assert answer.status_code in (409, 422)
    assert "notify" in answer.json()["error"]["message"]
    assert SECRET not in answer.text
    assert not any(SECRET in text for entry in notifying.audit(5) for text in entry)


def test_without_a_mail_server_mail_is_refused_and_the_answer_says_how_it_is_enabled(running: Running) -> None:
    answer = running.bob.post("/v1/jobs", {"command": ["true"], "notify": ["mailto:bob@example.org"]})
    assert answer.status_code == 409
    message = answer.json()["error"]["message"]
    assert "mail is not enabled here; an administrator can enable it with: gpuwise up --smtp HOST" in message
