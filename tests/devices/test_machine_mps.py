"""The MPS daemon: started, found again, asked and ended. A shell script plays nvidia-cuda-mps-control."""

import math
import os
import stat
from pathlib import Path

import pytest

from gpuwise.devices.nvml.mps import Mps, MpsError

SCRIPT = Path(__file__).parent / "nvml_standin" / "bin" / "nvidia-cuda-mps-control"


@pytest.fixture
def on_path(monkeypatch):
    monkeypatch.setenv("PATH", f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("m") / "mps"  # short, since sockets lie in it


@pytest.mark.usefixtures("on_path")
class TestDaemon:
    def test_it_starts_in_folders_of_its_own(self, folder, monkeypatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        monkeypatch.setenv("GPUWISE_SECRET", "x")
        mps = Mps(folder)
        assert not mps.healthy()
        mps.start()

        assert mps.healthy()
        assert stat.S_IMODE((folder / "pipes").stat().st_mode) == 0o700
        seen = (folder / "logs" / "environment").read_text()
        assert f"CUDA_MPS_PIPE_DIRECTORY={folder}/pipes\n" in seen
        assert f"CUDA_MPS_LOG_DIRECTORY={folder}/logs\n" in seen
        assert "CUDA_VISIBLE_DEVICES" not in seen  # it serves all GPUs
        assert "GPUWISE_SECRET" not in seen

    def test_one_that_runs_is_taken_over(self, folder):
        Mps(folder).start()
        Mps(folder).start()

        assert (folder / "logs" / "starts").read_text() == "start\n"

    def test_it_knows_who_uses_it(self, folder):
        mps = Mps(folder)
        mps.start()
        assert mps.clients() == ()
        (folder / "pipes" / "clients").write_text("4242\n4243\n")

        assert mps.clients() == (4242, 4243)

    def test_it_is_not_ended_under_those_who_use_it(self, folder):
        mps = Mps(folder)
        mps.start()
        (folder / "pipes" / "clients").write_text("4242\n")
        assert mps.stop() is False
        assert mps.healthy()

        (folder / "pipes" / "clients").write_text("")
        assert mps.stop() is True
        assert not mps.healthy()

    def test_a_start_that_fails_says_what_the_daemon_said(self, folder, monkeypatch):
        monkeypatch.setenv("HOME", "/nonexistent/broken")  # by which the script knows that it shall fail

        with pytest.raises(MpsError, match="did not start: cannot create the log file"):
            Mps(folder).start()

    def test_a_daemon_that_starts_and_never_answers_is_no_daemon(self, folder, monkeypatch):
        monkeypatch.setattr("gpuwise.devices.nvml.mps.PATIENCE_S", (0.0, 0.01))
        monkeypatch.setenv("HOME", "/nonexistent/mute")

        with pytest.raises(MpsError, match="does not answer; see"):
            Mps(folder).start()

    def test_a_folder_that_cannot_be_made_is_named(self, folder):
        folder.parent.joinpath("mps").write_text("a file in its place")

        with pytest.raises(MpsError, match=rf"MPS needs the folder {folder}/pipes: Not a directory"):
            Mps(folder).start()

    def test_a_path_too_long_for_its_sockets_is_refused(self, folder):
        with pytest.raises(MpsError, match="too long for the sockets of MPS"):
            Mps(folder / ("x" * 90)).start()


def test_without_the_program_there_is_no_mps(folder, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")

    assert not Mps(folder).healthy()
    with pytest.raises(MpsError, match="not on the PATH"):
        Mps(folder).start()


@pytest.mark.parametrize(
    ("milli", "memory", "percentage", "limit"),
    [
        (500, [8 * 2**30], "50", "0=8192M"),
        (1, [1.0], "1", "0=1M"),
        (1000, [2**30, 2**31], "100", "0=1024M,1=2048M"),
        (125, [2.5 * 2**20], "13", "0=2M"),
    ],
)
def test_a_share_as_mps_wants_to_hear_it(folder, milli, memory, percentage, limit):
    found = Mps(folder).variables(milli, memory)

    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == percentage
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == limit


def test_memory_that_is_not_known_is_not_limited(folder):
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in Mps(folder).variables(500, [math.inf])
