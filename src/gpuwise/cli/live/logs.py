"""``logs``: what a job prints."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from gpuwise.cli.client.errors import BrokenError, LiveError
from gpuwise.cli.live.wait import detached_on_interrupt
from gpuwise.cli.options import JobArgument, Server
from gpuwise.cli.show.jobs import ENDED, checked_ids, resolved
from gpuwise.cli.show.terminal import output_writer

if TYPE_CHECKING:
    from gpuwise.cli.client.http import Client, Reconnect

PIECE_BYTES = 1 << 20
MOST_BYTES = 8 << 20
"""Where the search for the last lines ends; one line may be longer than that."""


def logs_command(
    job: JobArgument,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Continue until the job has ended.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, metavar="N", help="Start with the last N lines.")] = None,
    *,
    server: Server,
) -> None:
    """Show what a job prints. All its attempts write to one log."""
    words = checked_ids([job])
    if len(words) > 1:
        raise LiveError("one job's log at a time")
    client = server.connect()
    ids = resolved(client, words)
    begin = 0 if tail is None else last_lines(client, ids[0], tail)
    if not follow:
        copy(client, ids[0], begin)
        return
    with detached_on_interrupt(ids):
        follow_log(server.connect, ids[0], begin)


def copy(client: Client, job: str, begin: int = 0) -> None:
    """Writes a log as it is now to the output."""
    write = output_writer()
    while True:
        data, headers = client.read("jobs", job, "logs", query={"offset": begin, "limit": PIECE_BYTES})
        write(data)
        begin += len(data)
        if not data or begin >= int(headers.get("X-Log-Size", 0)):
            return


def last_lines(client: Client, job: str, lines: int) -> int:
    """Where the last ``lines`` lines of a log begin; what is further back than `MOST_BYTES` is left out."""
    piece, headers = client.read("jobs", job, "logs", query={"offset": -PIECE_BYTES, "limit": PIECE_BYTES})
    start = int(headers.get("X-Log-Start", 0))
    end = start + len(piece)
    left = lines + piece.endswith(b"\n")
    while True:
        if left <= 0:
            return end
        breaks = piece.count(b"\n")
        if breaks >= left:
            return start + _nth_last_break(piece, left) + 1
        if start == 0 or end - start >= MOST_BYTES:
            return start
        left -= breaks
        size = min(PIECE_BYTES, start)
        start -= size
        piece, _ = client.read("jobs", job, "logs", query={"offset": start, "limit": size})


def _nth_last_break(piece: bytes, number: int) -> int:
    at = len(piece)
    for _ in range(number):
        at = piece.rindex(b"\n", 0, at)
    return at


def follow_log(reconnect: Reconnect, job: str, begin: int = 0) -> None:
    """Writes a log to the output as it grows, until the job has ended; a server that restarts is waited for."""
    from gpuwise.cli.client.http import PAUSE_S, ask_until_back

    write = output_writer()
    while True:
        query = {"offset": begin, "follow": True}
        stream = ask_until_back(reconnect, lambda client: client.stream("jobs", job, "logs", query=query))  # noqa: B023
        try:
            for piece in stream:
                write(piece)
                begin += len(piece)
        except BrokenError:
            time.sleep(PAUSE_S)
        else:
            if ask_until_back(reconnect, lambda client: client.get("jobs", job))["status"] in ENDED:
                return
