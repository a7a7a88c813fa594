from __future__ import annotations

import pytest

from gpuwise.core.commands import MigSlice
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.needs import slice_name
from gpuwise.core.units import GIB
from gpuwise.devices.catalogue import gpu_types
from gpuwise.devices.mig import check_slices, has_mig, is_valid, layout_of, mig_profiles, partitions, slices_of

WITH_MIG = [name for name in gpu_types() if has_mig(name)]


def test_the_catalogue_says_of_the_same_types_that_they_have_mig():
    assert set(WITH_MIG) == {name for name, gpu in gpu_types().items() if gpu.mig}
    assert not has_mig("V100")
    assert not has_mig("cpu-core")


@pytest.mark.parametrize("gpu", WITH_MIG)
def test_slices_are_called_by_their_compute_slices_whatever_the_gpu(gpu):
    for profile in mig_profiles(gpu):
        (piece,) = slices_of(gpu, layout_of(gpu, [profile.name]))
        assert slice_name(gpu, piece.milli) == f"{gpu}/{profile.compute_slices}g"


@pytest.mark.parametrize("gpu", WITH_MIG)
def test_every_partition_makes_slices_that_pass_the_check(gpu):
    for layout in partitions(gpu):
        slices = slices_of(gpu, layout)
        assert sum(piece.milli for piece in slices) <= 1001  # seven times 143 is 1001
        check_slices(gpu, slices)


def test_slices_have_the_shares_and_the_memory_of_their_profiles():
    slices = slices_of("A100", layout_of("A100", ["2g.10gb", "4g.20gb", "1g.5gb"]))
    # 4/7, 2/7 and 1/7 of 1000
    assert [(each.profile, each.start, each.milli) for each in slices] == [
        ("4g.20gb", 0, 571), ("2g.10gb", 4, 286), ("1g.5gb", 6, 143),
    ]  # fmt: skip
    assert slices[0].memory_bytes == 19.5 * GIB


def test_a_layout_is_found_for_profiles_in_any_order_and_only_if_there_is_one():
    assert is_valid("A100", layout_of("A100", ["1g.5gb", "2g.10gb", "4g.20gb"]))
    assert layout_of("A100", ["4g.20gb", "4g.20gb"]) is None
    assert layout_of("A100", ["3g.20gb", "3g.20gb", "1g.5gb"]) is None


GOOD = MigSlice("3g.20gb", 0, 429, 19.5 * GIB)


@pytest.mark.parametrize(
    ("gpu", "slices", "says"),
    {
        "a type without MIG": ("V100", (GOOD,), "V100 has no MIG"),
        "an unknown profile": ("A100", (GOOD._replace(profile="5g.20gb"),), "5g.20gb"),
        "a profile of another type": ("H100", (GOOD,), "3g.20gb"),
        "a wrong start": ("A100", (GOOD._replace(start=1),), "cannot be partitioned into 3g.20gb at 1"),
        "an overlap": ("A100", (GOOD, MigSlice("1g.5gb", 3, 143, 4.75 * GIB)), "cannot be partitioned into"),
        "a wrong share": ("A100", (GOOD._replace(milli=500),), "429/1000 of it, not 500"),
        "too much memory": ("A100", (GOOD._replace(memory_bytes=30 * GIB),), "19.5 GiB of memory, not 30 GiB"),
    }.values(),
)
def test_a_cut_that_the_hardware_does_not_allow_is_refused(gpu, slices, says):
    with pytest.raises(GpuwiseError, match=says):
        check_slices(gpu, slices)


@pytest.mark.parametrize(
    ("gpu", "slices"),
    [("V100", ()), ("cpu-core", (GOOD,)), ("A100", (GOOD,)), ("A100", (GOOD._replace(memory_bytes=20 * GIB),))],
    ids=["made whole", "a type that is not in the catalogue", "as the catalogue", "as another driver says"],
)
def test_other_cuts_pass(gpu, slices):
    check_slices(gpu, slices)
