"""The digits again, with one process per device: each takes its part of every batch, and they average the gradients."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Client, Connection, Listener

import numpy as np

from gpuwise import sdk
from gpuwise.demo.jobs.digits import pictures, probabilities
from gpuwise.demo.jobs.script import Array, Log, Weights, batch, finish, options

CONNECT_S = 60.0


class MeanOverProcesses:
    """The mean of arrays over a job's processes: rank 0 collects them by sockets and sends the mean back."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank = rank
        self._others: list[Connection] = []
        if world_size > 1:
            self._others = _serve(world_size - 1) if rank == 0 else [_connect()]

    def of(self, own: Array) -> Array:
        """The mean over all processes, once all have sent theirs."""
        if self._rank:
            self._others[0].send_bytes(own.tobytes())
            return np.frombuffer(self._others[0].recv_bytes())
        parts = [own, *(np.frombuffer(other.recv_bytes()) for other in self._others)]
        mean: Array = np.mean(parts, axis=0)
        for other in self._others:
            other.send_bytes(mean.tobytes())
        return mean


def _address() -> tuple[str, int]:
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def _key() -> bytes:
    return os.environ.get("GPUWISE_TOKEN", "demo").encode()


def _serve(others: int) -> list[Connection]:
    with Listener(_address(), authkey=_key()) as listener:
        return [listener.accept() for _ in range(others)]


def _connect() -> Connection:
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            return Client(_address(), authkey=_key())
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def loss_and_gradient(weights: Weights, x: Array, y: Array) -> Array:
    """The loss of a part of a batch, and its gradient, in one row to be sent."""
    guess = probabilities(weights, x)
    error = (guess - y) / len(y)
    loss = -np.mean(np.log((guess * y).sum(1) + 1e-12))
    return np.concatenate(([loss], (x.T @ error).ravel(), error.sum(0)))


def main() -> None:
    """Trains on any number of processes, always with the same result."""
    given = options(steps=800, learning_rate=0.5, batch=8192)
    x, digit = pictures(30_000, 0.8, seed=29)
    y = np.eye(10)[digit]
    weights = Weights(w=np.zeros((35, 10)), b=np.zeros(10))

    log = Log(given.steps)
    job = sdk.attach(save=weights.save, load=weights.load)
    mean = MeanOverProcesses(job.rank, job.world_size)
    for step in job.steps(given.steps):
        part = batch(step, given.batch, len(x))[job.rank :: job.world_size]
        row = mean.of(loss_and_gradient(weights, x[part], y[part]))
        weights.descend({"w": row[1:351].reshape(35, 10), "b": row[351:]}, given.learning_rate)
        job.report(loss=row[0], samples=given.batch)
        if job.rank == 0:
            log.step(step, row[0])

    if job.rank == 0:
        loss = loss_and_gradient(weights, x, y)[0]
        accuracy = np.mean(probabilities(weights, x).argmax(1) == digit)
        finish(loss=float(loss), accuracy=float(accuracy), processes=job.world_size)


if __name__ == "__main__":
    main()
