"""Sweep: policies × loads × seeds on all cores; finished runs are kept, so an interrupted sweep continues."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from gpuwise.core import __version__
from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.policies.placing.placers import DEFAULT_PLACER, PLACERS
from gpuwise.policies.registry import make_policy
from gpuwise.service.offline.clusters import load_cluster
from gpuwise.service.offline.simulate import simulate
from gpuwise.sim.traces.files import read_trace
from gpuwise.sim.traces.trace import scale_load


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a sweep."""

    trace: str
    cluster: str
    policy: str
    load: float
    seed: int
    placement: str = DEFAULT_PLACER
    forecast_error: float = 0.0
    oversized: str = "error"

    @property
    def key(self) -> str:
        """What identifies this run, the content of its trace file included."""
        facts = {
            **asdict(self),
            "content": [_fingerprint(self.trace), _fingerprint(self.cluster)],
            "version": __version__,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    def result(self) -> dict[str, Any]:
        """Runs it."""
        trace = read_trace(_seeded(self.trace, self.seed))
        if self.load != 1.0:
            trace = scale_load(trace, self.load)
        done = simulate(
            trace, self.cluster, self.policy, placement=self.placement, seed=self.seed,
            forecast_error=self.forecast_error, oversized="drop" if self.oversized == "drop" else "error",
        )  # fmt: skip
        return {"key": self.key, **done.as_dict(), "trace": _seeded(self.trace, self.seed), "load": self.load}


def plan_sweep(
    trace: str, cluster: str, policies: Sequence[str], loads: Sequence[float], seeds: Sequence[int],
    *, placement: str | None = None, **options: Any,
) -> list[Run]:  # fmt: skip
    """The runs of a sweep; names are checked before the first one starts."""
    load_cluster(cluster)
    for policy in policies:
        make_policy(policy)
    placement = placement or DEFAULT_PLACER
    if placement not in PLACERS:
        raise UnknownNameError("placement", placement, PLACERS)
    for seed in seeds[:1]:
        read_trace(_seeded(trace, seed))
    if any(not load > 0 for load in loads):
        raise GpuwiseError(f"loads are {list(loads)}; each must be above 0")
    return [Run(trace, cluster, *each, placement=placement, **options) for each in product(policies, loads, seeds)]


def sweep(
    runs: Sequence[Run],
    store: Path | None = None,
    workers: int | None = None,
    on_done: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Runs those that are not in the store yet, and returns all, in the order of ``runs``."""
    results = _stored(store)
    missing = [run for run in runs if run.key not in results]
    done = len(runs) - len(missing)
    on_done(done, len(runs))
    for result in _results(missing, workers):
        results[result["key"]] = result
        if store is not None:
            _keep(store, result)
        done += 1
        on_done(done, len(runs))
    return [{name: value for name, value in results[run.key].items() if name != "key"} for run in runs]


def _results(runs: Sequence[Run], workers: int | None) -> Any:
    count = min(workers or os.cpu_count() or 1, len(runs))
    if count <= 1:
        yield from (run.result() for run in runs)
        return
    # Spawned, not forked: polars keeps threads, which do not survive a fork.
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(Run.result, run) for run in runs]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _stored(store: Path | None) -> dict[str, dict[str, Any]]:
    if store is None or not store.exists():
        return {}
    found: dict[str, dict[str, Any]] = {}
    for line in store.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
            found[entry["key"]] = entry
        except (json.JSONDecodeError, KeyError, TypeError):
            continue  # a line cut off by an interruption is run again
    return found


def _keep(store: Path, result: dict[str, Any]) -> None:
    """Adds a line; one that an interruption cut off stays by itself."""
    with store.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(result).encode() + b"\n")


def seed_of(trace: str) -> int:
    """The seed that a generated trace names; 0 where it names none."""
    return int(dict(parse_qsl(trace.partition("?")[2])).get("seed", "0")) if trace.startswith("gen:") else 0


def _seeded(trace: str, seed: int) -> str:
    """A generated trace is generated again with each seed; a recorded one stays as it is."""
    if not trace.startswith("gen:"):
        return trace
    name, _, query = trace.partition("?")
    return f"{name}?{urlencode({**dict(parse_qsl(query)), 'seed': str(seed)})}"


def _fingerprint(named: str) -> str:
    """Digest of a file's content; empty for a generator or shorthand."""
    path = Path(named)
    if named.startswith("gen:") or not path.is_file():
        return ""
    status = path.stat()
    return _digest(path, status.st_mtime_ns, status.st_size)


@cache
def _digest(path: Path, changed_ns: int, size: int) -> str:
    """The digest of a file, computed again only when it has changed."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
