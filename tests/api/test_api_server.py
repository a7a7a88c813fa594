"""Where the server listens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gpuwise.api.server import Listening, bind, is_loopback
from gpuwise.core.errors import GpuwiseError


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("127.8.7.6", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("192.168.1.2", False), ("example.org", False), ("", False)],
)  # fmt: skip
def test_only_loopback_is_served_without_tls(host: str, own: bool) -> None:
    assert is_loopback(host) == own
    if own:
        assert Listening(host=host).scheme == "http"
    else:
        with pytest.raises(GpuwiseError, match="sent unencrypted"):
            Listening(host=host)
    assert Listening(host=host, certificate=Path("c.pem"), key=Path("k.pem")).scheme == "https"


def test_a_certificate_has_a_key() -> None:
    with pytest.raises(GpuwiseError, match="give both"):
        Listening(certificate=Path("c.pem"))


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(GpuwiseError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            bind(Listening(port=port))
