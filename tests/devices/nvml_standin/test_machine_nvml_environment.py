"""What a job on GPUs is shown."""

import pytest
from standin import GIB, Gpu, mig_gpu, uuid

from gpuwise.core.commands import Grant, Placement
from gpuwise.core.job.needs import Sharing
from gpuwise.devices.machine import MachineError

T4 = Gpu(name="Tesla T4", total=16 * GIB)


def visible(machine, *grants, sharing=Sharing.EXCLUSIVE, milli=1000):
    return machine.environment(Placement(grants, sharing, milli))["CUDA_VISIBLE_DEVICES"].split(",")


def test_a_job_sees_its_gpus_by_uuid_and_no_others(watch):
    machine = watch(Gpu(), Gpu(), Gpu())

    assert machine.environment(Placement((Grant(0, 0b101),))) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": f"{uuid(0)},{uuid(2)}",
        "NVIDIA_VISIBLE_DEVICES": f"{uuid(0)},{uuid(2)}",
    }
    assert machine.cores(Placement((Grant(0, 0b101),))) is None


def test_a_job_may_have_gpus_of_several_nodes(watch):
    machine = watch(Gpu(), T4, Gpu())

    assert visible(machine, Grant(1, 0b1), Grant(0, 0b10)) == [uuid(1), uuid(2)]


def test_a_job_on_slices_sees_them_by_uuid(watch):
    machine = watch(Gpu(), mig_gpu(("3g.20gb", 0), ("2g.10gb", 4)))

    assert visible(machine, Grant(0, 0b10, 4), sharing=Sharing.MIG, milli=286) == ["MIG-1-2"]
    assert visible(machine, Grant(0, 0b10, 4), Grant(0, 0b10, 0), sharing=Sharing.MIG) == ["MIG-1-2", "MIG-1-1"]


def test_a_whole_gpu_in_mig_mode_is_its_one_slice(watch):
    machine = watch(Gpu(), mig_gpu(("7g.40gb", 0)))

    assert visible(machine, Grant(0, 0b11)) == [uuid(0), "MIG-1-1"]


def test_slices_are_looked_up_as_they_are_now(watch, world):
    machine = watch(mig_gpu(("3g.20gb", 0)), mig_gpu(("7g.40gb", 0)))
    world.repartition(0, ("3g.20gb", 0))
    assert visible(machine, Grant(0, 0b1, 0), sharing=Sharing.MIG) == ["MIG-0-3"]

    world.repartition(1, ("3g.20gb", 4))
    with pytest.raises(MachineError, match=r"is not whole; its slices: 3g\.20gb at 4"):
        visible(machine, Grant(0, 0b10))


@pytest.mark.parametrize(
    ("grant", "sharing", "words"),
    [
        (Grant(0, 0b10), Sharing.EXCLUSIVE, "is not whole; its slices: 3g.20gb at 0"),
        (Grant(0, 0b10, 4), Sharing.MIG, "no slice at 4; its slices: 3g.20gb at 0"),
        (Grant(0, 0b01, 0), Sharing.MIG, "no slice at 0; its slices: none"),
        (Grant(0, 0b100), Sharing.EXCLUSIVE, "no device 2 on node 0"),
        (Grant(1, 0b1), Sharing.SHARED, "no device 0 on node 1"),
    ],
)
def test_what_is_not_there_cannot_be_shown(watch, grant, sharing, words):
    machine = watch(Gpu(), mig_gpu(("3g.20gb", 0)))

    with pytest.raises(MachineError, match=words):
        machine.environment(Placement((grant,), sharing))


@pytest.mark.parametrize("sharing", [Sharing.SHARED, Sharing.TIME_SLICE])
def test_without_mps_a_shared_gpu_is_just_seen(watch, sharing):
    machine = watch(Gpu())

    found = machine.environment(Placement((Grant(0, 1),), sharing, 500))
    assert found == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": uuid(0), "NVIDIA_VISIBLE_DEVICES": uuid(0)
    }  # fmt: skip


def test_a_job_that_shares_through_mps_is_told_its_part(watch, mps_path, mps_folder):
    machine = watch(Gpu(), Gpu(), env={"PATH": mps_path}, mps=mps_folder)
    assert machine.notes == ()

    found = machine.environment(Placement((Grant(0, 0b11),), Sharing.SHARED, 333))
    assert found == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": f"{uuid(0)},{uuid(1)}",
        "NVIDIA_VISIBLE_DEVICES": f"{uuid(0)},{uuid(1)}",
        "CUDA_MPS_PIPE_DIRECTORY": str(mps_folder / "pipes"),
        "CUDA_MPS_LOG_DIRECTORY": str(mps_folder / "logs"),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "34",  # never less than its share
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=13639M,1=13639M",  # 0.333 × 40,960 MiB
    }
    asked = machine.environment(Placement((Grant(0, 0b10),), Sharing.SHARED, 500), memory_bytes=3 * GIB)
    assert asked["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3072M"
    for other in (Sharing.EXCLUSIVE, Sharing.TIME_SLICE):
        assert "CUDA_MPS_PIPE_DIRECTORY" not in machine.environment(Placement((Grant(0, 1),), other))


def test_a_gpu_in_mig_mode_is_shared_without_mps(watch, mps_path, mps_folder):
    machine = watch(mig_gpu(("7g.40gb", 0)), env={"PATH": mps_path}, mps=mps_folder)

    found = machine.environment(Placement((Grant(0, 1),), Sharing.SHARED, 500))
    assert (found["CUDA_VISIBLE_DEVICES"], found["NVIDIA_VISIBLE_DEVICES"]) == ("MIG-0-1", "MIG-0-1")
    assert "CUDA_MPS_PIPE_DIRECTORY" not in found


def test_mps_that_died_is_started_again_for_the_next_job(watch, mps_path, mps_folder):
    machine = watch(Gpu(), env={"PATH": mps_path}, mps=mps_folder)
    (mps_folder / "pipes/daemon").unlink()
    machine.environment(Placement((Grant(0, 1),), Sharing.SHARED, 500))

    assert (mps_folder / "pipes/daemon").exists()


def test_where_mps_does_not_start_jobs_share_without_it(watch, tmp_path, mps_folder):
    machine = watch(Gpu(), env={"PATH": str(tmp_path)}, mps=mps_folder)

    (note,) = machine.notes
    assert note.startswith("jobs that share a GPU do so without MPS: nvidia-cuda-mps-control is not on the PATH")
    found = machine.environment(Placement((Grant(0, 1),), Sharing.SHARED, 500))
    assert "CUDA_MPS_PIPE_DIRECTORY" not in found


def test_mps_ends_with_the_machine_unless_jobs_use_it(watch, mps_path, mps_folder):
    machine = watch(Gpu(), env={"PATH": mps_path}, mps=mps_folder)
    pipes = mps_folder / "pipes"
    (pipes / "clients").write_text("4242\n")
    machine.close()
    assert (pipes / "daemon").exists()

    (pipes / "clients").write_text("")
    machine.close()
    assert not (pipes / "daemon").exists()
