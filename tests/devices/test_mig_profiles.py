"""The MIG profiles as data: consistent with each other, with their GPU, and with what others measured and used."""

import csv
import json
import re
from collections import Counter

import pytest

from gpuwise.devices.catalogue import gpu_type, gpu_types
from gpuwise.devices.mig import mig_profile, mig_profiles, partitions

WITH_MIG = [name for name, gpu in gpu_types().items() if gpu.mig]
PROFILES = [(name, profile) for name in WITH_MIG for profile in mig_profiles(name)]


@pytest.mark.parametrize(("gpu", "profile"), PROFILES, ids=lambda value: getattr(value, "name", value))
def test_a_profile_is_what_its_name_says(gpu, profile):
    slices, gb = map(int, re.fullmatch(r"(\d)g\.(\d+)gb", profile.name).groups())
    assert profile.compute_slices == slices
    assert 0.88 * gb <= profile.memory_bytes / 2**30 <= gb + 0.5
    assert profile.memory_bytes <= gpu_type(gpu).memory_bytes
    assert profile.source.startswith("NVIDIA")


@pytest.mark.parametrize("gpu", WITH_MIG)
def test_profiles_share_out_the_whole_gpu(gpu):
    *small, whole = mig_profiles(gpu)
    assert (whole.starts, whole.max_instances) == ((0,), 1)
    assert whole.memory_bytes >= 0.96 * gpu_type(gpu).memory_bytes
    if whole.sms is not None:
        assert 0.9 * gpu_type(gpu).sms <= whole.sms <= gpu_type(gpu).sms
    for profile in small:
        assert profile.compute_slices < whole.compute_slices
        assert max(profile.starts) + profile.memory_slices <= whole.memory_slices


@pytest.mark.parametrize("gpu", WITH_MIG)
def test_the_published_number_of_instances_follows_from_the_starts(gpu):
    most = Counter()
    for layout in partitions(gpu):
        most |= Counter(one.profile for one in layout)
    assert most == {profile.name: profile.max_instances for profile in mig_profiles(gpu)}


@pytest.mark.parametrize("gpu", WITH_MIG)
def test_no_partition_gives_out_more_than_the_gpu_has(gpu):
    whole = mig_profiles(gpu)[-1]
    for layout in partitions(gpu):
        profiles = [mig_profile(gpu, one.profile) for one in layout]
        assert sum(profile.compute_slices for profile in profiles) <= whole.compute_slices
        assert sum(profile.memory_slices for profile in profiles) <= whole.memory_slices
        assert sum(profile.memory_bytes for profile in profiles) <= gpu_type(gpu).memory_bytes


def test_the_boards_of_one_gpu_share_their_geometry():
    def geometry(gpu):
        return [(p.compute_slices, p.memory_slices, p.starts, p.max_instances) for p in mig_profiles(gpu)]

    for gpu in ("A100-PCIe-40GB", "A100-80GB", "H100", "H100-PCIe", "H100-NVL", "GH200", "H200", "B200", "B300"):
        assert geometry(gpu) == geometry("A100")


def test_a100_profiles_as_listed_by_nvidia():
    listed = {profile.name: (profile.memory_bytes / 2**30, profile.sms) for profile in mig_profiles("A100-40GB")}
    assert listed["1g.5gb"] == (4.75, 14)
    assert listed["3g.20gb"] == (19.5, 42)
    assert listed["7g.40gb"] == (39.25, 98)


def test_miso_uses_the_same_partitions_of_the_a100(shared_data):
    file = shared_data / "miso" / "partition_code.json"
    if not file.exists():
        pytest.skip("miso/partition_code.json is absent")
    theirs = {tuple(sorted(slices)) for slices in json.loads(file.read_text()).values()}
    plain = [layout for layout in partitions("A100") if not any(one.profile == "1g.10gb" for one in layout)]
    ours = {tuple(sorted(mig_profile("A100", one.profile).compute_slices for one in layout)) for layout in plain}
    assert theirs <= ours
    assert ours - theirs == {(3, 4)}, "MISO never uses 4g with 3g; the user guide has it"


def test_miso_measured_slices_that_exist(shared_data):
    file = shared_data / "miso" / "mig_iteration_time_summary.csv"
    if not file.exists():
        pytest.skip("miso/mig_iteration_time_summary.csv is absent")
    with file.open(encoding="utf-8", newline="") as rows:
        measured = {f"{row['compute_slices']}g.{row['memory_gb']}gb" for row in csv.DictReader(rows)}
    assert measured <= {profile.name for profile in mig_profiles("A100")}
