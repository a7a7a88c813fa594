"""CPU cores that stand in for GPUs, for real on this machine."""

import contextlib
import math
import os
import socket
import subprocess
import sys
import time

import pytest

from gpuwise.core.commands import Grant, MigSlice, Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.devices import this_machine
from gpuwise.devices.cpu import CpuMachine
from gpuwise.devices.host import Host, this_host
from gpuwise.devices.machine import MachineError

GIB = 2**30
MIB = 2**20


def host(*cores, cpus=None, memory=8 * GIB):
    return Host("box", cores, float(len(cores)) if cpus is None else cpus, memory)


@contextlib.contextmanager
def running(program):
    """A Python program that says a line when it is ready."""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_this_machine_without_gpus_for_real():
    machine = this_machine(devices=len(os.sched_getaffinity(0)))

    (node,) = machine.nodes
    assert machine.stand_in is True
    assert (node.name, node.gpu_type) == (socket.gethostname(), "cpu-core")
    assert [device.cores[0] for device in machine.devices[0]] == sorted(os.sched_getaffinity(0))
    assert node.memory_bytes == this_host().memory_bytes
    assert sum(device.memory_bytes for device in machine.devices[0]) == pytest.approx(node.memory_bytes)
    assert len({device.uuid for device in machine.devices[0]}) == node.gpus
    assert machine.lost() == frozenset()
    assert machine.layout() == {}


def test_by_default_there_are_as_many_as_usable_cores():
    assert CpuMachine(host=host(2, 3, 7)).nodes[0].gpus == 3
    assert CpuMachine(host=host(2, 3, 7, cpus=2.5)).nodes[0].gpus == 2  # a quota of 2½ cores fills two
    assert CpuMachine(host=host(2, 3, 7, cpus=0.5)).nodes[0].gpus == 1
    assert CpuMachine(host=host(*range(96))).nodes[0].gpus == 64  # a node has no more


def test_more_stand_ins_than_cores_take_turns_on_them():
    machine = CpuMachine(5, host=host(4, 6))

    assert [device.cores for device in machine.devices[0]] == [(4,), (6,), (4,), (6,), (4,)]
    assert machine.devices[0][0].memory_bytes == 8 * GIB / 5
    assert machine.nodes[0].cpus == 2.0


def test_each_can_be_given_its_memory():
    machine = CpuMachine(2, 3 * GIB, host=host(0, 1))

    assert machine.nodes[0].gpu_memory_bytes == 3 * GIB
    assert [device.memory_bytes for device in machine.devices[0]] == [3 * GIB] * 2


@pytest.mark.parametrize(("devices", "memory"), [(0, None), (-1, None), (65, None), (2, 0.0), (2, math.nan)])
def test_impossible_stand_ins_are_refused(devices, memory):
    with pytest.raises(MachineError, match="CPU stand-ins"):
        CpuMachine(devices, memory, host=host(0, 1))


def test_a_job_is_shown_no_gpu_and_as_many_threads_as_cores():
    machine = CpuMachine(5, host=host(4, 6, 7))
    two, wrapped = Placement((Grant(0, 0b00110),)), Placement((Grant(0, 0b01001),), Sharing.SHARED, 500)

    assert machine.cores(two) == (6, 7)
    assert machine.environment(two) == {
        "CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void", "OMP_NUM_THREADS": "2"
    }  # fmt: skip
    assert machine.cores(wrapped) == (4,)  # stand-ins 0 and 3 are one core
    assert machine.environment(wrapped)["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("grant", [Grant(0, 0b100), Grant(1, 0b1)])
def test_there_is_no_such_stand_in(grant):
    with pytest.raises(MachineError, match="this machine has no device"):
        CpuMachine(2, host=host(0, 1)).cores(Placement((grant,)))


def test_stand_ins_are_always_whole():
    machine = CpuMachine(2, host=host(0, 1))
    machine.repartition(0, 1, ())

    with pytest.raises(MachineError, match="CPU core 1, stand-in 1 cannot be partitioned"):
        machine.repartition(0, 1, (MigSlice("1g.5gb", 0, 143, GIB),))


def busy_reading(machine):
    """What the first device reads, once that is busy."""
    gives_up = time.monotonic() + 60
    while not (reading := machine.read()[0, 0]).util_frac > 0.8:
        assert time.monotonic() < gives_up, reading
        time.sleep(0.05)
    return reading


def test_a_busy_core_reads_as_busy():
    core = min(os.sched_getaffinity(0))
    machine = this_machine(devices=1)
    assert math.isnan(machine.read()[0, 0].util_frac)  # there was no time to measure
    spin = f"import os; os.sched_setaffinity(0, [{core}]); print(flush=True)\nwhile True: pass"
    with running(spin):
        reading = busy_reading(machine)

    assert reading.util_frac <= 1.0
    assert math.isnan(reading.power_w)
    assert reading.memory_total_bytes == machine.devices[0][0].memory_bytes
    assert (reading.memory_used_bytes, reading.processes) == (0, {})


def test_memory_is_that_of_the_processes_and_their_children():
    machine = CpuMachine(3, host=host(0, 1))
    child = "import sys; block = bytearray(64 << 20); print(flush=True); sys.stdin.read()"
    parent = (
        "import subprocess, sys; block = bytearray(128 << 20)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(flush=True); child.wait()"
    )
    with running(parent) as pid:
        alone = machine.read({(0, 1): [pid]})
        spread = machine.read({(0, 0): [pid], (0, 2): [pid, os.getpid()]})

    used = alone[0, 1].processes[pid]
    assert 192 * MIB < used < 400 * MIB
    assert alone[0, 1].memory_used_bytes == used
    assert alone[0, 0].processes == {}
    assert spread[0, 0].processes[pid] == pytest.approx(used / 2, rel=0.05)
    assert spread[0, 2].memory_used_bytes == sum(spread[0, 2].processes.values()) > used / 2


def test_a_process_that_has_ended_uses_nothing():
    with running("print(flush=True)") as pid:
        pass

    assert CpuMachine(1, host=host(0)).read({(0, 0): [pid]})[0, 0].processes == {pid: 0.0}


def test_a_core_that_was_taken_away_is_lost():
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs two usable cores, to take one away")
    program = (
        "import os; from gpuwise.devices import this_machine\n"
        "machine = this_machine(devices=3); before = machine.lost()\n"
        f"os.sched_setaffinity(0, [{cores[0]}]); print(sorted(before), sorted(machine.lost()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)

    lost = [(0, i) for i in range(3) if cores[i % len(cores)] != cores[0]]
    assert done.stdout.strip() == f"[] {lost}"
