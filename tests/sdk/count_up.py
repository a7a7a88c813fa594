"""A training that only remembers which steps it did: whatever was lost or done twice shows in the end.

Prints a JSON object when the loop ends, and "cleaned up" in a ``finally`` block. With several ranks, none ends a step
before all have come to its end, as when gradients are averaged.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from gpuwise import sdk


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--finish", type=Path, help="end when this file is there")
    parser.add_argument("--pause", type=float, default=0.002, help="seconds a step takes")
    parser.add_argument("--every-steps", type=int, help="steps between checkpoints; none without")
    parser.add_argument("--bytes", type=int, default=0, help="so much more in a checkpoint")
    parser.add_argument("--save-s", type=float, default=0.0, help="seconds a save takes")
    parser.add_argument("--save-fails", action="store_true")
    parser.add_argument("--largest-file", type=int, help="bytes a file may have, as on a disk that is full")
    parser.add_argument("--checkpoint-dir")
    return parser.parse_args()


def connect() -> list[Connection]:
    """Connections between rank 0 and each of the others."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    address = ("127.0.0.1", int(os.environ.get("MASTER_PORT", "0")))
    if ranks == 1:
        return []
    if rank == 0:
        with Listener(address) as listener:
            return [listener.accept() for _ in range(ranks - 1)]
    while True:
        try:
            return [Client(address)]
        except ConnectionRefusedError:
            time.sleep(0.01)


def all_reduce(others: list[Connection], rank: int, value: bool) -> bool:
    """Returns when all ranks have called it, with the value of rank 0."""
    if rank != 0:
        others[0].send(value)
        return bool(others[0].recv())
    for other in others:
        other.recv()
    for other in others:
        other.send(value)
    return value


def main() -> None:
    args = parse()
    done: list[int] = []

    def save(path: Path) -> None:
        path.write_text(json.dumps(done) + " " * args.bytes)
        time.sleep(args.save_s)
        if args.save_fails:
            raise RuntimeError("save does not work today")

    def load(path: Path) -> None:
        done.extend(json.loads(path.read_text()))

    others = connect()
    job = sdk.attach(save=save, load=load, checkpoint_dir=args.checkpoint_dir)
    began_at = job.step
    if args.largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (args.largest_file, args.largest_file))
    try:
        for step in job.steps(args.steps, checkpoint_every_s=None, checkpoint_every_steps=args.every_steps):
            time.sleep(args.pause)
            finish = all_reduce(others, job.rank, args.finish is not None and args.finish.exists())
            done.append(step)
            job.report(loss=1 / (step + 1), samples=8)
            print("step", step, flush=True)
            if finish:
                break
    finally:
        print("cleaned up", flush=True)
    about = {"began_at": began_at, "resumed": job.resumed, "gpus": job.gpus, "world_size": job.world_size}
    print(json.dumps({"done": done, **about}))


if __name__ == "__main__":
    main()
