"""Where the server is and which token it gets: options, then the environment, then the state folder."""

from __future__ import annotations

import ipaddress
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gpuwise.cli.client.errors import LiveError, NotPermittedError, UnreachableError
from gpuwise.service.live.state_folder import default_state_folder

START_IT = "start it with: gpuwise up"
_MAX_TOKEN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Target:
    """A server and what is needed to speak to it."""

    url: str
    token: str
    token_from: str
    """Where the token was found, for people."""
    ca_file: Path | None = None

    @property
    def is_secure(self) -> bool:
        """Whether it is spoken to through TLS."""
        return urlsplit(self.url).scheme == "https"


def find_target(server: str | None = None, state: Path | None = None) -> Target:
    """The server to speak to, and its token."""
    folder = state or default_state_folder()
    named = server or (None if state is not None else os.environ.get("GPUWISE_SERVER"))
    url = _checked_url(named) if named else _endpoint(folder)
    token, token_from = _token(folder, url)
    ca = os.environ.get("GPUWISE_CA")
    return Target(url, token, token_from, Path(ca) if ca else None)


def is_loopback(url: str) -> bool:
    """Whether an address never leaves this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise LiveError(f"server {url!r}: {error}; write it as http://127.0.0.1:8787") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise LiveError(f"server {url!r} is not an address; write it as http://127.0.0.1:8787")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise LiveError(f"server {parts.hostname!r}: leave user, password, ? and # out of its address")
    if parts.scheme == "http" and not is_loopback(url):
        raise NotPermittedError(f"{url}: a token is not sent unencrypted over a network; use https, or an SSH tunnel")
    return url.rstrip("/")


def _endpoint(folder: Path) -> str:
    path = folder / "endpoint.json"
    try:
        found = json.loads(path.read_bytes())
        url, pid = str(found["url"]), int(found["pid"])
    except (FileNotFoundError, NotADirectoryError):
        raise UnreachableError(f"no server is running here ({path} is not there); {START_IT}") from None
    except OSError as error:
        raise NotPermittedError(f"{path}: {error.strerror}; is it another user's server?") from None
    except (ValueError, KeyError, TypeError):
        raise UnreachableError(f"{path} is not what a server writes; {START_IT}") from None
    if not _is_alive(pid):
        raise UnreachableError(f"the server of {folder} is not running any more; {START_IT}")
    return _checked_url(url)


def _is_alive(pid: int) -> bool:
    """Whether a process is there: the port of a dead server may be that of another, which must not get the token."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _token(folder: Path, url: str) -> tuple[str, str]:
    if named := os.environ.get("GPUWISE_TOKEN_FILE"):
        return _read_token(Path(named)), named
    if given := os.environ.get("GPUWISE_API_TOKEN"):
        return _checked_token(given, "GPUWISE_API_TOKEN"), "GPUWISE_API_TOKEN"
    if not is_loopback(url):
        raise NotPermittedError(f"no token for {url}; name its file in GPUWISE_TOKEN_FILE")
    return _read_token(folder / "token"), str(folder / "token")


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            text = file.read(_MAX_TOKEN_BYTES + 1)
    except OSError as error:
        hint = "ask the server's owner for a token and name its file in GPUWISE_TOKEN_FILE"
        raise NotPermittedError(f"{path}: {error.strerror}; {hint}") from None
    if mode & 0o077:
        raise NotPermittedError(
            f"{path}: others can read this token (mode {mode:04o}); run: chmod 600 {shlex.quote(str(path))}"
        )
    return _checked_token(text.decode("ascii", "replace"), str(path))


def _checked_token(text: str, token_from: str) -> str:
    token = text.strip()
    if not token or len(token) > _MAX_TOKEN_BYTES or not all("!" <= each <= "~" for each in token):
        raise NotPermittedError(f"{token_from}: not a token; it must be one word of at most {_MAX_TOKEN_BYTES} letters")
    return token
