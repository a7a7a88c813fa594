"""``events``: what happened to jobs and nodes, and what happens now."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.client.errors import BrokenError
from gpuwise.cli.options import OutputOption, Server
from gpuwise.cli.show.tables import Output, is_for_people, listing, printable
from gpuwise.cli.show.times import local, moment

if TYPE_CHECKING:
    from gpuwise.cli.client.http import Client, Reconnect

PAGE = 1000
FIELDS = ("seq", "at", "kind", "job", "text")
Event = dict[str, Any]


def events_command(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Continue until Ctrl-C.")] = False,
    after: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="Events after this number; 0 is from the beginning.")
    ] = None,
    *,
    server: Server,
    output: OutputOption = None,
) -> None:
    """List events of jobs and nodes. Only the latest, unless --after is given."""
    if follow:
        print_event = _printer(output)
        for event in followed(server.connect, after):
            print_event(event)
    else:
        events = list(_listed(server.connect(), after))
        listing(events, output, _as_shown, ("seq", "when", "job", "what"), nothing="nothing has happened")


def _listed(client: Client, after: int | None) -> Iterator[Event]:
    """All events, page by page; a page may be empty for this user and not be the last."""
    while True:
        page = client.get("events", query={"after": after, "follow": False, "limit": PAGE})
        yield from page["events"]
        if after is None or page["last"] - after < PAGE:
            return
        after = page["last"]


def followed(reconnect: Reconnect, after: int | None) -> Iterator[Event]:
    """Events as they happen, without end; a server that restarts is waited for."""
    from gpuwise.cli.client.http import PAUSE_S, ask_until_back

    stream = reconnect().stream("events", query={"after": after})
    while True:
        try:
            for event in parse_events(stream):
                after = event["seq"]
                yield event
        except BrokenError:
            time.sleep(PAUSE_S)
        seen = after
        stream = ask_until_back(reconnect, lambda client: client.stream("events", query={"after": seen}))  # noqa: B023


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
    return {
        "seq": event["seq"],
        "when": moment(event["at"]),
        "kind": event["kind"],
        "job": event["job"],
        "what": event["text"],
    }


def _printer(output: Output | None) -> Callable[[Event], None]:
    """What prints an event: a line for people, a line of JSON or CSV for programs."""

    def line(event: Event) -> str:
        return f"{local(event['at'])}  {'job ' + event['job'] + ' ' if event['job'] else ''}{printable(event['text'])}"

    if output is Output.JSON:
        return lambda event: print(json.dumps(event), flush=True)
    if is_for_people(output):
        return lambda event: print(line(event), flush=True)
    return _CsvPrinter()


class _CsvPrinter:
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
