"""Notifications are sent to real receivers: until they are accepted, to allowed hosts only, and none delays another."""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuwise.core import __version__
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.notify import destination
from gpuwise.core.job.request import JobRequest
from gpuwise.core.notification import Notification
from gpuwise.core.records import AttemptRecord, Batch, JobRecord, StoreError
from gpuwise.live.inbox import NotPossibleError
from gpuwise.service.live.notify import mail as mail_module
from gpuwise.service.live.notify import notifier as notifier_module
from gpuwise.service.live.notify.deadline import MOST_ADDRESSES
from gpuwise.service.live.notify.mail import letter
from gpuwise.service.live.notify.message import message_of
from gpuwise.service.live.notify.notifier import MOST_AT_ONCE, MOST_OF_USER, Notifier, Schedule
from gpuwise.service.live.notify.settings import MailServer, NotifySettings, mail_server, webhook_hosts
from gpuwise.service.live.notify.webhook import Webhooks, is_public
from gpuwise.store.sql import SqlStore, open_store
from receivers import MailReceiver, Received, Receiver, silent
from running import wait_for

LOCAL = NotifySettings(hosts=frozenset(("127.0.0.1",)))
SOON = Schedule(first_s=0.05, longest_s=0.2, timeout_s=20.0)
"""Tried again at once, and given up late."""
PATIENCE_S = 60.0
Ended = Callable[..., None]
Notify = Callable[..., Notifier]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    opened = open_store(tmp_path / "gpuwise.db")
    yield opened
    opened.close()


@pytest.fixture
def notify(store: SqlStore) -> Iterator[Notify]:
    """Starts what sends notifications."""
    with ExitStack() as stack:

        def start(settings: NotifySettings = LOCAL, schedule: Schedule = SOON, **more: Any) -> Notifier:
            return stack.enter_context(closing(Notifier(store, settings, "1000.0", schedule=schedule, **more)))

        yield start


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    """Starts receivers."""
    with ExitStack() as stack:
        yield lambda *statuses, **more: stack.enter_context(closing(Receiver(*statuses, **more)))


def end(store: SqlStore, uid: str, *addresses: str, user: str = "ada", **more: Any) -> None:
    """A job has ended, as the controller writes it."""
    now = time.time()
    asked = {"name": "train", "gpus": 2, "notify": addresses, **more.pop("asked", {})}
    record = JobRecord(
        uid=uid, user=user, request=JobRequest(command=("python",), **asked),
        **{"status": "succeeded", "started_at": now - 125, "ended_at": now, "exit_code": 0, "attempts": 1, **more},
    )  # fmt: skip
    attempt = AttemptRecord(uid=uid, number=1, placement="box:0,1", started_at=now - 125)
    notes = [
        Notification(
            uid=uid.partition("-")[0], position=at, user=user, destination=destination(each), created_at=now,
            next_at=now,
        )
        for at, each in enumerate(addresses)
    ]  # fmt: skip
    store.commit(Batch(jobs=[record], attempts=[attempt], notifications=notes))


def bodies(receiver: Receiver, count: int) -> list[Received]:
    """What a receiver has received, as soon as it is that much."""
    wait_for(lambda: len(receiver.received) >= count, f"{count} notifications", PATIENCE_S)
    return receiver.received


def all_sent(store: SqlStore) -> None:
    wait_for(lambda: store.next_notification((), ()) is None, "nothing to be left to send", PATIENCE_S)


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_webhook_receives_one_post_of_json(store: SqlStore, notify: Notify, receive: Callable[..., Receiver]) -> None:
    receiver = receive()
    end(store, "17", f"{receiver.url}/services/T0?a=b%20c", status="failed", why_ended="exit code 3", exit_code=3)
    notify()
    (received,) = bodies(receiver, 1)
    record = store.job("17")
    assert record is not None
    assert received.path == "/services/T0?a=b%20c"
    key = received.body["key"]
    assert received.body == {
        "text": "job 17 (train) of ada has failed after 2m05s: exit code 3", "key": key, "id": "17", "name": "train",
        "user": "ada", "queue": "default", "status": "failed", "exit_code": 3, "reason": "exit code 3", "gpus": 2,
        "gpu_frac": 1.0, "submitted_at": 0.0, "started_at": record.started_at, "ended_at": record.ended_at,
        "attempt": 1, "placement": "box:0,1",
    }  # fmt: skip
    headers = {name: received.headers[name] for name in ("Host", "User-Agent", "Content-Type", "Idempotency-Key")}
    assert headers == {
        "Host": f"127.0.0.1:{receiver.port}", "User-Agent": f"gpuwise/{__version__}",
        "Content-Type": "application/json", "Idempotency-Key": key,
    }  # fmt: skip
    all_sent(store)
    assert store.notifications("17") == []
    assert len(receiver.received) == 1


def test_an_array_is_one_message_with_the_numbers_of_its_tasks(
    store: SqlStore, notify: Notify, receive: Callable[..., Receiver]
) -> None:
    receiver = receive()
    for index, status in enumerate(("succeeded", "failed", "succeeded")):
        end(store, f"5-{index}", f"{receiver.url}/x", status=status, asked={"array": (index,)})
    assert len(store.notifications("5")) == 1
    notify()
    (received,) = bodies(receiver, 1)
    assert received.body["text"] == "array 5 (train) of ada has ended: 1 failed, 2 succeeded"
    assert (received.body["id"], received.body["status"]) == ("5", "failed")
    assert received.body["tasks"] == {"failed": 1, "succeeded": 2}


def test_what_is_said_has_one_line_however_the_job_failed(store: SqlStore) -> None:
    end(store, "1", "https://a/x", status="failed", why_ended="a\r\nBcc: eve@host\x1b[2J" + "x" * 9999)
    (note,) = store.notifications("1")
    _, message = message_of(store, note, "1000.0")
    text = message.text
    assert text.isprintable()
    assert len(text) < 700
    mail = letter("gpuwise@host", "ada@host", message)
    assert mail["To"] == "ada@host"
    assert mail["Bcc"] is None
    assert len(mail.as_bytes().split(b"\n\n", 1)[0].splitlines()) < 20


def test_a_notification_whose_job_cannot_be_read_is_kept_and_tried_again(store: SqlStore, notify: Notify) -> None:
    note = Notification(uid="9", position=0, user="a", destination="d", created_at=1e12, next_at=0.0)
    store.commit(Batch(notifications=[note]))
    notify()
    failed = wait_for(lambda: (note := store.notifications("9")[0]).tries > 1 and note, "two tries", PATIENCE_S)
    assert failed.error == "its job cannot be read"


def test_a_key_is_that_of_one_end_and_one_address(store: SqlStore) -> None:
    end(store, "1", "https://a/x", "https://a/x")
    end(store, "2", "https://a/x")
    notes = [*store.notifications("1"), *store.notifications("2")]

    def keys(deployment: str) -> list[str]:
        return [message_of(store, note, deployment)[1].key for note in notes]

    assert len({*keys("1000.0"), *keys("2000.0")}) == 6
    again = keys("1000.0")
    end(store, "1", "https://a/x", "https://a/x", attempts=2)
    assert [each in again for each in keys("1000.0")] == [False, False, True]


# -- until it is accepted ----------------------------------------------------------------------------------------------


def test_a_receiver_that_fails_is_tried_again_with_the_same_key(
    store: SqlStore, notify: Notify, receive: Callable[..., Receiver]
) -> None:
    receiver = receive(500, 302, 404, 200)
    end(store, "1", f"{receiver.url}/x")
    notify()
    received = bodies(receiver, 4)
    all_sent(store)
    assert {each.path for each in received} == {"/x"}, "redirects are not followed"
    assert len(received) == 4
    assert len({(each.headers["Idempotency-Key"], each.body["text"]) for each in received}) == 1


def test_a_receiver_that_is_away_is_notified_when_it_is_there(
    store: SqlStore, notify: Notify, receive: Callable[..., Receiver]
) -> None:
    receiver = receive(listens=False)
    end(store, "1", f"{receiver.url}/x")
    notify()
    failed = wait_for(lambda: (note := store.notifications("1")[0]).tries > 2 and note, "some tries", PATIENCE_S)
    assert failed.error.startswith("it cannot be reached")
    receiver.listen()
    bodies(receiver, 1)
    all_sent(store)


def test_what_is_never_accepted_is_given_up_and_that_is_logged_without_its_path(
    store: SqlStore, notify: Notify, receive: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    receiver = receive(500)
    end(store, "1", f"{receiver.url}/secret")
    notify(schedule=replace(SOON, tries=3))
    all_sent(store)
    (note,) = store.notifications("1")
    assert (note.tries, note.error, note.given_up_at is not None) == (3, "it answered with HTTP 500", True)
    assert len(receiver.received) == 3
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    what = f"job 1: notifying {receiver.url} is given up after 3 tries: it answered with HTTP 500"
    assert warnings == [what]
    assert "secret" not in caplog.text


def test_times_between_tries_double_up_to_a_bound_and_end_with_a_day() -> None:
    schedule, note = (
        Schedule(),
        Notification(uid="1", position=0, user="a", destination="d", created_at=1e9, next_at=1e9),
    )
    waits, now = [], 1e9
    while note.given_up_at is None:
        note = schedule.after(note, "", now)
        waits.append(note.next_at - now)
        now = note.next_at
        assert note.tries <= schedule.tries
    assert waits[:4] == [5.0, 10.0, 20.0, 40.0]
    assert max(waits) == 3600.0
    assert 20 < note.tries <= 32
    assert note.given_up_at - 1e9 <= 86400.0
    old = replace(note, created_at=0.0, tries=0, given_up_at=None)
    assert schedule.after(old, "", 86400.0).given_up_at == 86400.0


def test_a_notification_whose_time_is_far_off_is_due_since_the_clock_was_set_back(
    store: SqlStore, notify: Notify, receive: Callable[..., Receiver]
) -> None:
    receiver = receive()
    end(store, "1", f"{receiver.url}/x")
    store.put_notification(replace(store.notifications("1")[0], next_at=time.time() + 1e6))
    notify()
    bodies(receiver, 1)


# -- slow receivers ----------------------------------------------------------------------------------------------------


def test_a_receiver_that_never_answers_delays_no_other_and_not_the_end(
    store: SqlStore, notify: Notify, receive: Callable[..., Receiver]
) -> None:
    """Time-outs are so long that they play no part."""
    before = set(threading.enumerate())
    slow = receive(0)
    for uid in range(1, 101):
        end(store, str(uid), f"{slow.url}/x")
    sender = notify(schedule=replace(SOON, timeout_s=600.0))
    bodies(slow, 1)
    fast = receive()
    end(store, "200", f"{fast.url}/x")
    end(store, "201", f"{fast.url}/x", user="bob")
    sender.wake()
    bodies(fast, 2)
    assert len(slow.received) == 1, "a receiver is sent one at a time"
    sender.close()
    assert "gpuwise-notify" not in [thread.name for thread in set(threading.enumerate()) - before]
    assert not slow.released.is_set()
    assert len(store.notifications("1")) == 1, "that one is sent again by the next service"


SENDER = """
import sys
from gpuwise.service.live.notify.notifier import Notifier, Schedule
from gpuwise.service.live.notify.settings import NotifySettings
from gpuwise.store.sql import open_store

store = open_store(sys.argv[1])
notifier = Notifier(store, NotifySettings(frozenset(("127.0.0.1",))), "1000.0", schedule=Schedule(timeout_s=600.0))
sys.stdin.readline()
notifier.close()
store.close()
"""


def test_a_process_that_sends_ends_at_once_while_a_receiver_does_not_answer(
    store: SqlStore, receive: Callable[..., Receiver]
) -> None:
    """The time-out is ten times as long as this test waits."""
    slow = receive(0)
    end(store, "1", f"{slow.url}/x")
    command = [sys.executable, "-c", SENDER, store.place]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            bodies(slow, 1)
            _, errors = process.communicate("\n", timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")
    assert not slow.released.is_set()


def test_some_are_sent_at_a_time_and_few_of_a_user(store: SqlStore, notify: Notify) -> None:
    with ExitStack() as stack:
        places = [stack.enter_context(silent()) for _ in range(MOST_AT_ONCE + MOST_OF_USER)]
        for number, (url, _) in enumerate(places):
            end(store, str(number + 1), f"{url}/x", user="ada" if number < 2 * MOST_OF_USER else f"user{number}")
        sender = notify(schedule=replace(SOON, timeout_s=600.0))

        def connected() -> int:
            return sum(count() for _, count in places)

        wait_for(lambda: connected() == MOST_AT_ONCE, "all that may be sent at a time", PATIENCE_S)
        assert sum(count() for _, count in places[: 2 * MOST_OF_USER]) == MOST_OF_USER
        own = [thread for thread in threading.enumerate() if thread.name == "gpuwise-notify-one"]
        assert len(own) == MOST_AT_ONCE
        sender.close()
        assert connected() == MOST_AT_ONCE
    wait_for(lambda: not any(thread.is_alive() for thread in own), "the connections to be closed", PATIENCE_S)


@contextmanager
def dripping(*lines: bytes, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a server that sends some lines, then a byte now and then.

    Each line but the first is sent after a request. With TLS, that begins after the lines. Each wait for a byte is
    shorter than the time-outs here; all of them together are not.
    """
    stopped = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with ExitStack() as stack, suppress(OSError):
            stack.callback(lambda: connection.close())
            for number, line in enumerate(lines):
                if number:
                    connection.recv(4096)
                connection.sendall(line)
            if tls is not None:
                connection = tls.wrap_socket(connection, server_side=True)
            while not stopped.wait(0.1):
                connection.sendall(b"2")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,), daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        stopped.set()
        thread.join(PATIENCE_S)


def late(store: SqlStore) -> None:
    failed = wait_for(lambda: (note := store.notifications("1")[0]).tries and note, "a failure", PATIENCE_S)
    assert failed.error == "it did not answer in time"


def test_a_receiver_that_sends_a_byte_now_and_then_is_late_too(store: SqlStore, notify: Notify) -> None:
    with dripping(b"HTTP/1.1 200 OK\r\n") as port:
        end(store, "1", f"http://127.0.0.1:{port}/x")
        notify(schedule=Schedule(timeout_s=1.5))
        late(store)


OFFER = (b"220 mail\r\n", b"250-mail\r\n250 STARTTLS\r\n", b"220 go on\r\n")


@pytest.mark.parametrize("lines", [(b"220-",), (b"220 mail\r\n", b"250-mail "), OFFER], ids=["hello", "ehlo", "tls"])
def test_a_mail_server_that_sends_a_byte_now_and_then_is_late_too(
    store: SqlStore, notify: Notify, tls: ssl.SSLContext, lines: tuple[bytes, ...]
) -> None:
    with dripping(*lines, tls=tls if lines == OFFER else None) as port:
        end(store, "1", "mailto:ada@example.org")
        notify(NotifySettings(mail=MailServer("127.0.0.1", port, "gpuwise@example.org")), Schedule(timeout_s=1.5))
        late(store)


def test_mail_that_was_accepted_is_sent_whatever_the_goodbye(
    store: SqlStore, notify: Notify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server accepts the mail and then answers QUIT with a byte now and then."""
    monkeypatch.setattr(mail_module, "PARTING_S", 0.5)
    accepts = (
        b"220 mail\r\n",
        b"250 mail\r\n",
        b"250 from\r\n",
        b"250 to\r\n",
        b"354 go\r\n",
        b"250 accepted\r\n",
        b"2",
    )
    with dripping(*accepts) as port:
        end(store, "1", "mailto:ada@example.org")
        notify(NotifySettings(mail=MailServer("127.0.0.1", port, "gpuwise@example.org")))
        wait_for(lambda: store.notifications("1") == [], "it to be recorded as sent", PATIENCE_S)


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port of a listener whose queue is full, so that connections are neither accepted nor refused."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("0.0.0.0", 0), backlog=0))
        port: int = listening.getsockname()[1]
        with suppress(TimeoutError):
            while True:
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 1.0))
        yield port


def test_a_host_with_many_addresses_is_not_tried_for_longer(full_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    connect, resolve = socket.create_connection, socket.getaddrinfo

    def counted(address: Any, timeout: float) -> socket.socket:
        tried.append(address)
        return connect(address, timeout)

    def seven(host: str, port: int, *more: Any, **named: Any) -> list[Any]:
        if host != "hooks":
            return resolve(host, port, *more, **named)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{at}", port)) for at in range(1, 8)]

    monkeypatch.setattr(socket, "getaddrinfo", seven)
    monkeypatch.setattr(socket, "create_connection", counted)
    with pytest.raises(TimeoutError):
        Webhooks(frozenset(("hooks",)), 1.0).send(f"http://hooks:{full_port}/x", None)  # type: ignore[arg-type]
    assert len(tried) <= 2


def test_only_some_addresses_of_a_host_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    def refuse(address: Any, timeout: float) -> socket.socket:
        tried.append(address)
        raise ConnectionRefusedError

    def resolve(host: str, port: int, **more: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"1.1.1.{at}", port)) for at in range(250)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(ConnectionRefusedError):
        Webhooks(frozenset(("public",)), 60.0).send("http://hooks.example.org/x", None)  # type: ignore[arg-type]
    assert tried == [(f"1.1.1.{at}", 80) for at in range(MOST_ADDRESSES)]


def test_notifications_wait_while_the_disk_is_full_and_what_was_sent_is_not_sent_again(
    store: SqlStore, notify: Notify, receive: Callable[..., Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier_module, "PAUSE_S", 0.05)
    receiver, room, asked = receive(), threading.Event(), threading.Semaphore(0)
    deleting, refusals = store.delete_notification, iter([True] * 3)

    def has_space() -> bool:
        asked.release()
        return room.is_set()

    def delete(uid: str, position: int) -> None:
        if next(refusals, False):
            raise StoreError("the disk is full")
        deleting(uid, position)

    monkeypatch.setattr(store, "delete_notification", delete)
    end(store, "1", f"{receiver.url}/x")
    notify(has_space=has_space)
    for _ in range(3):
        assert asked.acquire(timeout=PATIENCE_S)
    assert receiver.received == []
    room.set()
    all_sent(store)
    assert len(receiver.received) == 1
    assert next(refusals, None) is None


# -- hosts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "0.0.0.0", "224.0.1.1", "::1", "fe80::1%eth0",
     "fd00::1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "100.64.0.1"],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_addresses_that_are(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "localhost", "[::1]"])
def test_by_default_a_host_with_an_address_that_is_not_public_is_not_reached(
    store: SqlStore, notify: Notify, receive: Callable[..., Receiver], host: str
) -> None:
    """However its address is written, and whatever its name."""
    receiver = receive()
    end(store, "1", f"http://{host}:{receiver.port}/x")
    notify(NotifySettings())
    failed = wait_for(lambda: (note := store.notifications("1")[0]).tries and note, "a failure", PATIENCE_S)
    assert "public" in failed.error
    assert "--webhook-hosts" in failed.error
    assert receiver.received == []


REFUSED = [
    ("public", "http://127.0.0.1/x", "127.0.0.1 is not a public address; an administrator can allow its host"),
    ("public", "https://[::1]/x", "::1 is not a public address"),
    ("none", "https://hooks.slack.com/x", "webhooks are disabled here"),
    ("hooks.slack.com", "https://evil.example/x", "webhooks to evil.example are not allowed here"),
    ("hooks.slack.com", "https://hooks.slack.com.evil.example/x", "not allowed here"),
    ("public", "mailto:ada@example.org", "mail is not enabled here; an administrator can enable it with: .* --smtp"),
]


@pytest.mark.parametrize(("hosts", "address", "why"), REFUSED)
def test_what_cannot_be_notified_is_refused_at_submission(notify: Notify, hosts: str, address: str, why: str) -> None:
    sender = notify(NotifySettings(webhook_hosts(hosts)))
    with pytest.raises(NotPossibleError, match=why) as refused:
        sender.check(JobRequest(command=("true",), notify=(address,)))
    assert "/x" not in str(refused.value)


def test_a_host_is_allowed_by_its_name(notify: Notify) -> None:
    sender = notify(NotifySettings(webhook_hosts("hooks.internal, [::1],public"), MailServer("localhost", 25, "a@b")))
    for address in ("https://HOOKS.internal:8443/x", "http://[::1]/x", "https://hooks.slack.com/x", "mailto:a@b"):
        sender.check(JobRequest(command=("true",), notify=(address,)))


# -- TLS and mail ------------------------------------------------------------------------------------------------------


def test_a_webhook_with_a_certificate_that_is_trusted_is_notified_and_no_other(
    store: SqlStore,
    notify: Notify,
    receive: Callable[..., Receiver],
    tls: ssl.SSLContext,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = receive(tls=tls)
    end(store, "1", f"{receiver.url}/x")
    notify()
    failed = wait_for(lambda: (note := store.notifications("1")[0]).tries and note, "a failure", PATIENCE_S)
    assert failed.error == "its certificate is not trusted (self-signed certificate)"
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    bodies(receiver, 1)
    all_sent(store)


@pytest.mark.parametrize("account", [None, ("gpuwise", "pass word")])
def test_mail_is_sent_over_tls_with_a_password(
    store: SqlStore, notify: Notify, tls: ssl.SSLContext, account: tuple[str, str] | None
) -> None:
    with closing(MailReceiver(tls=tls, account=account)) as receiver:
        server = MailServer("127.0.0.1", receiver.port, "gpuwise@example.org", *(account or ()))
        end(store, "17", "mailto:ada@example.org", status="failed", why_ended="exit code 3", asked={"name": "größe"})
        notify(NotifySettings(mail=server))
        wait_for(lambda: receiver.received, "the mail", PATIENCE_S)
        all_sent(store)
        ((to, mail),) = receiver.received
        assert receiver.secured == [True]
        assert receiver.users == ([account[0]] if account else [])
    assert to == ["ada@example.org"]
    sentence = "job 17 (größe) of ada has failed after 2m05s: exit code 3"
    assert (mail["From"], mail["To"]) == ("gpuwise@example.org", "ada@example.org")
    assert mail["Subject"] == "[gpuwise] job 17 (größe) has failed"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content().splitlines()[:3] == [sentence, "", "id: 17"]


def test_mail_that_a_server_refuses_or_that_has_no_server_is_tried_again(store: SqlStore, notify: Notify) -> None:
    with closing(MailReceiver()) as receiver:
        server = MailServer("127.0.0.1", receiver.port, "gpuwise@example.org", "gpuwise", "wrong")
        end(store, "1", "mailto:ada@example.org")
        sender = notify(NotifySettings(mail=server))
        failed = wait_for(lambda: (note := store.notifications("1")[0]).tries and note, "a failure", PATIENCE_S)
        assert failed.error == "the mail server did not accept it (SMTPNotSupportedError)"
        sender.close()
        notify(NotifySettings(mail=replace(server, user="", password="")))
        wait_for(lambda: receiver.received, "the mail", PATIENCE_S)
        all_sent(store)
        assert receiver.secured == [False]


def test_a_password_is_not_sent_to_another_machine_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuwise.service.live.notify import mail
    from gpuwise.service.live.notify.errors import NotSentError

    with closing(MailReceiver()) as receiver:
        monkeypatch.setattr(mail, "_is_loopback", lambda host: False)
        server = MailServer("127.0.0.1", receiver.port, "gpuwise@example.org", "gpuwise", "secret")
        with pytest.raises(NotSentError, match="does not offer STARTTLS"):
            mail.Mail(server, 60.0).send("ada@example.org", None)  # type: ignore[arg-type]
        assert receiver.received == []


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "none,public", "https://host", "host:80", "a b", "*", ","])
def test_hosts_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(GpuwiseError, match=r"--webhook-hosts is .*; it must be none, or public and names"):
        webhook_hosts(text)


@pytest.mark.parametrize(
    ("smtp", "sender", "environment", "why"),
    [
        ("host:x", None, {}, "--smtp is 'host:x'; it must be a mail server such as"),
        ("host:0", None, {}, "--smtp is"),
        ("user:pass@host", None, {}, "--smtp is"),
        ("host", "not a mailbox", {}, "--mail-from is 'not a mailbox'; it must be a mailbox such as"),
        (None, "a@b", {}, "--mail-from needs a mail server"),
        ("host", "a@b", {"GPUWISE_SMTP_USER": "ada"}, "go together"),
        ("host", "a@b", {"GPUWISE_SMTP_PASSWORD": "x"}, "go together"),
        ("host", "a@b", {"GPUWISE_SMTP_USER": "a", "GPUWISE_SMTP_PASSWORD_FILE": "/no/such"}, "cannot be read"),
    ],
)
def test_mail_servers_that_cannot_be_are_refused(
    smtp: str | None, sender: str | None, environment: dict[str, str], why: str
) -> None:
    with pytest.raises(GpuwiseError, match=why):
        mail_server(smtp, sender, environment)


def test_an_account_is_in_the_environment_or_its_password_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pass word\n")
    named = {"GPUWISE_SMTP_USER": "ada", "GPUWISE_SMTP_PASSWORD_FILE": str(tmp_path / "password")}
    found = mail_server("[::1]:587", "a@b", named)
    assert found == MailServer("::1", 587, "a@b", "ada", "pass word")
    assert "pass word" not in repr(found)
    assert mail_server("localhost", "a@b", {}) == MailServer("localhost", 25, "a@b")


def test_a_name_is_looked_up_and_its_address_checked_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is connected to is what was checked: a name that has another address a moment later gains nothing."""
    asked: list[str] = []

    def resolve(host: str, port: int, **more: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("1.1.1.1" if len(asked) == 1 else "127.0.0.1", port))]

    connected: list[Any] = []

    def connect(address: Any, timeout: float) -> socket.socket:
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(ConnectionRefusedError):
        Webhooks(frozenset(("public",)), 1.0).send("http://hooks.example.org/x", None)  # type: ignore[arg-type]
    assert (asked, connected) == (["hooks.example.org"], [("1.1.1.1", 80)])
