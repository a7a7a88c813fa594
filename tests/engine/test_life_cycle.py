"""The life of a job: whatever happens to it wherever it is, the table allows what follows, or it is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from audit import check_equal, check_jobs, picture

from builders import Scripted, cluster, engine_with, job, on
from gpuwise.core.commands import Command, Decision, Migrate, Rearrange, Resize, Resume, Start, Suspend
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import (
    DeviceLost,
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobHeld,
    JobProgressed,
    JobReleased,
    JobRevised,
    JobStarted,
    JobSubmitted,
    JobSuspended,
    NodeLost,
    WokeUp,
)
from gpuwise.core.job.life_cycle import LIFE_CYCLE, Status
from gpuwise.engine.allocation import LifeCycleError
from gpuwise.engine.checks import InvalidDecisionError
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import replay

HERE, THERE, MORE = on((0, 0)), on((1, 0)), on((1, 0), (1, 1))

RECORDS: dict[str, Event | Command] = {
    "submitted": JobSubmitted(1.0, 0),
    "started": JobStarted(1.0, 0),
    "progressed": JobProgressed(1.0, 0, 2.0),
    "suspended": JobSuspended(1.0, 0, 2.0),
    "finished": JobFinished(1.0, 0),
    "failed, to be tried again": JobFailed(1.0, 0, 0.0, "lost", True),
    "failed": JobFailed(1.0, 0, 0.0, "lost", False),
    "cancelled": JobCancelled(1.0, 0),
    "node lost": NodeLost(1.0, 0, ((0, 0.0),)),
    "device lost": DeviceLost(1.0, 0, 0, ((0, 0.0),)),
    "held": JobHeld(1.0, 0, "user"),
    "released": JobReleased(1.0, 0),
    "revised": JobRevised(1.0, 0, duration_s=20.0),
    "start": Start(0, THERE),
    "resume": Resume(0, THERE),
    "suspend": Suspend(0),
    "migrate": Migrate(0, THERE),
    "resize": Resize(0, MORE),
    "rearrange": Rearrange(((0, THERE),)),
}

WAY_TO: dict[Status, list[Event | Command]] = {
    Status.PENDING: [],
    Status.STARTING: [Start(0, HERE)],
    Status.RUNNING: [Start(0, HERE), JobStarted(0.0, 0)],
    Status.SUSPENDING: [Start(0, HERE), JobStarted(0.0, 0), Suspend(0)],
    Status.SUSPENDED: [Start(0, HERE), JobStarted(0.0, 0), Suspend(0), JobSuspended(0.0, 0, 1.0)],
    Status.SUCCEEDED: [Start(0, HERE), JobStarted(0.0, 0), JobFinished(0.0, 0)],
    Status.FAILED: [Start(0, HERE), JobFailed(0.0, 0, 0.0, "lost", False)],
    Status.CANCELLED: [JobCancelled(0.0, 0)],
}


def happen(engine: Engine, now_s: float, record: Event | Command) -> None:
    """Tells the engine of an event, or has its policy decide a command."""
    if isinstance(record, Event):
        engine.step(now_s, [record])
    else:
        assert isinstance(engine.policy, Scripted)
        engine.policy.script = [lambda draft: Decision((record,))]
        engine.step(now_s, [WokeUp(now_s)])


def job_that_is(status: Status) -> Engine:
    """An engine whose one job has come that far in its life."""
    spec = [job("a", 10.0, min_gpus=1, max_gpus=2)]
    if status is Status.DECLARED:
        engine = engine_with([], cluster("2x2:V100"))
        engine.state.jobs.declare(spec)
    else:
        engine = engine_with(spec, cluster("2x2:V100"))
        for record in WAY_TO[status]:
            happen(engine, 0.0, record)
    assert engine.state.status(0) is status
    return engine


def what_follows(status: Status, record: Event | Command) -> tuple[Status | None, bool]:
    """The status after a record, None if it is refused; and whether a refusal left everything as it was."""
    engine = job_that_is(status)
    engine.step(1.0, [])
    before = picture(engine.state)
    try:
        happen(engine, 1.0, record)
    except (LifeCycleError, InvalidDecisionError):
        return None, picture(engine.state) == before
    return engine.state.status(0), True


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("status", Status)
def test_what_happens_is_allowed_by_the_table_or_refused_without_a_trace(status: Status, name: str):
    after, clean = what_follows(status, RECORDS[name])
    assert after is None or after is status or after in LIFE_CYCLE[status]
    assert clean, "refused, but the state has changed"


def test_the_table_allows_nothing_that_no_record_brings_about():
    made = {status: {what_follows(status, record)[0] for record in RECORDS.values()} for status in Status}
    for status, allowed in LIFE_CYCLE.items():
        assert made[status] - {None, status} == allowed - {status}, status.name


ALIVE = {*Status} - {Status.DECLARED, Status.SUCCEEDED, Status.FAILED, Status.CANCELLED}
STAYS: dict[str, set[Status]] = {
    "progressed": {Status.RUNNING},
    "node lost": {*Status} - {Status.STARTING, Status.RUNNING, Status.SUSPENDING},
    "device lost": {*Status} - {Status.STARTING, Status.RUNNING, Status.SUSPENDING},
    "held": {Status.PENDING, Status.SUSPENDING, Status.SUSPENDED},
    "released": ALIVE,
    "revised": ALIVE,
}
MOVES = ("migrate", "resize", "rearrange")


@pytest.mark.parametrize("name", [name for name in RECORDS if name not in MOVES])
def test_only_what_does_not_concern_its_place_leaves_a_job_as_it_is(name: str):
    unchanged = {status for status in Status if what_follows(status, RECORDS[name])[0] is status}
    assert unchanged == STAYS.get(name, set())


@pytest.mark.parametrize("kind", [Migrate, Resize, Suspend])
def test_a_job_that_is_still_loading_may_be_moved_or_suspended(kind: Callable[..., Command]):
    """Policies that preempt and repack decide while jobs load; they see them among those that hold GPUs."""
    placement = {Migrate: (THERE,), Resize: (MORE,), Suspend: ()}[kind]
    after, _ = what_follows(Status.STARTING, kind(0, *placement))
    assert after is (Status.SUSPENDING if kind is Suspend else Status.STARTING)


REFUSED: dict[str, Callable[[], list[Command]]] = {
    "start without room": lambda: [Start(1, HERE)],
    "second start without room": lambda: [Start(1, THERE), Start(2, MORE)],
    "migration without room": lambda: [Start(1, THERE), Migrate(0, THERE)],
    "rearrangement without room": lambda: [Start(1, THERE), Rearrange(((0, THERE),))],
    "two commands for one job": lambda: [Migrate(0, THERE), Suspend(0)],
    "a command and a rearrangement for one job": lambda: [Suspend(0), Rearrange(((0, THERE),))],
    "part of a gang": lambda: [Start(2, on((1, 0)))],
    "too many GPUs": lambda: [Start(1, MORE)],
    "suspension of one that waits": lambda: [Suspend(1)],
    "migration of one that waits": lambda: [Migrate(1, THERE)],
    "resumption of one that never ran": lambda: [Resume(1, THERE)],
}


def crowded() -> Engine:
    """Job 0 runs on the first GPU of the first node; job 1 wants one GPU and job 2 wants two."""
    engine = engine_with([job("a"), job("b"), job("c", gpus=2)], cluster("2x2:V100"))
    happen(engine, 0.0, Start(0, HERE))
    happen(engine, 0.0, JobStarted(0.0, 0))
    return engine


@pytest.mark.parametrize("name", REFUSED)
def test_a_command_that_cannot_be_done_is_refused_and_leaves_the_state_to_what_the_journal_says(name: str):
    engine = crowded()
    engine.policy.script = [lambda draft: Decision(tuple(REFUSED[name]()))]
    with pytest.raises(InvalidDecisionError, match=r"policy 'scripted' decided \w+\(.*\): "):
        engine.step(1.0, [WokeUp(1.0)])
    check_equal(engine.state, replay(engine.journal.lines()))
    check_jobs(engine.state)


def test_a_refusal_is_something_a_user_can_read():
    engine = crowded()
    with pytest.raises(GpuwiseError, match="job 'b' is PENDING and cannot become RUNNING"):
        engine.step(1.0, [JobStarted(1.0, 1)])
    with pytest.raises(GpuwiseError, match="node n0: devices 0x1 are not all idle"):
        happen(engine, 1.0, Start(1, HERE))
