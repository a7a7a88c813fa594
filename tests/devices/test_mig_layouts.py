"""MIG: what fits beside what, against NVIDIA's placement rules and against an exhaustive search."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.devices.catalogue import gpu_types
from gpuwise.devices.mig import Instance, best_start, free_starts, is_valid, mig_profile, mig_profiles, partitions

WITH_MIG = [name for name, gpu in gpu_types().items() if gpu.mig]


def at(**starts):
    """A layout on an A100 from compute slices and starts: ``at(g3=0, g1=[4, 5])``."""
    names = {"g1": "1g.5gb", "g1x": "1g.10gb", "g2": "2g.10gb", "g3": "3g.20gb", "g4": "4g.20gb", "g7": "7g.40gb"}
    each = {key: value if isinstance(value, list) else [value] for key, value in starts.items()}
    return tuple(Instance(names[key], start) for key, values in each.items() for start in values)


@pytest.mark.parametrize(
    ("layout", "fits"),
    [
        pytest.param((), True, id="empty"),
        pytest.param(at(g1=[0, 1, 2, 3, 4, 5, 6]), True, id="seven 1g"),
        pytest.param(at(g1=[0, 1, 2, 3, 4, 5, 6, 7]), False, id="eighth 1g: only seven compute slices"),
        pytest.param(at(g3=[0, 4]), True, id="3g and 3g"),
        pytest.param(at(g4=0, g3=4), True, id="4g and 3g"),
        pytest.param(at(g4=[0, 4]), False, id="4g starts at 0 only"),
        pytest.param(at(g4=0, g3=0), False, id="4g and 3g on the same slices"),
        pytest.param(at(g3=2), False, id="3g starts at 0 or 4"),
        pytest.param(at(g2=[0, 2, 4], g1=6), True, id="three 2g and a 1g"),
        pytest.param(at(g2=[0, 2, 4, 6]), False, id="2g cannot start at 6"),
        pytest.param(at(g1x=[0, 2, 4, 6]), True, id="four 1g with double memory"),
        pytest.param(at(g3=0, g1=[4, 5, 6]), True, id="3g below leaves three 1g"),
        pytest.param(at(g3=4, g1=[0, 1, 2, 3]), True, id="3g above leaves four 1g"),
        pytest.param(at(g3=4, g1=6), False, id="3g at 4 takes slices 4 to 7"),
        pytest.param(at(g7=0), True, id="7g"),
        pytest.param(at(g7=0, g1=6), False, id="nothing beside 7g"),
    ],
)
def test_what_fits_on_an_a100(layout, fits):
    assert is_valid("A100", layout) is fits
    assert is_valid("A100", reversed(layout)) is fits


@pytest.mark.parametrize(
    ("layout", "profile", "starts"),
    [
        ((), "1g.5gb", (0, 1, 2, 3, 4, 5, 6)),
        ((), "3g.20gb", (0, 4)),
        (at(g3=0), "4g.20gb", ()),
        (at(g3=4), "4g.20gb", (0,)),
        (at(g3=0), "2g.10gb", (4,)),
        (at(g1=0), "2g.10gb", (2, 4)),
        (at(g1=6), "3g.20gb", (0,)),
        (at(g1=6), "1g.10gb", (0, 2, 4)),
        (at(g1=3), "7g.40gb", ()),
    ],
)
def test_free_starts(layout, profile, starts):
    assert free_starts("A100", layout, profile) == starts


@pytest.mark.parametrize(
    ("layout", "profile", "start"),
    [
        # free starts left over all profiles: 1g at 6 takes 1g, 1g.10gb, 3g and 7g with it, at 0 also 2g and 4g
        ((), "1g.5gb", 6),
        ((), "3g.20gb", 4),  # a 4g still fits below
        ((), "2g.10gb", 4),
        (at(g1=6), "1g.5gb", 4),  # the upper half is broken already
        (at(g4=0), "1g.5gb", 6),
        (at(g3=4), "3g.20gb", 0),
        (at(g7=0), "1g.5gb", None),
    ],
)
def test_best_start_leaves_most_open(layout, profile, start):
    assert best_start("A100", layout, profile) == start


def test_best_starts_still_fit_seven():
    layout = ()
    for _ in range(7):
        layout += (Instance("1g.5gb", best_start("A100", layout, "1g.5gb")),)
    assert is_valid("A100", layout)
    assert best_start("A100", layout, "1g.5gb") is None


def test_a_small_slice_first_does_not_spoil_the_big_one():
    first = Instance("1g.5gb", best_start("A100", (), "1g.5gb"))
    assert free_starts("A100", [first], "4g.20gb") == (0,)


def test_a100_has_the_nineteen_partitions_of_the_user_guide():
    # lower half: 4g | 3g | two pairs of (2g | 1g 1g) = 6; upper: 3g | (2g | 1g 1g) and a 1g = 3; 6 × 3 + 7g = 19
    plain = [layout for layout in partitions("A100") if not any(one.profile == "1g.10gb" for one in layout)]
    assert len(plain) == 19
    # with 1g.10gb each pair has three fillings and the last slice two: (2 + 3 × 3) × (1 + 3 × 2) + 1
    assert len(partitions("A100")) == 78


@pytest.mark.parametrize(("gpu", "count"), [("A30", 5), ("RTXPRO6000", 5), ("RTXPRO4500", 2), ("H200", 78)])
def test_number_of_partitions(gpu, count):
    # A30: 4g, or each half a 2g or two 1g: 1 + 2 × 2
    assert len(partitions(gpu)) == count


@pytest.mark.parametrize("gpu", WITH_MIG)
def test_every_partition_is_valid_and_full(gpu):
    found = partitions(gpu)
    assert len(set(found)) == len(found)
    for layout in found:
        assert is_valid(gpu, layout)
        assert list(layout) == sorted(layout, key=lambda one: one.start)
        assert not any(free_starts(gpu, layout, profile.name) for profile in mig_profiles(gpu))


@pytest.mark.parametrize("gpu", ["A30", "RTXPRO6000"])
def test_partitions_are_all_there_are(gpu):
    placements = [Instance(profile.name, start) for profile in mig_profiles(gpu) for start in profile.starts]
    subsets = itertools.chain.from_iterable(itertools.combinations(placements, n) for n in range(len(placements) + 1))
    valid = {frozenset(subset) for subset in subsets if is_valid(gpu, subset)}
    maximal = {layout for layout in valid if not any(layout < other for other in valid)}
    assert maximal == {frozenset(layout) for layout in partitions(gpu)}


def test_partitions_come_in_the_same_order_fewest_instances_first():
    found = partitions("a100-40gb")
    assert found is partitions("A100")
    assert found[0] == at(g7=0)
    assert found[1] == at(g4=0) + at(g3=4)
    assert [len(layout) for layout in found] == sorted(len(layout) for layout in found)


@given(st.data())
def test_filling_by_best_start_ends_in_a_partition(data):
    gpu = data.draw(st.sampled_from(WITH_MIG))
    layout = ()
    while fitting := [p.name for p in mig_profiles(gpu) if free_starts(gpu, layout, p.name)]:
        profile = data.draw(st.sampled_from(fitting))
        layout += (Instance(profile, best_start(gpu, layout, profile)),)
        assert is_valid(gpu, layout)
    assert tuple(sorted(layout, key=lambda one: one.start)) in partitions(gpu)
    made = Counter(one.profile for one in layout)
    assert all(count <= mig_profile(gpu, name).max_instances for name, count in made.items())


def test_a_gpu_without_mig_says_who_has_it():
    with pytest.raises(GpuwiseError, match=r"V100 has no MIG.*A100"):
        mig_profiles("V100")


def test_an_unknown_profile_names_the_nearest():
    with pytest.raises(UnknownNameError, match=r"MIG profile of A100.*3g\.20gb"):
        free_starts("A100", (), "3g.20g")
    with pytest.raises(UnknownNameError):
        is_valid("A100", [Instance("8g.80gb", 0)])
