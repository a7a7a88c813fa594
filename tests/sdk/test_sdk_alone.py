"""The same script where nobody controls it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from controller_double import COUNT_UP, Processes, clean_environment

from gpuwise import sdk


def nothing(_path: Path) -> None: ...


def test_without_a_folder_nothing_is_saved_and_nothing_breaks(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = sdk.attach(save=nothing, load=nothing)
    done = []
    for step in job.steps(5, checkpoint_every_steps=1):
        done.append(step)
        job.report(loss=0.5, samples=1)
    assert done == [0, 1, 2, 3, 4]
    assert (job.step, job.rank, job.world_size, job.gpus) == (5, 0, 1, 1)
    assert not job.resumed
    assert not job.can_suspend
    assert list(tmp_path.iterdir()) == []


def text_state(values: list[int]):
    return {
        "save": lambda path: path.write_text(json.dumps(values)),
        "load": lambda path: values.extend(json.loads(path.read_text())),
    }


def test_a_loop_that_was_left_goes_on_at_its_last_checkpoint(tmp_path: Path) -> None:
    values: list[int] = []
    job = sdk.attach(**text_state(values), checkpoint_dir=tmp_path)
    for step in job.steps(10, checkpoint_every_steps=2):
        if step == 7:
            break  # as if it had crashed: step 7 was begun, and 6 is the last that is saved
        values.append(step)
    again: list[int] = []
    job = sdk.attach(**text_state(again), checkpoint_dir=tmp_path)
    assert (job.step, job.resumed, again) == (6, True, [0, 1, 2, 3, 4, 5])
    again.extend(job.steps(10))
    assert again == list(range(10))


def test_a_run_that_ended_finds_itself_ended(tmp_path: Path) -> None:
    values: list[int] = []
    values.extend(sdk.attach(**text_state(values), checkpoint_dir=tmp_path).steps(5))
    again: list[int] = []
    job = sdk.attach(**text_state(again), checkpoint_dir=tmp_path)
    assert list(job.steps(5)) == []
    assert (job.step, again) == (5, [0, 1, 2, 3, 4])


def test_training_can_be_prolonged(tmp_path: Path) -> None:
    values: list[int] = []
    job = sdk.attach(**text_state(values), checkpoint_dir=tmp_path)
    assert [*job.steps(3), *job.steps(5)] == [0, 1, 2, 3, 4]


def test_checkpoints_by_time(tmp_path: Path, monkeypatch) -> None:
    clock = iter(range(0, 10_000))  # every look at the clock is a second later
    monkeypatch.setattr("gpuwise.sdk.saver.monotonic", lambda: 0.0)
    monkeypatch.setattr("gpuwise.sdk.progress.monotonic", lambda: float(next(clock)))
    saved_at: list[int] = []
    job = sdk.attach(save=lambda path: path.write_text("x") and saved_at.append(job.step), load=nothing,
                     checkpoint_dir=tmp_path)  # fmt: skip
    list(job.steps(8, checkpoint_every_s=4.0))
    # The clock of saves stands still: from the first step that ends at 4 s or later, every one is due.
    assert saved_at == [4, 5, 6, 7, 8]


def test_a_checkpoint_the_script_asks_for(tmp_path: Path) -> None:
    values: list[int] = []
    job = sdk.attach(**text_state(values), checkpoint_dir=tmp_path)
    for step in job.steps(5, checkpoint_every_s=None):
        values.append(step)
        if step == 2:
            job.request_checkpoint()
    assert json.loads((tmp_path / "latest.json").read_text())["step"] == 3


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GPUWISE_CHECKPOINT_DIR", str(tmp_path / "told"))
    list(sdk.attach(**text_state([]), checkpoint_dir=tmp_path / "mine").steps(2))
    assert [each.name for each in tmp_path.iterdir()] == ["told"]


def test_sigterm_saves_and_leaves(tmp_path: Path) -> None:
    command = [COUNT_UP, "--steps", 10_000, "--checkpoint-dir", tmp_path]
    processes = Processes(command, [clean_environment()])
    assert processes.each[0].stdout is not None
    processes.each[0].stdout.readline()
    processes.signal(signal.SIGTERM)
    processes.signal(signal.SIGTERM)  # timeout(1) sends it twice
    ((code, out, err),) = processes.end()
    assert (code, err) == (75, "")
    assert out.splitlines()[-1] == "cleaned up"
    step = json.loads((tmp_path / "latest.json").read_text())["step"]
    ((code, out, _),) = Processes([*command[:2], step + 5, *command[3:]], [clean_environment()]).end()
    said = json.loads(out.splitlines()[-1])
    assert (code, said["began_at"], said["done"]) == (0, step, list(range(step + 5)))


def test_sigusr1_saves_and_goes_on(tmp_path: Path) -> None:
    processes = Processes([COUNT_UP, "--steps", 300, "--checkpoint-dir", tmp_path], [clean_environment()])
    assert processes.each[0].stdout is not None
    processes.each[0].stdout.readline()
    processes.signal(signal.SIGUSR1)
    ((code, out, _),) = processes.end()
    assert code == 0
    assert json.loads(out.splitlines()[-1])["done"] == list(range(300))
    assert 0 < json.loads((tmp_path / "latest.json").read_text())["step"] < 300


def test_handlers_are_there_during_the_loop_only(tmp_path: Path) -> None:
    job = sdk.attach(**text_state([]), checkpoint_dir=tmp_path)
    numbers = (signal.SIGTERM, signal.SIGUSR1)
    assert [signal.getsignal(each) for each in numbers] == [signal.SIG_DFL] * 2
    for _ in job.steps(2):
        assert signal.SIG_DFL not in [signal.getsignal(each) for each in numbers]
    assert [signal.getsignal(each) for each in numbers] == [signal.SIG_DFL] * 2
    for _ in job.steps(4):
        break
    assert [signal.getsignal(each) for each in numbers] == [signal.SIG_DFL] * 2


def test_handlers_of_others_are_left_alone(tmp_path: Path) -> None:
    def mine(*_: object) -> None: ...

    before = signal.signal(signal.SIGTERM, mine)
    try:
        for _ in sdk.attach(**text_state([]), checkpoint_dir=tmp_path).steps(2):
            assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_without_save_sigterm_kills() -> None:
    script = "from gpuwise import sdk\nfor _ in sdk.attach().steps(): print('step', flush=True)"
    processes = Processes(["-c", script], [clean_environment()])
    assert processes.each[0].stdout is not None
    processes.each[0].stdout.readline()
    processes.signal(signal.SIGTERM)
    assert processes.codes() == [-signal.SIGTERM]


def test_in_another_thread(tmp_path: Path) -> None:
    done: list[int] = []
    training = threading.Thread(
        target=lambda: done.extend(sdk.attach(**text_state(done), checkpoint_dir=tmp_path).steps(3))
    )
    training.start()
    training.join()
    assert done == [0, 1, 2]


FORKS = """
import os, signal, sys, time
from pathlib import Path
from gpuwise import sdk

job = sdk.attach(save=lambda path: path.write_text("x"), load=lambda path: None, checkpoint_dir=sys.argv[1])
for step in job.steps(3, checkpoint_every_s=None):
    if step == 1:
        job.request_checkpoint()
        child = os.fork()
        if child == 0:
            if sys.argv[2] == "sleeps":
                print("forked", flush=True)
                time.sleep(60)
            continue  # a child that, by mistake, goes on in the loop
        if sys.argv[2] == "sleeps":
            os.kill(child, signal.SIGTERM)
        print("child", os.waitpid(child, 0)[1], flush=True)
    job.report(loss=1.0)
"""


@pytest.mark.parametrize(("what", "status"), [("sleeps", signal.SIGTERM), ("goes on", 0)])
def test_a_forked_worker_is_no_job(tmp_path: Path, what: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS, tmp_path, what],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"child {int(status)}" in done.stdout
    # The parent saved, and the child did not.
    assert [each.name for each in tmp_path.glob("0*")] == ["000001-step-2"]


def test_messages_of_a_forked_worker_do_not_exist(controller) -> None:
    done = controller.launch("-c", FORKS, controller.checkpoint, "goes on")
    assert done.codes() == [0]
    controller.wait_for("done")
    assert len(controller.said("done")) == 1


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"save": nothing}, "load is missing"),
        ({"load": nothing}, "save is missing"),
        ({"save": nothing, "load": nothing, "keep": 0}, "keep is 0"),
    ],
)
def test_attach_says_what_is_wrong(given, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        sdk.attach(**given)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [({"checkpoint_every_s": 0.0}, "checkpoint_every_s is 0.0"), ({"checkpoint_every_steps": 0}, "steps is 0")],
)
def test_steps_says_what_is_wrong(given, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        sdk.attach().steps(10, **given)


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"RANK": "one"}, "RANK is 'one'; it must be a whole number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2 and WORLD_SIZE is 2"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is 0"),
    ],
)
def test_a_wrong_environment_is_named(environ, complaint: str, monkeypatch) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=complaint):
        sdk.attach()
