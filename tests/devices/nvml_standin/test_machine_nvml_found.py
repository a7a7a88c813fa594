"""Which GPUs are found, and what a machine is where none are."""

import math
import os
import socket
import tempfile
from pathlib import Path

import pytest
from standin import (
    DRIVER_NOT_LOADED,
    GIB,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    VERSION_MISMATCH,
    Gpu,
    Stage,
    uuid,
)

from gpuwise.devices.catalogue import gpu_type
from gpuwise.devices.host import this_host

T4 = {"name": "Tesla T4", "total": 15 * GIB}


def test_gpus_of_one_type_are_one_node(watch):
    machine = watch(Gpu(total=39 * GIB), Gpu())

    (node,) = machine.nodes
    assert (node.name, node.gpu_type, node.gpus) == (socket.gethostname(), "A100", 2)
    assert node.gpu_memory_bytes == 39 * GIB  # that of the smaller one
    assert node.usd_per_hour == 2 * gpu_type("A100").usd_per_hour
    assert [device.uuid for device in machine.devices[0]] == [uuid(0), uuid(1)]
    assert machine.devices[0][0].name == "NVIDIA A100-SXM4-40GB"
    assert machine.stand_in is False
    assert machine.notes == ()


def test_each_type_is_a_node_and_keeps_the_order_of_the_driver(watch):
    machine = watch(Gpu(), Gpu(**T4), Gpu())

    host = socket.gethostname()
    assert [(node.name, node.gpu_type, node.gpus) for node in machine.nodes] == [
        (f"{host}/A100", "A100", 2),
        (f"{host}/T4", "T4", 1),
    ]
    assert [[device.uuid for device in node] for node in machine.devices] == [[uuid(0), uuid(2)], [uuid(1)]]
    assert machine.nodes[1].gpu_memory_bytes == 15 * GIB


def test_cpus_and_memory_of_the_host_are_shared_out_by_gpus(watch):
    many, few = watch(Gpu(), Gpu(), Gpu(), Gpu(**T4)).nodes

    host = this_host()
    assert (many.cpus, few.cpus) == (0.75 * host.cpus, 0.25 * host.cpus)
    assert many.memory_bytes == 3 * few.memory_bytes == pytest.approx(0.75 * host.memory_bytes)


def test_a_gpu_the_catalogue_does_not_know_goes_by_its_own_name(watch):
    (node,) = watch(Gpu(name="NVIDIA Graphics Device (rev. B)")).nodes

    assert node.gpu_type == "Graphics-Device-rev.-B"
    assert math.isnan(node.usd_per_hour)


def test_cores_near_a_gpu_are_those_this_process_may_use(watch):
    machine = watch(Gpu(cores=2**63 - 1), Gpu(cores=0))

    near, unknown = machine.devices[0]
    assert near.cores == tuple(sorted(core for core in os.sched_getaffinity(0) if core < 63))
    assert unknown.cores == ()


def test_memory_of_a_gpu_that_does_not_say_is_that_of_the_catalogue(watch, world):
    world.fail("nvmlDeviceGetMemoryInfo", NOT_SUPPORTED, gpu=0)
    world.fail("nvmlDeviceGetMemoryInfo_v2", NOT_SUPPORTED, gpu=0)
    machine = watch(Gpu(total=1), Gpu(**T4))

    assert machine.devices[0][0].memory_bytes == gpu_type("A100").memory_bytes
    assert machine.lost() == frozenset()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (DRIVER_NOT_LOADED, "not loaded"),
        (VERSION_MISMATCH, "reboot"),
        (NO_PERMISSION, "/dev/nvidia*"),
        (UNKNOWN, "NVML does not start (Unknown Error)"),
    ],
)
def test_where_nvml_does_not_start_cores_stand_in_and_a_line_says_why(watch, world, code, words):
    world.fail("nvmlInitWithFlags", code)
    machine = watch(Gpu())

    assert machine.stand_in is True
    assert {device.gpu_type for device in machine.devices[0]} == {"cpu-core"}
    (note,) = machine.notes
    assert note.startswith("CPU cores stand in for GPUs: ")
    assert words in note
    assert "\n" not in note


def test_where_there_is_no_driver_cores_stand_in(watch):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "libnvidia-ml.so.1").write_text("not a library")
        with Stage(Path(folder), Path(folder, "socket")) as stage:
            machine = watch(on=stage)

    assert machine.stand_in is True
    assert "no NVIDIA driver here" in machine.notes[0]


def test_where_the_driver_sees_no_gpu_cores_stand_in(watch):
    machine = watch()

    assert machine.stand_in is True
    assert "sees no GPU" in machine.notes[0]


@pytest.mark.parametrize(("code", "words"), [(GPU_IS_LOST, "GPU is lost"), (NO_PERMISSION, "Insufficient Permissions")])
def test_a_gpu_that_cannot_be_used_is_left_out_with_a_note(watch, world, code, words):
    world.fail("nvmlDeviceGetHandleByIndex_v2", code, gpu=0)
    machine = watch(Gpu(), Gpu())

    assert [device.uuid for device in machine.devices[0]] == [uuid(1)]
    assert machine.notes == (f"GPU 0 is left out: {words}",)


def test_where_no_gpu_can_be_used_cores_stand_in_and_all_are_named(watch, world):
    world.fail("nvmlDeviceGetName", UNKNOWN)
    machine = watch(Gpu(), Gpu())

    assert machine.stand_in is True
    assert "GPU 0 is left out: Unknown Error; GPU 1 is left out" in machine.notes[0]


def test_stand_ins_can_be_asked_for_although_there_are_gpus(watch):
    machine = watch(Gpu(), devices=3, memory_bytes=GIB)

    assert machine.stand_in is True
    assert machine.nodes[0].gpus == 3
    assert [device.memory_bytes for device in machine.devices[0]] == [GIB] * 3
