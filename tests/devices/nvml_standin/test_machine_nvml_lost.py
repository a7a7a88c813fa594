"""GPUs that go away, and come back."""

import math

import pytest
from standin import DRIVER_NOT_LOADED, GPU_IS_LOST, NOT_SUPPORTED, RESET_REQUIRED, UNKNOWN, Gpu, mig_gpu


def test_a_gpu_that_falls_off_the_bus_is_lost_and_the_others_are_not(watch, world):
    machine = watch(Gpu(util=50), Gpu(lost_after=20), Gpu(util=70))
    seen = [machine.lost() for _ in range(30)]

    assert seen[0] == frozenset()
    assert seen[-1] == {(0, 1)}
    reading = machine.read()
    assert math.isnan(reading[0, 1].util_frac)
    assert math.isnan(reading[0, 1].memory_total_bytes)
    assert (reading[0, 0].util_frac, reading[0, 2].util_frac) == (0.5, 0.7)


def test_a_gpu_that_is_there_again_is_no_longer_lost(watch, world):
    machine = watch(Gpu(), Gpu(util=70))
    world.change(1, lost_after=0)
    assert machine.lost() == {(0, 1)}

    world.change(1, lost_after=-1)
    assert machine.lost() == frozenset()
    assert machine.read()[0, 1].util_frac == 0.7


def test_what_was_lost_reads_as_nothing_until_it_is_found_again(watch, world):
    machine = watch(Gpu(util=50), Gpu(util=70))
    world.change(0, lost_after=0)
    machine.lost()
    world.change(0, lost_after=-1)

    assert math.isnan(machine.read()[0, 0].util_frac)
    machine.lost()
    assert machine.read()[0, 0].util_frac == 0.5


def test_a_gpu_that_never_tells_its_memory_is_lost_and_found_like_others(watch, world):
    world.fail("nvmlDeviceGetMemoryInfo", NOT_SUPPORTED)
    machine = watch(Gpu(), Gpu())
    world.change(0, lost_after=0)
    assert machine.lost() == {(0, 0)}

    world.change(0, lost_after=-1)
    assert machine.lost() == frozenset()


@pytest.mark.parametrize("code", [GPU_IS_LOST, RESET_REQUIRED, DRIVER_NOT_LOADED])
def test_answers_after_which_nothing_runs_there(watch, world, code):
    machine = watch(Gpu(), Gpu())
    world.fail("nvmlDeviceGetMemoryInfo", code, gpu=0)

    assert machine.lost() == {(0, 0)}


def test_an_unknown_error_neither_loses_a_gpu_nor_finds_it_again(watch, world):
    machine = watch(Gpu(), Gpu())
    world.fail("nvmlDeviceGetMemoryInfo", UNKNOWN)
    assert machine.lost() == frozenset()

    world.fix()
    world.change(0, lost_after=0)
    assert machine.lost() == {(0, 0)}

    world.change(0, lost_after=-1)
    world.fail("nvmlDeviceGetHandleByPciBusId_v2", UNKNOWN)
    assert machine.lost() == {(0, 0)}
    world.fix()
    assert machine.lost() == frozenset()


def test_another_card_in_its_place_is_not_the_one_that_was_lost(watch, world):
    machine = watch(Gpu(), Gpu())
    world.change(0, lost_after=0)
    assert machine.lost() == {(0, 0)}

    world.change(0, lost_after=-1, uuid="GPU-another")
    assert machine.lost() == {(0, 0)}


def test_when_all_are_lost_nvml_is_started_anew(watch, world):
    machine = watch(Gpu(), Gpu())
    for number in (0, 1):
        world.change(number, lost_after=0, back_at_init=2)
    assert machine.lost() == {(0, 0), (0, 1)}

    assert machine.lost() == frozenset()


def test_a_session_that_cannot_start_now_is_started_later(watch, world):
    machine = watch(Gpu())
    world.change(0, lost_after=0)
    world.fail("nvmlInitWithFlags", DRIVER_NOT_LOADED)
    assert [machine.lost() for _ in range(3)] == [{(0, 0)}] * 3

    world.change(0, lost_after=-1)
    world.fix()
    assert machine.lost() == frozenset()


def test_as_long_as_one_answers_nvml_is_not_started_anew(watch, world):
    machine = watch(Gpu(), Gpu())
    world.change(0, lost_after=0, back_at_init=2)
    assert [machine.lost() for _ in range(3)] == [{(0, 0)}] * 3


def test_a_gpu_in_mig_mode_comes_back_without_slices_and_is_made_whole(watch, world):
    machine = watch(mig_gpu(("3g.20gb", 0), ("3g.20gb", 4)), Gpu())
    world.change(0, lost_after=0)
    assert machine.lost() == {(0, 0)}

    world.change(0, lost_after=-1)
    assert machine.lost() == frozenset()
    assert world.log == ["create 0 7g.40gb 0", "compute 0 7g.40gb 0: 7"]
    assert machine.layout() == {}
    (whole,) = machine.devices[0][0].mig
    assert whole.slice.profile == "7g.40gb"
