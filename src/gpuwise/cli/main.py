"""The command ``gpuwise``: all its commands, in the order in which help lists them."""

from __future__ import annotations

import sys

import typer

from gpuwise.cli.commands import Command, add_live, add_live_group, with_options
from gpuwise.cli.live import (
    actions,
    backup,
    cluster,
    events,
    job,
    logs,
    page,
    queue,
    queues,
    tokens,
    top,
    up,
    usage,
    wait,
)
from gpuwise.cli.offline import catalogue, predict, predictors, reproduce, simulate, sweep, traces
from gpuwise.cli.show.tables import printable
from gpuwise.cli.submit import command as submit
from gpuwise.cli.submit import run
from gpuwise.core.errors import GpuwiseError

app = typer.Typer(
    name="gpuwise",
    help="Know what a deep learning job needs before it runs, and find it the best place on shared GPUs.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

OFFLINE: dict[str, Command] = {
    "predict": predict.predict_command,
    "fit": predictors.fit_command,
    "evaluate": predictors.evaluate_command,
    "simulate": simulate.simulate_command,
    "compare": simulate.compare_command,
    "sweep": sweep.sweep_command,
    "policies": catalogue.policies_command,
    "convert": traces.convert_command,
    "formats": catalogue.formats_command,
    "gpus": catalogue.gpus_command,
    "vms": catalogue.vms_command,
    "reproduce": reproduce.reproduce_command,
    "up": up.up_command,
    "backup": backup.backup_command,
    "restore": backup.restore_command,
}
LIVE: dict[str, Command] = {
    "queue": queue.queue_command,
    "show": job.show_command,
    "why": job.why_command,
    "logs": logs.logs_command,
    "wait": wait.wait_command,
    "cancel": actions.cancel_command,
    "suspend": actions.suspend_command,
    "resume": actions.resume_command,
    "hold": actions.hold_command,
    "release": actions.release_command,
    "requeue": actions.requeue_command,
    "update": actions.update_command,
    "resize": actions.resize_command,
    "top": top.top_command,
    "usage": usage.usage_command,
    "page": page.page_command,
    "status": cluster.status_command,
    "events": events.events_command,
    "audit": tokens.audit_command,
}
"""Commands that speak to a running service."""
GROUPS: dict[str, tuple[Command, dict[str, Command]]] = {
    "nodes": (cluster.nodes_command, {"drain": cluster.drain_command, "undrain": cluster.undrain_command}),
    "queues": (queues.queues_command, {"set": queues.set_command, "delete": queues.delete_command}),
    "tokens": (
        tokens.tokens_command,
        {
            "list": tokens.list_command,
            "create": tokens.create_command,
            "rotate": tokens.rotate_command,
            "revoke": tokens.revoke_command,
        },
    ),
}
"""Those of them that have commands of their own."""


def add_live_commands(app: typer.Typer) -> None:
    """Adds the commands that speak to a running service."""
    add_live(app, "submit", submit.submit_command, submit.SubmitCommand)
    add_live(app, "run", run.run_command, submit.SubmitCommand)
    for name, command in LIVE.items():
        add_live(app, name, command)
    for name, (command, below) in GROUPS.items():
        add_live_group(app, name, command, below)


for _name, _command in OFFLINE.items():
    app.command(_name)(with_options(_command))
add_live_commands(app)


def _version(wanted: bool) -> None:
    if wanted:
        from gpuwise.core import __version__

        print(f"gpuwise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Know what a deep learning job needs before it runs, and find it the best place on shared GPUs."""


def main() -> None:
    """Runs the command line; an error that the user can fix is shown in one line, with exit code 2."""
    try:
        app()
    except GpuwiseError as error:
        print("gpuwise: " + printable("; ".join(str(error).splitlines())), file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        print("gpuwise: " + printable(f"{error.filename or 'a file'}: {error.strerror or error}"), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("gpuwise: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
