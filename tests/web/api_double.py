"""A server that says what it is told to, in the words of the REST API: for what a real one cannot be brought to say."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Body, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from gpuwise.web.page import mount

Plain = dict[str, Any]
TOKEN = "open sesame"
SESSION = "session-sesame"
ENDED = ("succeeded", "failed", "cancelled")


def a_job(uid: str, **changes: Any) -> Plain:
    """A job as the API shows it, running unless told otherwise."""
    now = time.time()
    job: Plain = {
        "details": True, "id": uid, "name": f"train-{uid}", "user": "ada", "queue": "default", "status": "running",
        "command": ["python", "train.py"], "workdir": "/home/ada", "gpus": 1, "gpu_frac": 1.0, "priority": 0,
        "submitted_at": now - 90, "started_at": now - 60, "ended_at": None, "exit_code": None, "why_ended": "",
        "attempts": 1, "failures": 0, "out_of_memory": 0, "held": "", "placement": "box:0", "duration_s": 300.0,
        "duration_source": "declared", "gpu_memory_bytes": 0.0, "step": 40.0, "steps": 100.0, "loss": 0.5,
        "samples_per_s": 1234.5, "peak_memory_bytes": None, "gpu_s": 60.0, "preemptions": 0, "deadline_s": None,
        "begin_s": None, "time_limit_s": None, "after": [], "array_index": None, "needs": {},
        "duration_low_s": None, "duration_high_s": None,
        "gpu_memory_low_bytes": None, "gpu_memory_high_bytes": None, "gpu_memory_source": "declared",
        "gpu_util_frac": None, "gpu_util_low_frac": None, "gpu_util_high_frac": None, "gpu_util_source": "declared",
    }  # fmt: skip
    assert changes.keys() <= job.keys(), f"the API has no {changes.keys() - job.keys()}"
    return job | changes


def waiting(uid: str, **changes: Any) -> Plain:
    """A job that has not run yet."""
    plain = {"status": "pending", "started_at": None, "attempts": 0, "placement": "", "gpu_s": 0.0}
    unknown = {"step": None, "loss": None, "samples_per_s": None}
    return a_job(uid, **{**plain, **unknown, **changes})


def ended(uid: str, **changes: Any) -> Plain:
    """A job that is over."""
    plain = {"status": "succeeded", "ended_at": time.time() - 5, "placement": "", "step": 100.0, "exit_code": 0}
    return a_job(uid, **{**plain, **changes})


def a_device(index: int, *residents: tuple[str | None, str, float], **changes: Any) -> Plain:
    """A device with jobs on it: id, name and part of each."""
    device: Plain = {
        "index": index, "name": "cpu-core", "lost": False, "id": f"cpu-core-{index}", "claimed": False,
        "claimed_memory_bytes": 0.0, "sharing": "exclusive",
        "free_frac": 1.0 - sum(frac for _, _, frac in residents), "memory_bytes": 8 * 2.0**30, "util_frac": 0.75,
        "memory_used_bytes": 2.0**30, "power_w": None, "temperature_c": None,
        "jobs": [{"id": uid, "user": "bob", "name": name, "frac": frac} for uid, name, frac in residents],
    }  # fmt: skip
    return device | changes


def an_attempt(number: int, **changes: Any) -> Plain:
    """A launch that still runs."""
    attempt: Plain = {
        "number": number, "placement": "box:0", "started_at": time.time() - 60, "ended_at": None, "exit_code": None,
        "outcome": "", "detail": "", "peak_memory_bytes": None, "cpu_s": None,
    }  # fmt: skip
    return attempt | changes


class Double:
    """What the server says; tests change it while a page looks on."""

    def __init__(self) -> None:
        self.jobs: dict[str, Plain] = {}
        self.why: dict[str, str] = {}
        self.attempts: dict[str, list[Plain]] = {}
        self.logs: dict[str, bytes] = {}
        self.devices = [a_device(0), a_device(1)]
        self.stand_in = True
        self.role = "admin"
        self.trouble = ""
        self.events: list[Plain] = []
        self.known = True
        """Whether callers need no token."""
        self.refusal: tuple[int, str] | None = None
        """What every request under /v1 is answered with."""
        self.asked: list[str] = []
        self.streams: list[str | None] = []
        """The Last-Event-ID of every stream of events."""
        self.generation = 0

    def reset(self) -> None:
        """Forgets everything, and those who listen."""
        generation = self.generation + 1
        self.__init__()  # type: ignore[misc]
        self.generation = generation

    def put(self, *jobs: Plain) -> None:
        """Adds or changes jobs."""
        self.jobs.update({job["id"]: job for job in jobs})

    def happens(self, job: str, text: str, kind: str = "JobStarted") -> None:
        """Something happens, and listeners are told."""
        seq = len(self.events) + 1
        self.events.append({"seq": seq, "at": time.time(), "kind": kind, "job": job, "text": text})

    def hang_up(self) -> None:
        """Ends all streams, as a server that goes away does."""
        self.generation += 1

    def queued(self) -> list[Plain]:
        """All jobs, as tables show them."""
        return [
            job
            | {
                "held_gpus": job.get("gpus") if job.get("placement") else None,
                "estimated_start": None if job.get("started_at") else time.time() + 30,
                "estimated_finish": time.time() + 330,
                "position": None,
                "why": self.why.get(job["id"], ""),
            }
            for job in self.jobs.values()
        ]

    def table(self, name: str, limit: int, offset: int = 0) -> Plain:
        """A page of a table; this one neither searches nor sorts."""
        jobs = [job for job in self.queued() if name in ("queue", _table_of(job))]
        if name == "ended":
            jobs.sort(key=lambda job: -job["ended_at"])
        rows: list[Plain] = [{"job": job, "array": None} for job in jobs]
        counts = dict.fromkeys(("total", "matching", "row_count"), len(rows))
        return {"rows": rows[offset : offset + limit], "offset": offset, **counts}

    def array(self, number: str) -> Plain:
        """All tasks of an array."""
        tasks = [job for job in self.jobs.values() if job["id"].startswith(f"{number}-")]
        held = sum(job["held"] == "user" for job in tasks)
        counts = Counter(job["status"] for job in tasks)
        return {"id": number, "tasks": len(tasks), "counts": counts, "held": held, "job": tasks[0] if tasks else None}

    def nodes(self) -> list[Plain]:
        """The one node there is."""
        kind = "cpu-core" if self.stand_in else "A100"
        node: Plain = {
            "name": "box", "gpu_type": kind, "stand_in": self.stand_in, "lost": False, "cpus": 2.0, "free_cpus": 2.0,
            "drained": False, "labels": {}, "claimed_cpus": 0.0, "claimed_memory_bytes": 0.0,
            "memory_bytes": 2.0**34, "free_memory_bytes": 2.0**34, "devices": self.devices,
        }  # fmt: skip
        return [node]

    def counts(self) -> dict[str, int]:
        """Jobs that have not ended, by status."""
        return Counter(job["status"] for job in self.jobs.values() if job["status"] not in ENDED)

    def status(self) -> Plain:
        """The service at a glance."""
        return {
            "version": "0.1.0", "policy": "srtf", "placement": "best-fit", "store": "sqlite", "started_at": 0.0,
            "uptime_s": 3725.0, "counts": self.counts(), "trouble": self.trouble, "notes": [],
            "switches": 0, "switching_s": 0.0, "user": "ada", "role": self.role,
            "account": "ada", "jobs_run_as": "ada",
        }  # fmt: skip

    async def stream(self, after: int) -> AsyncIterator[bytes]:
        """Events as they come."""
        mine = self.generation
        yield b"retry: 1000\n\n"
        while mine == self.generation:
            for event in self.events[after:]:
                yield f"id: {event['seq']}\nevent: {event['kind']}\ndata: {json.dumps(event)}\n\n".encode()
                after = event["seq"]
            await asyncio.sleep(0.02)

    async def log(self, uid: str, at: int) -> AsyncIterator[bytes]:
        """A log as it grows, until its job has ended."""
        mine = self.generation
        while mine == self.generation:
            text, over = self.logs.get(uid, b"")[at:], self.jobs[uid]["status"] in ENDED
            at += len(text)
            if text:
                yield text
            elif over:
                return
            await asyncio.sleep(0.02)


def app_of(double: Double) -> FastAPI:
    """The API that speaks for a double, with the real page."""
    app = FastAPI()

    @app.middleware("http")
    async def gate(request: Request, go_on: Any) -> Response:
        path = request.url.path
        if path.startswith("/v1"):
            double.asked.append(f"{request.method} {path}")
            if double.refusal is not None:
                return _problem(*double.refusal)
            shown = request.headers.get("authorization")
            if not double.known and request.method + path != "POST/v1/session" and shown != f"Bearer {SESSION}":
                return _problem(401, "a token is missing")
        answer: Response = await go_on(request)
        return answer

    @app.post("/v1/session")
    def session(token: str = Body(embed=True)) -> Response:
        if token != TOKEN:
            return _problem(401, "this token is not known")
        return JSONResponse({"user": "ada", "role": double.role, "secret": SESSION, "expires_at": time.time() + 60})

    @app.delete("/v1/session")
    def log_out() -> Response:
        return Response(status_code=204)

    @app.get("/v1/status")
    def status() -> Plain:
        return double.status()

    @app.get("/v1/tables/{name}")
    def table(name: str, limit: int, offset: int = 0) -> Plain:
        return double.table(name, limit, offset)

    @app.get("/v1/arrays/{number}")
    def array(number: str) -> Any:
        found = double.array(number)
        return found if found["tasks"] else _problem(404, f"there is no array {number!r}")

    @app.get("/v1/nodes")
    def nodes() -> Plain:
        return {"nodes": double.nodes()}

    @app.get("/v1/events")
    async def events(request: Request) -> Response:
        seen = request.headers.get("last-event-id")
        double.streams.append(seen)
        return StreamingResponse(double.stream(int(seen or 0)), media_type="text/event-stream")

    @app.get("/v1/jobs/{uid}/logs")
    async def logs(uid: str, offset: int) -> Response:
        size = len(double.logs.get(uid, b""))
        start = max(0, size + offset) if offset < 0 else offset
        return StreamingResponse(double.log(uid, start), media_type="text/plain", headers={"X-Log-Start": str(start)})

    @app.get("/v1/jobs/{uid}/{part}")
    def part(uid: str, part: str) -> Any:
        if uid not in double.jobs:
            return _problem(404, f"there is no job {uid!r}")
        if part == "attempts":
            return {"attempts": double.attempts.get(uid, [])}
        text = double.why.get(uid, "")
        return {"id": uid, "status": "", "why": text, "code": None, "numbers": {}, "position": None}

    @app.get("/v1/jobs/{uid}")
    def job(uid: str) -> Any:
        return double.jobs[uid] if uid in double.jobs else _problem(404, f"there is no job {uid!r}")

    @app.post("/v1/jobs/{uid}/{action}")
    def act(uid: str, action: str) -> Plain:
        changes = {
            "cancel": {"status": "cancelled", "ended_at": time.time()},
            "suspend": {"held": "user"},
            "resume": {"held": ""},
        }
        double.put(double.jobs[uid] | changes[action])
        double.happens(uid, f"was told: {action}")
        return {"jobs": [double.jobs[uid]]}

    mount(app)
    return app


def _table_of(job: Plain) -> str:
    if job["status"] in ENDED:
        return "ended"
    return "running" if job["status"] in ("starting", "running", "suspending") else "waiting"


def _problem(status: int, message: str) -> Response:
    return JSONResponse({"error": {"code": "refused", "message": message}}, status)
