"""Tables that are redrawn on a terminal until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from gpuwise.cli.client.errors import UnreachableError
from gpuwise.cli.show.tables import Row, clean, fitting, table
from gpuwise.cli.show.times import local
from gpuwise.core.errors import GpuwiseError

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")


def watch_table(
    fetch: Callable[[], Sequence[Row]], as_shown: Callable[[Row], Row], columns: Sequence[str], drop: Sequence[str],
    title_of: Callable[[Sequence[Row]], str], every_s: float,
) -> None:  # fmt: skip
    """Shows rows, fetched again every ``every_s`` seconds, until interrupted."""

    def draw(rows: Sequence[Row]) -> RenderableType:
        shown = [clean(as_shown(row)) for row in rows]
        return table(shown, fitting(shown, columns, drop), title_of(rows)) if shown else title_of(rows)

    watch(fetch, draw, every_s)


def watch(fetch: Callable[[], T], draw: Callable[[T], RenderableType], every_s: float) -> None:
    """Fetches and draws until interrupted; while the server is away, what was last seen stays, with a note."""
    if not sys.stdout.isatty():
        raise GpuwiseError("this needs a terminal; for a pipe use -o json or -o csv, without watching")
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    seen = draw(fetch())
    with Live(
        seen, console=Console(highlight=False), auto_refresh=False, screen=True, vertical_overflow="crop"
    ) as live:
        while True:
            note = f"{local(time.time())}, every {every_s:g} s; Ctrl-C ends this"
            try:
                seen = draw(fetch())
            except UnreachableError as error:
                note = f"{local(time.time())}: {error}"
            live.update(Group(seen, Text(note, style="dim")), refresh=True)
            time.sleep(every_s)
