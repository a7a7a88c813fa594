"""``gpuwise up``: the service on this machine."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwise.cli.live.completion import complete_policies


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(up)


def up(
    state: Annotated[
        Path | None, typer.Option(help="Folder for all state; $GPUWISE_STATE, else ~/.local/state/gpuwise.")
    ] = None,
    policy: Annotated[
        str, typer.Option(help="Who goes first; see gpuwise policies.", autocompletion=complete_policies)
    ] = "fifo-backfill",
    placement: Annotated[str | None, typer.Option(help="Where jobs are put; see gpuwise policies.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; beyond this machine only with TLS.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is any.")] = 8787,
    devices: Annotated[
        int | None, typer.Option(min=1, max=64, help="So many CPU stand-ins in place of this machine's GPUs.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Label of this machine for --require and --within; may be repeated."),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(envvar="GPUWISE_DATABASE", show_envvar=False, help="PostgreSQL URL; better in $GPUWISE_DATABASE."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="TLS certificate, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None,
    mps: Annotated[bool, typer.Option("--mps", help="Let jobs that share a GPU do so through NVIDIA MPS.")] = False,
    round_s: Annotated[float | None, typer.Option("--round", help="Decide only every so many seconds.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of policies that draw lots.")] = 0,
    keep_days: Annotated[float, typer.Option(min=0, help="How long ended jobs and their logs are kept.")] = 30.0,
    jobs_per_user: Annotated[int, typer.Option(min=1, help="Jobs a user may have that have not ended.")] = 50_000,
    demo: Annotated[bool, typer.Option("--demo", help="Run a dozen small training jobs, to see it at work.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")] = False,
) -> None:
    """Run the service on this machine: controller, REST API and page, until Ctrl-C; jobs outlive it."""
    from gpuwise.api.server import Listening, serve
    from gpuwise.cli.live.demo import Demo, demo_settings
    from gpuwise.cli.submit.readers import read_node_labels
    from gpuwise.service.live.state_folder import default_state_folder
    from gpuwise.service.live.up import LocalDeployment, Settings

    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO if verbose else logging.WARNING, format="gpuwise: %(message)s"
    )
    listening = Listening(host=host, port=port, certificate=tls_cert, key=tls_key)
    chosen: dict[str, Any] = {
        "state": state or default_state_folder(), "policy": policy, "placement": placement, "devices": devices,
        "labels": read_node_labels(label or []), "database": database, "mps": mps, "seed": seed, "round_s": round_s,
        "keep_days": keep_days, "jobs_per_user": jobs_per_user,
    }  # fmt: skip
    if demo:
        chosen = demo_settings(chosen, own_state=state is None)
    deployment = LocalDeployment(Settings(**chosen))
    _collect_garbage_seldom()
    show = Demo(deployment) if demo else None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the server hands it on when it has ended
    try:
        serve(deployment.service, listening, lambda url: _announce(deployment, url, show))
    finally:
        if show is not None:
            show.end()
        deployment.close()


def _collect_garbage_seldom() -> None:
    """Leaves out what is there for good: looking through it all stopped every request for 0.1 s every few seconds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


def _announce(deployment: Any, url: str, show: Any) -> None:
    deployment.folder.announce(url)
    nodes = deployment.machine.nodes
    what = " + ".join(f"{node.gpus} × {node.gpu_type}" for node in nodes)
    print(f"gpuwise is up at {url}  ({what}; policy {deployment.settings.policy})")
    for note in deployment.machine.notes:
        print(f"  note: {note}")
    if sys.stdout.isatty() or show is not None:  # elsewhere it would end up in somebody's log
        print(f"  page: {url}/login?token={deployment.token}")
    print(f"  state: {deployment.folder.path}")
    if show is None:
        print("  next: gpuwise submit --duration 5m -- python train.py   then   gpuwise queue")
    print("  Ctrl-C ends it", flush=True)
    if show is not None:
        show.begin()
