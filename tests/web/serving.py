"""A server in a thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from gpuwise.cli.live.page import login_link
from gpuwise.core.records import UserRole
from gpuwise.service.live.up import LocalDeployment


def serve(app: FastAPI) -> Iterator[str]:
    """Runs an app on a free port of the loopback interface; yields its address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1, lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = server.force_exit = True
    thread.join(10)
    listener.close()


def owners_link(address: str, deployment: LocalDeployment) -> str:
    """A link that logs in as the owner of a service."""
    return _link(address, deployment, deployment.token)


def users_link(address: str, deployment: LocalDeployment, user: str) -> str:
    """A link that logs in as somebody who may submit jobs."""
    adding = deployment.controller.ask(lambda _: deployment.service.access.add(user, UserRole.USER))
    return _link(address, deployment, adding.result(30)[1])


def _link(address: str, deployment: LocalDeployment, token: str) -> str:
    access = deployment.service.access
    return login_link(address, access.issue_code(access.by_token(token))[0])
