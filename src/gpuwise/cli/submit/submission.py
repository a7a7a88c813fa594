"""Sends jobs to the server, all of them or none, and waits for them if asked to."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from gpuwise.cli.client.errors import LiveError
from gpuwise.cli.client.http import Client, Reconnect
from gpuwise.cli.live.logs import follow_log
from gpuwise.cli.live.wait import detached_on_interrupt, finish
from gpuwise.cli.show.jobs import Job, array_of, resolved, run_time, short_name
from gpuwise.cli.show.tables import Output, Row, is_for_people, listing, print_facts, printable, show
from gpuwise.cli.show.times import moment
from gpuwise.cli.submit.draft import Draft
from gpuwise.core.job.dependency import Dependency

FORECAST = ("job", "start", "finish", "where", "run time", "ahead", "why")


class Submission:
    """Some jobs on their way to the server."""

    def __init__(
        self, reconnect: Reconnect, drafts: Sequence[Draft], output: Output | None = None, terminal: str = ""
    ) -> None:
        self._drafts = drafts
        self._bodies = [draft.body() for draft in drafts]  # all are right before the first is sent
        for note in dict.fromkeys(filter(None, (draft.environment.note for draft in drafts))):
            print(f"gpuwise: {printable(note)}", file=sys.stderr)
        self._reconnect = reconnect
        self._client = reconnect()
        self._output = output
        for body, draft in zip(self._bodies, drafts, strict=True):
            body |= _predicted(body, draft.training, self._client)
            if terminal:
                body["terminal"] = terminal

    def send(self) -> list[str]:
        """Submits the jobs and prints their ids; an array has one."""
        sent = self.post()
        self._print(sent)
        return list(sent)

    def post(self) -> dict[str, list[Job]]:
        """Submits the jobs, all or none; they by their ids, an array's tasks by its own."""
        sent: dict[str, list[Job]] = {}
        ids: dict[str, str] = {}
        for draft, body in zip(self._drafts, self._bodies, strict=True):
            after = [*self._after(body.get("after", ())), *_of_file(draft.after, ids)]
            try:
                jobs = self._client.post("jobs", body={**body, "after": after}, key=uuid4().hex)["jobs"]
            except (LiveError, KeyboardInterrupt):
                self._cancel(list(sent))
                raise
            uid = array_of(jobs[0])
            ids[draft.name], sent[uid] = uid, jobs
        return sent

    def _after(self, wanted: Sequence[str]) -> list[str]:
        """What a job waits for, by ids; names of jobs are looked up."""
        jobs = [(each, Dependency.parse(each).name) for each in wanted]
        return [each.removesuffix(name) + resolved(self._client, [name])[0] for each, name in jobs]

    def send_and_wait(self) -> None:
        """Submits the jobs and waits until they have ended; exits with their code."""
        finish(self._reconnect, self.send())

    def send_and_follow(self) -> None:
        """Submits a job, shows its log and waits until it has ended; exits with its code."""
        if len(self._drafts) > 1 or "array" in self._bodies[0]:
            raise LiveError("--follow shows the log of one job; use --wait for several")
        ids = self.send()
        with detached_on_interrupt(ids):
            follow_log(self._reconnect, ids[0])
        finish(self._reconnect, ids, announce=False)

    def show_forecast(self) -> None:
        """Shows when and where the jobs would run if they were submitted now."""
        rows = [
            {"job": draft.name or str(number), **self._client.post("jobs", body=body, query={"dry_run": True})}
            for number, (draft, body) in enumerate(zip(self._drafts, self._bodies, strict=True), 1)
        ]
        if len(rows) == 1 and is_for_people(self._output):
            print_facts(_forecast(rows[0]))
        else:
            listing(rows, self._output, _forecast, FORECAST, drop=("ahead", "run time", "why"))

    def _cancel(self, ids: Sequence[str]) -> None:
        """Cancels what was submitted before one of the jobs was refused, so that the file can be submitted again."""
        for uid in ids:
            try:
                self._client.post("jobs", uid, "cancel")
            except LiveError as error:
                print(f"gpuwise: job {uid} was submitted and could not be cancelled: {error}", file=sys.stderr)
            else:
                print(f"gpuwise: job {uid} was submitted and is cancelled again", file=sys.stderr)

    def _print(self, sent: Mapping[str, Sequence[Job]]) -> None:
        if self._output is not None:
            show([job for jobs in sent.values() for job in jobs], self._output)
            return
        for uid, jobs in sent.items():
            print(_line(uid, jobs) if is_for_people(None) else uid)
        sys.stdout.flush()


def _of_file(after: Sequence[str], ids: Mapping[str, str]) -> list[str]:
    """What a job waits for of its own file, by the ids that those jobs have now."""
    jobs = [(each, Dependency.parse(each).name) for each in after]
    return [each.removesuffix(name) + ids[name] for each, name in jobs]


def _line(uid: str, jobs: Sequence[Job]) -> str:
    name = short_name(jobs[0])
    if jobs[0]["array_index"] is None:
        return f"submitted job {uid} ({name})"
    return f"submitted array {uid} ({name}) of {len(jobs)} task{'s' * (len(jobs) > 1)}"


def _forecast(row: Row) -> dict[str, str]:
    return {
        "job": row["job"],
        "start": moment(row["estimated_start"]) or "not known",
        "finish": moment(row["estimated_finish"]) or "not known",
        "where": row["placement"] or "not known",
        "run time": run_time(row),
        "ahead": f"{row['ahead']} job{'s' * (row['ahead'] != 1)}",
        "why": row["why"],
    }


def _predicted(body: Mapping[str, Any], training: Mapping[str, Any], client: Client) -> dict[str, Any]:
    """What is added to a job's body from the forecast of its model, which is made here: tracing it runs its code."""
    if not training:
        return {}
    from gpuwise.service.offline.predict import known_types, predict

    there = dict.fromkeys(node["gpu_type"] for node in client.get("nodes")["nodes"])
    wanted = [name for name in there if not body.get("gpu_types") or name in body["gpu_types"]]
    types = known_types(wanted)
    for name in wanted:
        if name not in types:
            print(f"gpuwise: no forecast for {name}: its speed is not known", file=sys.stderr)
    if not types:
        return {}
    forecast = predict(gpus=list(types.values()), count=max(1, int(body.get("gpus", 1))), **training)
    shown = forecast.slowest.shown()
    parts = ", ".join(f"{name} {shown[name]}" for name in ("step ms", "utilization %", "memory GiB"))
    print(f"gpuwise: predicted on {forecast.slowest.gpu}: {parts} ({shown['source']})", file=sys.stderr)
    return forecast.for_job(body)
