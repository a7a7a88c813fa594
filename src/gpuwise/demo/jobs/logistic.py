"""Logistic regression on two overlapping clouds of points."""

from __future__ import annotations

import os

import numpy as np

from gpuwise import sdk
from gpuwise.demo.jobs.script import Array, Log, Weights, batch, finish, options

RATES = (0.003, 0.03, 0.3)
"""The learning rates of an array's tasks, by index."""


def points(count: int = 20_000, width: int = 64) -> tuple[Array, Array]:
    """Points and the side they are on; one in ten is labelled wrongly."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(count, width))
    side = x @ rng.normal(size=width) + 0.5 * rng.normal(size=count) > 0
    return x, np.where(rng.random(count) < 0.1, ~side, side).astype(float)


def loss_and_gradients(weights: Weights, x: Array, y: Array) -> tuple[float, dict[str, Array]]:
    """Cross-entropy, and its gradient."""
    guess = 1 / (1 + np.exp(-(x @ weights["w"] + weights["b"])))
    loss = -np.mean(y * np.log(guess + 1e-12) + (1 - y) * np.log(1 - guess + 1e-12))
    error = (guess - y) / len(y)
    return float(loss), {"w": x.T @ error, "b": error.sum(keepdims=True)}


def main() -> None:
    """Trains and prints the accuracy."""
    given = options(steps=2000, learning_rate=0.1, batch=4096)
    if (index := os.environ.get("GPUWISE_ARRAY_INDEX")) is not None:
        given.learning_rate = RATES[int(index)]
    x, y = points()
    weights = Weights(w=np.zeros(x.shape[1]), b=np.zeros(1))

    log = Log(given.steps)
    job = sdk.attach(save=weights.save, load=weights.load)
    for step in job.steps(given.steps):
        chosen = batch(step, given.batch, len(y))
        loss, gradients = loss_and_gradients(weights, x[chosen], y[chosen])
        weights.descend(gradients, given.learning_rate)
        job.report(loss=loss, samples=given.batch)
        log.step(step, loss)

    loss, _ = loss_and_gradients(weights, x, y)
    accuracy = np.mean((x @ weights["w"] + weights["b"] > 0) == (y > 0.5))
    finish(learning_rate=given.learning_rate, loss=loss, accuracy=float(accuracy))


if __name__ == "__main__":
    main()
