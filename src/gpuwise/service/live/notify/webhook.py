"""Sends a notification to a webhook: one POST of JSON, to an address that was checked after its name was resolved."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urlsplit

from gpuwise.core import __version__
from gpuwise.service.live.notify.deadline import Deadline
from gpuwise.service.live.notify.errors import NotSentError
from gpuwise.service.live.notify.message import Message
from gpuwise.service.live.notify.settings import PUBLIC

NAT64 = IPv6Network("64:ff9b::/96")
PORTS = {"http": 80, "https": 443}
HOW = "an administrator can allow its host with: gpuwise up --webhook-hosts"


class Webhooks:
    """Posts to the hosts that a deployment allows."""

    def __init__(self, hosts: frozenset[str], timeout_s: float) -> None:
        self._hosts = hosts
        self._timeout_s = timeout_s

    def refusal(self, url: str) -> str:
        """Why this deployment does not post to a URL, as far as that is known without its host's address."""
        if not self._hosts:
            return "webhooks are disabled here (gpuwise up --webhook-hosts none)"
        host = _host(urlsplit(url))
        if host in self._hosts:
            return ""
        if PUBLIC not in self._hosts:
            return f"webhooks to {host} are not allowed here; {HOW}"
        return "" if _may_be_public(host) else f"{host} is not a public address; {HOW}"

    def send(self, url: str, message: Message) -> None:
        """Posts a message; raises if it was not accepted. Redirects are not followed, and no answer is read."""
        if refusal := self.refusal(url):
            raise NotSentError(refusal)
        parts = urlsplit(url)
        with Deadline(self._timeout_s) as deadline, closing(self._connect(parts, deadline)) as connection:
            client = HTTPConnection(_host(parts), _port(parts))
            client.sock = connection
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            client.request("POST", target, json.dumps(message.body()).encode(), _headers(parts, message))
            with closing(client.getresponse()) as answer:
                if not 200 <= answer.status < 300:
                    raise NotSentError(f"it answered with HTTP {answer.status}")

    def _connect(self, parts: SplitResult, deadline: Deadline) -> socket.socket:
        """A connection to the first address of a host that accepts one, and that may be posted to."""
        connection = deadline.connect(self._addresses(parts), _port(parts))
        if parts.scheme == "http":
            return connection
        return deadline.tls().wrap_socket(connection, server_hostname=_host(parts))

    def _addresses(self, parts: SplitResult) -> Iterator[str]:
        """The addresses of a host; one that is not public only if the host is allowed by its name."""
        host = _host(parts)
        for *_, (address, *_) in socket.getaddrinfo(host, _port(parts), type=socket.SOCK_STREAM):
            if host not in self._hosts and not is_public(str(address)):
                raise NotSentError(f"{host} has the address {address}, which is not public; {HOW}")
            yield str(address)


def is_public(text: str) -> bool:
    """Whether an address is one of the public internet, also where it contains another."""
    address = ip_address(text.partition("%")[0])
    return all(each.is_global and not each.is_multicast for each in (address, *_contained(address)))


def _contained(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address leads to."""
    if isinstance(address, IPv4Address):
        return []
    found = [IPv4Address(int(address) & 0xFFFFFFFF)] if address in NAT64 else []
    return found + [each for each in (address.ipv4_mapped, address.sixtofour) if each is not None]


def _may_be_public(host: str) -> bool:
    try:
        return is_public(host)
    except ValueError:  # a name, whose addresses are looked up when it is sent
        return True


def _host(parts: SplitResult) -> str:
    assert parts.hostname is not None
    return parts.hostname.lower()


def _port(parts: SplitResult) -> int:
    return parts.port or PORTS[parts.scheme]


def _headers(parts: SplitResult, message: Message) -> dict[str, str]:
    return {
        "Host": parts.netloc,
        "Content-Type": "application/json",
        "User-Agent": f"gpuwise/{__version__}",
        "Idempotency-Key": message.key,
        "Connection": "close",
    }
