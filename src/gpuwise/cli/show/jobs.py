"""Jobs as the server describes them, and as people read them."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuwise.cli.client.errors import LiveError, NoSuchJobError
from gpuwise.cli.show.tables import printable, shortened
from gpuwise.cli.show.times import moment, relative
from gpuwise.core.job.request import NAME_PATTERN
from gpuwise.core.units import format_duration

if TYPE_CHECKING:
    from gpuwise.cli.client.http import Client, Query

Job = Mapping[str, Any]

LIVE = ("running", "starting", "suspending", "suspended", "pending")
ENDED = ("succeeded", "failed", "cancelled")
PAGE = 1000
SOURCES = {
    "declared": "as declared",
    "history": "from earlier runs",
    "predicted": "predicted from its model",
    "observed": "from its steps so far",
    "default": "a guess: it has never run here",
}
"""Where an estimated run time comes from."""
_ID = re.compile(r"(0|[1-9][0-9]{0,17})(-(0|[1-9][0-9]{0,17}))?")
_IDS_AT_ONCE, _IDS_SHOWN = 200, 10
_NAME_WIDTH = 28


def checked_ids(ids: Sequence[str]) -> list[str]:
    """Ids and names, each once; several may be joined by commas."""
    found = list(dict.fromkeys(word for each in ids for word in each.split(",") if word))
    for each in found:
        if not _ID.fullmatch(each) and not re.fullmatch(NAME_PATTERN, each):
            raise LiveError(f"{each!r} is not the id of a job; ids are such as 17, or 17-3 for a task of array 17")
    if not found:
        raise LiveError("give the id of a job, such as 17")
    return found


def resolved(client: Client, words: Sequence[str]) -> list[str]:
    """The ids that words stand for: ids, or names of jobs of one's own; a name of several is an error."""
    return list(dict.fromkeys(each if _ID.fullmatch(each) else _named(client, each) for each in words))


def _named(client: Client, name: str) -> str:
    """The user's own job or array with a name; one that has not ended is meant rather than those that have."""
    own = {"name": name, "user": client.get("status")["user"]}  # administrators see those of others, too
    for statuses in (LIVE, ENDED):
        found = list_jobs(client, {**own, "status": ",".join(statuses)}, PAGE)
        ids = list(dict.fromkeys(array_of(job) for job in found))
        if len(ids) > 1:
            shown = ", ".join(ids[:_IDS_SHOWN]) + (", …" if len(ids) > _IDS_SHOWN else "")
            raise LiveError(f"{len(ids)} jobs are called {name!r}; give the id of one: {shown}")
        if ids:
            return ids[0]
    raise NoSuchJobError(f"you have no job called {name!r}; another user's needs its id")


def list_jobs(client: Client, query: Query, limit: int | None = None) -> list[Job]:
    """Up to ``limit`` jobs, newest first, page by page."""
    found: list[Job] = []
    while limit is None or len(found) < limit:
        size = PAGE if limit is None else min(PAGE, limit - len(found))
        before = found[-1]["id"] if found else None
        page = client.get("jobs", query={**query, "before": before, "limit": size})["jobs"]
        found += page
        if len(page) < size:
            break
    return found


def jobs_with_ids(
    client: Client, ids: Sequence[str], statuses: Sequence[str] = (), limit: int | None = None
) -> list[Job]:
    """The jobs with some ids, or the tasks of the arrays with them."""
    found: list[Job] = []
    for first in range(0, len(ids), _IDS_AT_ONCE):
        some = ",".join(ids[first : first + _IDS_AT_ONCE])
        found += list_jobs(client, {"uids": some, "status": ",".join(statuses)}, limit)
    return found


def existing_jobs(client: Client, ids: Sequence[str]) -> list[Job]:
    """The jobs with some ids, or the tasks of the arrays with them; an error if one of the ids is not known."""
    found = jobs_with_ids(client, ids)
    known = {job["id"] for job in found} | {array_of(job) for job in found}
    for each in ids:
        if each not in known:
            client.get("jobs", each)  # where it says if a record is damaged, which lists leave out
            raise NoSuchJobError(f"there is no job {each!r}")
    return found


def with_estimates(client: Client, jobs: Sequence[Job]) -> list[Job]:
    """Jobs, those that have not ended with the queue's estimates of their start and end, and why they wait."""
    if all(job["status"] in ENDED for job in jobs):
        return list(jobs)
    queued = {job["id"]: job for job in client.get("queue")["jobs"]}
    return [{**job, **queued.get(job["id"], {})} for job in jobs]


def array_of(job: Job) -> str:
    """The id of the array that a job is a task of; a job's own if it is none."""
    return str(job["id"]).partition("-")[0]


def short_name(job: Job) -> str:
    """A job's name, or else its command, short."""
    return shortened(str(job["name"]) or command_line(job), _NAME_WIDTH)


def command_line(job: Job) -> str:
    """A job's command as one would type it."""
    return printable(shlex.join(job["command"]))


def status_word(job: Job) -> str:
    """A job's status in a word or two."""
    if job["status"] == "pending" and "user" in job["held"].split(","):
        return "on hold"
    if job["status"] == "failed" and job["exit_code"]:
        return f"failed ({job['exit_code']})"
    return str(job["status"])


def run_time(job: Job) -> str:
    """The estimate of a job's run time, with its interval and its source."""
    low, high = job.get("duration_low_s"), job.get("duration_high_s")  # a server of the version before has none
    between = "" if low is None or high is None else f" ({format_duration(low)} to {format_duration(high)})"
    source = SOURCES.get(job["duration_source"], job["duration_source"])
    return f"{format_duration(job['duration_s'])}{between}, {source}"


def guess_mark(job: Job) -> str:
    """What is added to the estimated end of a job whose run time is only assumed."""
    guessed = job["duration_source"] == "default" and not job["ended_at"] and job.get("estimated_finish")
    return " (guess)" if guessed else ""


def counts(jobs: Sequence[Job]) -> str:
    """How many jobs there are of each status."""
    found = Counter(job["status"] for job in jobs)
    return ", ".join(f"{found[status]} {status}" for status in (*LIVE, *ENDED) if found[status]) or "no jobs"


def progress_frac(job: Job) -> float | None:
    """How much of its steps a job has done, if it reports them."""
    step, steps = job["step"], job["steps"]
    return min(1.0, step / steps) if step is not None and steps else None


def as_shown(job: Job) -> dict[str, Any]:
    """A job as a row for people."""
    earliest = None if job["ended_at"] else job.get("begin_s")
    gpus = (job.get("held_gpus") or job["gpus"]) * job["gpu_frac"]
    return {
        "id": job["id"],
        "name": short_name(job),
        "user": job["user"],
        "queue": job["queue"],
        "status": status_word(job),
        "gpus": int(gpus) if gpus == int(gpus) else gpus,
        "where": job["placement"],
        "progress_frac": progress_frac(job),
        "loss": job["loss"],
        "start": relative(job["started_at"] or job.get("estimated_start") or earliest),
        "finish": relative(job["ended_at"] or job.get("estimated_finish")) + guess_mark(job),
        "samples/s": job["samples_per_s"],
        "priority": job["priority"],
        "position": job.get("position"),
        "submitted": moment(job["submitted_at"]),
        "run_time_s": job["duration_s"],
        "deadline": moment(job["deadline_s"]),
        "why": job.get("why") or job["why_ended"],
    }
