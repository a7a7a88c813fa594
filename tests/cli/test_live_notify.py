"""Notifications as users meet them: a job ends, the service may be killed or the receiver be away, and it is sent."""

from __future__ import annotations

import re
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from live_up import PATIENCE_S, Up, until

from receivers import MailReceiver, Receiver


class Notifying(Up):
    """A service that posts to this machine and sends mail through it."""

    def __init__(self, folder: Path, mail: MailReceiver) -> None:
        smtp = ("--smtp", f"127.0.0.1:{mail.port}", "--mail-from", "gpuwise@example.org")
        self.options = ("--devices", "2", "--webhook-hosts", "public,127.0.0.1", *smtp)
        super().__init__(folder)

    def end(self) -> None:
        """Ends the service, not the jobs."""
        assert self._service is not None
        self._service.send_signal(signal.SIGINT)
        self._service.wait(PATIENCE_S)

    def unsent(self, uid: str) -> list[dict[str, object]]:
        """What could not be sent yet of a job's end."""
        found: list[dict[str, object]] = self.get("jobs", uid)["unsent"]
        return found


@pytest.fixture(scope="module")
def mail() -> Iterator[MailReceiver]:
    with closing(MailReceiver()) as receiver:
        yield receiver


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, mail: MailReceiver) -> Iterator[Notifying]:
    service = Notifying(tmp_path_factory.mktemp("notifying"), mail)
    yield service
    service.stop()


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    """Starts receivers."""
    with ExitStack() as stack:
        yield lambda *statuses, **more: stack.enter_context(closing(Receiver(*statuses, **more)))


def test_a_webhook_and_a_mailbox_are_notified_of_a_job(
    up: Notifying, mail: MailReceiver, receive: Callable[..., Receiver]
) -> None:
    receiver = receive()
    hook = f"{receiver.url}/hooks/a,b"
    uid = up.submit("--notify", hook, "--notify", "mailto:ada@example.org", "--name", "try", "--", "true")
    until(lambda: receiver.received and mail.received, "both")
    assert receiver.received[0].path == "/hooks/a,b"
    assert receiver.received[0].body["id"] == uid
    assert [to for to, _ in mail.received] == [["ada@example.org"]]
    until(lambda: up.unsent(uid) == [], "both to be recorded as sent")
    code, shown = up.on_terminal("show", uid, width=200)
    assert code == 0
    assert f"{receiver.url}/***, mailto:ada@example.org" in shown
    assert "not notified" not in shown
    assert "/hooks" not in shown


def test_an_array_in_a_file_is_notified_of_once(up: Notifying, receive: Callable[..., Receiver]) -> None:
    receiver = receive()
    file = up.home / "sweep.toml"
    command = '["sh", "-c", "exit $GPUWISE_ARRAY_INDEX"]'
    file.write_text(f'name = "sweep"\ncommand = {command}\narray = "0-3"\nnotify = "{receiver.url}/x"\n')
    assert up.run("submit", "--wait", str(file)).code == 1
    until(lambda: receiver.received, "the notification")
    array = receiver.received[0].body["id"]
    until(lambda: up.unsent(f"{array}-0") == [], "it to be recorded as sent")
    assert [each.body["text"].split(": ")[1] for each in receiver.received] == ["3 failed, 1 succeeded"]


def test_what_was_not_sent_when_the_service_was_killed_is_sent_by_the_next(
    up: Notifying, receive: Callable[..., Receiver]
) -> None:
    """The receiver has the request and never answers, so that the service is killed between end and delivery."""
    receiver = receive(0, 200)
    uid = up.submit("--notify", f"{receiver.url}/x", "--", "true")
    until(lambda: receiver.received, "the request to be under way")
    assert up.status(uid) == "succeeded"
    up.kill()
    up.start()
    until(lambda: len(receiver.received) == 2, "the notification to be sent again")
    until(lambda: up.unsent(uid) == [], "it to be recorded as sent")
    first, second = receiver.received
    assert first.body == second.body
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


def test_a_receiver_that_fails_is_notified_when_it_works_also_after_a_restart(
    up: Notifying, receive: Callable[..., Receiver]
) -> None:
    receiver = receive(500)
    uid = up.submit("--notify", f"{receiver.url}/secret", "--", "true")
    until(lambda: (unsent := up.unsent(uid)) and unsent[0]["tries"], "a failure")
    _, shown = up.on_terminal("show", uid, width=250)
    line = (
        rf"{re.escape(receiver.url)}/\*\*\* \(it answered with HTTP 500; tried (once|\d+ times), again \S+ \(in \d+ s"
    )
    assert re.search(line, shown)
    assert "secret" not in shown
    up.kill()
    up.start()
    receiver.answer(200)
    until(lambda: up.unsent(uid) == [], "it to be recorded as sent")
    assert "secret" not in (up.state.parent / "up.log").read_text()


def test_a_service_that_ends_while_a_receiver_does_not_answer_sends_it_again_later(
    up: Notifying, receive: Callable[..., Receiver]
) -> None:
    """A try that the end of the service cuts short is not counted."""
    receiver = receive(0, 200)
    uid = up.submit("--notify", f"{receiver.url}/x", "--", "true")
    until(lambda: receiver.received, "the request to be under way")
    up.end()
    assert not receiver.released.is_set()
    assert _tries(up, uid) == [0]
    up.start()
    until(lambda: up.unsent(uid) == [], "it to be sent again")
    assert len(receiver.received) == 2


def _tries(up: Notifying, uid: str) -> list[int]:
    """How often each notification of a job has failed, in the database of a service that has ended."""
    with closing(sqlite3.connect(up.state / "gpuwise.db")) as database:
        return [tries for (tries,) in database.execute("SELECT tries FROM notifications WHERE uid = ?", [uid])]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--notify", "hooks.example.org/secret"), "it must be an address of at most 2048 characters"),
        (("--notify", "mailto:ada"), "it must be an address of at most 2048 characters"),
        (("--notify", "http://10.0.0.1/secret"), "but 10.0.0.1 is not a public address"),
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(up: Notifying, words: tuple[str, ...], why: str) -> None:
    answer = up.run("submit", *words, "--", "true")
    assert (answer.code, why in answer.err, "secret" in answer.err) == (2, True, False), answer


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--webhook-hosts", "https://x"), "--webhook-hosts is 'https://x'; it must be none, or public and names"),
        (("--smtp", "a b"), "--smtp is 'a b'; it must be a mail server such as mail.example.org"),
        (("--mail-from", "a@b"), "--mail-from needs a mail server; give it with --smtp HOST"),
    ],
)
def test_options_of_the_service_that_cannot_be_are_refused(up: Notifying, words: tuple[str, ...], why: str) -> None:
    answer = up.run("up", "--port", "0", "--state", str(up.home / "unused"), *words)
    assert (answer.code, why in answer.err) == (2, True), answer
