"""``submit``: a job file or a command becomes jobs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwise.cli.live import options
from gpuwise.cli.live.complete import complete_queues
from gpuwise.cli.live.options import OutputOption, ServerOption, StateOption, Verb
from gpuwise.core.errors import GpuwiseError

if TYPE_CHECKING:
    from gpuwise.cli.live.draft import Draft

SUFFIX = ".toml"


class SubmitVerb(Verb):
    """Options may follow a job file; what follows a command's first word is the command's own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads options and words."""
        given = list(args)
        ctx.allow_interspersed_args = False
        rest = super().parse_args(ctx, args)
        words = ctx.params.get("words") or []
        if len(words) > 1 and words[0].endswith(SUFFIX):
            ctx.allow_interspersed_args = True
            rest = super().parse_args(ctx, given)
        return rest


def register(app: typer.Typer) -> None:
    """Adds the command."""
    options.add(app, "submit", submit_command, cls=SubmitVerb)


def submit_command(
    words: Annotated[
        list[str],
        typer.Argument(metavar="FILE.toml | [--] COMMAND...", help="A job file, or a program and its arguments."),
    ],
    name: Annotated[str | None, typer.Option(help="What the job is called.")] = None,
    queue: Annotated[
        str | None, typer.Option(help="The queue it counts against.", autocompletion=complete_queues)
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(metavar="N", help="GPUs, all at once; 1-4 starts on 1 and may be resized up to 4.")
    ] = None,
    gpu_frac: Annotated[str | None, typer.Option(metavar="PART", help="Part of one GPU, such as 0.5.")] = None,
    gpu_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory it needs on each GPU, such as 4GiB.")
    ] = None,
    gpu_type: Annotated[
        str | None, typer.Option(metavar="TYPES", help="GPU types it may run on, such as A100,V100.")
    ] = None,
    sharing: Annotated[
        str | None, typer.Option(metavar="MODES", help="How it may hold a GPU: exclusive, time-slice, shared, mig.")
    ] = None,
    cpus: Annotated[str | None, typer.Option(metavar="N", help="CPUs of the whole job.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of the whole job, such as 16GiB.")] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it will run, such as 2h; else from earlier runs.")
    ] = None,
    steps: Annotated[str | None, typer.Option(metavar="N", help="Training steps in all.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="What it trains, for a forecast; as for gpuwise predict.")
    ] = None,
    batch: Annotated[str | None, typer.Option(metavar="N", help="Samples in a step on each GPU.")] = None,
    precision: Annotated[str | None, typer.Option(metavar="KIND", help="fp32, tf32, fp16 or bf16.")] = None,
    optimizer: Annotated[str | None, typer.Option(metavar="KIND", help="sgd, momentum or adam.")] = None,
    image: Annotated[str | None, typer.Option(metavar="PIXELS", help="Height and width of images.")] = None,
    sequence: Annotated[str | None, typer.Option(metavar="TOKENS", help="Length of sequences.")] = None,
    priority: Annotated[
        str | None, typer.Option(metavar="N", help="Higher goes first, where the policy looks at it.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="WHEN", help="When it should have ended: 2030-01-31T18:00, or +6h.")
    ] = None,
    retries: Annotated[
        str | None, typer.Option(metavar="N", help="How often it is started again after it failed.")
    ] = None,
    after: Annotated[str | None, typer.Option(metavar="ID,ID", help="Jobs that must have succeeded before.")] = None,
    array: Annotated[
        str | None, typer.Option(metavar="INDEXES", help="A task for each of 0-9, 0,3,7, or 10 of them.")
    ] = None,
    workdir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where it runs; the folder you are in. Empty is one of its own.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="KEY[=VALUE]", help="A variable for the job; KEY alone copies yours.")
    ] = None,
    processes: Annotated[str | None, typer.Option(metavar="one|per-gpu", help="One process, or one a GPU.")] = None,
    time_limit: Annotated[str | None, typer.Option(metavar="TIME", help="How long it may hold GPUs in all.")] = None,
    grace: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it has to leave before it is killed.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say when and where it would run, and on what grounds; submit nothing.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it has ended; its exit code is the command's.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Show its log and wait until it has ended.")] = False,
    server: ServerOption = None,
    state: StateOption = None,
    output: OutputOption = None,
) -> None:
    """Submit a job: a job file, or a command and its arguments.

    As in: gpuwise submit --gpus 2 -- python train.py --lr 0.1. What options say counts more than what the file says.
    """
    from gpuwise.cli.live.client import connect
    from gpuwise.cli.live.submission import Submission

    said = {
        "name": name, "queue": queue, "gpus": gpus, "gpu_frac": gpu_frac, "gpu_memory": gpu_memory,
        "gpu_type": gpu_type, "sharing": sharing, "cpus": cpus, "memory": memory, "duration": duration,
        "steps": steps, "model": model, "batch": batch, "precision": precision, "optimizer": optimizer,
        "image": image, "sequence": sequence, "priority": priority, "deadline": deadline, "retries": retries,
        "after": after, "array": array, "workdir": workdir, "env": _environment(env), "processes": processes,
        "time_limit": time_limit, "grace": grace,
    }  # fmt: skip
    drafts = drafts_of(words, {key: value for key, value in said.items() if value is not None})
    submission = Submission(lambda: connect(server, state), drafts, output)
    if dry_run:
        submission.show_forecast()
    elif follow:
        submission.send_and_follow()
    elif wait:
        submission.send_and_wait()
    else:
        submission.send()


def drafts_of(words: list[str], said: dict[str, object]) -> list[Draft]:
    """The jobs that a command line asks for, in the order to submit them."""
    from gpuwise.cli.live.draft import Draft
    from gpuwise.cli.live.jobfile import read_jobfile

    if not words[0].endswith(SUFFIX):
        return [Draft().with_options({"command": words, **said})]
    if len(words) > 1:
        raise GpuwiseError(f"give a job file or a command, not {words[0]} and {words[1]!r}")
    drafts = read_jobfile(Path(words[0]))
    if len(drafts) > 1 and (single := sorted({"name", "after"} & said.keys())):
        raise GpuwiseError(f"--{single[0]} is for one job, and {words[0]} has {len(drafts)}")
    return [draft.with_options(said) for draft in drafts]


def _environment(given: list[str] | None) -> dict[str, str] | None:
    if not given:
        return None
    found: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals and key not in os.environ:
            raise GpuwiseError(f"--env {key}: you have no such variable; write {key}=VALUE")
        found[key] = value if equals else os.environ[key]
    return found
