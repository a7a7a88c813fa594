"""Softmax regression on noisy pictures of the ten digits, 5 × 7 dots each."""

from __future__ import annotations

import numpy as np

from gpuwise import sdk
from gpuwise.demo.jobs.script import Array, Indexes, Log, Weights, batch, finish, options

FONT = (
    "01110 10001 10011 10101 11001 10001 01110", "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00110 01000 10000 11111", "01110 10001 00001 00110 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010", "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110", "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110", "01110 10001 10001 01111 00001 00010 01100",
)  # fmt: skip


def pictures(count: int, noise: float, seed: int) -> tuple[Array, Indexes]:
    """Pictures with noise on every dot, and which digit each shows."""
    rng = np.random.default_rng(seed)
    font = np.array([[float(dot) for dot in digit.replace(" ", "")] for digit in FONT])
    digit = rng.integers(10, size=count)
    return font[digit] + noise * rng.normal(size=(count, font.shape[1])), digit


def probabilities(weights: Weights, x: Array) -> Array:
    """How likely each picture shows each digit."""
    scores = x @ weights["w"] + weights["b"]
    odds = np.exp(scores - scores.max(1, keepdims=True))
    odds /= odds.sum(1, keepdims=True)
    return np.asarray(odds)


def main() -> None:
    """Trains and prints the accuracy on unseen pictures."""
    given = options(steps=1500, learning_rate=0.5, batch=2048)
    x, digit = pictures(30_000, 0.8, seed=19)
    y = np.eye(10)[digit]
    weights = Weights(w=np.zeros((35, 10)), b=np.zeros(10))

    log = Log(given.steps)
    job = sdk.attach(save=weights.save, load=weights.load)
    for step in job.steps(given.steps):
        chosen = batch(step, given.batch, len(x))
        guess = probabilities(weights, x[chosen])
        error = (guess - y[chosen]) / given.batch
        weights.descend({"w": x[chosen].T @ error, "b": error.sum(0)}, given.learning_rate)
        loss = -np.mean(np.log((guess * y[chosen]).sum(1) + 1e-12))
        job.report(loss=loss, samples=given.batch)
        log.step(step, loss)

    unseen, shown = pictures(10_000, 0.8, seed=23)
    guess = probabilities(weights, unseen)
    loss = -np.mean(np.log(guess[np.arange(len(shown)), shown] + 1e-12))
    finish(loss=float(loss), accuracy=float(np.mean(guess.argmax(1) == shown)))


if __name__ == "__main__":
    main()
