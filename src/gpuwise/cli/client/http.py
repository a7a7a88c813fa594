"""The client of the REST API: JSON in, JSON out, and streams."""

from __future__ import annotations

import json
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import IncompleteRead
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, connection_from_url
from urllib3.exceptions import (
    HTTPError,
    InvalidHeader,
    LocationParseError,
    MaxRetryError,
    NewConnectionError,
    ProtocolError,
)
from urllib3.exceptions import TimeoutError as NoAnswerError
from urllib3.util import Retry

from gpuwise.cli.client.errors import BrokenError, LiveError, UnreachableError, refusal
from gpuwise.cli.client.target import START_IT, Target, find_target

TIMEOUT_S = 30.0
RETRIES = 3
BACKOFF_S = 0.25
"""Retries come at once, after 2 of these, after 4."""
LONGEST_PAUSE_S = 2.0
"""Maximum wait when the server says later."""
PATIENCE_S = 120.0
"""How long a server that has answered before may be away."""
PAUSE_S = 0.5

Query = Mapping[str, str | int | float | bool | Sequence[str] | None]
T = TypeVar("T")


def connect(server: str | None = None, state: Path | None = None) -> Client:
    """A client of the server that the options, the environment or the state folder name."""
    return Client(find_target(server, state))


Reconnect = Callable[[], "Client"]


def ask_until_back(reconnect: Reconnect, ask: Callable[[Client], T]) -> T:
    """Asks a server that has answered before, again while it is away; it may return at another address."""
    deadline: float | None = None
    while True:
        try:
            return ask(reconnect())
        except UnreachableError as error:
            if deadline is None:
                deadline = time.monotonic() + PATIENCE_S
                reason = str(error).partition(";")[0]
                print(f"gpuwise: {reason}; jobs continue without it; waiting for it to return", file=sys.stderr)
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)


class Reply(dict[str, Any]):
    """An object of an answer; it is the server's fault if something is not in it."""

    def __missing__(self, key: str) -> Any:
        raise LiveError(f"the server's answer has no {key!r}; is it a gpuwise server, as new as this command?")


class Client:
    """One server, and what it is asked."""

    def __init__(self, target: Target, timeout_s: float = TIMEOUT_S, retries: int = RETRIES) -> None:
        self.target = target
        self._timeout_s = timeout_s
        self._retries = retries
        tls = {"ssl_context": self._tls()} if target.is_secure else {}
        try:
            self._pool: HTTPConnectionPool = connection_from_url(target.url, timeout=timeout_s, **tls)
        except LocationParseError:
            raise LiveError(f"server {target.url!r} is not an address; it must be such as http://host:port") from None

    def get(self, *path: str, query: Query | None = None) -> Any:
        """What is there."""
        return self._parsed(self._request("GET", path, query))

    def patch(self, *path: str, body: Any) -> Any:
        """Asks for a change."""
        return self._parsed(self._request("PATCH", path, None, body))

    def post(self, *path: str, body: Any = None, key: str | None = None, query: Query | None = None) -> Any:
        """Asks for something to be done; with a key it is sent again when the connection breaks, and done once."""
        return self._parsed(self._request("POST", path, query, body, key))

    def put(self, *path: str, body: Any) -> Any:
        """Sets something."""
        return self._parsed(self._request("PUT", path, body=body))

    def delete(self, *path: str) -> Any:
        """Removes something."""
        return self._parsed(self._request("DELETE", path))

    def read(self, *path: str, query: Query | None = None) -> tuple[bytes, Mapping[str, str]]:
        """The body and the headers of an answer as they are."""
        answer = self._request("GET", path, query)
        return answer.data, answer.headers

    def stream(self, *path: str, query: Query | None = None) -> Iterator[bytes]:
        """An answer in pieces, as they come; `BrokenError` when it ends before its end."""
        return self._pieces(self._request("GET", path, query, stream=True))

    def _pieces(self, answer: BaseHTTPResponse) -> Iterator[bytes]:
        try:
            while piece := answer.read1(1 << 16):
                yield piece
        except HTTPError as error:
            raise self._failure(error) from None
        finally:
            answer.close()

    def _request(
        self, method: str, path: Sequence[str], query: Query | None = None, body: Any = None, key: str | None = None,
        stream: bool = False,
    ) -> BaseHTTPResponse:  # fmt: skip
        """Sends a request, and sends it again where that does no harm: GET, and POST with a key."""
        resource = "/v1/" + "/".join(quote(part, safe="") for part in path)
        url = urlsplit(self.target.url).path + resource + _search(query)
        payload = None if body is None else json.dumps(body).encode()
        harmless = (method == "GET" and not stream) or key is not None
        retries: Retry = _Retry(self._retries if harmless else 0, backoff_factor=BACKOFF_S, raise_on_status=False)
        try:
            while True:
                answer = self._pool.urlopen(
                    method, url, payload, self._headers(body is not None, key), retries, redirect=False,
                    preload_content=not stream,
                )  # fmt: skip
                if stream or not _is_cut_off(answer):
                    break
                retries = (answer.retries or retries).increment(method, url, error=CUT_OFF)
                retries.sleep()
            if not 200 <= answer.status < 300:
                raise refusal(self.target, resource, answer.status, answer.headers, answer.data)
        except HTTPError as error:
            raise self._failure(error, is_safe=method == "GET") from None
        return answer

    def _headers(self, has_body: bool, key: str | None) -> dict[str, str]:
        # A connection per request: on one that is kept alive, a POST may meet a server that is just closing it.
        headers = {
            "Authorization": f"Bearer {self.target.token}", "Accept": "application/json", "Connection": "close"
        }  # fmt: skip
        if has_body:
            headers["Content-Type"] = "application/json"
        return headers if key is None else {**headers, "Idempotency-Key": key}

    def _parsed(self, answer: BaseHTTPResponse) -> Any:
        if not answer.data:
            return None
        try:
            reply = json.loads(answer.data, object_hook=Reply)
        except ValueError:
            reply = None
        if not isinstance(reply, Reply):
            raise LiveError(f"{self.target.url} does not answer as a gpuwise server does; is it one?")
        return reply

    def _tls(self) -> ssl.SSLContext:
        ca = self.target.ca_file
        try:
            return ssl.create_default_context(cafile=ca)
        except (OSError, ssl.SSLError) as error:
            raise LiveError(f"GPUWISE_CA: {ca}: {error.strerror or error}; it must be a PEM file") from None

    def _failure(self, error: HTTPError, is_safe: bool = True) -> LiveError:
        return failure(error, self.target.url, f"within {self._timeout_s:g} s", is_safe)


class _Retry(Retry):
    """Retries when a connection breaks or the server says later; after that also while the server is away."""

    RETRY_AFTER_STATUS_CODES = frozenset((429, 503))

    def __init__(self, total: Any, **settings: Any) -> None:
        super().__init__(total, **{"status_forcelist": (429, 503), "allowed_methods": None, **settings})

    def increment(self, *args: Any, **named: Any) -> Self:
        """One try less; what would fail again is raised at once."""
        error = named.get("error")
        if error is not None and not isinstance(failure(error), UnreachableError if self.history else BrokenError):
            raise error
        return super().increment(*args, **named)

    def parse_retry_after(self, retry_after: str) -> float:
        """How long to wait."""
        try:
            return min(super().parse_retry_after(retry_after), LONGEST_PAUSE_S)
        except InvalidHeader:
            return LONGEST_PAUSE_S


CUT_OFF = ProtocolError("The headers are cut off.", IncompleteRead(b""))


def _is_cut_off(answer: BaseHTTPResponse) -> bool:
    """Whether a connection broke before the end of the headers, which urllib3 takes for an empty answer."""
    return not answer.data and answer.status != 204 and "Content-Length" not in answer.headers


def failure(error: Exception, url: str = "", in_time: str = "", is_safe: bool = True) -> LiveError:
    """What went wrong on the way to the server, in words."""
    cause = _cause(error)
    match cause:
        case ConnectionRefusedError():
            return UnreachableError(f"no server answers at {url}; {START_IT}")
        case socket.gaierror():
            return UnreachableError(f"{url}: the host is not known ({cause.strerror})")
        case ssl.SSLCertVerificationError():
            hint = "name the file of the authority that signed it in GPUWISE_CA"
            return UnreachableError(f"{url}: its certificate is not trusted ({cause.verify_message}); {hint}")
        case NoAnswerError() | TimeoutError():
            return BrokenError(f"{url} did not answer {in_time}; is it overloaded?")
        case ConnectionError() | ssl.SSLEOFError() | IncompleteRead():
            unsure = "" if is_safe else "; look with gpuwise queue whether it was done"
            return BrokenError(f"the connection to {url} broke{unsure}")
        case ssl.SSLError():
            return UnreachableError(f"{url} does not speak TLS as it should ({cause.reason})")
        case OSError():
            return UnreachableError(f"{url}: {cause.strerror or cause}")
        case _:
            return LiveError(f"{url} does not answer as a web server does ({type(cause).__name__})")


def _cause(error: Exception) -> BaseException:
    """What the socket, TLS or http.client raised, which urllib3 wraps; its own error for a time-out."""
    if isinstance(error, MaxRetryError) and error.reason is not None:
        error = error.reason
    if isinstance(error, NewConnectionError):
        return error.__cause__ or error
    wrapped = [each for each in error.args if isinstance(each, Exception)]
    return wrapped[-1] if wrapped and not isinstance(error, NoAnswerError) else error


def _search(query: Query | None) -> str:
    given = {name: _word(value) for name, value in (query or {}).items() if value not in (None, "", ())}
    return "?" + urlencode(given, doseq=True) if given else ""


def _word(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
