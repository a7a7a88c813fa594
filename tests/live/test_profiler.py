"""What jobs are seen to use: readings while they are alone, reported when they are news."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from deployments import running, until

from gpuwise.core.job.request import JobRequest
from gpuwise.devices.machine import Reading
from gpuwise.live.profile import Profiler, Profiles
from gpuwise.service.live.up import LocalDeployment, Settings

HERE = ((0, 0),)


def reported(readings: list[float], forecast: float = math.nan, profile_s: float = 20.0) -> list[dict[str, float]]:
    """What is reported of a job that is alone, with a reading every ten seconds."""
    profiles = Profiles(profile_s)
    return [
        profiles.note(10.0 * number, {"7": (HERE, forecast)}, {(0, 0): Reading(util_frac=util)})
        for number, util in enumerate(readings)
    ]


def test_a_job_alone_for_long_enough_has_the_mean_of_its_readings() -> None:
    assert reported([0.2, 0.4, 0.6]) == [{}, {}, {"7": 0.4000000000000001}]


def test_what_is_believed_already_is_no_news() -> None:
    assert reported([0.4, 0.4, 0.4], forecast=0.45) == [{}, {}, {}]
    assert reported([0.4, 0.4, 0.4], forecast=0.6)[-1] == {"7": 0.4000000000000001}


def test_a_job_that_changes_is_told_again() -> None:
    assert reported([0.2, 0.2, 0.2, 0.8, 0.8, 0.8])[-2:] == [{"7": 0.8}, {}]


def test_a_neighbour_or_another_place_begins_the_look_anew() -> None:
    profiles = Profiles(20.0)
    reading = {(0, 0): Reading(util_frac=0.9), (0, 1): Reading(util_frac=0.1)}
    assert profiles.note(0.0, {"7": (HERE, math.nan)}, reading) == {}
    assert profiles.note(10.0, {}, reading) == {}  # not alone for a while
    assert profiles.note(20.0, {"7": (HERE, math.nan)}, reading) == {}
    assert profiles.note(30.0, {"7": (((0, 1),), math.nan)}, reading) == {}
    assert profiles.note(50.0, {"7": (((0, 1),), math.nan)}, reading) == {"7": 0.1}


def test_a_device_that_cannot_tell_says_nothing() -> None:
    assert reported([math.nan] * 9) == [{}] * 9


def test_a_look_that_fails_is_made_again() -> None:
    looks: list[int] = []

    def look() -> tuple[float, dict[str, tuple[tuple[tuple[int, int], ...], float]], dict[tuple[int, int], Reading]]:
        looks.append(1)
        if len(looks) < 3:
            raise OSError("no answer")
        return float(len(looks)), {"7": (HERE, math.nan)}, {(0, 0): Reading(util_frac=0.5)}

    news: list[object] = []
    profiler = Profiler(look, news.append, every_s=0.001, profile_s=1.0)
    until(lambda: news, "news")
    profiler.close()
    assert news[0] == {"7": 0.5}


def test_a_real_job_is_profiled_and_the_policy_hears_of_it(tmp_path: Path) -> None:
    deployment = LocalDeployment(Settings(state=tmp_path, policy="reactive", devices=1))
    quick = Profiler(deployment.measure_sole_jobs, deployment.controller.observe, every_s=0.1, profile_s=0.5)
    try:
        busy = JobRequest(command=(sys.executable, "-S", "-c", "while True: pass"))
        uid = deployment.controller.submit([busy], "ada").result(10)[0].uid
        running(deployment, uid)

        def forecast() -> float:
            def look(intake):
                jobs = intake.engine.state.jobs
                return jobs.gpu_util_frac.item(jobs.row_of[uid])

            return deployment.controller.ask(look).result(10)

        until(lambda: forecast() > 0.2, "its utilization to be seen")  # the core may be shared with other work
        assert any(line.kind == "JobRevised" for line in deployment.store.lines())
        deployment.controller.cancel([uid], "ada").result(10)
        until(lambda: not deployment.controller.live_records(), "it to end")
    finally:
        quick.close()
        deployment.close()
