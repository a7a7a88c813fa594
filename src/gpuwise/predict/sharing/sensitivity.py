"""What measured co-location adds to the features of a job: its sensitivity to others and its pressure on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import Bools, Floats, packable

Ints = NDArray[np.int64]

# How alike two jobs are: for one model, 0.3 whatever the batch size and 0.5 falling off over 1.5 doublings of it;
# 0.1 for the very same job. Accuracy hardly depends on these.
_SAME_MODEL, _NEAR_BATCH, _SAME_JOB, _DOUBLINGS = 0.3, 0.5, 0.1, 1.5
_ACROSS_GPUS = 0.3  # how far what one GPU shows is true for another
_PAIRING = 0.5  # variance of what is peculiar to two jobs together, beside 1 each for pressure and sensitivity
_NOISE = 0.03  # variance of a measurement on the cleanest GPU, in log odds


@packable
class Traits:
    """A Gaussian process over log odds: sensitivity of the job + pressure of the neighbour + what both have together.

    Its covariance of two measurements is G · (S(i, i') + S(j, j') + S(i, i')·S(j, j')/2) for jobs i beside neighbours
    j, where S says how alike jobs are (0 for different models) and G how alike the GPUs. A job never seen adds 0.
    """

    def __init__(self, gpus: list[str], models: list[str], batch: Floats, weights: Floats) -> None:
        self.gpus = gpus
        self.models = models
        self.batch = np.asarray(batch, dtype=np.float64)
        self.weights = np.asarray(weights, dtype=np.float64)

    def of(self, gpu: list[str], own: tuple[list[str], Floats], other: tuple[list[str], Floats]) -> Floats:
        """What to add to the log odds of jobs (models, batch sizes) against neighbours."""
        here = np.asarray(gpu, dtype=np.str_)[:, None] == np.asarray(self.gpus)[None, :]
        over_gpus = np.where(here, 1.0, _ACROSS_GPUS)
        mine, theirs = self._likeness(*own), self._likeness(*other)
        alone = mine @ self.weights.sum(axis=2).T + theirs @ self.weights.sum(axis=1).T
        together = np.einsum("ri,gij,rj->rg", mine, self.weights, theirs, optimize=True)
        return np.asarray(((alone + _PAIRING * together) * over_gpus).sum(axis=1))

    def knows(self, models: list[str]) -> Bools:
        """Whether each model was seen beside another job."""
        return np.isin(models, self.models)

    def _likeness(self, models: list[str], batch: Floats) -> Floats:
        return likeness(np.asarray(models), batch, np.asarray(self.models), self.batch)

    def to_document(self) -> dict[str, Any]:
        """In types of JSON."""
        weights = [[[float(f"{each:.9g}") for each in row] for row in table] for table in self.weights]
        return {"gpus": self.gpus, "models": self.models, "batch": self.batch.tolist(), "weights": weights}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `to_document`."""
        return cls(document["gpus"], document["models"], document["batch"], document["weights"])


def likeness(models: NDArray[Any], batch: Floats, others: NDArray[Any], other_batch: Floats) -> Floats:
    """How alike jobs are to others, by model and batch size."""
    doublings = np.log2(batch)[:, None] - np.log2(other_batch)[None, :]
    near = _NEAR_BATCH * np.exp(-((doublings / _DOUBLINGS) ** 2) / 2.0)
    same = models[:, None] == others[None, :]
    return np.asarray(same * (_SAME_MODEL + near + _SAME_JOB * (doublings == 0.0)))


class Evidence:
    """Measured log odds left over by the features, of jobs by number beside neighbours by number, on GPUs by number."""

    def __init__(self, alike: Floats, gpu: Ints, own: Ints, other: Ints, noise: Floats) -> None:
        across = _ACROSS_GPUS + (1.0 - _ACROSS_GPUS) * np.eye(int(gpu.max()) + 1)
        mine, theirs = alike[np.ix_(own, own)], alike[np.ix_(other, other)]
        self.prior = across[np.ix_(gpu, gpu)] * (mine + theirs + _PAIRING * mine * theirs)
        self.noisy = self.prior + np.diag(_NOISE * noise**2)

    def weights(self, left: Floats) -> Floats:
        """The weight of each row in predictions."""
        from scipy.linalg import solve

        return np.asarray(solve(self.noisy, left, assume_a="pos"))

    def without(self, left: Floats, blocks: Ints) -> Floats:
        """The error of each row, predicted from the rows outside its block; blocks are numbered from 0.

        For a block B with the others' help, truth − prediction = (K⁻¹_BB)⁻¹ (K⁻¹ left)_B: no refit is needed.
        """
        inverse = np.linalg.inv(self.noisy)
        pulled = inverse @ left
        error = np.empty(len(left))
        order = np.argsort(blocks, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(blocks[order])) + 1):
            error[rows] = np.linalg.solve(inverse[np.ix_(rows, rows)], pulled[rows])
        return error

    def elsewhere(self, left: Floats, known: Bools, asked: Bools) -> Floats:
        """The rows in ``asked``, predicted from the known rows."""
        from scipy.linalg import solve

        weights = solve(self.noisy[np.ix_(known, known)], left[known], assume_a="pos")
        return np.asarray(self.prior[np.ix_(asked, known)] @ weights)
