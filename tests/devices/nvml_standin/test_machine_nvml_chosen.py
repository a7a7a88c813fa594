"""Which GPUs are managed: those that are named, else those of CUDA_VISIBLE_DEVICES, else all."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from standin import DRIVER_NOT_LOADED, GIB, Gpu, uuid

from gpuwise.core.commands import Grant, Placement
from gpuwise.devices.machine import MachineError, NoGpusError

T4 = {"name": "Tesla T4", "total": 15 * GIB}


def uuids(machine) -> list[str]:
    return [device.uuid for node in machine.devices for device in node]


@pytest.mark.parametrize(
    "named",
    [("0", "2"), ("2", "0"), (uuid(0), uuid(2)), (uuid(2)[:12], "0")],
    ids=["indexes", "order", "uuids", "both"],
)
def test_gpus_are_chosen_by_index_or_uuid(watch, named):
    machine = watch(Gpu(), Gpu(), Gpu(), gpus=named)

    assert uuids(machine) == [uuid(0), uuid(2)]
    (node,) = machine.nodes
    assert node.gpus == 2
    assert machine.environment(Placement((Grant(0, 0b10),)))["CUDA_VISIBLE_DEVICES"] == uuid(2)
    assert (0, 2) not in machine.read()


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("3", r"--gpus 3: there is no such GPU; .*0 \(GPU-00000000"),
        ("GPU-9", "no such GPU"),
        ("GPU-0000000", "2 GPUs begin so"),
        ("MIG-0-1", "no such GPU"),
    ],
)
def test_a_gpu_that_is_not_here_cannot_be_chosen(watch, named, words):
    with pytest.raises(MachineError, match=words):
        watch(Gpu(), Gpu(), gpus=[named])


def test_where_no_gpu_is_chosen_ones_are_an_error_and_no_stand_ins(watch, world):
    with pytest.raises(MachineError, match="of those here: none"):
        watch(gpus=["0"])
    world.fail("nvmlInitWithFlags", DRIVER_NOT_LOADED)
    with pytest.raises(NoGpusError):
        watch(gpus=["0"])


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        ("1", [1]),
        ("2,0", [0, 2]),
        (uuid(1)[:15], [1]),
        ("0,-1,2", [0]),  # as CUDA reads it: up to the first that is none
        ("0,7,1", [0]),
        ("0,1,2", [0, 1, 2]),
    ],
)
def test_the_services_own_visible_devices_are_respected(watch, visible, found):
    machine = watch(Gpu(), Gpu(), Gpu(), env={"CUDA_VISIBLE_DEVICES": visible})

    assert uuids(machine) == [uuid(number) for number in found]
    assert len(machine.notes) == (len(found) < 3)
    assert all(f"{len(found)} of 3 GPUs" in note for note in machine.notes)


def test_what_is_named_counts_more_than_visible_devices(watch):
    assert uuids(watch(Gpu(), Gpu(), env={"CUDA_VISIBLE_DEVICES": "0"}, gpus=["1"])) == [uuid(1)]


@pytest.mark.parametrize("visible", ["", "-1", "NoDevFiles"])
def test_no_visible_device_leaves_stand_ins(watch, visible):
    machine = watch(Gpu(), Gpu(), env={"CUDA_VISIBLE_DEVICES": visible})

    assert machine.stand_in is True
    assert "CUDA_VISIBLE_DEVICES" in machine.notes[0]


def test_up_manages_the_chosen_gpus_only(tmp_path, world, stage):
    """End to end: ``gpuwise up --gpus`` and a job that prints what it sees."""
    world.gpus = [Gpu(), Gpu(**T4), Gpu()]
    world.write()
    env = {**os.environ, "LD_LIBRARY_PATH": stage.library, "NVML_STANDIN": str(world.path)}
    env |= {"GPUWISE_STATE": str(tmp_path / "state"), "HOME": str(tmp_path)}
    gpuwise = [sys.executable, "-m", "gpuwise.cli.main"]

    def run(*args: str) -> str:
        return subprocess.run([*gpuwise, *args], env=env, capture_output=True, text=True, check=True, timeout=60).stdout

    service = subprocess.Popen([*gpuwise, "up", "--port", "0", "--gpus", f"0,{uuid(1)}"], env=env)
    try:
        gives_up = time.monotonic() + 60
        while not (tmp_path / "state" / "endpoint.json").exists():
            assert service.poll() is None
            assert time.monotonic() < gives_up
            time.sleep(0.05)
        nodes = json.loads(run("nodes", "-o", "json"))
        assert sorted((node["gpu_type"], len(node["devices"])) for node in nodes) == [("A100", 1), ("T4", 1)]
        show = "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES"
        uid = run("submit", "--wait", "--gpu-type", "T4", "--", "sh", "-c", show).strip()
        assert run("logs", uid) == f"{uuid(1)} {uuid(1)}\n"
    finally:
        service.send_signal(signal.SIGINT)
        service.wait(30)
