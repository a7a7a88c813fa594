"""Sends the notifications that are recorded, until each was accepted or is given up."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuwise.core.job.notify import MAIL, masked
from gpuwise.core.job.request import JobRequest
from gpuwise.core.notification import Notification
from gpuwise.core.records import Store, StoreError
from gpuwise.live.inbox import NotPossibleError
from gpuwise.service.live.notify.errors import reason_of
from gpuwise.service.live.notify.mail import Mail
from gpuwise.service.live.notify.message import message_of
from gpuwise.service.live.notify.settings import NotifySettings
from gpuwise.service.live.notify.webhook import Webhooks

log = logging.getLogger("gpuwise.notify")
MOST_AT_ONCE, MOST_OF_USER = 16, 4
IDLE_S = 60.0
PAUSE_S = 5.0
"""While the disk is full, or the store fails."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a notification that was not accepted is sent again, and when it is given up."""

    timeout_s: float = 10.0
    """Of one try."""
    first_s: float = 5.0
    """After the first failure; then twice as long each time."""
    longest_s: float = 3600.0
    tries: int = 32
    age_s: float = 86400.0

    def after(self, failed: Notification, error: str, now: float) -> Notification:
        """A notification after one more failure."""
        tries = failed.tries + 1
        next_at = now + min(self.longest_s, self.first_s * 2.0 ** min(tries - 1, 30))
        is_last = tries >= self.tries or next_at > failed.created_at + self.age_s
        return replace(failed, tries=tries, error=error, next_at=next_at, given_up_at=now if is_last else None)


class Notifier:
    """Sends notifications in threads of its own; the store is the queue.

    Some are sent at one time, few of one user and one per user and destination, so that a receiver that is slow or
    away delays only what is for itself. Nothing is sent while the disk is full: that it was sent must be written.
    """

    def __init__(
        self,
        store: Store,
        settings: NotifySettings,
        deployment: str,
        has_space: Callable[[], bool] = lambda: True,
        schedule: Schedule | None = None,
    ) -> None:
        self._store = store
        self._deployment = deployment
        self._has_space = has_space
        self._schedule = schedule or Schedule()
        self._webhooks = Webhooks(settings.hosts, self._schedule.timeout_s)
        self._mail = Mail(settings.mail, self._schedule.timeout_s)
        self._busy: set[tuple[str, str]] = set()
        """Users and destinations of what is being sent."""
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpuwise-notify", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Looks for notifications now."""
        self._news.set()

    def close(self) -> None:
        """Ends the thread. What is being sent is not waited for: the next service sends it again."""
        self._closing.set()
        self._news.set()
        self._thread.join(5.0)

    def check(self, request: JobRequest) -> None:
        """Refuses addresses that this deployment does not notify."""
        for address in request.notify:
            is_mail = address.startswith(MAIL)
            if refusal := self._mail.refusal if is_mail else self._webhooks.refusal(address):
                raise NotPossibleError(f"notify is {masked(address)!r}, but {refusal}")

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                pause_s = self._send_due()
            except Exception as error:  # the store may work again later
                log.warning("notifications cannot be sent at present: %s", error)
                pause_s = PAUSE_S
            self._news.wait(pause_s)
            self._news.clear()

    def _send_due(self) -> float:
        """Begins to send what is due; how long there is nothing more to do (s)."""
        while not self._closing.is_set():
            with self._lock:
                busy = frozenset(self._busy)
            if len(busy) >= MOST_AT_ONCE:
                return IDLE_S  # one that ends wakes this thread
            if not self._has_space():
                return PAUSE_S
            of_user = Counter(user for user, _ in busy)
            full = [user for user, count in of_user.items() if count >= MOST_OF_USER]
            found = self._store.next_notification(busy, full)
            if found is None:
                return IDLE_S
            wait_s = found.next_at - time.time()
            if 0 < wait_s <= self._schedule.longest_s:  # else the clock was set back
                return min(wait_s, IDLE_S)
            self._begin(found)
        return 0.0

    def _begin(self, notification: Notification) -> None:
        pair = (notification.user, notification.destination)
        with self._lock:
            self._busy.add(pair)

        def work() -> None:
            try:
                self._deliver(notification)
            finally:
                self._end(pair)

        try:
            threading.Thread(target=work, name="gpuwise-notify-one", daemon=True).start()
        except RuntimeError:  # no more threads
            self._end(pair)
            raise

    def _end(self, pair: tuple[str, str]) -> None:
        with self._lock:
            self._busy.discard(pair)
        self._news.set()

    def _deliver(self, notification: Notification) -> None:
        """Sends a notification once, and records how that ended."""
        try:
            self._send(notification)
        except Exception as error:
            failed = self._schedule.after(notification, reason_of(error), time.time())
            _log_failure(failed)
            self._record(lambda: self._store.put_notification(failed))
        else:
            self._record(lambda: self._store.delete_notification(notification.uid, notification.position))

    def _send(self, notification: Notification) -> None:
        address, message = message_of(self._store, notification, self._deployment)
        if address.startswith(MAIL):
            self._mail.send(address.removeprefix(MAIL), message)
        else:
            self._webhooks.send(address, message)

    def _record(self, write: Callable[[], None]) -> None:
        """Writes, again and again until it works or the service ends: what was sent is not to be sent again."""
        while True:
            try:
                return write()
            except StoreError as error:
                log.warning("how a notification ended cannot be written at present: %s", error)
                if self._closing.wait(PAUSE_S):
                    return None


def _log_failure(failed: Notification) -> None:
    level = logging.INFO if failed.given_up_at is None else logging.WARNING
    outcome = "failed" if failed.given_up_at is None else "is given up"
    what = "job %s: notifying %s %s after %d tries: %s"
    log.log(level, what, failed.uid, failed.destination, outcome, failed.tries, failed.error)
