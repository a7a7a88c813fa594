"""Matrix factorisation: which films people would like, from the few ratings that are known."""

from __future__ import annotations

import numpy as np

from gpuwise import sdk
from gpuwise.demo.jobs.script import Log, Weights, finish, options

PEOPLE, FILMS, TASTES = 800, 600, 8


def main() -> None:
    """Learns tastes from one rating in ten and prints how well they predict the others."""
    given = options(steps=4000, learning_rate=0.001)
    rng = np.random.default_rng(17)
    truth = rng.normal(size=(PEOPLE, TASTES)) @ rng.normal(size=(TASTES, FILMS)) / np.sqrt(TASTES)
    ratings = truth + 0.1 * rng.normal(size=truth.shape)
    known = (rng.random(truth.shape) < 0.1).astype(float)
    weights = Weights(
        people=0.1 * rng.normal(size=(PEOPLE, TASTES)),
        films=0.1 * rng.normal(size=(TASTES, FILMS)),
    )

    log = Log(given.steps)
    job = sdk.attach(save=weights.save, load=weights.load)
    for step in job.steps(given.steps):
        error = known * (weights["people"] @ weights["films"] - ratings)
        gradients = {
            "people": error @ weights["films"].T + 0.1 * weights["people"],
            "films": weights["people"].T @ error + 0.1 * weights["films"],
        }
        weights.descend(gradients, given.learning_rate / np.sqrt(TASTES))
        loss = (error**2).sum() / known.sum()
        job.report(loss=loss, samples=int(known.sum()))
        log.step(step, loss)

    squares = (weights["people"] @ weights["films"] - ratings) ** 2
    finish(
        loss=float((known * squares).sum() / known.sum()),
        unseen_loss=float(((1 - known) * squares).sum() / (1 - known).sum()),
    )


if __name__ == "__main__":
    main()
