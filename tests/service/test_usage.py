"""What was used, by hand: attempts with their placements, summed by user, queue and day."""

from __future__ import annotations

from datetime import datetime

import pytest

from gpuwise.core.commands import Grant, Placement, TaskGrant
from gpuwise.core.job.needs import Sharing
from gpuwise.core.records import AttemptUse
from gpuwise.live.job_records import describe, gpus_of
from gpuwise.service.live.usage import summed

MIDNIGHT = datetime(2030, 2, 1).timestamp()


def use(uid: str, user: str, placement: str, start: float, end: float | None, util: float | None = None) -> AttemptUse:
    source = "observed" if util is not None else "declared"
    return AttemptUse(uid, user, "default", placement, start, end, util, source)


class _State:
    class nodes:  # noqa: N801
        names = ("box", "a-b.c")


@pytest.mark.parametrize(
    ("placement", "gpus"),
    [
        (Placement((Grant(0, 0b11),)), 2),
        (Placement((Grant(0, 0b1), Grant(1, 0b110))), 3),
        (Placement((Grant(0, 0b100),), Sharing.SHARED, 500), 0.5),
        (Placement((Grant(0, 0b1, 4),), Sharing.MIG, 286), 0.286),
        (Placement((Grant(0, 0),)), 0),
        (Placement((Grant(0, 0b11), Grant(1, 0b1)), tasks=(TaskGrant("worker", 0, 2), TaskGrant("ps", 1, 1))), 3),
        (Placement((Grant(1, 0b10),), Sharing.SHARED, 250, tasks=(TaskGrant("worker", 1, 2),)), 0.25),
        (Placement((), tasks=(TaskGrant("loader", 1, 3),)), 0),
    ],
)
def test_gpus_are_read_from_the_text_of_a_placement(placement: Placement, gpus: float) -> None:
    assert gpus_of(describe(placement, _State())) == pytest.approx(gpus)  # type: ignore[arg-type]


def test_time_is_cut_at_the_ends_and_at_midnight() -> None:
    attempts = [
        use("1", "ada", "box:0,1", MIDNIGHT - 100, MIDNIGHT + 50, 0.5),
        use("1", "ada", "box:0", MIDNIGHT + 60, MIDNIGHT + 70, 0.5),
        use("2", "bob", "box:1", MIDNIGHT + 10, None),
    ]
    by_day = summed(attempts, MIDNIGHT - 40, MIDNIGHT + 100, ["user", "day"])
    # ada: 40 s of 2 GPUs before midnight; 50 s of 2 GPUs and 10 s of one after it, half of it used; bob: 90 s of one
    assert [(row.key, row.jobs, row.allocated_gpu_s, row.used_gpu_s, row.observed_gpu_s) for row in by_day] == [
        (("ada", "2030-01-31"), 1, 80, 40, 80),
        (("ada", "2030-02-01"), 1, 110, 55, 110),
        (("bob", "2030-02-01"), 1, 90, 0, 0),
    ]
    (whole,) = summed(attempts, 0, MIDNIGHT + 100, ["queue"])
    assert (whole.key, whole.jobs, whole.allocated_gpu_s) == (("default",), 2, 300 + 10 + 90)
