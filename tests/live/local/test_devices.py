"""Devices that are lost and come back, that are repartitioned, and how much of their memory jobs use."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from bench import TRAINER, AttemptEnded, Bench, Stand, carriers, is_alive

from builders import HALVES, on
from gpuwise.core.assignments import DeviceCut, NodeRequest
from gpuwise.core.cluster.capacity import Claim
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.commands import MigSlice, Provision, Resume, Start, Suspend
from gpuwise.core.events import (
    DeviceLost,
    DeviceRestored,
    DevicesClaimed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSuspended,
    StartRefused,
)
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.units import GIB
from gpuwise.devices.machine import DeviceInUseError, MachineError, Reading, Where
from gpuwise.engine.checks import InvalidDecisionError
from gpuwise.live.local.device_usage import DeviceUsage


def cut(bench: Bench, slices: tuple[MigSlice, ...], device: int = 0) -> DeviceCut:
    spec = bench.cluster.nodes[0]
    return DeviceCut(spec.name, spec.device_id(device), slices, (0, device))


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices are looked at often enough for a test."""
    monkeypatch.setattr("gpuwise.live.local.devices.CHECK_EVERY_S", 0.05)


def test_a_lost_device_throws_its_jobs_off_once_and_comes_back(bench: Bench) -> None:
    row = bench.start("1", *TRAINER, "1000", "0.01", duration_s=100.0)
    other = bench.start("2", "sleep", "60", device=1)
    bench.expect(JobStarted, row)
    bench.expect(JobStarted, other)
    (bench.folder / "jobs/1/checkpoint/latest.json").write_text('{"step": 250, "steps": 1000}')
    bench.machine.gone = {(0, 0)}
    failed = bench.expect(JobFailed, row)
    assert (failed.kind, failed.will_retry, failed.steps_kept) == ("device lost", True, 25.0)  # 250 of 1000 of 100
    lost = bench.expect(DeviceLost, row)
    spec = bench.cluster.nodes[0]
    assert (lost.node, lost.device) == (spec.name, spec.device_id(0))
    bench.until(lambda: bench.reported(AttemptEnded, "1"))
    (ended,) = bench.reported(AttemptEnded, "1")
    assert (ended.outcome, ended.detail) == ("lost", f"{bench.machine.devices[0][0].name} was lost")
    assert not any(is_alive(pid) for pid in bench.pids("1"))
    assert bench.engine.state.status(row) is Status.PENDING
    bench.turn(0.2)
    bench.new_executor()
    bench.turn(0.2)
    assert not bench.events  # it is reported once, whoever watches
    bench.machine.gone = set()
    bench.expect(DeviceRestored, row)
    bench.turn(0.2)
    assert not bench.events
    bench.order(Start(row, on((0, 0))))
    bench.expect(JobStarted, row)
    bench.until(lambda: "from 250 of 1000" in bench.output("1"))
    assert is_alive(bench.pids("2")[0])


def test_a_job_thrown_off_can_start_elsewhere_before_it_is_quite_gone(bench: Bench) -> None:
    row = bench.start("1", "/bin/sh", "-c", "trap '' TERM; echo $GPUWISE_DEVICES; while :; do sleep 0.01; done")
    bench.expect(JobStarted, row)
    bench.machine.gone = {(0, 0)}
    bench.expect(DeviceLost, row)
    bench.order(Start(row, on((0, 2))))
    bench.expect(JobStarted, row)
    bench.until(lambda: bench.output("1").split() == ["cpu-core-0", "cpu-core-2"])
    assert bench.engine.state.status(row) is Status.RUNNING


def test_a_job_that_waits_for_a_lost_device_is_thrown_off_too(bench: Bench) -> None:
    first = bench.start("1", *TRAINER, "1000", "0.02", "deaf", grace_s=30.0)
    bench.until(lambda: (bench.attempt("1") / "job/sdk.json").exists())
    second = bench.submit("2", "/bin/true")
    bench.order(Suspend(first), Start(second, on((0, 0))))
    bench.machine.gone = {(0, 0)}
    bench.expect(DeviceLost, first)
    assert bench.engine.state.status(first) is Status.PENDING
    assert bench.engine.state.status(second) is Status.PENDING
    bench.until(lambda: not bench.executor.table.runs)
    assert not bench.attempt("2").exists()


def test_a_job_parked_on_a_lost_device_begins_again(bench: Bench) -> None:
    row = bench.start("1", "sleep", "60")
    bench.expect(JobStarted, row)
    bench.order(Suspend(row))
    bench.expect(JobSuspended, row)
    bench.machine.gone = {(0, 0)}
    assert bench.expect(DeviceLost, row).interrupted == ()
    bench.until(lambda: not bench.executor.table.runs)
    assert bench.engine.state.status(row) is Status.SUSPENDED
    bench.order(Resume(row, on((0, 1))))
    bench.expect(JobStarted, row)
    assert bench.attempt("1", 2).exists()


class Cuttable(Stand):
    """Stand-ins that can be cut, and say what was done to them."""

    def __init__(self, devices: int) -> None:
        super().__init__(devices)
        self.cuts: list[tuple[int, int, tuple[MigSlice, ...]]] = []
        self.busy = 0
        self.broken = False

    def repartition(self, node: int, device: int, slices: Sequence[MigSlice]) -> None:
        if self.busy:
            self.busy -= 1
            raise DeviceInUseError("in use")
        if self.broken:
            raise MachineError("cannot be cut")
        self.cuts.append((node, device, tuple(slices)))

    def layout(self) -> Mapping[Where, tuple[MigSlice, ...]]:
        return {(node, device): slices for node, device, slices in self.cuts if slices}


@pytest.fixture
def cuttable(make_bench: Callable[..., Bench]) -> tuple[Bench, Cuttable]:
    machine = Cuttable(2)
    return make_bench(machine=machine), machine


def test_a_device_is_cut_when_it_is_empty_and_nothing_starts_on_it_before(cuttable: tuple[Bench, Cuttable]) -> None:
    bench, machine = cuttable
    leaving = bench.start("1", *TRAINER, "1000", "0.02", "deaf", grace_s=0.3)
    bench.until(lambda: (bench.attempt("1") / "job/sdk.json").exists())
    bench.order(Suspend(leaving))
    bench.executor.follow([cut(bench, HALVES)])
    row = bench.start("2", "/bin/true")
    machine.busy = 2  # the driver has not noticed yet that it is empty
    bench.turn(0.1)
    assert machine.cuts == []
    bench.expect(JobSuspended, leaving)
    bench.expect(JobFinished, row)
    assert machine.cuts == [(0, 0, HALVES)]
    assert machine.busy == 0
    assert not is_alive(bench.pids("1")[0])  # parked, it would have held the device for ever


def test_a_device_that_cannot_be_cut_is_lost_until_it_can(
    cuttable: tuple[Bench, Cuttable], caplog: pytest.LogCaptureFixture
) -> None:
    bench, machine = cuttable
    machine.broken = True
    bench.executor.follow([cut(bench, HALVES)])
    row = bench.start("1", "/bin/true")
    bench.expect(DeviceLost, row)
    assert bench.engine.state.status(row) is Status.PENDING
    bench.turn(0.3)
    assert not bench.events
    assert caplog.text.count("cannot be partitioned;") == 1
    machine.broken = False
    bench.expect(DeviceRestored, row)
    assert machine.cuts == [(0, 0, HALVES)]
    bench.order(Start(row, on((0, 0))))
    bench.expect(JobFinished, row)


def test_a_device_that_comes_back_whole_is_partitioned_before_it_is_reported(cuttable: tuple[Bench, Cuttable]) -> None:
    bench, machine = cuttable
    bench.engine.state.capacity.layouts[0, 1] = HALVES
    machine.cuts = [(0, 1, HALVES)]
    bench.new_executor()
    machine.gone = {(0, 1)}
    bench.expect(DeviceLost, 0)
    machine.cuts, machine.busy = [], 2
    machine.gone = set()
    bench.expect(DeviceRestored, 0)
    assert (machine.cuts, machine.busy) == ([(0, 1, HALVES)], 0)


def test_layouts_are_the_same_whatever_the_driver_says_of_their_memory(cuttable: tuple[Bench, Cuttable]) -> None:
    bench, machine = cuttable
    bench.engine.state.capacity.layouts[0, 1] = HALVES
    machine.cuts = [(0, 1, tuple(each._replace(memory_bytes=each.memory_bytes - 1, milli=428) for each in HALVES))]
    bench.new_executor()
    bench.turn(0.1)
    assert len(machine.cuts) == 1


def test_devices_are_cut_as_the_engine_has_them(cuttable: tuple[Bench, Cuttable]) -> None:
    bench, machine = cuttable
    machine.cuts = [(0, 1, HALVES)]  # by somebody, while nobody watched
    bench.new_executor()
    bench.turn()
    assert machine.cuts[-1] == (0, 1, ())


def test_a_machine_does_not_grow(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    node = NodeSpec(name="more", gpu_type="V100", gpus=1)
    bench.executor.follow([NodeRequest(node, True), NodeRequest(bench.cluster.nodes[0], False)])
    bench.turn(0.05)
    assert not bench.events
    assert len(caplog.records) == 2
    assert "this machine has the devices it has" in caplog.text


def test_a_node_that_a_policy_asks_for_cannot_be_had_here(bench: Bench) -> None:
    bench.order(Provision(NodeSpec(name="more", gpu_type="V100", gpus=1)))
    assert bench.engine.state.requested
    bench.until(lambda: not bench.engine.state.requested)
    with pytest.raises(InvalidDecisionError, match="in the cluster already"):
        bench.order(Provision(bench.cluster.nodes[0]))


class Measured(Stand):
    """A machine with GPUs whose driver says that every process of a session has 1 MiB, the executor 5."""

    stand_in = False

    def __init__(self, devices: int) -> None:
        super().__init__(devices)
        self.session = 0

    def cores(self, placement: Any) -> Any:
        return None

    def environment(self, placement: Any, *, memory_bytes: float = 0.0) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": "GPU-0"}

    def read(self, running: Mapping[Where, Collection[int]] | None = None) -> Mapping[Where, Reading]:
        mine = [int(name) for name in os.listdir("/proc") if name.isdigit() and _session(int(name)) == self.session]
        return {(0, 0): Reading(processes={os.getpid(): 5.0 * 2**20, 2**22: 1.0, **dict.fromkeys(mine, 2.0**20)})}


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def test_memory_on_gpus_is_measured_by_the_jobs_processes(make_bench: Callable[..., Bench]) -> None:
    machine = Measured(1)
    bench = make_bench(machine=machine)
    row = bench.start("1", "/bin/sh", "-c", "sleep 60 & sleep 60 & wait")
    bench.expect(JobStarted, row)
    (machine.session,) = bench.pids("1")
    (run,) = bench.executor.table.runs.values()
    bench.until(lambda: run.gpu_memory_bytes == 3 * 2**20)
    for pid in carriers(bench.json("1", "launch.json")["token"]):
        if pid != machine.session:
            os.kill(pid, signal.SIGTERM)
    bench.expect(JobFinished, row)
    assert bench.reported(AttemptEnded, "1")[0].peak_memory_bytes == 3 * 2**20
    row = bench.start("2", "/bin/true")
    bench.expect(JobFinished, row)
    assert bench.reported(AttemptEnded, "2")[0].peak_memory_bytes is None  # too short to be seen: not a guess


class Used(Measured):
    """A machine with GPUs of which each process listed has some memory."""

    def __init__(self, devices: int) -> None:
        super().__init__(devices)
        self.used: dict[Where, dict[int, float]] = {}

    def read(self, running: Mapping[Where, Collection[int]] | None = None) -> Mapping[Where, Reading]:
        empty = {(0, device): Reading(memory_used_bytes=0.0) for device in range(len(self.devices[0]))}
        return empty | {where: Reading(processes=processes) for where, processes in self.used.items()}


@pytest.fixture
def used(make_bench: Callable[..., Bench]) -> tuple[Bench, Used]:
    machine = Used(2)
    machine.nodes = tuple(replace(node, gpu_memory_bytes=16.0 * GIB) for node in machine.nodes)
    return make_bench(machine=machine), machine


def test_a_notebook_on_a_gpu_is_reported_and_nothing_is_started_there(used: tuple[Bench, Used]) -> None:
    bench, machine = used
    capacity, spec = bench.engine.state.capacity, bench.cluster.nodes[0]
    row = bench.submit("1", "/bin/true")
    machine.used = {(0, 1): {os.getpid(): 2.0 * GIB}}
    claim = bench.expect(DevicesClaimed, row)
    assert claim.devices == ((spec.device_id(1), 2.0 * GIB, True),)
    assert [capacity.idle[0] >> device & 1 for device in (0, 1)] == [1, 0]
    bench.turn(0.2)
    assert not bench.events  # it is reported once
    machine.used = {}
    assert bench.expect(DevicesClaimed, row).devices == ()
    bench.order(Start(row, on((0, 1))))
    bench.expect(JobFinished, row)


def test_a_start_on_a_gpu_on_which_a_foreign_process_computes_is_refused(used: tuple[Bench, Used]) -> None:
    bench, machine = used
    row = bench.submit("1", "/bin/true")
    machine.used = {(0, 0): {os.getpid(): 2.0 * GIB}}
    bench.until(lambda: bench.executor.table.foreign_devices)
    bench.engine.state.capacity.set_claim(0, Claim())  # as an engine that does not know of it yet
    bench.order(Start(row, on((0, 0))))
    refused = bench.expect(StartRefused, row)
    assert refused.cause == "others than jobs of gpuwise compute on its GPUs"
    assert bench.engine.state.jobs.failures.item(row) == 0
    assert not bench.attempt("1").exists()
    assert not bench.executor._reports._reported  # nothing more is reported of it, so nothing is kept


def test_a_process_that_is_just_ending_is_not_taken_for_a_foreign_one(used: tuple[Bench, Used]) -> None:
    bench, machine = used
    usage = DeviceUsage(bench.executor.table)
    for pid in (None, 2**22, 2**22 + 1):
        machine.used = {(0, 0): {pid: 4.0 * GIB}} if pid else {}
        assert not [event for event in usage.measure(bench.clock.now_s()) if event.devices]
    assert [event.devices for event in usage.measure(bench.clock.now_s())] == [
        ((bench.cluster.nodes[0].device_id(0), 4.0 * GIB, True),)
    ]


def test_a_parked_job_keeps_its_memory_from_others_and_not_from_itself(used: tuple[Bench, Used]) -> None:
    bench, machine = used
    parked = bench.start("1", "/bin/sh", "-c", "sleep 60 & setsid sleep 60", gpu_memory_bytes=12.0 * GIB)
    other = bench.submit("2", "/bin/true", gpu_memory_bytes=12.0 * GIB)
    bench.expect(JobStarted, parked)
    (pid,) = bench.pids("1")
    machine.used = {(0, 0): {pid: 11.0 * GIB}}
    bench.turn(0.2)
    assert not bench.events  # what a running job has is in its placement
    bench.order(Suspend(parked))
    claim = bench.expect(DevicesClaimed, parked)
    device = bench.cluster.nodes[0].device_id(0)
    assert claim.devices == ((device, 11.0 * GIB, False),)
    assert claim.parked == (("1", device, 11.0 * GIB),)
    state = bench.engine.state
    assert state.capacity.usable(0, state.jobs.shape_of(other)) == 0b10
    assert state.capacity.usable(0, state.jobs.shape_of(parked)) == 0b11
    bench.forget_ended()  # a snapshot knows it, too
    state = bench.engine.state
    parked = state.jobs.row_of["1"]
    assert state.capacity.usable(0, state.jobs.shape_of(parked)) == 0b11
    with pytest.raises(InvalidDecisionError, match="others use so much memory"):
        bench.engine.order(bench.clock.now_s(), [Start(state.jobs.row_of["2"], on((0, 0)))])
    bench.order(Resume(parked, on((0, 0))))
    bench.expect(JobStarted, parked)
    bench.until(lambda: state.jobs.shape_of(parked).parked == ())  # a claim may be given up before the start is seen
    assert not bench.attempt("1", 2).exists()  # the same process goes on


class Vague(Measured):
    """A driver that does not know how much memory a process has, and now and then nothing at all."""

    def read(self, running: Mapping[Where, Collection[int]] | None = None) -> Mapping[Where, Reading]:
        if not self.session:
            raise RuntimeError("no driver")
        return {(0, 0): Reading(processes={self.session: math.nan, 2**70: 1.0})}


def test_what_a_driver_does_not_know_does_no_harm(
    make_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    machine = Vague(1)
    bench = make_bench(machine=machine)
    row = bench.start("1", "/bin/sleep", "0.4")
    bench.expect(JobStarted, row)
    bench.turn(0.2)
    assert caplog.text.count("could not be measured: no driver") == 1
    (machine.session,) = bench.pids("1")
    bench.expect(JobFinished, row)
    assert bench.reported(AttemptEnded, "1")[0].peak_memory_bytes is None


def test_a_claim_stays_in_force_when_the_service_starts_again(used: tuple[Bench, Used]) -> None:
    bench, machine = used
    machine.used = {(0, 0): {2**22: 4.0 * GIB}}
    row = bench.submit("1", "/bin/true")
    assert bench.expect(DevicesClaimed, row).devices
    bench.new_executor()
    bench.turn(0.3)
    assert not bench.engine.state.capacity.idle[0] & 1  # never free in between
    assert all(event.devices for event in bench.events if isinstance(event, DevicesClaimed))
