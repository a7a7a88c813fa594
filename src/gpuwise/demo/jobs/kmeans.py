"""k-means in small batches (Sculley, 2010): the centres of twelve clouds of points."""

from __future__ import annotations

import numpy as np

from gpuwise import sdk
from gpuwise.demo.jobs.script import Array, Indexes, Log, Weights, batch, finish, options

CLOUDS, CENTRES = 12, 24


def nearest(x: Array, centres: Array) -> tuple[Indexes, Array]:
    """For each point its centre, and the squared distance to it."""
    squares = (x**2).sum(1, keepdims=True) - 2 * x @ centres.T + (centres**2).sum(1)
    own = squares.argmin(1)
    return own, np.maximum(squares[np.arange(len(x)), own], 0)


def main() -> None:
    """Moves centres towards the points nearest to them and prints the mean distance."""
    given = options(steps=1200, batch=8192)
    rng = np.random.default_rng(5)
    middles = 4 * rng.normal(size=(CLOUDS, 16))
    x = middles[rng.integers(CLOUDS, size=40_000)] + rng.normal(size=(40_000, 16))
    weights = Weights(centres=x[:CENTRES].copy(), seen=np.ones(CENTRES))

    log = Log(given.steps)
    job = sdk.attach(save=weights.save, load=weights.load)
    for step in job.steps(given.steps):
        points = x[batch(step, given.batch, len(x))]
        own, squares = nearest(points, weights["centres"])
        members = np.eye(CENTRES)[own]
        weights["seen"] += members.sum(0)
        pull = members.T @ points - members.sum(0)[:, None] * weights["centres"]
        weights["centres"] += pull / weights["seen"][:, None]
        loss = squares.mean()
        job.report(loss=loss, samples=given.batch)
        log.step(step, loss)

    finish(loss=float(nearest(x, weights["centres"])[1].mean()))


if __name__ == "__main__":
    main()
