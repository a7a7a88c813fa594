"""The digits again, by one process a device: each takes its part of every batch, and they agree on the gradient."""

from __future__ import annotations

import numpy as np

from gpuwise import sdk
from gpuwise.demo.jobs.digits import pictures, probabilities
from gpuwise.demo.jobs.gradients import Mean
from gpuwise.demo.jobs.script import Array, Log, Weights, batch, finish, options


def loss_and_slope(weights: Weights, x: Array, y: Array) -> Array:
    """The loss of a part of a batch, and how it changes with the weights, in one row to be sent."""
    guess = probabilities(weights, x)
    error = (guess - y) / len(y)
    loss = -np.mean(np.log((guess * y).sum(1) + 1e-12))
    return np.concatenate(([loss], (x.T @ error).ravel(), error.sum(0)))


def main() -> None:
    """Trains on any number of processes, always with the same outcome."""
    given = options(steps=800, learning_rate=0.5, batch=8192)
    x, digit = pictures(30_000, 0.8, seed=29)
    y = np.eye(10)[digit]
    weights = Weights(w=np.zeros((35, 10)), b=np.zeros(10))

    log = Log(given.steps)
    job = sdk.attach(save=weights.save, load=weights.load)
    mean = Mean(job.rank, job.world_size)
    for step in job.steps(given.steps):
        part = batch(step, given.batch, len(x))[job.rank :: job.world_size]
        row = mean.of(loss_and_slope(weights, x[part], y[part]))
        weights.descend({"w": row[1:351].reshape(35, 10), "b": row[351:]}, given.learning_rate)
        job.report(loss=row[0], samples=given.batch)
        if job.rank == 0:
            log.step(step, row[0])

    if job.rank == 0:
        loss = loss_and_slope(weights, x, y)[0]
        accuracy = np.mean(probabilities(weights, x).argmax(1) == digit)
        finish(loss=float(loss), accuracy=float(accuracy), processes=job.world_size)


if __name__ == "__main__":
    main()
