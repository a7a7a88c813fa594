"""Small runs whose outcome a person can work out; the arithmetic stands beside each."""

from __future__ import annotations

import pytest

from builders import cluster, finished, job, node, run, started, stays
from gpuwise.core.job.needs import Sharing
from gpuwise.core.units import GIB

# -- fifo --------------------------------------------------------------------------------------------------------------


def test_fifo_holds_up_everybody_behind_a_job_that_does_not_fit():
    jobs = [job("a", 10, 3), job("b", 5, 2, at=1), job("c", 1, 1, at=2)]
    result = run(jobs, "1x4:V100", "fifo")
    # One GPU is idle from 0 to 10; b needs two, and c, for which one would do, is behind b. At 10 both have room.
    assert started(result) == {"a": 0, "b": 10, "c": 10}
    assert finished(result) == {"a": 10, "b": 15, "c": 11}
    # (10 - 0) + (15 - 1) + (11 - 2) = 33 s over 3 jobs; 0 + 9 + 8 = 17 s in the queue.
    assert result.metrics.avg_jct_s == pytest.approx(33 / 3)
    assert result.metrics.avg_queue_s == pytest.approx(17 / 3)
    # 3 × 10 + 2 × 5 + 1 × 1 = 41 of 4 × 15 GPU seconds.
    assert result.metrics.gpu_alloc_frac == pytest.approx(41 / 60)
    assert result.metrics.makespan_s == 15


def test_backfill_lets_a_job_pass_that_ends_before_the_reservation_or_on_it():
    jobs = [job("a", 10, 3), job("b", 5, 4, at=1), job("c", 9.5, 1, at=1), job("d", 8, 1, at=2)]
    result = run(jobs, "1x4:V100", "fifo-backfill")
    # b has a reservation at 10, when a ends. c would end at 1 + 9.5 = 10.5 and delay it; d ends at 2 + 8 = 10 and may
    # pass. b runs from 10 to 15, then c.
    assert started(result) == {"a": 0, "b": 10, "c": 15, "d": 2}


def test_backfill_lets_a_long_job_pass_that_stays_out_of_the_way():
    jobs = [job("a", 10, 3), job("b", 5, 2, at=1), job("c", 100, 1, at=2)]
    result = run(jobs, "1x4:V100", "fifo-backfill")
    # At 10 three GPUs are free beside the one c holds; b needs two of them.
    assert started(result) == {"a": 0, "b": 10, "c": 2}


def test_backfill_counts_jobs_started_in_the_same_decision():
    jobs = [job("a", 10, 3), job("b", 5, 4), job("c", 20, 1), job("d", 10, 1)]
    result = run(jobs, "1x4:V100", "fifo-backfill")
    # All come at 0. a starts; b is reserved for 10; c would end at 20; d ends at 10 and passes. b 10 to 15, then c.
    assert started(result) == {"a": 0, "b": 10, "c": 15, "d": 0}


def test_backfill_with_equal_jobs_is_fifo():
    jobs = [job(f"j{i}", 7, 2, at=i) for i in range(9)]
    assert started(run(jobs, "1x4:V100", "fifo-backfill")) == started(run(jobs, "1x4:V100", "fifo"))


def test_backfill_reserves_cpus_too():
    spec = cluster(node("n0", 4, cpus=8))
    jobs = [job("a", 10, 1, cpus=6), job("b", 5, 1, at=1, cpus=8), job("c", 20, 1, at=2, cpus=2)]
    result = run(jobs, spec, "fifo-backfill")
    # b needs all 8 CPUs and is reserved for 10. c would hold 2 of them until 22, so it waits until b has ended at 15.
    assert started(result) == {"a": 0, "b": 10, "c": 15}


# -- shortest first ----------------------------------------------------------------------------------------------------


def test_sjf_goes_by_run_time_and_interrupts_nobody():
    jobs = [job("a", 10), job("b", 5, at=1), job("c", 2, at=2)]
    result = run(jobs, "1x1:V100", "sjf")
    # a until 10, then c (2 s) before b (5 s).
    assert started(result) == {"a": 0, "c": 10, "b": 12}
    assert result.metrics.preemptions == 0


def test_sjf_lets_others_pass_a_job_that_does_not_fit():
    jobs = [job("a", 10, 3), job("b", 2, 2, at=1), job("c", 5, 1, at=1)]
    assert started(run(jobs, "1x4:V100", "sjf")) == {"a": 0, "b": 10, "c": 1}


def test_srtf_preempts_and_resumes_and_pays_for_both():
    jobs = [job("a", 10, suspend_s=2, resume_s=3), job("b", 4, at=3)]
    result = run(jobs, "1x1:V100", "srtf")
    # At 3 a has 10 - 3 = 7 s left and b 4: b gets the GPU. a saves for 2 s, so b's first step is at 5 and its last at
    # 9. a gets the GPU back at 9, loads for 3 s and ends at 12 + 7 = 19.
    assert stays(result) == [("a", "n0", 0, 3), ("b", "n0", 3, 9), ("a", "n0", 9, 19)]
    assert result.metrics.preemptions == 1
    # Held without a step: 2 s by b and 3 s by a, of 19 s in all.
    assert result.metrics.gpu_util_frac == pytest.approx((19 - 2 - 3) / 19)
    assert result.metrics.gpu_alloc_frac == 1


def test_srtf_leaves_a_job_alone_that_has_less_left():
    jobs = [job("a", 10), job("b", 4, at=7)]
    # At 7 a has 3 s left, less than b's 4.
    assert stays(run(jobs, "1x1:V100", "srtf")) == [("a", "n0", 0, 10), ("b", "n0", 10, 14)]


def test_srtf_takes_no_more_gpus_than_it_needs():
    jobs = [job("a", 50, 1), job("b", 40, 2), job("c", 30, 1), job("d", 5, 2, at=10)]
    result = run(jobs, "1x4:V100", "srtf")
    # At 10: a has 40 s left, b 30, c 20. d needs two GPUs: a's one is not enough, a's and b's are, and then a's is not
    # needed any more. b is back at 15 with 30 s left.
    assert stays(result) == [
        ("a", "n0", 0, 50),
        ("b", "n0", 0, 10),
        ("c", "n0", 0, 30),
        ("d", "n0", 10, 15),
        ("b", "n0", 15, 45),
    ]
    assert result.metrics.preemptions == 1


def test_srtf_without_costs_has_the_shortest_average_completion_time_of_all_on_one_gpu():
    jobs = [
        job(f"j{i}", duration, at=float(at))
        for i, (duration, at) in enumerate([(9, 0), (4, 1), (1, 2), (6, 3), (2, 9)])
    ]
    # j0 0-1 (8 left), j1 1-2 (3 left), j2 2-3, j1 3-6, j3 6-9 (3 left), j4 9-11, j3 11-14, j0 14-22.
    result = run(jobs, "1x1:V100", "srtf")
    assert finished(result) == {"j0": 22, "j1": 6, "j2": 3, "j3": 14, "j4": 11}
    # 22 + 5 + 1 + 11 + 2 = 41 s.
    assert result.metrics.avg_jct_s == pytest.approx(41 / 5)
    for other in ("fifo", "sjf", "las", "priority"):
        assert run(jobs, "1x1:V100", other).metrics.avg_jct_s > 41 / 5


def test_srsf_goes_by_gpu_time():
    jobs = [job("a", 6, 2), job("b", 8, 1)]
    # a has less time left (6 < 8), b less GPU time (8 × 1 < 6 × 2).
    assert started(run(jobs, "1x2:V100", "srtf")) == {"a": 0, "b": 6}
    assert started(run(jobs, "1x2:V100", "srsf")) == {"a": 8, "b": 0}


SCATTERED = [job("x", 10, migrate_s=3), job("y", 20, migrate_s=3), job("z", 30, migrate_s=3), job("e", 5, 2, at=12)]


def test_srtf_with_repacking_moves_jobs_together_to_make_room():
    result = run(SCATTERED, "2x2:V100", "srtf?repack=true")
    # x and y are on n0, z on n1. x ends at 10. At 12 e (5 s) needs a whole node; y has 8 s left, z 18. Placed anew in
    # that order, e gets n0, y and z n1: both move within it or to it and load until 15.
    # e 12-17, y 15 + 8 = 23, z 15 + 18 = 33.
    assert finished(result) == {"x": 10, "y": 23, "z": 33, "e": 17}
    assert (result.metrics.migrations, result.metrics.preemptions) == (2, 0)


def test_srtf_without_repacking_preempts_instead():
    result = run(SCATTERED, "2x2:V100", "srtf")
    # z has most left and makes room for e on n1; at once it goes on beside y on n0, with 18 s left at 12.
    assert finished(result) == {"x": 10, "y": 20, "z": 30, "e": 17}
    assert (result.metrics.migrations, result.metrics.preemptions) == (0, 1)


def test_repacking_moves_a_job_again_that_is_still_loading():
    # As above; at 13, while y and z load, w comes and makes everybody move again.
    result = run([*SCATTERED, job("w", 1, 1, at=13)], "2x2:V100", "srtf?repack=true")
    assert finished(result)["w"] == 14
    assert result.metrics.finished == 5


# -- urgency -----------------------------------------------------------------------------------------------------------

URGENT = [job("a", 10), job("b", 5, at=2, deadline_s=20), job("c", 3, at=3, deadline_s=9)]


def test_edf_preempts_for_the_next_deadline():
    result = run(URGENT, "1x1:V100", "edf")
    # a 0-2, b 2-3, c 3-6, b 6-10 (4 s left), a 10-18 (8 s left).
    assert finished(result) == {"a": 18, "b": 10, "c": 6}
    assert result.metrics.deadline_misses == 0


def test_edf_without_preemption_misses_a_deadline():
    result = run(URGENT, "1x1:V100", "edf?preempt=false")
    # a 0-10, c 10-13 (after 9), b 13-18 (before 20).
    assert finished(result) == {"a": 10, "c": 13, "b": 18}
    assert result.metrics.deadline_misses == 1


RANKED = [job("a", 10), job("b", 5, at=1, priority=1), job("c", 2, at=2, priority=5)]


def test_priority_goes_by_priority_and_interrupts_nobody():
    # a 0-10, c 10-12, b 12-17.
    assert finished(run(RANKED, "1x1:V100", "priority")) == {"a": 10, "c": 12, "b": 17}


def test_preemptive_priority_takes_from_the_lower():
    # a 0-1, b 1-2, c 2-4, b 4-8 (4 s left), a 8-17 (9 s left).
    assert finished(run(RANKED, "1x1:V100", "priority-preempt")) == {"a": 17, "b": 8, "c": 4}


def test_equal_priorities_go_by_submission_and_do_not_preempt_each_other():
    jobs = [job("a", 5), job("b", 5, at=1), job("c", 5, at=2)]
    assert started(run(jobs, "1x1:V100", "priority-preempt")) == {"a": 0, "b": 5, "c": 10}


# -- least attained service --------------------------------------------------------------------------------------------


def test_las_drops_a_job_to_the_next_queue_when_it_has_attained_the_threshold():
    jobs = [job("a", 25), job("b", 25, at=4)]
    result = run(jobs, "1x1:V100", "las?thresholds_gpu_s=10")
    # a attains 10 GPU s at 10 and drops; b, of the first queue, takes over, and drops at 20 to the end of the second,
    # where a has been first. There nobody interrupts: a 20-35 (15 s left), b 35-50 (15 s left).
    assert [(id, round(begun, 3), round(ended, 3)) for id, _, begun, ended in stays(result)] == [
        ("a", 0, 10),
        ("b", 10, 20),
        ("a", 20, 35),
        ("b", 35, 50),
    ]


def test_las_counts_time_by_gpus():
    jobs = [job("a", 25, 2), job("b", 25, 2, at=1)]
    result = run(jobs, "1x2:V100", "las?thresholds_gpu_s=10")
    # Two GPUs attain 10 GPU s in 5 s.
    assert stays(result)[0][3] == pytest.approx(5, abs=1e-3)


def test_las_puts_new_jobs_first_and_the_driven_out_back_at_the_head():
    jobs = [job("a", 30), job("b", 30, at=1), job("c", 4, at=25)]
    result = run(jobs, "1x1:V100", "las?thresholds_gpu_s=10")
    # a 0-10, b 10-20, then both are in the second queue and a is first: 20-25. c is new: 25-29. a was driven out and is
    # ahead of b again: 29-44 (15 s left). b 44-64 (20 s left).
    ends = finished(result)
    assert [round(ends[id], 3) for id in "abc"] == [44, 64, 29]


# -- fairness and packing ----------------------------------------------------------------------------------------------


def test_drf_gives_two_tenants_equal_dominant_shares():
    # Ghodsi et al., NSDI'11, figure 3: 9 CPUs and 18 GB; A's jobs ask for 1 CPU and 4 GB, B's for 3 CPUs and 1 GB.
    spec = cluster(node("n0", 32, cpus=9, memory_bytes=18 * GIB))
    of_a = [job(f"a{i}", 10, tenant="A", cpus=1, memory_bytes=4 * GIB) for i in range(5)]
    of_b = [job(f"b{i}", 10, tenant="B", cpus=3, memory_bytes=1 * GIB) for i in range(5)]
    starts = started(run([*of_a, *of_b], spec, "drf"))
    # 3 jobs of A hold 12 / 18 of the memory, 2 of B hold 6 / 9 of the CPUs: two thirds each.
    assert [id for id, at_s in starts.items() if at_s == 0] == ["a0", "a1", "a2", "b0", "b1"]


def test_drf_serves_the_tenant_that_holds_less():
    jobs = [
        *(job(f"a{i}", 100, tenant="A") for i in range(4)),
        *(job(f"b{i}", 100, tenant="B", at=1) for i in range(3)),
        job("a4", 100, tenant="A", at=1),
    ]
    starts = started(run(jobs, "1x6:V100", "drf"))
    # At 1 A holds 4 of 6 GPUs and B none: the two that are left go to B.
    assert [id for id, at_s in starts.items() if at_s == 1] == ["b0", "b1"]


PACKED = [job("x", 10, 2, cpus=4), job("y", 10, 1, cpus=12), job("z", 10, 3, cpus=8)]
ONE_NODE = cluster(node("n0", 4, cpus=16))


def test_tetris_starts_the_job_that_lines_up_best_with_what_is_free():
    # On the empty node: x 2/4 + 4/16 = 0.75, y 1/4 + 12/16 = 1, z 3/4 + 8/16 = 1.25. z starts and leaves 1 GPU and
    # 8 CPUs: too little for x and y. At 10 y and x fit together.
    assert started(run(PACKED, ONE_NODE, "tetris")) == {"z": 0, "y": 10, "x": 10}


def test_tetris_weighs_how_short_a_job_is():
    jobs = [job("x", 1, 2, cpus=4), *PACKED[1:]]
    # x: 0.75 + 10 × (1 - 1/10) = 9.75, y: 1, z: 1.25. x leaves 2 GPUs and 12 CPUs: not enough for z, enough for y,
    # which ends at 10.
    assert started(run(jobs, ONE_NODE, "tetris?shortness=10")) == {"x": 0, "y": 0, "z": 10}


def test_backfill_counts_with_the_speed_of_the_node_it_fills_in_on():
    # Slow GPUs run at a quarter of the declared speed. "b" ends at 25 / 0.25 = 100: there "head" has its reservation.
    # "long" is declared at 60 s but takes 240 there, so it must wait; "short", declared at 20 s, ends at 82 and passes.
    slow = cluster(node("slow", 2, "K80", speed=0.25))
    jobs = [job("b", 25), job("head", 10, gpus=2, at=1), job("long", 60, at=2), job("short", 20, at=2)]
    starts = started(run(jobs, slow, "fifo-backfill"))
    assert (starts["head"], starts["short"]) == (100, 2)
    assert starts["long"] >= 140  # head: 10 / 0.25 = 40 s


def test_srsf_counts_a_fraction_that_is_held_alone_as_a_fraction():
    only = frozenset((Sharing.EXCLUSIVE,))
    jobs = [job("a", 100, gpu_frac=0.5, sharing=only), job("b", 60, at=1)]
    # a holds the whole GPU but has asked for half: 49.5 GPU seconds are left of it at 1, fewer than b's 60.
    assert started(run(jobs, "1x1:V100", "srsf")) == {"a": 0, "b": 100}


def test_srsf_counts_fractions_of_a_gpu_alike_for_those_who_wait_and_those_who_run():
    # Four quarters for 100 s; at 1 s a fifth with 30 s comes: 30 × 0.25 < 99 × 0.25, so it takes a place at once.
    jobs = [job(f"a{i}", 100, gpu_frac=0.25, gpu_util_frac=0.2) for i in range(4)]
    result = run([*jobs, job("b", 30, at=1, gpu_frac=0.25, gpu_util_frac=0.2)], "1x1:V100", "srsf")
    assert started(result)["b"] == 1


def test_preemption_uses_what_the_placement_can_do_with_several_nodes():
    # On each of two nodes a short and a long job. "wide" (2 GPUs, 300 s) ranks before the long ones alone. No node
    # could hold it then, but consolidated splits it over both.
    even = [
        job("s0", 50),
        job("l0", 1000, at=1),
        job("s1", 50, at=2),
        job("l1", 1000, at=3),
        job("wide", 300, gpus=2, at=5),
    ]
    spread_out = run(even, "2x2:V100", "srtf", placement="consolidated")
    assert started(spread_out)["wide"] == 5


def test_a_very_high_priority_comes_first():
    # 3,000,000,000 is more than 32 bits hold.
    jobs = [job("first", 10), job("low", 10, at=1, priority=1), job("high", 10, at=2, priority=3_000_000_000)]
    assert started(run(jobs, "1x1:V100", "priority")) == {"first": 0, "high": 10, "low": 20}
