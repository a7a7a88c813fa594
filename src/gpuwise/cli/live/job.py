"""``show`` and ``why``: all that is known of a job, and why it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import time
from typing import TYPE_CHECKING, Any

from gpuwise.cli.live import queue
from gpuwise.cli.options import JobsArgument, OutputOption, Server
from gpuwise.cli.show.jobs import (
    Job,
    array_of,
    as_shown,
    checked_ids,
    command_line,
    existing_jobs,
    guess_mark,
    progress_frac,
    resolved,
    run_time,
    status_word,
    with_estimates,
)
from gpuwise.cli.show.tables import Output, cell, is_for_people, listing, print_facts, printable
from gpuwise.cli.show.times import moment
from gpuwise.core.units import format_bytes, format_duration

if TYPE_CHECKING:
    from gpuwise.cli.client.http import Client

MOST_ASKED = 20
"""Up to this number of jobs are asked about one by one; more are looked up in the queue."""
MOST_NAMED = 10
MORE: Mapping[str, Any] = {"env": {}, "notify": [], "unsent": []}
"""What only an answer about a single job has, and what it is for other users."""
ATTEMPT = ("attempt", "where", "started", "took_s", "outcome", "exit code", "detail")


def show_command(ids: JobsArgument, *, server: Server, output: OutputOption = None) -> None:
    """Show all that is known of a job, or an array's tasks."""
    words, client = checked_ids(ids), server.connect()
    jobs = with_estimates(client, existing_jobs(client, resolved(client, words)))
    if not is_for_people(output):
        listing(_whole(client, jobs), output, dict, ())
    elif len(jobs) == 1:
        _print_job(*_whole(client, jobs))
    else:
        ordered = sorted(jobs, key=lambda job: job["submitted_at"])
        listing(ordered, output, as_shown, queue.COLUMNS, drop=queue.DROP, title=queue.title_of(jobs))


def _whole(client: Client, jobs: Sequence[Job]) -> list[Job]:
    """Jobs with their launches, variables and notifications, which other users are not shown."""
    found, more = list[Job](), dict[str, Any]()  # tasks of an array have the same
    for job in jobs:
        if not job.get("details", True):
            found.append({**job, **MORE, "launches": []})
            continue
        if array_of(job) not in more:
            details = client.get("jobs", job["id"])
            more[array_of(job)] = {name: details.get(name, none) for name, none in MORE.items()}
        launches = client.get("jobs", job["id"], "attempts")["attempts"]
        found.append({**job, **more[array_of(job)], "launches": launches})
    return found


def why_command(ids: JobsArgument, *, server: Server, output: OutputOption = None) -> None:
    """Say why a job waits, or how it ended."""
    words, client = checked_ids(ids), server.connect()
    jobs = existing_jobs(client, resolved(client, words))
    if len(jobs) <= MOST_ASKED:
        rows = [client.get("jobs", job["id"], "why") for job in jobs]
    else:
        rows = [_as_in_queue(job) for job in with_estimates(client, jobs)]
    if output in (Output.JSON, Output.CSV):
        listing(rows, output, dict, ())
        return
    for row in rows:
        place = f" (position {row['position']} in the queue)" if row["position"] else ""
        print(f"job {row['id']} {printable(row['why'])}{place}")
        for line in _gpu_users(row.get("gpu_users", ())):
            print(f"  {printable(line)}")


def _gpu_users(users: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which jobs have the GPUs that a job waits for, and until when."""
    lines = []
    for each in users[:MOST_NAMED]:
        gpus = f"{each['gpus']:g} GPU{'s' * (each['gpus'] != 1)}"
        ends = f"until {moment(each['estimated_finish'])}" if each["estimated_finish"] else "until it ends"
        guess = ", a guess" if each["is_guess"] and each["estimated_finish"] else ""
        lines.append(f"job {each['id']} of {each['user']} has {gpus} ({each['placement']}) {ends}{guess}")
    return lines + ([f"and {len(users) - MOST_NAMED} more jobs"] if len(users) > MOST_NAMED else [])


def _as_in_queue(job: Job) -> dict[str, Any]:
    why = job.get("why") or job["why_ended"] or f"does not wait: it is {job['status']}"
    return {"id": job["id"], "status": job["status"], "why": why, "position": job.get("position")}


# -- one job on a page: facts in two columns, then its attempts ----------------------------------------------------


def _print_job(job: Job) -> None:
    """Prints a job for people; what is not known or does not matter is left out."""
    print_facts(_facts(job))
    if job["launches"]:
        listing(job["launches"], Output.TABLE, _attempt, ATTEMPT, drop=("detail", "exit code"))


def _facts(job: Job) -> dict[str, str]:
    return {
        "job": f"{job['id']} {job['name']}".strip(),
        "status": _status(job),
        "command": command_line(job),
        "folder": job["workdir"] or ("its own" if job.get("details", True) else ""),
        "environment": _environment(job.get("env", {})),
        "notifies": ", ".join(job.get("notify", ())),
        "not notified": "; ".join(map(_unsent, job.get("unsent", ()))),
        "user, queue": f"{job['user']}, {job['queue']}",
        "needs": _needs(job),
        "requested": _asked(job),
        "priority": str(job["priority"] or ""),
        "after": ", ".join(job["after"]),
        "where": job["placement"],
        "progress": _progress(job),
        "submitted": moment(job["submitted_at"]),
        "started": moment(job["started_at"]),
        "ended": moment(job["ended_at"]),
        "estimated start": moment(None if job["started_at"] else job.get("estimated_start")),
        "estimated end": moment(None if job["ended_at"] else job.get("estimated_finish")) + guess_mark(job),
        "deadline": moment(job["deadline_s"]),
        "not before": moment(job.get("begin_s")),
        "time limit": format_duration(job["time_limit_s"]) if job.get("time_limit_s") else "",
        "run time": run_time(job),
        "memory": _memory(job),
        "utilization": _utilization(job),
        "GPU time": format_duration(job["gpu_s"]) if job["gpu_s"] else "",
        "peak memory": format_bytes(job["peak_memory_bytes"]) if job["peak_memory_bytes"] else "",
        "preempted": _times(job["preemptions"]),
        "failures": _times(job["failures"]),
        "out of memory": _times(job["out_of_memory"]),
    }


def _environment(env: Mapping[str, str]) -> str:
    """The first variables in the order of their names; a submitter's whole environment would fill the terminal."""
    shown = " ".join(f"{name}={env[name]}" for name in sorted(env)[:MOST_NAMED])
    return shown + (f" and {len(env) - MOST_NAMED} more (-o json lists all)" if len(env) > MOST_NAMED else "")


def _status(job: Job) -> str:
    why = job["why_ended"] or job.get("why")
    return status_word(job) + (f": {why}" if why else "")


def _needs(job: Job) -> str:
    share = f"{100 * job['gpu_frac']:g} % of " if job["gpu_frac"] < 1 else ""
    memory = f", {format_bytes(job['gpu_memory_bytes'])} on each" if job["gpu_memory_bytes"] else ""
    return f"{share}{job['gpus']} GPU{'s' * (job['gpus'] != 1)}{memory}"


_SHOWN = ("gpus", "gpu_frac", "priority", "gpu_memory", "gpu_util", "speeds")
"""What of a job's needs has a line of its own, or is not for people; names begin with these."""


def _asked(job: Job) -> str:
    needs = {name: value for name, value in job.get("needs", {}).items() if not name.startswith(_SHOWN)}
    return printable("; ".join(f"{name} {_words(value)}" for name, value in needs.items()))


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_words(each)}" for key, each in value.items())
    return ",".join(map(_words, value)) if isinstance(value, list) else f"{value}"


def _memory(job: Job) -> str:
    """What is forecast of its memory, where that is more than one declared number."""
    low, high = job.get("gpu_memory_low_bytes"), job.get("gpu_memory_high_bytes")
    if low is None or high is None:
        return ""
    between = f"{format_bytes(low)} to {format_bytes(high)}"
    return f"{format_bytes(job['gpu_memory_bytes'])} on each GPU ({between}), {job['gpu_memory_source']}"


def _utilization(job: Job) -> str:
    value, low, high = (job.get(f"gpu_util{part}_frac") for part in ("", "_low", "_high"))
    if value is None:
        return ""
    between = "" if low is None or high is None else f" ({100 * low:.0f} to {100 * high:.0f} %)"
    return f"{100 * value:.0f} % of its GPUs{between}, {job['gpu_util_source']}"


def _progress(job: Job) -> str:
    if job["step"] is None:
        return ""
    part = progress_frac(job)
    of = f" of {job['steps']:,.0f} ({100 * part:.0f} %)" if part is not None else ""
    loss = f", loss {job['loss']:.4g}" if job["loss"] is not None else ""
    speed = f", {cell('speed', job['samples_per_s'])} samples/s" if job["samples_per_s"] is not None else ""
    return f"step {job['step']:,.0f}{of}{loss}{speed}"


def _unsent(notification: Mapping[str, Any]) -> str:
    """A notification that was not sent, and what happens to it."""
    tries, next_at = notification["tries"], notification["next_at"]
    outcome = "given up" if next_at is None else f"again {moment(next_at)}" if tries else "not tried yet"
    error = f"{notification['error']}; tried {_times(tries)}, " if tries else ""
    return printable(f"{notification['address']} ({error}{outcome})")


def _times(count: int) -> str:
    return "" if not count else "once" if count == 1 else f"{count} times"


def _attempt(attempt: Mapping[str, Any]) -> dict[str, Any]:
    ended = time() if attempt["ended_at"] is None else attempt["ended_at"]
    return {
        "attempt": attempt["number"],
        "where": attempt["placement"],
        "started": moment(attempt["started_at"]),
        "took_s": ended - attempt["started_at"],
        "outcome": attempt["outcome"] or "runs",
        "exit code": attempt["exit_code"],
        "detail": attempt["detail"],
    }
