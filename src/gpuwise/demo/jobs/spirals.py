"""A network with two hidden layers learns which of three spirals a point is on."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gpuwise import sdk
from gpuwise.demo.jobs.script import Array, Log, Weights, batch, finish, options

ARMS, HIDDEN = 3, 96


def spirals(count: int = 12_000) -> tuple[Array, Array]:
    """Points and the spiral each is on, as a row of zeros and a one."""
    rng = np.random.default_rng(11)
    arm, way = rng.integers(ARMS, size=count), rng.random(count)
    angle = 2 * np.pi * (arm / ARMS + 1.75 * way) + 0.25 * rng.normal(size=count)
    return np.stack((way * np.cos(angle), way * np.sin(angle)), axis=1), np.eye(ARMS)[arm]


def initial() -> Weights:
    """Small random weights, and zeros for what Adam keeps of each."""
    rng = np.random.default_rng(13)
    sizes = (2, HIDDEN, HIDDEN, ARMS)
    weights = Weights()
    for layer, (before, after) in enumerate(pairwise(sizes)):
        weights[f"w{layer}"] = rng.normal(size=(before, after)) * np.sqrt(2 / before)
        weights[f"b{layer}"] = np.zeros(after)
    moments = {f"{kind}_{name}": np.zeros_like(value) for name, value in weights.items() for kind in ("mean", "square")}
    weights.update(moments)
    return weights


def forward(weights: Weights, x: Array) -> list[Array]:
    """What each layer puts out; the last one as probabilities."""
    outputs = [x]
    for layer in range(2):
        outputs.append(np.maximum(outputs[-1] @ weights[f"w{layer}"] + weights[f"b{layer}"], 0))
    scores = outputs[-1] @ weights["w2"] + weights["b2"]
    odds = np.exp(scores - scores.max(1, keepdims=True))
    return [*outputs, odds / odds.sum(1, keepdims=True)]


def backward(weights: Weights, outputs: list[Array], y: Array) -> dict[str, Array]:
    """The gradient of the loss with respect to each weight."""
    gradients: dict[str, Array] = {}
    error = (outputs[3] - y) / len(y)
    for layer in (2, 1, 0):
        gradients[f"w{layer}"], gradients[f"b{layer}"] = outputs[layer].T @ error, error.sum(0)
        error = (error @ weights[f"w{layer}"].T) * (outputs[layer] > 0)
    return gradients


def adam(weights: Weights, gradients: dict[str, Array], step: int, rate: float) -> None:
    """One step of Adam (Kingma and Ba, 2015)."""
    for name, gradient in gradients.items():
        mean, square = weights[f"mean_{name}"], weights[f"square_{name}"]
        mean += 0.1 * (gradient - mean)
        square += 0.001 * (gradient**2 - square)
        weights[name] -= rate * (mean / (1 - 0.9 ** (step + 1))) / (np.sqrt(square / (1 - 0.999 ** (step + 1))) + 1e-8)


def main() -> None:
    """Trains and prints the accuracy."""
    given = options(steps=7000, learning_rate=0.001, batch=512)
    x, y = spirals()
    weights = initial()

    log = Log(given.steps)
    job = sdk.attach(save=weights.save, load=weights.load)
    for step in job.steps(given.steps):
        chosen = batch(step, given.batch, len(x))
        outputs = forward(weights, x[chosen])
        loss = -np.mean(np.log((outputs[3] * y[chosen]).sum(1) + 1e-12))
        adam(weights, backward(weights, outputs, y[chosen]), step, given.learning_rate)
        job.report(loss=loss, samples=given.batch)
        log.step(step, loss)

    guess = forward(weights, x)[3]
    loss = float(-np.mean(np.log((guess * y).sum(1) + 1e-12)))
    finish(loss=loss, accuracy=float(np.mean(guess.argmax(1) == y.argmax(1))))


if __name__ == "__main__":
    main()
