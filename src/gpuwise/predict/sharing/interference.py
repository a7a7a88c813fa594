"""The speed of jobs that share a GPU, as a fraction of what each would reach alone."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from gpuwise.predict.base import COVERAGE, Columns, Estimates, Floats, Predictor
from gpuwise.predict.columns import floats_or
from gpuwise.predict.intervals.conformal import Conformal, folds
from gpuwise.predict.intervals.domain import Domain
from gpuwise.predict.sharing.colocated import Jobs, Pairs, numbered
from gpuwise.predict.sharing.contention import MIG, MOST_SPEED, MPS, TIME_SLICE, expected
from gpuwise.predict.sharing.sensitivity import Evidence, Ints

# Taken for what neither a row nor the data of the fit know.
_USUAL = {"step_time_s": 0.1, "gpu_util_frac": 0.7, "mem_util_frac": 0.3}
SEEN, ONE_NEW, ALL_NEW = "seen", "one_new", "all_new"
ANY_GPU = "*"
_ENOUGH = 40  # residuals, for an interval of a GPU's own
_PAIR_FOLDS = 10
_PER_MODEL = 50


class Interference(Predictor):
    """The speed of each of n jobs on one GPU, above 0 and at most 1: as fast as alone.

    A row is a job. Columns: ``group``, the same for rows that share a GPU; ``gpu``, its type; ``mode``, one of
    time_slice, mps and mig (time_slice if there is no such column); ``model`` and ``batch_size``, by which jobs that
    were measured beside others are recognized; and of each job alone on that GPU ``step_time_s``, ``gpu_util_frac``
    (share of time in which the GPU is busy) and ``mem_util_frac`` (share of the memory bandwidth), NaN where unknown.

        speed = 1/(1 + crowding(mode) · Σ over neighbours of exp(constant of the GPU + features + traits))

    See `contention` for features and crowding, `sensitivity` for the traits of jobs measured beside others. A job
    alone, or in its own MIG slice, runs at 1.0. Each further neighbour adds to the sum: none ever speeds another up.
    Fitted to pairs in time slices. For three and more jobs the sum is the rule of taking turns (n equal jobs get 1/n
    each), and for MPS crowding is a rule too, so the low end is that of time slices; both are called out of domain.
    """

    def __init__(self) -> None:
        pass

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803
        """Learns from the speeds of both jobs of pairs."""
        self.usual_ = _medians(X)
        jobs = Jobs(X, self.usual_)
        pairs = Pairs(jobs, np.asarray(y, dtype=np.float64))
        noise = pairs.noise()
        self.powers_, constants = pairs.mean(noise, np.ones(len(noise), dtype=np.bool_))
        self.constants_ = dict(zip(pairs.gpus, constants.tolist(), strict=True))
        evidence = Evidence(pairs.alike, pairs.gpu, pairs.own_job, pairs.other_job, noise)
        left = pairs.left(self.powers_, constants)
        self.traits_ = pairs.traits(evidence.weights(left))
        self.domain_ = Domain.of(jobs.columns, numbers=("step_time_s", "gpu_util_frac"), names=("gpu",))
        self.intervals_ = _calibrated(pairs, evidence, left, noise)
        return self

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """The speed of each job among those of its group."""
        self._check_fitted()
        jobs = Jobs(X, self.usual_)
        own, other = jobs.neighbours()
        full = np.bincount(own, weights=self._odds(jobs, own, other), minlength=len(jobs))
        odds = full * jobs.crowding()
        less, more = self._ends(jobs, coverage)
        mode = np.asarray(jobs.mode)
        like_pairs = (jobs.size() <= 2) & (mode == TIME_SLICE)
        inside = (self.domain_.contains(jobs.columns) & like_pairs) | (jobs.size() == 1) | (mode == MIG)
        worst = np.where(mode == MPS, full, odds)  # crowding under MPS is a rule, not measured: it may spare nothing
        low, high = 1.0 / (1.0 + worst * more), 1.0 / (1.0 + odds * less)
        return Estimates(1.0 / (1.0 + odds), low, np.where(high >= MOST_SPEED, 1.0, high), inside)

    def traits(self, X: Columns) -> dict[str, Floats]:  # noqa: N803
        """Each job's ``sensitivity`` to others and ``pressure`` on them, in log odds beside a usual job of the fit."""
        self._check_fitted()
        jobs = Jobs(X, self.usual_)
        known, none = jobs.named(np.arange(len(jobs))), ([""] * len(jobs), np.ones(len(jobs)))
        usual = np.array([[self.usual_["step_time_s"], self.usual_["gpu_util_frac"]]])
        middle = expected(self.powers_, usual, usual)
        yields = expected(self.powers_, jobs.features, usual) - middle + self.traits_.of(jobs.gpu, known, none)
        presses = expected(self.powers_, usual, jobs.features) - middle + self.traits_.of(jobs.gpu, none, known)
        return {"sensitivity": yields, "pressure": presses}

    def _odds(self, jobs: Jobs, own: Ints, other: Ints) -> Floats:
        gpu = [jobs.gpu[row] for row in own]
        usual = float(np.mean(list(self.constants_.values())))
        constant = np.array([self.constants_.get(name, usual) for name in gpu])
        features = expected(self.powers_, jobs.features[own], jobs.features[other])
        return np.asarray(np.exp(constant + features + self.traits_.of(gpu, jobs.named(own), jobs.named(other))))

    def _ends(self, jobs: Jobs, coverage: float) -> tuple[Floats, Floats]:
        """The factors by which the odds may be less and more, for each row."""
        new = ~self.traits_.knows(jobs.model)
        share = np.bincount(jobs.group, weights=new)[jobs.group] / jobs.size()
        kind = np.where(share == 0.0, SEEN, np.where(share < 1.0, ONE_NEW, ALL_NEW))
        kinds, which = numbered(list(zip(kind.tolist(), jobs.gpu, strict=True)))
        known = [self.intervals_[name] for name, _ in kinds]
        bounds = [each.get(gpu, each[ANY_GPU]).bounds(coverage) for each, (_, gpu) in zip(known, kinds, strict=True)]
        less, more = np.exp(np.array(bounds).reshape(-1, 2)).T
        return less[which], more[which]


def _medians(X: Columns) -> dict[str, float]:  # noqa: N803
    usual = dict(_USUAL)
    for name in usual:
        column = floats_or(X, name, 0, np.nan)
        if np.any(np.isfinite(column)):
            usual[name] = float(np.nanmedian(column))
    return usual


def _calibrated(pairs: Pairs, evidence: Evidence, left: Floats, noise: Floats) -> dict[str, dict[str, Conformal]]:
    """Residuals in log odds where pairs were left out (on all GPUs), where one of their models was, and where both."""
    unseen = evidence.without(left, _blocks(pairs.pair()))
    residuals = {SEEN: [(pairs.gpu, unseen)], ONE_NEW: [], ALL_NEW: []}
    models = np.asarray(pairs.models)
    own, other = models[pairs.own_job], models[pairs.other_job]
    for model in sorted(set(pairs.models)):
        new = np.asarray(own == model, dtype=np.int64) + (other == model)
        known, asked = new == 0, new > 0
        if known.any():
            rest = pairs.left(*pairs.mean(noise, known))
            missed = rest[asked] - evidence.elsewhere(rest, known, asked)
            gpu, count = pairs.gpu[asked], new[asked]
            residuals[ONE_NEW].append(_alike(gpu[count == 1], missed[count == 1]))
            if np.any(count == 2):
                residuals[ALL_NEW].append((gpu[count == 2], missed[count == 2]))
    nearest = {kind: residuals[kind] or residuals[ONE_NEW] or residuals[SEEN] for kind in residuals}
    return {kind: _by_gpu(pairs.gpus, nearest[kind]) for kind in residuals}


def _blocks(pair: Ints) -> Ints:
    block = np.zeros(len(pair), dtype=np.int64)
    for number, out in enumerate(folds(pair, _PAIR_FOLDS)):
        block[out] = number
    return block


def _alike(gpu: Ints, residual: Floats) -> tuple[Ints, Floats]:
    """The same number of residuals per GPU and model: a new model is one draw among models, however often measured."""
    levels = np.linspace(0.0, 1.0, _PER_MODEL)
    here = np.unique(gpu)
    parts = [np.quantile(residual[gpu == at], levels) for at in here]
    return np.repeat(here, _PER_MODEL), np.concatenate([np.empty(0), *parts])


def _by_gpu(gpus: list[str], residuals: list[tuple[Ints, Floats]]) -> dict[str, Conformal]:
    gpu, residual = (np.concatenate(part) for part in zip(*residuals, strict=True))
    own = {name: residual[gpu == at] for at, name in enumerate(gpus)}
    return {
        ANY_GPU: Conformal(residual),
        **{name: Conformal(kept) for name, kept in own.items() if len(kept) >= _ENOUGH},
    }
