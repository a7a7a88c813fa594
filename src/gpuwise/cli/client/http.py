"""Speaks to the server: one connection a request, JSON in, JSON out, and streams."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from gpuwise.cli.client.errors import BrokenError, LiveError, UnreachableError
from gpuwise.cli.client.refusals import refusal
from gpuwise.cli.client.target import START_IT, Target, find_target

PAUSES_S = (0.2, 0.5, 1.0)
"""How long to wait before a request is sent again after its connection broke."""
LONGEST_PAUSE_S = 2.0
"""How long to wait at most when the server says later."""

Connection = http.client.HTTPConnection
Answer = tuple[bytes, http.client.HTTPMessage]
"""The body and the headers."""
Query = Mapping[str, str | int | float | bool | Sequence[str] | None]


def connect(server: str | None = None, state: Path | None = None) -> Client:
    """A client of the server that the options, the environment or the state folder name."""
    return Client(find_target(server, state))


class Reply(dict[str, Any]):
    """An object of an answer; it is the server's fault if something is not in it."""

    def __missing__(self, key: str) -> Any:
        raise LiveError(f"the server's answer has no {key!r}; is it a gpuwise server, as new as this command?")


class Client:
    """One server, and what it is asked."""

    def __init__(self, target: Target, timeout_s: float = 30.0, pauses_s: Sequence[float] = PAUSES_S) -> None:
        self.target = target
        self._timeout_s = timeout_s
        self._pauses_s = pauses_s

    def get(self, *path: str, query: Query | None = None) -> Any:
        """What is there; asked again when the connection breaks."""
        return self._parsed(*self._repeat("GET", _path(path, query), None, {}))

    def post(self, *path: str, body: Any = None, key: str | None = None, query: Query | None = None) -> Any:
        """Asks for something to be done; with a key it is sent again when the connection breaks, and done once."""
        if key is None:
            return self._parsed(*self._ask("POST", _path(path, query), body, {}))
        return self._parsed(*self._repeat("POST", _path(path, query), body, {"Idempotency-Key": key}))

    def put(self, *path: str, body: Any) -> Any:
        """Sets something."""
        return self._parsed(*self._ask("PUT", _path(path, None), body, {}))

    def delete(self, *path: str) -> Any:
        """Removes something."""
        return self._parsed(*self._ask("DELETE", _path(path, None), None, {}))

    def read(self, *path: str, query: Query | None = None) -> Answer:
        """What is there as it is, with the headers of the answer."""
        return self._repeat("GET", _path(path, query), None, {})

    def stream(self, *path: str, query: Query | None = None) -> Iterator[bytes]:
        """An answer in pieces, as they come; `BrokenError` when it ends before its end."""
        with self._speaking():
            return self._pieces(*self._send("GET", _path(path, query), None, {}))

    def _pieces(self, connection: Connection, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        try:
            while True:
                with self._speaking():
                    piece = answer.read1(1 << 16)
                if not piece:
                    return
                yield piece
        finally:
            answer.close()
            connection.close()

    # -- one request ----------------------------------------------------------------------------------------------

    def _repeat(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Answer:
        """Asks until there is an answer: again after a break, while the server is away then, and when it says later."""
        broke = False
        for pause_s in (*self._pauses_s, None):
            try:
                return self._ask(method, path, body, headers)
            except LiveError as error:
                broke = broke or isinstance(error, BrokenError)
                again = error.later_s is not None or (broke and isinstance(error, UnreachableError))
                if pause_s is None or not again:
                    raise
                time.sleep(pause_s if error.later_s is None else min(error.later_s, LONGEST_PAUSE_S))
        raise AssertionError("the last round ends above")

    def _ask(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Answer:
        with self._speaking(is_safe=method == "GET"):
            connection, answer = self._send(method, path, body, headers)
            try:
                text = answer.read()
            finally:
                connection.close()
            if not text and answer.status != http.client.NO_CONTENT and "Content-Length" not in answer.headers:
                raise http.client.IncompleteRead(text)
            return text, answer.headers

    def _parsed(self, text: bytes, headers: http.client.HTTPMessage) -> Any:
        if not text:
            return None
        try:
            reply = json.loads(text, object_hook=Reply)
        except ValueError:
            reply = None
        if not isinstance(reply, Reply):
            raise LiveError(f"{self.target.url} does not answer as a gpuwise server does; is it one?")
        return reply

    def _send(
        self, method: str, path: str, body: Any, headers: Mapping[str, str]
    ) -> tuple[Connection, http.client.HTTPResponse]:
        connection = self._connection()
        try:
            prefix = urlsplit(self.target.url).path
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, prefix + path, payload, {**self._headers(body is not None), **headers})
            answer = connection.getresponse()
            if not 200 <= answer.status < 300:
                raise refusal(self.target, path.partition("?")[0], answer.status, answer.headers, answer.read(1 << 20))
        except BaseException:
            connection.close()
            raise
        return connection, answer

    def _headers(self, has_body: bool) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self.target.token}", "Accept": "application/json"}
        return {**headers, "Content-Type": "application/json"} if has_body else headers

    def _connection(self) -> Connection:
        parts = urlsplit(self.target.url)
        host = parts.hostname or ""
        if not self.target.is_secure:
            return http.client.HTTPConnection(host, parts.port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(host, parts.port, timeout=self._timeout_s, context=self._tls())

    def _tls(self) -> ssl.SSLContext:
        ca = self.target.ca_file
        try:
            return ssl.create_default_context(cafile=ca)
        except (OSError, ssl.SSLError) as error:
            raise LiveError(f"GPUWISE_CA: {ca}: {error.strerror or error}; it must be a PEM file") from None

    @contextmanager
    def _speaking(self, is_safe: bool = True) -> Iterator[None]:
        """Turns what goes wrong on the way into words."""
        url = self.target.url
        try:
            yield
        except ConnectionRefusedError:
            raise UnreachableError(f"no server answers at {url}; {START_IT}") from None
        except socket.gaierror as error:
            raise UnreachableError(f"{url}: the host is not known ({error.strerror})") from None
        except ssl.SSLCertVerificationError as error:
            hint = "name the file of the authority that signed it in GPUWISE_CA"
            raise UnreachableError(f"{url}: its certificate is not trusted ({error.verify_message}); {hint}") from None
        except TimeoutError:
            raise BrokenError(f"{url} did not answer within {self._timeout_s:g} s; is it overloaded?") from None
        except (ConnectionError, ssl.SSLEOFError, http.client.IncompleteRead):
            unsure = "" if is_safe else "; look with gpuwise queue whether it was done"
            raise BrokenError(f"the connection to {url} broke{unsure}") from None
        except ssl.SSLError as error:
            raise UnreachableError(f"{url} does not speak TLS as it should ({error.reason})") from None
        except http.client.HTTPException as error:
            raise LiveError(f"{url} does not answer as a web server does ({type(error).__name__})") from None
        except OSError as error:
            raise UnreachableError(f"{url}: {error.strerror or error}") from None


def _path(parts: Sequence[str], query: Query | None) -> str:
    path = "/v1/" + "/".join(quote(part, safe="") for part in parts)
    given = {name: _word(value) for name, value in (query or {}).items() if value not in (None, "", ())}
    return path + ("?" + urlencode(given, doseq=True) if given else "")


def _word(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
