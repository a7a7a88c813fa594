"""Linear regression by stochastic gradient descent, with momentum."""

from __future__ import annotations

import numpy as np

from gpuwise import sdk
from gpuwise.demo.jobs.script import Log, Weights, batch, finish, options

NOISE = 0.3
"""Spread of what cannot be learned: the best possible loss is its square."""


def main() -> None:
    """Fits a plane to noisy points and prints how far off it is."""
    given = options(steps=1500, learning_rate=0.01, batch=4096)
    rng = np.random.default_rng(3)
    truth, x = rng.normal(size=128), rng.normal(size=(20_000, 128))
    y = x @ truth + NOISE * rng.normal(size=len(x))
    weights = Weights(w=np.zeros(128), speed=np.zeros(128))

    log = Log(given.steps)
    job = sdk.attach(save=weights.save, load=weights.load)
    for step in job.steps(given.steps):
        chosen = batch(step, given.batch, len(y))
        error = x[chosen] @ weights["w"] - y[chosen]
        weights["speed"] = 0.9 * weights["speed"] - given.learning_rate * (x[chosen].T @ error) / given.batch
        weights["w"] += weights["speed"]
        loss = float(np.mean(error**2))
        job.report(loss=loss, samples=given.batch)
        log.step(step, loss)

    loss = float(np.mean((x @ weights["w"] - y) ** 2))
    finish(loss=loss, distance=float(np.linalg.norm(weights["w"] - truth)))


if __name__ == "__main__":
    main()
