"""GPUs in MIG mode as they are found."""

import pytest
from standin import FUNCTION_NOT_FOUND, GIB, NO_PERMISSION, UNKNOWN, Gpu, mig_gpu

from gpuwise.core.commands import MigSlice
from gpuwise.devices.machine import MigInstance
from gpuwise.devices.mig import Instance, is_valid

MIB = 2**20


def test_slices_are_found_by_where_they_start(watch):
    machine = watch(Gpu(), mig_gpu(("2g.10gb", 4), ("3g.20gb", 0), ("1g.5gb", 6)))

    plain, partitioned = machine.devices[0]
    assert (plain.mig_enabled, plain.mig) == (False, ())
    assert partitioned.mig_enabled
    # of 7 compute slices: 3/7, 2/7, 1/7
    assert partitioned.mig == (
        MigInstance("MIG-1-2", MigSlice("3g.20gb", 0, 429, 19968 * MIB)),
        MigInstance("MIG-1-1", MigSlice("2g.10gb", 4, 286, 9856 * MIB)),
        MigInstance("MIG-1-3", MigSlice("1g.5gb", 6, 143, 4864 * MIB)),
    )
    assert machine.layout() == {(0, 1): tuple(each.slice for each in partitioned.mig)}


def test_mig_that_is_switched_off_is_an_ordinary_gpu(watch):
    machine = watch(Gpu(mig=0))

    assert machine.devices[0][0].mig_enabled is False
    assert machine.layout() == {}
    assert machine.lost() == frozenset()


def test_a_single_slice_of_full_size_is_a_whole_gpu(watch, world):
    machine = watch(mig_gpu(("7g.40gb", 0)))

    assert machine.layout() == {}
    assert [each.uuid for each in machine.devices[0][0].mig] == ["MIG-0-1"]
    assert machine.lost() == frozenset()
    assert world.log == []


def test_a_gpu_without_slices_is_made_whole_since_it_could_run_nothing(watch, world):
    machine = watch(mig_gpu())

    assert world.log == ["create 0 7g.40gb 0", "compute 0 7g.40gb 0: 7"]
    assert machine.lost() == frozenset()
    assert machine.notes == ()


def test_a_gpu_without_slices_that_may_not_be_cut_is_lost_with_a_note(watch, world):
    world.fail("nvmlDeviceCreateGpuInstanceWithPlacement", NO_PERMISSION)
    machine = watch(mig_gpu(), Gpu())

    assert machine.lost() == {(0, 0)}
    (note,) = machine.notes
    assert note.startswith("nothing can run on it before it is partitioned: GPU GPU-00000000")
    assert note.endswith("only root may repartition it")


def test_a_driver_that_does_not_name_its_profiles_is_too_old(watch, world):
    world.fail("nvmlDeviceGetGpuInstanceProfileInfoV", FUNCTION_NOT_FOUND)
    machine = watch(mig_gpu(("3g.20gb", 0)), Gpu())

    assert machine.lost() == {(0, 0)}
    assert "R510 or later" in machine.notes[0]


def test_slices_cut_by_others_are_seen_at_the_next_look(watch, world):
    machine = watch(mig_gpu(("3g.20gb", 0)))
    world.repartition(0, ("2g.10gb", 2), ("1g.5gb", 6))

    assert [(each.profile, each.start) for each in machine.layout()[0, 0]] == [("2g.10gb", 2), ("1g.5gb", 6)]
    assert [each.uuid for each in machine.devices[0][0].mig] == ["MIG-0-2", "MIG-0-3"]


def test_where_a_look_fails_slices_are_as_they_were_last_seen(watch, world):
    machine = watch(mig_gpu(("3g.20gb", 0)))
    world.fail("nvmlDeviceGetMaxMigDeviceCount", UNKNOWN)

    assert [each.profile for each in machine.layout()[0, 0]] == ["3g.20gb"]


@pytest.mark.parametrize(
    "profiles",
    [
        ["3g.20gb", "2g.10gb", "2g.10gb"],
        ["1g.5gb"] * 7,
        ["1g.10gb", "4g.20gb"],
        ["2g.10gb", "1g.5gb", "3g.20gb"],
    ],
)
def test_without_root_slices_are_laid_out_in_a_way_that_is_possible(watch, world, profiles):
    world.fail("nvmlDeviceGetGpuInstanceById", NO_PERMISSION)
    starts = {"3g.20gb": [4], "2g.10gb": [0, 2], "1g.5gb": [4, 5, 6, 0, 1, 2, 3], "4g.20gb": [0], "1g.10gb": [4]}
    if "1g.5gb" in profiles and "3g.20gb" in profiles:
        starts["1g.5gb"] = [2]
    instances = [(profile, starts[profile].pop(0)) for profile in profiles]
    machine = watch(mig_gpu(*instances))

    found = machine.layout()[0, 0]
    assert sorted(each.profile for each in found) == sorted(profiles)
    assert is_valid("A100", [Instance(each.profile, each.start) for each in found])
    assert len({instance.uuid for instance in machine.devices[0][0].mig}) == len(profiles)


def test_without_root_slices_of_a_gpu_the_catalogue_does_not_know_are_numbered(watch, world):
    world.fail("nvmlDeviceGetGpuInstanceById", NO_PERMISSION)
    machine = watch(mig_gpu(("3g.20gb", 0), ("3g.20gb", 4), name="NVIDIA X9"))

    assert [(each.profile, each.start) for each in machine.layout()[0, 0]] == [("3g.20gb", 0), ("3g.20gb", 1)]


def test_an_instance_of_several_compute_instances_is_represented_by_its_first(watch):
    (found,) = watch(mig_gpu(("3g.20gb", 4, 3))).devices[0][0].mig

    assert found == MigInstance("MIG-0-1", MigSlice("3g.20gb", 4, 429, 19968 * MIB))


def test_media_profiles_go_by_their_own_name(watch):
    (found,) = watch(mig_gpu(("1g.5gb+me", 2))).devices[0][0].mig

    assert found.slice == MigSlice("1g.5gb+me", 2, 143, 4.75 * GIB)
