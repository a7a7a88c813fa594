"""``events``: what has happened, and what happens."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.client.errors import BrokenError
from gpuwise.cli.live import options
from gpuwise.cli.live.options import OutputOption, ServerOption, StateOption
from gpuwise.cli.show.output import Output

if TYPE_CHECKING:
    from gpuwise.cli.client.http import Client
    from gpuwise.cli.client.http import Reconnect

PAGE = 1000
FIELDS = ("seq", "at", "kind", "job", "text")
Event = dict[str, Any]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    options.add(app, "events", events_command)


def events_command(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until Ctrl-C.")] = False,
    after: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="What came after this number; 0 is from the beginning.")
    ] = None,
    server: ServerOption = None,
    state: StateOption = None,
    output: OutputOption = None,
) -> None:
    """Tell what happened to jobs and nodes. Begins a little back unless told where."""
    from gpuwise.cli.client.http import connect
    from gpuwise.cli.show.tables import listing

    if follow:
        tell = _teller(output)
        for event in followed(lambda: connect(server, state), after):
            tell(event)
    else:
        happened = list(_listed(connect(server, state), after))
        listing(happened, output, _as_shown, ("seq", "when", "job", "what"), nothing="nothing has happened")


def _listed(client: Client, after: int | None) -> Iterator[Event]:
    """All that has happened, page by page; a page may have nothing for us in it and not be the last."""
    while True:
        page = client.get("events", query={"after": after, "follow": False, "limit": PAGE})
        yield from page["events"]
        if after is None or page["last"] - after < PAGE:
            return
        after = page["last"]


def followed(reconnect: Reconnect, after: int | None) -> Iterator[Event]:
    """What happens, as it happens, without end; a server that goes and comes is waited for."""
    from gpuwise.cli.client.http import PAUSE_S, patiently

    stream = reconnect().stream("events", query={"after": after})
    while True:
        try:
            for event in parse_events(stream):
                after = event["seq"]
                yield event
        except BrokenError:
            time.sleep(PAUSE_S)
        seen = after
        stream = patiently(reconnect, lambda client: client.stream("events", query={"after": seen}))  # noqa: B023


def parse_events(pieces: Iterable[bytes]) -> Iterator[Event]:
    """The data of server-sent events."""
    from gpuwise.cli.client.http import Reply

    rest = b""
    for piece in pieces:
        *blocks, rest = (rest + piece).replace(b"\r\n", b"\n").split(b"\n\n")
        for block in blocks:
            data = b"\n".join(line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:"))
            if data:
                yield json.loads(data, object_hook=Reply)


def _as_shown(event: Any) -> dict[str, Any]:
    from gpuwise.cli.show.times import both

    return {
        "seq": event["seq"],
        "when": both(event["at"]),
        "kind": event["kind"],
        "job": event["job"],
        "what": event["text"],
    }


def _teller(output: Output | None) -> Callable[[Event], None]:
    """Prints events one by one: lines for people, JSON a line or CSV for programs."""
    from gpuwise.cli.show.tables import is_for_people, printable
    from gpuwise.cli.show.times import local

    def line(event: Event) -> str:
        return f"{local(event['at'])}  {'job ' + event['job'] + ' ' if event['job'] else ''}{printable(event['text'])}"

    if output is Output.JSON:
        return lambda event: print(json.dumps(event), flush=True)
    if is_for_people(output):
        return lambda event: print(line(event), flush=True)
    return _CsvTeller()


class _CsvTeller:
    """Prints events as rows, a heading before the first."""

    def __init__(self) -> None:
        self._writer = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n", extrasaction="ignore")
        self._begun = False

    def __call__(self, event: Event) -> None:
        if not self._begun:
            self._writer.writeheader()
            self._begun = True
        self._writer.writerow(event)
        sys.stdout.flush()
