"""Opening this machine: what is opened when, and that importing the package alone loads no driver."""

import subprocess
import sys
from ctypes.util import find_library

import pytest

from gpuwise.devices import this_machine
from gpuwise.devices.cpu import CpuMachine
from gpuwise.devices.machine import MachineError


def test_stand_ins_that_are_asked_for_say_so():
    machine = this_machine(devices=2, memory_bytes=1e9)

    assert isinstance(machine, CpuMachine)
    assert machine.notes == ("2 CPU stand-ins in place of GPUs, as asked",)
    assert machine.nodes[0].gpu_memory_bytes == 1e9


def test_a_wrong_number_of_them_is_refused():
    with pytest.raises(MachineError, match="0 CPU stand-ins; there can be 1 to 64"):
        this_machine(devices=0)


@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="there is an NVIDIA driver here")
def test_gpus_that_are_chosen_where_there_are_none_are_refused_with_what_to_do():
    with pytest.raises(
        MachineError, match=r"--gpus 0,2: there is no NVIDIA driver .*; start without --gpus to manage CPU"
    ):
        this_machine(gpus=["0", "2"])


@pytest.mark.parametrize("module", ["gpuwise.cli.main", "gpuwise.devices", "gpuwise.devices.machine"])
def test_importing_does_not_load_the_driver_or_process_libraries(module):
    program = f"import sys, {module}; print([name for name in ('psutil', 'pynvml') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"
