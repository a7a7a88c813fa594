"""Nothing is lost: the controller is killed at every write of a run, and every job ends once, with its result."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import pytest

from gpuwise.store.sql import open_store
from postgres import PostgresServer, running_postgres

KILLED = -9
LEAST_POINTS = 200
WAYS = [(1, "after", "srtf"), (2, "before", "srtf"), (1, "after", "fifo"), (2, "before", "fifo")]
points: dict[tuple[int, str, str], int] = {}
"""How often the controller was killed, in each of the ways."""


@pytest.fixture(scope="module")
def nursery() -> multiprocessing.context.ForkServerContext:
    """Processes that have all imports behind them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["life"])
    return context


def _live(nursery: multiprocessing.context.ForkServerContext, *given: object) -> int:
    import life

    process: BaseProcess = nursery.Process(target=life.live, args=given)
    process.start()
    process.join(90)
    assert process.exitcode is not None, "a life that does not end"
    return process.exitcode


@pytest.mark.parametrize(("kill_at", "when", "policy"), WAYS)
def test_killed_at_every_write_of_a_run_nothing_is_lost_or_done_twice(
    nursery: multiprocessing.context.ForkServerContext, tmp_path: Path, kill_at: int, when: str, policy: str
) -> None:
    """Each life gets one write further than the one before, and dies right after it, or right before the next."""
    kills = 0
    while (code := _live(nursery, tmp_path, kill_at, when, None, policy)) == KILLED:
        kills += 1
        assert kills < 2000, "the run does not come forward"
    assert code == 0
    check_results(tmp_path)
    points[kill_at, when, policy] = kills


def test_that_was_often_enough() -> None:
    """Only after all of the above."""
    if len(points) == len(WAYS):
        assert sum(points.values()) >= LEAST_POINTS, points


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.mark.parametrize("kill_at", [7, 20, 27, 31])  # of 31 requests, each written on its own
def test_killed_now_and_then_on_postgresql_nothing_is_lost_either(
    nursery: multiprocessing.context.ForkServerContext, tmp_path: Path, postgres: PostgresServer, kill_at: int
) -> None:
    place = postgres.new_place()
    assert _live(nursery, tmp_path, kill_at, "after", place) == KILLED
    assert _live(nursery, tmp_path, 0, "", place) == 0
    check_results(tmp_path, place)


def check_results(folder: Path, place: str | None = None) -> None:
    """Every job has ended once, with its right result, and nothing is left of any."""
    lines = Counter((folder / "results.txt").read_text().splitlines())
    expected = Counter({f"{3 + number} r{number}": 1 for number in range(20)})
    expected |= Counter({"23 failed": 2, "24 failed": 2, "25 shared": 1, "26 shared": 1, "27 shared": 1})
    expected |= Counter({"28 last": 1, "29 two": 1, "1 435": 1, "2 435": 1})  # 0 + 1 + … + 29 = 435
    assert lines == expected
    store = open_store(place or folder / "state" / "gpuwise.db")
    try:
        status = {record.uid: record.status for record in store.jobs(limit=100)}
        assert status.pop("30") == "cancelled"
        assert status.pop("23") == status.pop("24") == "failed"
        assert len(status) == 27
        assert set(status.values()) == {"succeeded"}
        for uid in ("23", "24"):
            assert [attempt.exit_code for attempt in store.attempts(uid)] == [3, 3]
    finally:
        store.close()
    left = [each for each in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(each.info["cmdline"] or ())]
    assert left == []
