"""The retry rule: who is tried again after a failure, how often, and with how much memory."""

from __future__ import annotations

import pytest

from gpuwise.core.observations import Cause
from gpuwise.engine.observing import AttemptMemory, History, back_off_s, judge

NONE = AttemptMemory(0.0, 0.0, 0.0)


def retried(cause: Cause, retries: int, failures: int) -> bool:
    return judge(cause, "", History(retries, failures, 0), NONE).retry


@pytest.mark.parametrize(
    ("cause", "retries", "times"),
    [
        (Cause.ERROR, 0, 0),
        (Cause.ERROR, 2, 2),
        (Cause.LOST, 0, 0),  # it may have done its work: at most once
        (Cause.LOST, 1, 3),  # nobody's fault, but not for ever
        (Cause.LOST, 5, 5),
        (Cause.LIMIT, 5, 0),
        (Cause.NODE_LOST, 0, 100),
        (Cause.DEVICE_LOST, 0, 100),
    ],
)
def test_how_often_a_job_is_tried_again(cause: Cause, retries: int, times: int):
    assert [retried(cause, retries, failures) for failures in range(100)] == [at < times for at in range(100)]


def test_an_estimate_of_memory_grows_until_it_is_all_there_is():
    had, seen = 4e9, []
    for times in range(10):
        verdict = judge(Cause.OUT_OF_MEMORY, "", History(0, 0, times), AttemptMemory(had, 0.0, 16e9))
        if not verdict.retry:
            break
        had = verdict.gpu_memory_bytes
        seen.append(had)
    assert seen == [6e9, 9e9, 13.5e9]
    assert "4 times" in verdict.cause


def test_a_measured_peak_counts_with_a_little_more():
    verdict = judge(Cause.OUT_OF_MEMORY, "", History(0, 0, 0), AttemptMemory(4e9, 10e9, 16e9))
    assert verdict.gpu_memory_bytes == 11e9


def test_a_job_that_had_or_needs_more_than_the_largest_device_is_not_tried_again():
    all_of_it = judge(Cause.OUT_OF_MEMORY, "", History(9, 0, 0), AttemptMemory(16e9, 0.0, 16e9))
    too_large = judge(Cause.OUT_OF_MEMORY, "", History(9, 0, 0), AttemptMemory(4e9, 17e9, 16e9))
    assert (all_of_it.retry, too_large.retry) == (False, False)
    assert "it had all" in all_of_it.cause
    assert "the largest has" in too_large.cause


def test_refused_starts_back_off_up_to_five_minutes():
    assert [back_off_s(times) for times in (1, 2, 3, 9, 10, 1000)] == [1.0, 2.0, 4.0, 256.0, 300.0, 300.0]


def test_a_lost_job_without_retries_is_run_again_only_if_it_may_be_requeued():
    def lost(failures: int, requeue: bool):
        return judge(Cause.LOST, "its supervisor was lost", History(0, failures, 0, requeue=requeue), NONE)

    assert [lost(failures, True).retry for failures in range(5)] == [True, True, True, False, False]
    assert not lost(0, False).retry
    assert lost(0, False).cause == "its supervisor was lost; it is not run again without --requeue or --retries"
