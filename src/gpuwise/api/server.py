"""Serves the API over HTTP, or HTTPS beyond this machine."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from gpuwise.api.access.connection_limits import ConnectionLimits
from gpuwise.api.access.connections import protocol
from gpuwise.api.app import LOOPBACK, ApiSettings, create_app
from gpuwise.core.errors import GpuwiseError
from gpuwise.live.open_files import raise_file_limit
from gpuwise.service.live.service import Service

BACKLOG = 2048
NAME_PATTERN = r"[A-Za-z0-9]([A-Za-z0-9.\-]{0,251}[A-Za-z0-9])?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where to listen, and with what certificate."""

    host: str = "127.0.0.1"
    port: int = 8787
    """0 is any free port."""
    names: frozenset[str] = frozenset()
    """Names that the server is reached by, besides its own."""
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        for name in self.names:
            if not re.fullmatch(NAME_PATTERN, name):
                raise GpuwiseError(f"--allow-host {name}: not the name of a host; give it without https:// and port")
        if (self.certificate is None) != (self.key is None):
            raise GpuwiseError(
                "the TLS certificate or its key is missing; give both --tls-cert and --tls-key, or neither"
            )
        if not is_loopback(self.host) and self.certificate is None:
            raise GpuwiseError(
                f"host is {self.host!r}, which is reachable from the network, and tokens would be sent unencrypted. "
                "Give --tls-cert and --tls-key, or listen on 127.0.0.1"
            )

    @property
    def scheme(self) -> str:
        """https with a certificate, else http."""
        return "http" if self.certificate is None else "https"

    def tls(self) -> ssl.SSLContext | None:
        """How connections are encrypted; None if they are not."""
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            text = error.strerror or str(error)
            raise GpuwiseError(
                f"cannot use the TLS certificate {self.certificate} with the key {self.key} ({text}); "
                "both must be PEM files, and belong together"
            ) from None
        return context


def is_loopback(host: str) -> bool:
    """Whether a host can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(service: Service, listening: Listening, ready: Callable[[str], None]) -> None:
    """Serves until a signal ends it; ``ready`` is called with the URL as soon as it listens."""
    bound = bind(listening)
    host, port = bound.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    limits = ConnectionLimits(raise_file_limit())
    hosts = frozenset((*LOOPBACK, shown, listening.host, socket.gethostname(), *listening.names))
    config = uvicorn.Config(
        create_app(service, ApiSettings(hosts=hosts, max_streams=limits.max_streams)),
        http=protocol(limits, listening.tls()),
        ws="none",
        log_level="error",  # its warnings are about what anybody sends
        access_log=False,
        backlog=BACKLOG,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    server = _Server(config, lambda: ready(f"{listening.scheme}://{shown}:{port}"), service.feed.close)
    server.run(sockets=[bound])


def bind(listening: Listening) -> socket.socket:
    """A socket bound to the given address."""
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    # Without the protocol asyncio does not switch off the delay of small packets: 40 ms per response.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((listening.host, listening.port))
    except OSError as error:
        bound.close()
        raise GpuwiseError(
            f"cannot listen on {listening.host}:{listening.port} ({error.strerror}); choose another with --port"
        ) from None
    return bound


class _Server(uvicorn.Server):
    """Calls back when it listens, and when it ends, so that streams end and do not delay it."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], on_shutdown: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = ready
        self._on_shutdown = on_shutdown

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_shutdown()
        await super().shutdown(sockets)
