"""A service that really runs: its store on disk, jobs as processes on CPU stand-ins, its API on a local port."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from gpuwise.api.access.connection_limits import ConnectionLimits
from gpuwise.api.access.connections import protocol
from gpuwise.api.app import ApiSettings, create_app
from gpuwise.core.records import UserRole
from gpuwise.service.live.up import LocalDeployment, Settings

ENDED = ("succeeded", "failed", "cancelled")
ROLES = {"ada": UserRole.ADMIN, "bob": UserRole.USER, "cy": UserRole.USER, "vi": UserRole.VIEWER}


def wait_for(holds: Callable[[], Any], what: str, patience_s: float = 30.0) -> Any:
    """What a question is answered with, as soon as that is true."""
    gives_up = time.monotonic() + patience_s
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < gives_up, f"waited {patience_s:g} s for {what}"
        time.sleep(0.02)


def await_in_thread(doing: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine; in a thread of its own, since Playwright leaves an event loop running in a test's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, doing).result()


class Running:
    """A service with an administrator (ada), two users (bob, cy), a viewer (vi), and somebody without a token."""

    def __init__(self, folder: Path, settings: ApiSettings | None = None, **up: Any) -> None:
        self.deployment = LocalDeployment(Settings(state=folder, policy="fifo", **{"devices": 4, **up}))
        self.controller, self.service = self.deployment.controller, self.deployment.service
        self.jobs_folder = self.deployment.folder.jobs
        self.app = create_app(self.service, settings)
        self.secrets = {name: self.token(name, role) for name, role in ROLES.items()}
        self.server = Server(self.app)
        self.url = self.server.url
        self.client = httpx.Client(base_url=self.url, timeout=30)
        self.ada, self.bob, self.cy, self.vi = (Person(self.client, self.secrets[name]) for name in ROLES)
        self.nobody = Person(self.client, None)

    def token(self, user: str, role: UserRole, expires_in_s: float | None = None) -> str:
        """The secret of a new token."""
        adding = self.controller.ask(lambda _: self.service.access.add(user, role, expires_in_s))
        return adding.result(30)[1]

    def audit(self, count: int = 20) -> list[tuple[str, str, str, str]]:
        """Who did what to what with what outcome, newest first; what was noted before is in it."""
        self.controller.ask(lambda _: None).result(30)
        found = self.deployment.store.audit(limit=count)
        return [(entry.user, entry.action, entry.target, entry.outcome) for _, entry in found]

    def close(self) -> None:
        """Ends everything, jobs too."""
        live = [record.uid for record in self.controller.live_records()]
        self.controller.cancel(live, "the end of the test").result(30)
        wait_for(lambda: not any(map(_runs, self.jobs_folder.glob("*/attempts/*"))), "jobs to be gone")
        self.client.close()
        self.service.feed.close()
        self.server.close()
        self.deployment.close()


def _runs(attempt: Path) -> bool:
    return (attempt / "started.json").exists() and not (attempt / "exit.json").exists()


class Server:
    """An application on a port of this machine, in a thread."""

    def __init__(self, app: Any, limits: ConnectionLimits | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.limits = ConnectionLimits(files=1024) if limits is None else limits
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            app, http=protocol(self.limits, tls), ws="none", log_level="info", log_config=None, lifespan="off",
            timeout_graceful_shutdown=2,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        wait_for(lambda: self._server.started, "the server to listen")

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()
        assert not self._thread.is_alive()


class Person:
    """Somebody who calls the API."""

    def __init__(self, client: httpx.Client, secret: str | None) -> None:
        self.client = client
        self.headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.client.request(method, path, headers={**self.headers, **more.pop("headers", {})}, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.call("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        return self.call("POST", path, json=body, **more)

    def put(self, path: str, body: Any) -> httpx.Response:
        return self.call("PUT", path, json=body)

    def delete(self, path: str) -> httpx.Response:
        return self.call("DELETE", path)

    def stream(self, path: str, **headers: str) -> Any:
        """An answer that is read as it comes."""
        return self.client.stream("GET", path, headers={**self.headers, **headers})

    def submit(self, *command: str, **more: Any) -> str:
        """The id of a new job."""
        answer = self.post("/v1/jobs", {"command": list(command), **more})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["jobs"][0]["id"])

    def job(self, uid: str) -> dict[str, Any]:
        answer = self.get(f"/v1/jobs/{uid}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def sees(self, uid: str, status: str) -> dict[str, Any]:
        """A job as soon as it has a status."""
        found: dict[str, Any] = wait_for(
            lambda: (job := self.job(uid))["status"] == status and job, f"job {uid} to be {status}"
        )
        return found

    def ended(self, uid: str) -> dict[str, Any]:
        """A job as soon as it has ended."""
        found: dict[str, Any] = wait_for(lambda: (job := self.job(uid))["status"] in ENDED and job, f"job {uid} to end")
        return found
