"""What the SDK costs a training loop, with a controller's socket that is read and a control file that is watched.

    python benchmarks/sdk_overhead.py

Steps are measured with and without the SDK by turns, so that a slow spell of the machine meets both: loops that do
nothing, for the time a step takes more; and steps of 10 ms of work, for the ratio. Time is CPU time of the training
thread, in which other processes do not show; the SDK never sleeps between steps, so that nothing is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time

from gpuwise import sdk
from gpuwise.sdk.checkpoints import Checkpoints

Loop = Callable[[int], float]


@contextmanager
def controller() -> Iterator[list[int]]:
    """A socket that is read, and the environment of a job; yields the sizes of the messages received."""
    received: list[int] = []
    with tempfile.TemporaryDirectory() as state, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        path = Path(state, "sdk.sock")
        listener.bind(str(path))
        Path(state, "control.json").write_text(json.dumps({"seq": 1, "want": "run"}), encoding="utf-8")
        env = {"JOB_ID": "1", "ATTEMPT": "1", "SOCKET": path, "ATTEMPT_DIR": state, "CHECKPOINT_DIR": Path(state, "c")}
        os.environ |= {f"GPUWISE_{name}": str(value) for name, value in env.items()}
        reader = threading.Thread(target=_read, args=(listener, received))
        reader.start()
        try:
            yield received
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"", str(path))
            reader.join()
            for name in env:
                del os.environ[f"GPUWISE_{name}"]


def _read(listener: socket.socket, received: list[int]) -> None:
    while message := listener.recv(65536):
        received.append(len(message))


def plain(work: int) -> Loop:
    """A loop of ``steps`` steps, each with ``work``; returns the CPU seconds it took."""

    def run(steps: int) -> float:
        began = thread_time()
        for _ in range(steps):
            do(work)
        return thread_time() - began

    return run


def attached(work: int) -> Loop:
    """The same with the SDK, once it is attached to the controller."""

    def run(steps: int) -> float:
        job = sdk.attach(save=lambda path: path.write_text("x"), load=lambda path: None)
        loop = job.steps(steps + 1, checkpoint_every_s=None)
        next(loop)
        began = thread_time()
        for _ in loop:
            do(work)
            job.report(loss=0.5, samples=64)
        return thread_time() - began

    return run


def do(work: int) -> None:
    for _ in range(work):
        pass


def work_of(seconds: float) -> int:
    """How much work takes so long."""
    took = min(plain(100_000)(1) for _ in range(20))
    return int(100_000 * seconds / took)


def by_turns(loops: Iterable[Loop], steps: int, turns: int) -> list[list[float]]:
    """Seconds a step takes in each loop, once for each turn."""
    loops = list(loops)
    found = [[loop(steps) / steps for loop in loops] for _ in range(turns)]
    return [list(each) for each in zip(*found, strict=True)]


def cost_s(steps: int = 2000, turns: int = 15) -> float:
    """Seconds the SDK adds to a step: the difference of loops that do nothing else, the median of the turns."""
    without, with_sdk = by_turns([plain(0), attached(0)], steps, turns)
    return median(b - a for a, b in zip(without, with_sdk, strict=True))


def ratios(work: int, rounds: int) -> tuple[float, float]:
    """How much longer the median step takes with the SDK, and, to know what the machine's noise does, without it."""
    job = sdk.attach(save=lambda path: path.write_text("x"), load=lambda path: None)
    loop = job.steps(checkpoint_every_s=None)
    next(loop)

    def with_sdk(_steps: int) -> float:
        began = thread_time()
        do(work)
        job.report(loss=0.5, samples=64)
        next(loop)
        return thread_time() - began

    turns = [plain(work), with_sdk, plain(work)]
    took: list[list[float]] = [[], [], []]
    for number in range(3 * rounds):  # a step each, in changing order
        which = (number + number // 3) % 3
        took[which].append(turns[which](1))
    without, with_it, again = map(median, took)
    return with_it / without, again / without


def checkpoint_s(size: int) -> tuple[float, float, float]:
    """Seconds to write ``size`` bytes; to make a checkpoint of them, on disk; to verify it and read it again."""
    content = os.urandom(size)
    with tempfile.TemporaryDirectory() as folder:
        began = perf_counter()
        Path(folder, "plain").write_bytes(content)
        written = perf_counter()
        checkpoints = Checkpoints(Path(folder, "checkpoints"))
        checkpoints.save(lambda path: path.write_bytes(content), 1, None)
        saved = perf_counter()
        newest = checkpoints.newest()
        assert newest is not None
        newest.state.read_bytes()
        return written - began, saved - written, perf_counter() - saved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000, help="steps of an empty loop")
    parser.add_argument("--turns", type=int, default=20, help="how often it runs, with and without")
    parser.add_argument("--work-ms", type=float, default=10.0, help="work of a step in the second measurement")
    parser.add_argument("--mib", type=int, default=256, help="size of a checkpoint")
    parser.add_argument("--rounds", type=int, default=400, help="steps of that length, with and without")
    args = parser.parse_args()
    with controller() as received:
        began = perf_counter()
        next(sdk.attach(save=lambda path: path.write_text("x"), load=lambda path: None).steps(1))
        print(f"attaching takes {(perf_counter() - began) * 1e3:.2f} ms, once")
        print(f"a step costs {cost_s(args.steps, args.turns) * 1e6:.2f} µs more with the SDK")
        ratio, noise = ratios(work_of(args.work_ms / 1000), args.rounds)
    print(f"steps of {args.work_ms:g} ms take {ratio:.4f} times as long; without the SDK, measured again, {noise:.4f}")
    print(f"{len(received)} messages received, the longest of {max(received)} bytes")
    write_s, save_s, load_s = checkpoint_s(args.mib << 20)
    print(f"{args.mib} MiB: written in {write_s:.2f} s, a checkpoint in {save_s:.2f} s, resumed from in {load_s:.2f} s")


if __name__ == "__main__":
    main()
