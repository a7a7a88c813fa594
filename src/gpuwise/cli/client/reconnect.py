"""Staying with jobs while the server is away: jobs go on without it, and it comes back."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from gpuwise.cli.client.errors import UnreachableError
from gpuwise.cli.client.http import Client

PATIENCE_S = 120.0
"""How long the server may be away."""
PAUSE_S = 0.5

Reconnect = Callable[[], Client]
T = TypeVar("T")


def patiently(reconnect: Reconnect, ask: Callable[[Client], T]) -> T:
    """Asks a server that has answered before, again and again while it is away; it may come back at another address."""
    gives_up: float | None = None
    while True:
        try:
            return ask(reconnect())
        except UnreachableError as error:
            if gives_up is None:
                gives_up = time.monotonic() + PATIENCE_S
                told = str(error).partition(";")[0]
                print(f"gpuwise: {told}; jobs go on without it, and so do I when it is back", file=sys.stderr)
            if time.monotonic() > gives_up:
                raise
            time.sleep(PAUSE_S)
