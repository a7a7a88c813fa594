"""Jobs that share a device take turns, for real: they stand still between two steps, or are stopped where they are."""

from __future__ import annotations

import json
import sys
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from bench import PYTHON, Bench, is_alive, state_of

import gpuwise
from builders import on
from gpuwise.core.commands import Migrate, Placement, Start, Suspend
from gpuwise.core.events import JobFinished, JobSuspended
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Sharing
from gpuwise.live.local import run_control as run_control_module
from gpuwise.live.local.attempts import runs as runs_module
from gpuwise.live.local.plan import Actual
from gpuwise.live.local.time_slices import Rotation

QUANTUM_S = 0.15
SHARED: dict[str, Any] = {"gpu_frac": 0.5, "sharing": frozenset({Sharing.TIME_SLICE})}
WITH_SDK = f"""
import json, signal, sys, time
sys.path.insert(0, {str(Path(gpuwise.__file__).parents[1])!r})
from gpuwise import sdk

state = {{"n": 0, "stopped": False}}
signal.signal(signal.SIGCONT, lambda *_: state.update(stopped=True))
job = sdk.attach(lambda path: path.write_text(str(state["n"])), lambda path: state.update(n=int(path.read_text())))
with open(sys.argv[1], "a") as seen:
    for step in job.steps(int(sys.argv[2])):
        state["stopped"] = False
        begun = time.monotonic()
        time.sleep(0.01)
        state["n"] += 1
        print(json.dumps([step, begun, time.monotonic(), state["stopped"]]), file=seen, flush=True)
"""
"""Records the interval of each of its steps, and whether it was stopped by a signal within it."""
LOOP = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.005; done"
"""Has no SDK."""
SAYS = """
import json, os, time
json.dump({{"{}": True}}, open(os.environ["GPUWISE_ATTEMPT_DIR"] + "/sdk.json", "w"))
while True:
    print(".", flush=True)
    time.sleep(0.005)
"""
"""Says that its SDK can do something, and looks at nothing."""


def half(*devices: int, milli: int = 500) -> Placement:
    placed = on(*((0, device) for device in devices), sharing=Sharing.TIME_SLICE, milli=milli)
    return placed._replace(quantum_s=QUANTUM_S)


def train(bench: Bench, uid: str, *devices: int, steps: int = 100_000, milli: int = 500) -> int:
    command = (sys.executable, "-c", WITH_SDK, str(bench.folder / f"{uid}.steps"), str(steps))
    asked = SHARED | {"gpus": len(devices), "gpu_frac": milli / 1000 if len(devices) == 1 else 1.0}
    row = bench.submit(uid, *command, grace_s=5.0, **asked)
    bench.order(Start(row, half(*devices, milli=milli)))
    return row


def loop(bench: Bench, uid: str, *command: str) -> int:
    row = bench.submit(uid, *(command or ("/bin/sh", "-c", LOOP)), grace_s=0.2, **SHARED)
    bench.order(Start(row, half(0)))
    return row


def steps_of(bench: Bench, uid: str) -> list[tuple[float, float, bool]]:
    """When each step began and ended, and whether the job was stopped by a signal within it."""
    path = bench.folder / f"{uid}.steps"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(begun, ended, stopped) for _, begun, ended, stopped in map(json.loads, lines)]


def turns_of(bench: Bench, *uids: str) -> str:
    """The order in which jobs did their steps, one letter for each uninterrupted stretch."""
    steps = sorted((begun, uid) for uid in uids for begun, _, _ in steps_of(bench, uid))
    return "".join(uid for at, (_, uid) in enumerate(steps) if at == 0 or steps[at - 1][1] != uid)


def never_at_the_same_time(bench: Bench, *uids: str) -> bool:
    """Whether the steps of jobs never overlap.

    A job whose turn ends before its SDK has reported in is stopped by a signal, which may come within its first steps:
    such a step lasts until the job's next turn, and others rightly do theirs meanwhile. That happens once per attempt.
    """
    seen = {uid: steps_of(bench, uid) for uid in uids}
    assert all(sum(stopped for *_, stopped in steps) <= 1 for steps in seen.values())
    steps = sorted((begun, ended, uid) for uid in uids for begun, ended, stopped in seen[uid] if not stopped)
    return all(one[1] <= other[0] for one, other in pairwise(steps) if one[2] != other[2])


def actual(bench: Bench, uid: str) -> Actual | None:
    return next((run.actual() for run in bench.executor.table.runs.values() if run.uid == uid), None)


def lines(bench: Bench, uid: str) -> int:
    return len(bench.output(uid).splitlines())


def test_two_jobs_take_turns_and_never_step_at_the_same_time(bench: Bench) -> None:
    rows = [train(bench, uid, 0) for uid in "ab"]
    bench.until(lambda: len(turns_of(bench, "a", "b")) >= 8)
    assert never_at_the_same_time(bench, "a", "b")
    jobs = bench.engine.state.jobs
    assert [jobs.status.item(row) for row in rows] == [Status.RUNNING, Status.RUNNING]
    assert not bench.attempt("a", 2).exists()  # a turn is no new attempt
    cost = bench.executor.switching()
    assert cost.switches >= 5
    assert cost.stopping_s > 0
    assert 0 < cost.starting_s < cost.lost_s
    assert not [pid for uid in "ab" for pid in bench.pids(uid) if state_of(pid) == "T"]  # by the SDK, not by SIGSTOP


def test_the_time_follows_the_shares(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    milli = {"a": 750, "b": 250}
    for uid, share in milli.items():
        train(bench, uid, 0, milli=share)
    update = Rotation.update
    turns: list[tuple[str, float]] = []  # who had the device while both were there, and for how long
    since_s = [0.0]

    def timed(rotation: Rotation, now_s: float, sharers: Any, running: Any = ()) -> set[str]:
        had = [each.uid for each in sharers if rotation.knows(each.uid) and rotation.has_turn(each.uid)]
        if len(sharers) == 2 and since_s[0]:
            turns.append((had[0], now_s - since_s[0]))
        since_s[0] = now_s if len(sharers) == 2 else 0.0
        return update(rotation, now_s, sharers, running)

    monkeypatch.setattr(Rotation, "update", timed)
    bench.until(lambda: len(turns_of(bench, "a", "b")) >= 12)
    had_s = {uid: sum(length_s for who, length_s in turns if who == uid) for uid in milli}
    stretches = [sum(s for _, s in group) for _, group in groupby(turns, key=lambda turn: turn[0])]
    # Stride scheduling: time over share never differs by more than the longest turn over the smallest share, however
    # late each turn ended; the first turn of each is not by rank but to see that it runs.
    allowed_s = (max(stretches) + QUANTUM_S) * 1000 / min(milli.values())
    assert abs(had_s["a"] * 1000 / 750 - had_s["b"] * 1000 / 250) <= allowed_s
    assert had_s["a"] > had_s["b"]
    assert never_at_the_same_time(bench, "a", "b")


def test_jobs_without_the_sdk_are_stopped_where_they_are(bench: Bench) -> None:
    for uid in "ab":
        loop(bench, uid)
    for uid, other in ("ab", "ba", "ab"):
        bench.until(lambda other=other: actual(bench, other) is Actual.PARKED and lines(bench, other) > 2)
        assert state_of(bench.pids(other)[0]) == "T"
        before = lines(bench, uid)
        bench.until(lambda uid=uid, before=before: lines(bench, uid) > before)
    assert bench.executor.switching().switches >= 2


def test_an_sdk_from_before_time_slices_is_stopped_where_it_is(bench: Bench) -> None:
    old = SAYS.format("can_suspend")
    loop(bench, "a", *PYTHON, "-c", old)
    bench.until(lambda: (bench.attempt("a") / "job/sdk.json").exists() and lines(bench, "a") > 2)
    train(bench, "b", 0)
    bench.until(lambda: actual(bench, "a") is Actual.PARKED)
    assert not (bench.attempt("a") / "control.json").exists()
    assert state_of(bench.pids("a")[0]) == "T"


def test_a_job_that_does_not_stand_still_in_time_is_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (run_control_module, runs_module):
        monkeypatch.setattr(module, "PAUSE_S", 0.05)
    claims = SAYS.format("can_pause")
    loop(bench, "a", *PYTHON, "-c", claims)
    bench.until(lambda: (bench.attempt("a") / "job/sdk.json").exists() and lines(bench, "a") > 2)
    train(bench, "b", 0)
    bench.until(lambda: actual(bench, "a") is Actual.PARKED)
    assert bench.json("a", "control.json")["want"] == "pause"
    bench.until(lambda: actual(bench, "a") is Actual.RUNNING)
    assert bench.json("a", "control.json")["want"] == "run"


def test_a_restart_goes_on_with_whoever_had_the_turn(bench: Bench) -> None:
    for uid in "ab":
        train(bench, uid, 0)
    bench.until(lambda: len(turns_of(bench, "a", "b")) >= 3)
    for _ in range(3):
        before = turns_of(bench, "a", "b")
        bench.new_executor()
        bench.until(lambda before=before: len(turns_of(bench, "a", "b")) >= len(before) + 3)
    assert never_at_the_same_time(bench, "a", "b")
    assert not bench.attempt("a", 2).exists()


def test_the_end_of_one_leaves_all_the_time_to_the_other(bench: Bench) -> None:
    first, second = train(bench, "a", 0, steps=30), train(bench, "b", 0, steps=100)
    bench.expect(JobFinished, first)
    bench.expect(JobFinished, second)
    assert (len(steps_of(bench, "a")), len(steps_of(bench, "b"))) == (30, 100)
    assert never_at_the_same_time(bench, "a", "b")


@pytest.mark.parametrize("paused", [False, True])
def test_one_is_cancelled_in_its_turn_or_out_of_it(bench: Bench, paused: bool) -> None:
    rows = {uid: train(bench, uid, 0) for uid in "ab"}
    bench.until(lambda: len(turns_of(bench, "a", "b")) >= 2)
    bench.until(lambda: actual(bench, "a") is (Actual.PAUSED if paused else Actual.RUNNING))
    pids = bench.pids("a")
    bench.cancel(rows["a"])
    bench.until(lambda: actual(bench, "a") is None)
    assert not any(map(is_alive, pids))
    done = len(steps_of(bench, "b"))
    bench.until(lambda: len(steps_of(bench, "b")) > done + 30)  # more than fits into one turn
    assert never_at_the_same_time(bench, "a", "b")


def test_a_paused_job_is_suspended_without_another_step(bench: Bench) -> None:
    rows = {uid: train(bench, uid, 0) for uid in "ab"}
    bench.until(lambda: len(turns_of(bench, "a", "b")) >= 2)
    bench.until(lambda: actual(bench, "a") is Actual.PAUSED)
    done = len(steps_of(bench, "a"))
    bench.order(Suspend(rows["a"]))
    bench.expect(JobSuspended, rows["a"])
    assert bench.json("a", "job/saved.json")["step"] == done == len(steps_of(bench, "a"))
    assert actual(bench, "b") is Actual.RUNNING


def test_a_paused_job_moves_to_a_device_of_its_own(bench: Bench) -> None:
    rows = {uid: train(bench, uid, 0) for uid in "ab"}
    bench.until(lambda: len(turns_of(bench, "a", "b")) >= 2)
    bench.until(lambda: actual(bench, "a") is Actual.PAUSED)
    bench.order(Migrate(rows["a"], half(1)))
    bench.until(lambda: bench.attempt("a", 2).exists() and actual(bench, "a") is Actual.RUNNING)
    done = len(steps_of(bench, "a"))
    bench.until(lambda: len(steps_of(bench, "a")) > done + 30)
    assert actual(bench, "b") is Actual.RUNNING


def test_a_gang_runs_only_when_both_its_devices_are_its_own(bench: Bench) -> None:
    train(bench, "a", 0)
    train(bench, "b", 1)
    train(bench, "g", 0, 1)
    bench.until(lambda: turns_of(bench, "a", "g").count("g") >= 3 and turns_of(bench, "b", "g").count("g") >= 3)
    assert never_at_the_same_time(bench, "a", "g")
    assert never_at_the_same_time(bench, "b", "g")
