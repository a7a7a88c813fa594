"""Repartitioning GPUs in MIG mode, and what is refused."""

import pytest
from standin import IN_USE, INSUFFICIENT_RESOURCES, NO_PERMISSION, UNKNOWN, Gpu, mig_gpu

from gpuwise.core.commands import MigSlice
from gpuwise.devices.machine import DeviceInUseError, MachineError

HALVES = (("3g.20gb", 0), ("3g.20gb", 4))


def slices(*wanted):
    """What a policy would ask for; only profile and start matter to the driver."""
    return tuple(MigSlice(profile, start, 1, 1.0) for profile, start in wanted)


def slices_on(machine, device=0):
    return [(each.profile, each.start) for each in machine.layout().get((0, device), ())]


def test_a_gpu_is_cut_into_slices_at_their_starts(watch, world):
    machine = watch(Gpu(), mig_gpu(("7g.40gb", 0)))
    machine.repartition(0, 1, slices(("2g.10gb", 4), ("4g.20gb", 0)))

    assert world.log == [
        "destroy 1 7g.40gb 0",
        "create 1 4g.20gb 0",
        "compute 1 4g.20gb 0: 4",
        "create 1 2g.10gb 4",
        "compute 1 2g.10gb 4: 2",
    ]
    assert slices_on(machine, 1) == [("4g.20gb", 0), ("2g.10gb", 4)]
    assert [each.uuid for each in machine.devices[0][1].mig] == ["MIG-1-2", "MIG-1-3"]


def test_no_slices_make_it_whole(watch, world):
    machine = watch(mig_gpu(*HALVES))
    machine.repartition(0, 0, ())

    assert machine.layout() == {}
    assert [each.slice.profile for each in machine.devices[0][0].mig] == ["7g.40gb"]
    assert machine.lost() == frozenset()


def test_to_ask_for_what_is_there_changes_nothing(watch, world):
    machine = watch(mig_gpu(*HALVES, processes=[(11, 1, 1)]))
    machine.repartition(0, 0, slices(*reversed(HALVES)))

    assert world.log == []


def test_slices_that_stay_are_not_touched_even_if_in_use(watch, world):
    machine = watch(mig_gpu(*HALVES, processes=[(11, 1, 2)]))  # on the second instance, at 4
    machine.repartition(0, 0, slices(("2g.10gb", 0), ("1g.10gb", 2), ("3g.20gb", 4)))

    assert slices_on(machine) == [("2g.10gb", 0), ("1g.10gb", 2), ("3g.20gb", 4)]
    assert [each.uuid for each in machine.devices[0][0].mig] == ["MIG-0-3", "MIG-0-4", "MIG-0-2"]
    assert world.log[0] == "destroy 0 3g.20gb 0"
    assert not [line for line in world.log if "3g.20gb 4" in line]


def test_an_instance_of_several_compute_instances_can_go(watch, world):
    machine = watch(mig_gpu(("3g.20gb", 4, 3)))
    machine.repartition(0, 0, slices(("1g.5gb", 6)))

    assert slices_on(machine) == [("1g.5gb", 6)]


def test_an_instance_without_compute_instances_gets_one(watch, world):
    machine = watch(mig_gpu(("3g.20gb", 4, 0), ("3g.20gb", 0)))
    assert slices_on(machine) == [("3g.20gb", 0)]
    machine.repartition(0, 0, slices(*HALVES))

    assert world.log == ["compute 0 3g.20gb 4: 3"]
    assert slices_on(machine) == list(HALVES)


def test_it_is_refused_while_a_slice_that_would_go_is_in_use(watch, world):
    machine = watch(mig_gpu(*HALVES, processes=[(11, 1, 1), (12, 1, 1)]))
    with pytest.raises(DeviceInUseError, match=r"GPU-00000000.*while processes use its slices: 11, 12"):
        machine.repartition(0, 0, slices(("7g.40gb", 0)))

    assert world.log == []
    assert slices_on(machine) == list(HALVES)


def test_a_use_that_only_the_driver_knows_of_is_refused_by_it_and_all_is_as_before(watch, world):
    machine = watch(mig_gpu(*HALVES))
    world.fail("nvmlComputeInstanceDestroy", IN_USE, after=1)  # the second of the two
    with pytest.raises(DeviceInUseError, match="while it is in use"):
        machine.repartition(0, 0, ())

    assert world.log == ["destroy 0 3g.20gb 0", "create 0 3g.20gb 0", "compute 0 3g.20gb 0: 3"]
    assert slices_on(machine) == list(HALVES)
    assert machine.lost() == frozenset()


@pytest.mark.parametrize(
    "function", ["nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance"]
)
@pytest.mark.parametrize("after", [0, 1])
def test_if_the_driver_refuses_on_the_way_the_gpu_is_put_back_as_it_was(watch, world, function, after):
    machine = watch(mig_gpu(*HALVES))
    world.fail(function, INSUFFICIENT_RESOURCES, after=after, times=1)
    with pytest.raises(MachineError, match=r"the driver refuses this partition \(error 23\)"):
        machine.repartition(0, 0, slices(("4g.20gb", 0), ("2g.10gb", 4)))

    assert slices_on(machine) == list(HALVES)
    assert machine.lost() == frozenset()


def test_a_gpu_that_cannot_be_put_back_is_lost_until_it_is_partitioned(watch, world):
    machine = watch(mig_gpu(*HALVES), Gpu())
    world.fail("nvmlDeviceCreateGpuInstanceWithPlacement", UNKNOWN)
    with pytest.raises(MachineError, match="Unknown Error"):
        machine.repartition(0, 0, ())
    assert machine.lost() == {(0, 0)}

    world.fix()
    machine.repartition(0, 0, slices(*HALVES))
    assert machine.lost() == frozenset()
    assert slices_on(machine) == list(HALVES)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ([("3g.20gb", 2)], "3g.20gb cannot start at 2; it can at 0, 4"),
        ([("3g.40gb", 0)], "no MIG profile '3g.40gb' on this GPU; it offers 1g.5gb, 2g.10gb, 3g.20gb"),
        ([("3g.20gb", 0), ("2g.10gb", 2)], "3g.20gb at 0, 2g.10gb at 2 overlap"),
        ([("1g.5gb", 0), ("1g.5gb", 0)], "1g.5gb at 0, 1g.5gb at 0 overlap"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_destroyed(watch, world, wanted, words):
    machine = watch(mig_gpu(*HALVES))
    with pytest.raises(MachineError, match=words):
        machine.repartition(0, 0, slices(*wanted))

    assert world.log == []


def test_only_root_may_repartition(watch, world):
    machine = watch(mig_gpu(*HALVES))
    world.fail("nvmlDeviceGetGpuInstances", NO_PERMISSION)
    with pytest.raises(MachineError, match="only root may repartition it"):
        machine.repartition(0, 0, ())

    assert world.log == []


def test_mig_is_not_switched_on_by_the_way(watch, world):
    machine = watch(Gpu(mig=0), Gpu())
    for device in (0, 1):
        with pytest.raises(MachineError, match=rf"not in MIG mode; .* nvidia-smi -i 00000000:0{device}:00.0 -mig 1"):
            machine.repartition(0, device, slices(*HALVES))
        machine.repartition(0, device, ())  # is whole already
    assert world.log == []


def test_there_is_no_such_device(watch):
    with pytest.raises(MachineError, match="no device 1 on node 0"):
        watch(mig_gpu(*HALVES)).repartition(0, 1, ())
