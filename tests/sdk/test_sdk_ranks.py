"""Several ranks leave at the same step, or none does."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path

import pytest
from controller_double import COUNT_UP, ControllerDouble, Processes, clean_environment, free_port, wait_until

from gpuwise.sdk.agreement import Agreement
from gpuwise.sdk.boundary import Follower, Leader, Leave, Pauses
from gpuwise.sdk.checkpoints import Checkpoints
from gpuwise.sdk.environment import read_environment
from gpuwise.sdk.messages import Messages
from gpuwise.sdk.progress import Progress
from gpuwise.sdk.requests import Requests
from gpuwise.sdk.saver import Every, Saver


def last_step(out: str) -> int:
    return max(int(line.split()[1]) for line in out.splitlines() if line.startswith("step"))


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_leave_at_the_same_step(controller: ControllerDouble, ranks: int) -> None:
    processes = controller.launch(COUNT_UP, *controller.until_told, ranks=ranks)
    controller.wait_for_step(10)
    seq = controller.ask("leave")
    ends = processes.end()
    assert [code for code, _, _ in ends] == [75] * ranks
    saved = controller.read("saved.json")
    assert saved["seq"] == seq
    assert {last_step(out) for _, out, _ in ends} == {saved["step"] - 1}
    assert controller.read("agreed.json") == {"seq": seq, "want": "leave", "at_step": saved["step"]}
    assert {each["rank"] for each in controller.messages} == {0}


@pytest.mark.parametrize("ranks", [1, 2])
def test_all_stand_still_go_on_and_leave_from_where_they_stand(controller: ControllerDouble, ranks: int) -> None:
    processes = controller.launch(COUNT_UP, *controller.until_told, ranks=ranks)
    controller.wait_for_step(5)
    for _ in range(2):
        seq = controller.ask("pause")
        controller.wait_for("paused", seq=seq)
        assert controller.read("paused.json") == {"seq": seq}
        told = controller.said("progress")[-1]["step"]
        seq = controller.ask("run")
        controller.wait_for("resumed", seq=seq)
        controller.wait_for_step(told + 5)
    controller.wait_for("paused", seq=controller.ask("pause"))
    controller.ask("leave")
    ends = processes.end()
    assert [code for code, _, _ in ends] == [75] * ranks
    assert {last_step(out) for _, out, _ in ends} == {controller.read("saved.json")["step"] - 1}


def test_nobody_leaves_before_rank_0_has_saved(controller: ControllerDouble) -> None:
    processes = controller.launch(COUNT_UP, *controller.until_told, "--save-s", 1.0, ranks=2)
    controller.wait_for_step(5)
    controller.ask("leave")
    wait_until(lambda: list(controller.checkpoint.glob(".*/state")), "the save to begin")
    while [process.poll() for process in processes.each] == [None, None]:
        time.sleep(0.005)
    assert (controller.folder / "saved.json").exists()  # as soon as any of them has left
    assert processes.codes() == [75, 75]


def test_training_that_ends_before_the_agreed_step_just_ends(controller: ControllerDouble) -> None:
    processes = controller.launch(COUNT_UP, "--steps", 4, "--pause", 0.5, ranks=2)
    controller.wait_for_step(2)
    controller.ask("leave")  # seen before step 3 or step 4 of 4; two steps later is past the end
    ends = processes.end()
    assert [code for code, _, _ in ends] == [0, 0]
    assert json.loads(ends[0][1].splitlines()[-1])["done"] == [0, 1, 2, 3]
    assert not (controller.folder / "agreed.json").exists()


def test_sigterm_without_a_controller(tmp_path: Path) -> None:
    def launch(steps: int) -> Processes:
        port = str(free_port())
        told = [clean_environment(RANK=str(rank), WORLD_SIZE="2", MASTER_PORT=port) for rank in range(2)]
        return Processes([COUNT_UP, "--steps", steps, "--pause", 0.005, "--checkpoint-dir", tmp_path], told)

    for _ in range(2):  # the second time, the files of the first are still there
        processes = launch(10_000)
        for process in processes.each:
            assert process.stdout is not None
            process.stdout.readline()
        processes.signal(signal.SIGTERM)
        ends = processes.end()
        assert [code for code, _, _ in ends] == [75, 75]
        reached = json.loads((tmp_path / "saved.json").read_text())["step"]
        assert {last_step(out) for _, out, _ in ends} == {reached - 1}

    for code, out, _ in launch(reached + 10).end():
        assert code == 0
        assert json.loads(out.splitlines()[-1])["done"] == list(range(reached + 10))


class Lockstep:
    """Two ranks as threads, which cannot get through a step without each other, with pauses in all places."""

    def __init__(self, folder: Path, pauses: list[float], steps: int, save_s: float) -> None:
        environment = read_environment({})
        messages = Messages(environment)
        self.requests = Requests(None)
        self.pauses, self.total, self.save_s = pauses, steps, save_s
        progress = Progress(messages)
        saver = Saver(Checkpoints(folder / "checkpoint"), self._save, messages, progress)
        standing = Pauses(None, self.requests, messages, progress)
        self.ranks = [Leader(self.requests, saver, Agreement(folder), standing, 2), Follower(Agreement(folder))]
        self.met = threading.Barrier(2, timeout=20)
        self.left: dict[int, int | str] = {}

    def _save(self, path: Path) -> None:
        time.sleep(self.save_s)
        path.write_text("x")

    def run(self, ask_s: float) -> dict[int, int | str]:
        """At which step each rank left, after somebody asked at that time."""
        threads = [threading.Thread(target=self._train, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(ask_s)
        self.requests.ask("leave")
        for thread in threads:
            thread.join()
        return self.left

    def _train(self, rank: int) -> None:
        boundary = self.ranks[rank]
        boundary.begin(0, self.total, Every(None, None))
        try:
            for step in range(self.total):
                boundary.at(step, time.monotonic())
                time.sleep(self.pauses[(step * 7 + rank * 3) % len(self.pauses)])
                self.met.wait()
                time.sleep(self.pauses[(step * 5 + rank) % len(self.pauses)])
            self.left[rank] = "finished"
        except Leave as leave:
            self.left[rank] = leave.step
        except threading.BrokenBarrierError:
            self.left[rank] = "deadlock"


@pytest.mark.parametrize("seed", range(12))
def test_any_timing(tmp_path: Path, seed: int) -> None:
    pauses = [(seed * 13 + k * 29) % 7 / 1000 for k in range(11)]
    left = Lockstep(tmp_path, pauses, steps=30, save_s=seed % 3 / 50).run(ask_s=seed * 0.013)
    assert left[0] == left[1] != "deadlock"


def test_a_rank_that_ran_ahead_leaves_too(tmp_path: Path) -> None:
    # A process that queues work on a GPU may be steps ahead of rank 0 when that names a step.
    leader, follower = Agreement(tmp_path), Follower(Agreement(tmp_path))
    follower.begin(0, None, Every(None, None))
    asked = Requests(None)
    asked.ask("leave")
    request = asked.take()
    assert request is not None
    leader.propose(request, at_step=7)
    follower.at(6, time.monotonic())
    leader.conclude(request, 7, None)
    with pytest.raises(Leave) as left:
        follower.at(9, time.monotonic())
    assert left.value.code == 75
