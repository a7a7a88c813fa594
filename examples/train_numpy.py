"""A small training with numpy that resumes where it was stopped: python examples/train_numpy.py.

A network with one hidden layer learns which of two interleaved spirals a point lies on. Batches are drawn by the step's
number, so that a run that was interrupted ends with the same weights, bit by bit, as one that was not.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from pathlib import Path

import numpy as np

from gpuwise import sdk

SAMPLES, TESTS, HIDDEN, BATCH, RATE = 2000, 1000, 64, 64, 0.5
Weights = dict[str, np.ndarray]


def spirals(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points on two spirals, and on which of the two each lies."""
    radius = 3 * np.sqrt(rng.random(count))
    label = rng.integers(2, size=count)
    angle = 2 * radius + np.pi * label
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1) + rng.normal(0, 0.1, (count, 2))
    return points, label.astype(float)


def forward(weights: Weights, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.tanh(points @ weights["in"] + weights["in_bias"])
    return hidden, 1 / (1 + np.exp(-(hidden @ weights["out"] + weights["out_bias"])))


def train_step(weights: Weights, points: np.ndarray, label: np.ndarray) -> float:
    """One step of gradient descent; returns the loss before it."""
    hidden, guess = forward(weights, points)
    error = (guess - label) / len(label)
    back = np.outer(error, weights["out"]) * (1 - hidden**2)
    gradient = {
        "in": points.T @ back,
        "in_bias": back.sum(axis=0),
        "out": hidden.T @ error,
        "out_bias": error.sum(keepdims=True),
    }
    for name, slope in gradient.items():
        weights[name] -= RATE * slope
    return float(-np.mean(np.log(np.where(label == 1, guess, 1 - guess) + 1e-12)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seconds-per-step", type=float, default=0.0, help="make a step take at least this long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-dir", help="where to save when there is no controller")
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    points, label = spirals(SAMPLES, rng)
    weights = {
        "in": rng.normal(0, 1, (2, HIDDEN)),
        "in_bias": rng.normal(0, 1, HIDDEN),
        "out": rng.normal(0, 0.1, HIDDEN),
        "out_bias": np.zeros(1),
    }

    def save(path: Path) -> None:
        np.savez(path, **weights)

    def load(path: Path) -> None:
        with np.load(path) as saved:
            weights.update(saved)

    job = sdk.attach(save=save, load=load, checkpoint_dir=args.checkpoint_dir)
    if job.resumed:
        print(f"resumes at step {job.step}", flush=True)
    for step in job.steps(args.steps):
        began_s = time.monotonic()
        batch = np.random.default_rng((args.seed, step)).integers(SAMPLES, size=BATCH)
        loss = train_step(weights, points[batch], label[batch])
        job.report(loss=loss, samples=BATCH)
        time.sleep(max(0.0, args.seconds_per_step - (time.monotonic() - began_s)))

    test_points, test_label = spirals(TESTS, np.random.default_rng(args.seed + 1))
    accuracy = np.mean((forward(weights, test_points)[1] > 0.5) == test_label)
    digest = hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest()[:16]
    print(f"accuracy {accuracy:.3f} weights {digest}")


if __name__ == "__main__":
    main()
