"""The running service under load: submissions through the API, decisions with a long queue, and how soon a job runs.

    python benchmarks/live.py [--jobs 10000] [--clients 16]

Starts `gpuwise up` on CPU stand-ins in a folder for temporary files; everything goes over loopback.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0


class Server:
    """A service of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "gpuwise.cli.main", "up", "--state", str(folder), "--port", "0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        gives_up = time.monotonic() + PATIENCE_S
        endpoint = folder / "endpoint.json"
        while not endpoint.exists() and time.monotonic() < gives_up:
            time.sleep(0.02)
        self.port = int(json.loads(endpoint.read_text())["url"].rsplit(":", 1)[1])
        self.token = (folder / "token").read_text().strip()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)


class Caller:
    """One connection."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        sent = None if body is None else json.dumps(body)
        self._connection.request(method, path, sent, self._headers)
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:300]!r}")
        return json.loads(data)


JOB = {"command": ["/bin/sleep", "1000"], "duration_s": 1000.0}


def _clients(port: int, token: str, clients: int, each: int, results: Any) -> None:
    taken: list[tuple[float, str]] = []

    def submit() -> None:
        caller = Caller(port, token)
        for _ in range(each):
            started = time.perf_counter()
            answer = caller.call("POST", "/v1/jobs", JOB)
            taken.append((time.perf_counter() - started, answer["jobs"][0]["id"]))

    threads = [threading.Thread(target=submit) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(taken)


def submissions(server: Server, jobs: int, clients: int) -> None:
    """Many clients submit at once; every job must be there afterwards."""
    processes = 4
    results = multiprocessing.Queue()
    each = jobs // clients
    workers = [
        multiprocessing.Process(target=_clients, args=(server.port, server.token, clients // processes, each, results))
        for _ in range(processes)
    ]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    taken = [entry for _ in workers for entry in results.get()]
    wall_s = time.perf_counter() - started
    for worker in workers:
        worker.join()
    times = sorted(seconds for seconds, _ in taken)
    ids = {uid for _, uid in taken}
    caller = Caller(server.port, server.token)
    counts = caller.call("GET", "/v1/status")["counts"]
    lost = len(ids) - sum(counts.values())
    print(f"{len(ids):,} submissions by {clients} clients in {wall_s:.1f} s: {len(ids) / wall_s:,.0f} per second")
    print(f"  p50 {_ms(times, 0.5)}, p99 {_ms(times, 0.99)}, longest {_ms(times, 1.0)}; lost: {lost}")


def decisions(server: Server) -> None:
    """With a long queue, one more job is submitted: how long until the response, and how long the policy took."""
    caller = Caller(server.port, server.token)
    times = []
    for _ in range(50):
        started = time.perf_counter()
        caller.call("POST", "/v1/jobs", JOB)
        times.append(time.perf_counter() - started)
    times.sort()
    print(
        f"with them waiting, a submission and the decision after it: p50 {_ms(times, 0.5)}, longest {_ms(times, 1.0)}"
    )
    decide = caller.call("GET", "/v1/status").get("decide_max_s")
    if decide is not None:
        print(f"  longest decision {1e3 * decide:.1f} ms")


def idle_start(folder: Path, tries: int = 30) -> None:
    """On an idle service: from the request until the process runs."""
    server = Server(folder, "--devices", "2")
    caller = Caller(server.port, server.token)
    times = []
    for number in range(tries):
        mark = folder / f"mark{number}"
        started = time.time()
        caller.call("POST", "/v1/jobs", {"command": ["/usr/bin/touch", str(mark)], "duration_s": 1.0})
        while not mark.exists():
            time.sleep(0.001)
        times.append(mark.stat().st_mtime - started)
        time.sleep(0.2)
    server.stop()
    times.sort()
    print(f"from a request to the process at work, {tries} times: median {1e3 * statistics.median(times):.0f} ms, "
          f"longest {_ms(times, 1.0)}")  # fmt: skip


def _ms(times: list[float], part: float) -> str:
    return f"{1e3 * times[min(len(times) - 1, int(part * len(times)))]:.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpuwise-bench-") as name:
        idle_start(Path(name) / "idle")
        server = Server(Path(name) / "load", "--devices", "1", "--policy", "fifo")
        try:
            submissions(server, given.jobs, given.clients)
            decisions(server)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
