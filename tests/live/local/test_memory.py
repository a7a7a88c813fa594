"""Memory: how much a job may use, that it may not use more, and that running out of it is recognised."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench import PYTHON, AttemptEnded, Bench, Stand

from builders import on
from gpuwise.core.commands import Start
from gpuwise.core.events import JobFailed, JobFinished
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.request import JobRequest
from gpuwise.core.units import GIB, MIB
from gpuwise.live.local.attempts.endings import NO_MEMORY, ran_out_of_memory, tail
from gpuwise.live.local.attempts.folders import Exit
from gpuwise.live.local.attempts.limits import (
    Cgroups,
    ProcessLimits,
    _own_v1,
    _own_v2,
    limits_of,
    memory_limit_bytes,
    oom_kills,
    peak_bytes,
)

HALF = on((0, 0), sharing=Sharing.SHARED, milli=500)


@pytest.mark.parametrize(
    ("asked", "forecast_bytes", "placement", "limit_bytes"),
    [
        ({}, 0.0, on((0, 0)), 1 * GIB),  # all of a stand-in
        ({}, 0.0, HALF, 0.5 * GIB),  # its share
        ({}, 0.7 * GIB, HALF, 0.7 * GIB),  # what it ran out of before is not enough
        ({}, 0.1 * GIB, HALF, 0.5 * GIB),  # what it used before is no limit
        ({"gpu_memory_bytes": 0.25 * GIB}, 0.0, on((0, 0)), 0.25 * GIB),  # as its user says
        ({"gpu_memory_bytes": 0.25 * GIB}, 0.3 * GIB, on((0, 0)), 0.3 * GIB),
        ({"gpu_memory_bytes": 0.25 * GIB, "gpus": 2}, 0.0, on((0, 0), (0, 1)), 0.5 * GIB),
        ({"gpu_memory_bytes": 0.25 * GIB, "memory_bytes": GIB}, 0.0, on((0, 0)), 1.25 * GIB),
        ({"gpu_memory_bytes": 9 * GIB}, 0.0, on((0, 0)), 1 * GIB),  # no device has more
        ({"gpus": 0}, 0.0, on(), math.inf),
        ({"gpus": 0, "memory_bytes": GIB}, 0.0, on(), GIB),
    ],
)
def test_the_limit_on_stand_ins(
    asked: dict[str, Any], forecast_bytes: float, placement: Any, limit_bytes: float
) -> None:
    request = JobRequest(command=("x",), **asked)
    assert memory_limit_bytes(request, forecast_bytes, placement, Stand(2, GIB)) == pytest.approx(limit_bytes)


def test_on_gpus_only_what_is_asked_for_of_the_machine_is_a_limit() -> None:
    machine = Stand(2, GIB)
    machine.stand_in = False
    assert memory_limit_bytes(JobRequest(command=("x",), gpu_memory_bytes=GIB), 0.0, HALF, machine) == math.inf
    assert memory_limit_bytes(JobRequest(command=("x",), memory_bytes=GIB), 0.0, HALF, machine) == GIB


EAT = "import sys\nkept = bytearray(int(sys.argv[1]) << 20)\nprint('ate', flush=True)"


def test_a_job_that_takes_more_than_its_limit_has_run_out_of_memory(bench: Bench) -> None:
    row = bench.start("1", *PYTHON, "-c", EAT, "200", gpu_memory_bytes=64 * MIB)
    failed = bench.expect(JobFailed, row)
    (ended,) = bench.reported(AttemptEnded, "1")
    assert ended.outcome == "out of memory"
    assert ended.detail == "ran out of memory; its limit was 64 MiB"
    assert failed.cause == "out of memory with 64 MiB per device; tried again with 96 MiB"
    assert "ate" not in bench.output("1")
    if Cgroups.find(bench.folder) is not None:
        assert ended.exit_code == 137
        assert ended.peak_memory_bytes == pytest.approx(64 * MIB, rel=0.2)


def test_a_job_within_its_limit_is_left_alone_and_measured(bench: Bench) -> None:
    row = bench.start("1", *PYTHON, "-c", EAT, "60", gpu_memory_bytes=200 * MIB)
    bench.expect(JobFinished, row)
    (ended,) = bench.reported(AttemptEnded, "1")
    assert ended.peak_memory_bytes is not None
    assert 60 * MIB < ended.peak_memory_bytes < 100 * MIB


def test_files_in_the_cache_are_not_the_jobs_memory(bench: Bench, tmp_path: Path) -> None:
    script = "import sys\nwith open(sys.argv[1], 'wb') as f:\n for _ in range(100): f.write(bytes(1 << 20))"
    row = bench.start("1", *PYTHON, "-c", script, str(tmp_path / "big"))
    bench.expect(JobFinished, row)
    peak = bench.reported(AttemptEnded, "1")[0].peak_memory_bytes
    assert peak is not None
    assert peak < 60 * MIB


def test_without_control_groups_each_process_is_limited(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cgroups, "find", lambda state: None)
    bench = make_bench()
    monkeypatch.setattr("gpuwise.live.local.attempts.limits.STACKS_BYTES", 32 * MIB)
    row = bench.start("1", *PYTHON, "-c", EAT, "200", gpu_memory_bytes=64 * MIB)
    assert bench.expect(JobFailed, row).kind == "out of memory"
    assert "MemoryError" in bench.output("1")
    row = bench.start("2", *PYTHON, "-c", EAT, "50", gpu_memory_bytes=64 * MIB)
    bench.expect(JobFinished, row)
    assert bench.reported(AttemptEnded, "2")[0].peak_memory_bytes == pytest.approx(60 * MIB, rel=0.2)


def test_where_no_group_can_be_made_the_limit_holds_for_each_process(tmp_path: Path) -> None:
    nowhere = Cgroups(tmp_path / "file" / "base", unified=False)
    (tmp_path / "file").touch()
    assert limits_of(nowhere, "1.1", 64 * MIB, None) == ProcessLimits(64 * MIB, None, {"RLIMIT_DATA": 320 * MIB})
    assert limits_of(None, "1.1", math.inf, None) == ProcessLimits()


def test_nothing_is_left_of_the_groups(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    cgroups = Cgroups.find(bench.folder)
    if cgroups is None:
        pytest.skip("this user may not make control groups here")
    base = cgroups.base
    row = bench.start("1", "/bin/true")
    bench.until(lambda: (base / "1.1").exists())
    bench.expect(JobFinished, row)
    bench.turn()
    assert [path for path in base.iterdir() if path.is_dir()] == []
    bench.executor.close()
    assert not base.exists()
    bench.new_executor()


@pytest.mark.parametrize(
    "line",
    [
        "MemoryError",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: you tried",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "OSError: [Errno 12] Cannot allocate memory",
    ],
)
def test_words_of_those_who_ran_out_of_memory(line: str, tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text(f"epoch 1\nTraceback\n{line}\n")
    assert ran_out_of_memory(Exit(code=1), None, log, 0)
    assert not ran_out_of_memory(Exit(code=1), None, log, log.stat().st_size)  # an earlier attempt's words


@pytest.mark.parametrize("line", ["ValueError: no MemoryErrorHandler", "memory: 3 GiB", "loss 0.1"])
def test_other_words(line: str) -> None:
    assert NO_MEMORY.search(line.encode()) is None


def test_a_kill_nobody_asked_for_while_the_machine_was_out_of_memory(tmp_path: Path) -> None:
    nothing = tmp_path / "none"
    assert ran_out_of_memory(Exit(code=137, signal=9, machine_oom_kills=1), None, nothing, 0)
    assert not ran_out_of_memory(Exit(code=137, signal=9), None, nothing, 0)
    assert not ran_out_of_memory(Exit(code=137, signal=9, machine_oom_kills=1, asked="kill"), None, nothing, 0)
    assert not ran_out_of_memory(Exit(code=139, signal=11, machine_oom_kills=1), None, nothing, 0)


def test_the_end_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a" * 100_000 + b"end")
    assert tail(log, 0).endswith(b"aend")
    assert len(tail(log, 0)) == 8192
    assert tail(log, 100_000) == b"end"
    assert tail(log, 200_000) == b""


# -- version 2, which this machine may not have: a folder that looks like it ------------------------------------------


@pytest.fixture
def unified(tmp_path: Path) -> tuple[Path, Path]:
    """A made-up /proc/self and the group of this process in it."""
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    own = mount / "user.slice" / "gpuwise.service"
    own.mkdir(parents=True)
    proc.mkdir()
    (proc / "mounts").write_text(f"proc /proc proc rw 0 0\ncgroup2 {mount} cgroup2 rw,nosuid 0 0\n")
    (proc / "cgroup").write_text("0::/user.slice/gpuwise.service\n")
    (own / "cgroup.controllers").write_text("cpu memory pids\n")
    return proc, own


def files(group: Path, *names: str) -> None:
    group.mkdir(exist_ok=True)
    for name in names:
        (group / name).write_text("")


def test_version_2_moves_the_controller_to_a_leaf(unified: tuple[Path, Path], tmp_path: Path) -> None:
    proc, own = unified
    files(own, "cgroup.subtree_control", "cgroup.procs")
    files(own / "gpuwise-controller", "cgroup.procs")
    Cgroups.find(tmp_path, proc)
    assert (own / "gpuwise-controller" / "cgroup.procs").read_text() == str(os.getpid())
    assert (own / "cgroup.subtree_control").read_text() == "+cpuset"  # the last of +memory, +pids, +cpuset


def test_version_2_without_the_memory_controller_is_none(unified: tuple[Path, Path], tmp_path: Path) -> None:
    proc, own = unified
    (own / "cgroup.controllers").write_text("cpu pids\n")
    assert Cgroups.find(tmp_path, proc) is None


def test_version_2_that_is_not_ours_alone_is_left_as_it_was(
    unified: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc, own = unified
    files(own, "cgroup.subtree_control", "cgroup.procs")

    def refuse(group: Path, controllers: Any) -> None:
        (own / "gpuwise-controller" / "cgroup.procs").unlink()  # the kernel's files do not keep a folder
        raise OSError(errno.EBUSY, "others are in it")

    files(own / "gpuwise-controller", "cgroup.procs")
    monkeypatch.setattr("gpuwise.live.local.attempts.limits._enable", refuse)
    assert Cgroups.find(tmp_path, proc) is None
    assert (own / "cgroup.procs").read_text() == str(os.getpid())
    assert not (own / "gpuwise-controller").exists()


def test_limits_in_version_2(tmp_path: Path) -> None:
    group = tmp_path / "1.1"
    files(group, "memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpuset.cpus")
    Cgroups(tmp_path, unified=True).make("1.1", memory_bytes=10_000_000, cores=(0, 3))
    found = {path.name: path.read_text() for path in group.iterdir()}
    assert found == {
        "memory.max": "9998336",  # whole pages: 2441 of 4096 bytes
        "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "32768", "cpuset.cpus": "0,3",
    }  # fmt: skip


def test_counters_of_version_2(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\n")
    (tmp_path / "memory.peak").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 200\nactive_file 100\n")
    assert oom_kills(tmp_path) == 1
    assert peak_bytes(tmp_path) == 700
    assert oom_kills(tmp_path / "none") == 0
    assert peak_bytes(tmp_path / "none") == 0
    (tmp_path / "memory.events").write_text("oom_kill x\n\n")
    assert oom_kills(tmp_path) == 0


def test_version_1_beside_an_empty_version_2(tmp_path: Path) -> None:
    proc, mount = tmp_path / "proc", tmp_path / "memory"
    own = mount / "docker" / "x"
    for folder in (proc, own):
        folder.mkdir(parents=True)
    (proc / "mounts").write_text(f"cgroup {mount} cgroup rw,memory 0 0\ncgroup2 {tmp_path}/none cgroup2 rw 0 0\n")
    (proc / "cgroup").write_text("4:memory:/docker/x\n0::/\n")
    assert _own_v2(proc) is None
    assert _own_v1(proc) == own
    (proc / "cgroup").write_text("4:memory:/elsewhere\n")
    assert _own_v1(proc) == mount


def test_a_started_job_knows_its_limit(bench: Bench) -> None:
    row = bench.submit("1", "/bin/true", gpu_memory_bytes=0.25 * GIB)
    bench.order(Start(row, on((0, 0))))
    bench.expect(JobFinished, row)
    assert bench.json("1", "launch.json")["memory_bytes"] == 0.25 * GIB
