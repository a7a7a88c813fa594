"""What the engine is told: once, when it is news, and at the time it happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import cluster, engine_with, job, on
from gpuwise.core.commands import Start
from gpuwise.core.events import JobFailed, JobFinished, JobProgressed, JobStarted, JobSuspended
from gpuwise.core.state import ClusterState
from gpuwise.live.clock import Clock
from gpuwise.live.local.attempts import Folders
from gpuwise.live.local.mailbox import Progressed
from gpuwise.live.local.outbox import Outbox, Wanted
from gpuwise.live.local.runs import Run


class Desk:
    """A job of 100 steps and 100 s that was placed at second 10, and a clock that is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 10.0
        engine = engine_with([job("1", 100.0)], cluster("1x2:V100"))
        engine.order(10.0, (Start(0, on((0, 0))),))
        self.engine = engine
        self.state: ClusterState = engine.state
        folders = Folders(folder)
        self.run = Run.of(folders.attempt("1", 1))
        self.outbox = Outbox(Clock(1000.0, wall=lambda: 1010.0, monotonic=lambda: self.now_s), folders)
        self.outbox.bind(self.state)

    @property
    def want(self) -> Wanted:
        return Wanted.of(self.state, "1")

    def start(self) -> None:
        self.engine.step(self.now_s, [JobStarted(self.now_s, 0)])

    def progress(self, step: float, steps: float | None = 100.0) -> list[JobProgressed]:
        self.outbox.events.clear()
        self.outbox.progressed(self.run, self.want, Progressed("1", 1, step, steps, None, None))
        return [event for event in self.outbox.events if isinstance(event, JobProgressed)]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_progress_is_news_if_it_is_not_what_is_believed(desk: Desk) -> None:
    desk.start()
    desk.now_s = 30.0  # one step a second since 10 s: believed 20 of 100
    assert desk.progress(20) == []
    assert desk.progress(21.9) == []
    assert desk.progress(2, steps=10) == []  # a fifth of its own ten steps is what is believed, too
    assert desk.progress(5, steps=None) == []  # of how many?
    assert desk.progress(22.1) == [JobProgressed(30.0, 0, 22.1)]
    assert desk.progress(50) == []  # it was news a moment ago
    desk.now_s = 31.0
    assert desk.progress(50) == [JobProgressed(31.0, 0, 50.0)]
    assert len(desk.outbox.reports) == 7  # all of it is for the records


def test_progress_of_what_is_not_running_is_no_news(desk: Desk) -> None:
    assert desk.progress(50) == []  # not started, as far as the engine knows
    desk.start()
    desk.run.number = 2
    assert desk.progress(50) == []  # another placement's
    desk.run.number = 1
    desk.outbox.finished("1", desk.want, 10.0)
    assert desk.progress(50) == []


def test_an_end_is_told_once_until_the_engine_knows(desk: Desk) -> None:
    desk.start()
    desk.outbox.finished("1", desk.want, 20.0)
    desk.outbox.failed("1", desk.want, "too late", 20.0, False)
    desk.outbox.suspended("1", desk.want, 0.0)
    assert desk.outbox.events == [JobFinished(20.0, 0)]
    assert desk.outbox.is_over("1")
    desk.outbox.begin()  # it has still to be told
    assert desk.outbox.is_over("1")
    events, desk.outbox.events = desk.outbox.events, []
    desk.engine.step(20.0, events)
    desk.outbox.begin()
    assert not desk.outbox.is_over("1")
    desk.outbox.failed("1", desk.want, "it has finished", 21.0, False)
    assert desk.outbox.events == []


def test_only_a_job_that_shall_leave_is_suspended(desk: Desk) -> None:
    desk.outbox.suspended("1", desk.want, 5.0)
    assert not [event for event in desk.outbox.events if isinstance(event, JobSuspended)]


def test_a_failure_says_what_the_checkpoint_keeps(desk: Desk) -> None:
    checkpoint = desk.outbox._folders.checkpoint("1")
    checkpoint.mkdir(parents=True)
    (checkpoint / "latest.json").write_text('{"step": 3, "steps": 4}')
    desk.outbox.failed("1", desk.want, "broke", 11.0, False)
    assert desk.outbox.events == [JobFailed(11.0, 0, 75.0, "broke", False)]


def test_moments_are_between_the_placement_and_now(desk: Desk) -> None:
    desk.now_s = 50.0
    assert desk.outbox.moment(1030.0, 0) == 30.0
    assert desk.outbox.moment(1005.0, 0) == 10.0  # the wall clock was set back
    assert desk.outbox.moment(2000.0, 0) == 50.0  # or forward
    assert desk.outbox.moment(None, 0) == 50.0
    assert desk.outbox.moment(1005.0, -1) == 5.0  # a job that is not known


def test_what_another_engine_was_not_told_is_found_out_again(desk: Desk) -> None:
    desk.outbox.saved(desk.run, 3.0)
    desk.outbox.finished("1", desk.want, 20.0)
    desk.outbox.bind(desk.state)
    assert (desk.outbox.events, desk.outbox.reports) == ([], [])
    assert not desk.outbox.is_over("1")
