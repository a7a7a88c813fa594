"""The controller's clock."""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from deployments import ended

from gpuwise.core.job.request import JobRequest
from gpuwise.live.clock import Clock
from gpuwise.service.live import up
from gpuwise.service.live.up import LocalDeployment, Settings


def test_it_follows_the_monotonic_clock_when_the_wall_clock_steps_back() -> None:
    wall, ticks = [5000.0], [10.0]
    clock = Clock(4000.0, wall=lambda: wall[0], monotonic=lambda: ticks[0])
    assert clock.now_s() == 1000.0
    wall[0], ticks[0] = 2000.0, 13.0
    assert clock.now_s() == 1003.0
    assert clock.unix(clock.now_s()) == 5003.0


def test_it_does_not_go_back_behind_what_was_written_down_before_a_restart() -> None:
    clock = Clock(4000.0, wall=lambda: 4500.0, monotonic=lambda: 0.0)
    clock.not_before(1000.0)
    assert clock.now_s() == 1000.0
    clock.not_before(700.0)
    assert clock.now_s() == 1000.0


def test_a_service_whose_wall_clock_was_set_back_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(state=tmp_path / "state", devices=2)
    with monkeypatch.context() as ahead:
        ahead.setattr(up, "Clock", partial(Clock, wall=lambda: time.time() + 3600.0))
        deployment = LocalDeployment(settings)
        first = deployment.controller.submit([JobRequest(command=("/bin/true",))], "ada").result(10)[0]
        before = ended(deployment, first.uid)
        deployment.close()
    again = LocalDeployment(settings)
    second = again.controller.submit([JobRequest(command=("/bin/true",))], "ada").result(10)[0]
    after = ended(again, second.uid)
    times = [line.at for line in again.store.lines(limit=1000)]
    again.close()
    assert before.status == after.status == "succeeded"
    assert time.time() + 3000 < before.ended_at <= after.submitted_at <= after.started_at <= after.ended_at
    assert all(later >= earlier - 1.0 for earlier, later in pairwise(times))
