"""The commands of the live system: submit jobs to a running server, watch and steer them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    from gpuwise.cli.live import actions, cluster, events, logs, queue, queues, show, tokens, top
    from gpuwise.cli.live import wait as waiting
    from gpuwise.cli.submit import command as submit

    for module in (submit, queue, show, logs, waiting, actions, top, cluster, events, queues, tokens):
        module.register(app)
