"""What the demo's scripts share: options, weights that can be saved, and where results are kept."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indexes = NDArray[np.int64]
RESULTS = Path("results")
"""In the folder that the demo's jobs share."""


class Weights(dict[str, Array]):
    """Named arrays that a checkpoint is made of."""

    def save(self, path: Path) -> None:
        """Writes them to a file."""
        np.savez(path, allow_pickle=False, **self)

    def load(self, path: Path) -> None:
        """Takes them from a file."""
        with np.load(path) as saved:
            self.update(saved)

    def descend(self, gradients: dict[str, Array], rate: float) -> None:
        """One step of gradient descent."""
        for name, gradient in gradients.items():
            self[name] -= rate * gradient


def options(**defaults: float) -> Any:
    """The command line: an option for each default, ``--steps 100`` for ``steps=200``."""
    parser = argparse.ArgumentParser()
    for name, value in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    return parser.parse_args()


class Log:
    """Prints the loss when a training starts or resumes, and ten times in between."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._due = 0

    def step(self, step: int, loss: float) -> None:
        """Records the loss of a step."""
        if step >= self._due:
            print(f"step {step:5d} of {self._steps}: loss {float(loss):.4f}", flush=True)
            self._due = step + max(1, self._steps // 10)


def batch(step: int, size: int, of: int) -> Indexes:
    """Which samples a step takes; it depends on the step alone, so that a resumed training takes the same ones."""
    return np.random.default_rng((1, step)).integers(of, size=size)


def finish(**numbers: float) -> None:
    """Prints the final numbers of a training, and writes them to a file for other jobs."""
    print("done: " + ", ".join(f"{name} {value:.4g}" for name, value in numbers.items()), flush=True)
    RESULTS.mkdir(exist_ok=True)
    job = os.environ.get("GPUWISE_JOB_ID", "here")
    unfinished = RESULTS / f".{job}"
    unfinished.write_text(json.dumps(numbers), encoding="utf-8")
    unfinished.rename(RESULTS / f"{job}.json")
