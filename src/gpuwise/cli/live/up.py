"""``gpuwise up``: the service on this machine."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuwise.cli.options import complete_policies
from gpuwise.core.errors import GpuwiseError

if TYPE_CHECKING:
    from gpuwise.demo.run import Demo
    from gpuwise.service.live.up import LocalDeployment, Settings


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How the service is to run; the names are those of `gpuwise.service.live.up.Settings`."""

    state: Annotated[
        Path | None, typer.Option(help="Folder for all state; $GPUWISE_STATE, else ~/.local/state/gpuwise.")
    ] = None
    policy: Annotated[
        str, typer.Option(help="Which jobs rank higher; see gpuwise policies.", autocompletion=complete_policies)
    ] = "fifo-backfill"
    placement: Annotated[str | None, typer.Option(help="Where jobs are placed; see gpuwise policies.")] = None
    devices: Annotated[
        int | None, typer.Option(min=1, max=64, help="Number of CPU stand-ins in place of this machine's GPUs.")
    ] = None
    gpus: Annotated[
        str | None,
        typer.Option(metavar="0,2", help="GPUs to manage, by index or UUID; else $CUDA_VISIBLE_DEVICES, else all."),
    ] = None
    database: Annotated[
        str | None,
        typer.Option(envvar="GPUWISE_DATABASE", show_envvar=False, help="PostgreSQL URL; better in $GPUWISE_DATABASE."),
    ] = None
    mps: Annotated[bool, typer.Option("--mps", help="Let jobs that share a GPU do so through NVIDIA MPS.")] = False
    round_s: Annotated[
        float | None, typer.Option("--round", metavar="SECONDS", help="Decide only at multiples of this time.")
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of policies that draw random numbers.")] = 0
    keep_days: Annotated[
        float, typer.Option(min=0, help="How long ended jobs, their logs and ended tokens are kept.")
    ] = 30.0
    jobs_per_user: Annotated[int, typer.Option(min=1, help="Jobs a user may have that have not ended.")] = 50_000
    as_user: Annotated[
        str | None,
        typer.Option(
            metavar="ACCOUNT",
            help="Account that jobs run as (for root only); submitter: that of their user.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """Where the service listens, and with what certificate."""

    host: Annotated[str, typer.Option(help="Address to listen on; beyond this machine only with TLS.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is any.")] = 8787
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name that this server is reached by; may be repeated."),
    ] = None
    tls_cert: Annotated[Path | None, typer.Option(help="TLS certificate, PEM.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None


@dataclass(frozen=True, slots=True)
class NotifyOptions:
    """Which addresses users may have notified of the ends of their jobs, and through which server."""

    webhook_hosts: Annotated[
        str,
        typer.Option(
            metavar="HOST,HOST", help="Hosts of webhooks that users may notify; public is all with public addresses."
        ),
    ] = "public"
    smtp: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help="Mail server; user and password: $GPUWISE_SMTP_USER, _PASSWORD."),
    ] = None
    mail_from: Annotated[str | None, typer.Option(metavar="MAILBOX", help="The sender of mail.")] = None


def up_command(
    *,
    service: ServiceOptions,
    listen: ListenOptions,
    notify: NotifyOptions,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Label of this machine for --require and --within; may be repeated."),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Run a dozen small training jobs, to see it at work.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more on stderr.")] = False,
) -> None:
    """Run the service on this machine until Ctrl-C. Controller, REST API and page; jobs outlive it."""
    from gpuwise.api.server import Listening, serve
    from gpuwise.service.live.up import LocalDeployment

    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="gpuwise: %(message)s")
    listening = Listening(
        host=listen.host, port=listen.port, names=frozenset(listen.allow_host or ()), certificate=listen.tls_cert,
        key=listen.tls_key,
    )  # fmt: skip
    if demo and service.as_user is not None:
        raise GpuwiseError("--demo cannot be used with --as-user: the demo's jobs are yours; leave out one of them")
    deployment = LocalDeployment(_settings(service, notify, label or [], demo))
    _collect_garbage_seldom()
    show = _demo(deployment) if demo else None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the server passes it on when it has ended
    try:
        serve(deployment.service, listening, lambda url: _announce(deployment, url, show))
    finally:
        if show is not None:
            show.end()
        deployment.close()


def _settings(service: ServiceOptions, notify: NotifyOptions, labels: list[str], demo: bool) -> Settings:
    from gpuwise.cli.submit.readers import read_chosen_gpus, read_node_labels
    from gpuwise.service.live.notify.settings import NotifySettings, mail_server, webhook_hosts
    from gpuwise.service.live.up import Settings

    given = {each.name: getattr(service, each.name) for each in fields(service)}
    chosen = {name: value for name, value in given.items() if value is not None}
    if service.gpus is not None:
        chosen["gpus"] = read_chosen_gpus(service.gpus)
    chosen["notify"] = NotifySettings(webhook_hosts(notify.webhook_hosts), mail_server(notify.smtp, notify.mail_from))
    settings = Settings(**chosen, labels=read_node_labels(labels))
    if not demo:
        return settings
    from gpuwise.demo.run import demo_settings

    return demo_settings(settings, own_state=service.state is None)


def _demo(deployment: LocalDeployment) -> Demo:
    from gpuwise.demo.run import Demo

    return Demo(deployment)


def _collect_garbage_seldom() -> None:
    """Excludes what is there for good: collecting all of it stopped every request for 0.1 s every few seconds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


def _announce(deployment: LocalDeployment, url: str, show: Demo | None) -> None:
    from gpuwise.cli.live.page import login_link

    deployment.folder.announce(url)
    nodes = deployment.machine.nodes
    what = " + ".join(f"{node.gpus} × {node.gpu_type}" for node in nodes)
    print(f"gpuwise is up at {url}  ({what}; policy {deployment.settings.policy})")
    for note in deployment.machine.notes:
        print(f"  note: {note}")
    if deployment.warning:
        print(f"gpuwise: warning: {deployment.warning}", file=sys.stderr, flush=True)
    if sys.stdout.isatty() or show is not None:  # a link that logs in does not belong in a log
        access = deployment.service.access
        code, _ = access.issue_code(access.by_token(deployment.token))
        print(f"  page: {login_link(url, code)}   (works once; for another: gpuwise page)")
    print(f"  state: {deployment.folder.path}")
    if show is None:
        print("  next: gpuwise submit --duration 5m -- python train.py   then   gpuwise queue")
    print("  Ctrl-C ends it", flush=True)
    if show is not None:
        show.begin()
