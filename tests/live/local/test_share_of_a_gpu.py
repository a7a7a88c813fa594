"""What share of a GPU a job is held to."""

from __future__ import annotations

import pytest

from builders import on
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.request import JobRequest
from gpuwise.live.local.attempts.launch import as_asked


@pytest.mark.parametrize(
    ("gpu_frac", "sharing", "milli", "held_to"),
    [
        (1.0, Sharing.SHARED, 333, 1000),  # a third only says how many may be there
        (0.5, Sharing.SHARED, 500, 500),  # what its user asked for
        (1.0, Sharing.TIME_SLICE, 500, 500),  # a turn is a turn
        (1.0, Sharing.EXCLUSIVE, 1000, 1000),
    ],
)
def test_a_job_that_asked_for_whole_gpus_may_use_all_that_others_leave(
    gpu_frac: float, sharing: Sharing, milli: int, held_to: int
) -> None:
    request = JobRequest(command=("true",), gpu_frac=gpu_frac)
    assert as_asked(on((0, 0), sharing=sharing, milli=milli), request).milli == held_to
