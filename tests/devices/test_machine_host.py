"""What of its host a process may use: cores, and limits of control groups in both their versions."""

import math
import os

import psutil
import pytest

from gpuwise.devices.host import cpu_limit, memory_limit_bytes, this_host

GIB = 2**30


@pytest.fixture
def system(tmp_path):
    """Makes a system of files: where this process is, what is mounted, and the limits there."""

    def make(*, groups="", mounts="", **limits):
        files = {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts, **limits}
        for name, text in files.items():
            path = tmp_path / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n" if text else "")
        return tmp_path

    return make


V2 = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate"
V1 = "\n".join(
    [
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
        "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
    ]
)


def test_a_process_in_no_group_has_no_limit(system):
    root = system()

    assert memory_limit_bytes(root) == math.inf
    assert cpu_limit(root) == math.inf


def test_in_version_2_the_smallest_limit_on_the_way_up_counts(system):
    root = system(
        groups="0::/user.slice/session.scope",
        mounts=V2,
        **{
            "/sys/fs/cgroup/user.slice/memory.max": str(8 * GIB),
            "/sys/fs/cgroup/user.slice/session.scope/memory.max": "max",
            "/sys/fs/cgroup/user.slice/cpu.max": "max 100000",
            "/sys/fs/cgroup/user.slice/session.scope/cpu.max": "250000 100000",
        },
    )

    assert memory_limit_bytes(root) == 8 * GIB
    assert cpu_limit(root) == 2.5


def test_in_version_1_each_controller_has_a_tree_of_its_own(system):
    root = system(
        groups="9:name=systemd:/\n4:memory:/slurm/job_7\n3:cpu,cpuacct:/slurm\n0::/other",
        mounts=V1,
        **{
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "/sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": str(3 * GIB),
            "/sys/fs/cgroup/memory/other/memory.limit_in_bytes": "1",
            "/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us": "400000",
            "/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_period_us": "100000",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
    )

    assert memory_limit_bytes(root) == 3 * GIB
    assert cpu_limit(root) == 4.0


def test_a_container_sees_only_its_own_part_of_the_tree(system):
    mounts = "33 31 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"
    limit = {
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": str(2 * GIB),
        "/sys/fs/cgroup/memory/elsewhere/memory.limit_in_bytes": "1",  # a group of the container's own
    }

    assert memory_limit_bytes(system(groups="4:memory:/docker/abc", mounts=mounts, **limit)) == 2 * GIB
    assert memory_limit_bytes(system(groups="4:memory:/elsewhere", mounts=mounts, **limit)) == 2 * GIB


def test_this_host_for_real():
    host = this_host()

    assert host.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert 0 < host.cpus <= len(host.cores)
    assert 0 < host.memory_bytes <= 0.8 * psutil.virtual_memory().total
