"""The parts of a training job's memory: their sizes, from its graph, and the priors of their coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log2, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwise.graph.ops import Graph, Kind, Op, Phase
from gpuwise.predict.base import Columns, Floats, PredictionError
from gpuwise.predict.columns import floats, has_column, strings

PRIOR = {"states": 1.0, "largest_layer": 1.0, "saved": 1.0, "largest_write": 1.0, "winograd": 0.3, "fft": 0.5}
"""Parameters, gradients and optimizer states are there once, and so is what is saved; beside them live the gradient of
one layer, that of one activation, and the workspace of one convolution if cuDNN takes that way."""
SPREAD = 0.1
"""A coefficient that is off by its own size costs as much as all rows off by this."""
FREE = 0.02
"""How much less contexts are drawn to their prior of 1 GiB than the others to theirs."""
GIB = 2.0**30
POOL_STEP_BYTES = 2.0**20
AUTOTUNE_BYTES = 4.0 * GIB
"""TensorFlow lets cuDNN try convolutions with a workspace of up to this (TF_CUDNN_WORKSPACE_LIMIT_IN_MB, 4096); one of
more than half of that makes the pool grow by this much at once, whatever it was before."""
USUAL_BATCH = 32.0
DEVICE, ALLOCATOR = "device", "allocator"
FRAMEWORKS = ("pytorch", "tensorflow")
NUMBERS = ("batch_size", "parameter_bytes", "optimizer_states", "largest_layer_bytes", "saved_bytes", "index_bytes",
           "largest_write_bytes", "winograd_bytes", "fft_bytes", "convolutions")  # fmt: skip
NAMES = ("framework", "measure", "gpu")
INDEX_BYTES = 8
"""PyTorch keeps the place of each maximum of a max pooling as int64; TensorFlow finds it again."""
GROWS_WITH_BATCH = ("saved_bytes", "index_bytes", "largest_write_bytes", "winograd_bytes")
TILE = 32
"""Larger images are transformed in tiles of this size by cuDNN's FFT_TILING."""

Table = Mapping[str, NDArray[Any]]


def memory_features(graph: Graph) -> dict[str, float]:
    """The columns of `MemoryNeed` that come from the graph; ``gpu``, ``framework`` and ``measure`` are the caller's.

    Precision and optimizer are those with which the graph was made.
    """
    forward = list(graph.of(Phase.FORWARD))
    planes = [op for op in forward if _is_plain(op)]
    return {
        "parameter_bytes": graph.parameter_bytes,
        "trainable_bytes": graph.gradient_bytes,  # 0 where nothing is trained
        "optimizer_states": float(graph.optimizer.states),
        "largest_layer_bytes": 4.0 * max((op.parameters for op in graph.ops), default=0),
        "saved_bytes": graph.saved_bytes,
        "index_bytes": float(sum(INDEX_BYTES * prod(op.output) for op in forward if "max_pool" in op.operator)),
        "largest_write_bytes": max((op.write_bytes for op in forward), default=0.0),
        "winograd_bytes": max((_winograd_bytes(op) for op in planes), default=0.0),
        "fft_bytes": max((_fft_bytes(op) for op in planes), default=0.0),
        "convolutions": float(sum(op.kind is Kind.CONV for op in forward)),
    }


def at_batch(row: Mapping[str, float], traced: int, batch: float) -> dict[str, float]:
    """The row of a graph traced at one batch size, for another: what each sample needs grows in proportion."""
    return {name: value * batch / traced if name in GROWS_WITH_BATCH else value for name, value in row.items()}


def _is_plain(op: Op) -> bool:
    """Whether cuDNN may do a convolution by a transform: 2-d, dense, a window of more than one pixel, no stride."""
    if op.kind is not Kind.CONV or len(op.output) != 4 or op.detail.get("groups", 1) != 1:
        return False
    return min(op.detail["kernel"]) > 1 and max(op.detail["stride"]) == 1 and not op.detail.get("transposed")


def _winograd_bytes(op: Op) -> float:
    """Inputs and outputs of F(4 × 4, 3 × 3): tiles of 36 values for each 16 pixels (Lavin and Gray, 2015)."""
    if tuple(op.detail["kernel"]) != (3, 3):
        return 0.0
    batch, _, height, width = op.output
    tiles = ceil(height / 4) * ceil(width / 4)
    return float(36 * 4 * batch * tiles * (op.detail["channels_in"] + op.detail["channels_out"]))


def _fft_bytes(op: Op) -> float:
    """Transformed filters: half of a complex plane, padded to a power of two, for each pair of channels."""
    window = op.detail["kernel"][0]
    size = min(TILE, 2 ** ceil(log2(op.output[2] + window - 1)))
    return float(8 * size * (size // 2 + 1) * op.detail["channels_in"] * op.detail["channels_out"])


def kinds(X: Columns) -> list[str]:  # noqa: N803
    """Rows whose errors are alike: one framework, measured in one way."""
    made = [f"{each}/{measure}" for each, measure in zip(strings(X, "framework"), strings(X, "measure"), strict=True)]
    known = [f"{each}/{measure}" for each in FRAMEWORKS for measure in (DEVICE, ALLOCATOR)]
    for each in made:
        if each not in known:
            raise PredictionError(f"no memory model for {each!r}; framework/measure is one of {', '.join(known)}")
    return made


def places(X: Columns) -> list[str]:  # noqa: N803
    """What was measured together: a framework, in one way, on a GPU."""
    parts = (strings(X, name) for name in NAMES)
    return ["/".join(each) for each in zip(*parts, strict=True)]


def trained_bytes(X: Columns) -> Floats:  # noqa: N803
    """Parameters that are trained, in bytes; all of them without such a column."""
    return floats(X, "trainable_bytes" if has_column(X, "trainable_bytes") else "parameter_bytes")


def sizes(X: Columns, growth: Floats) -> dict[str, Floats]:  # noqa: N803
    """The parts in bytes; ``growth`` is the power of the batch size with which the FFT workspace grows."""
    saved = floats(X, "saved_bytes")
    torch = np.array(strings(X, "framework")) == "pytorch"
    return {
        "states": floats(X, "parameter_bytes") + trained_bytes(X) * (1.0 + floats(X, "optimizer_states")),
        "largest_layer": floats(X, "largest_layer_bytes"),
        "saved": np.where(torch, saved, saved - floats(X, "index_bytes")),
        "largest_write": floats(X, "largest_write_bytes"),
        "winograd": floats(X, "winograd_bytes"),
        "fft": floats(X, "fft_bytes") * (floats(X, "batch_size") / USUAL_BATCH) ** growth,
    }


def pooled(X: Columns) -> NDArray[np.bool_]:  # noqa: N803
    """Whether a row's memory is in a pool that grows by doubling."""
    is_pool = (np.array(strings(X, "framework")) == "tensorflow") & (np.array(strings(X, "measure")) == DEVICE)
    return np.asarray(is_pool, dtype=np.bool_)


def grown(X: Columns, tensors: Floats) -> Floats:  # noqa: N803
    """What the framework takes from the device for its tensors: a pool, and a region of its own for workspaces."""
    tried = np.where(floats(X, "convolutions") > 0, AUTOTUNE_BYTES, 0.0)
    pool = 2.0 ** np.ceil(np.log2(np.maximum(tensors, POOL_STEP_BYTES)))
    return np.where(pooled(X), pool + tried, tensors)


def solve(X: Table, y: Floats, strength: float, growth: float) -> tuple[dict[str, float], dict[str, float]]:  # noqa: N803
    """Coefficients and contexts by least squares of relative errors, none negative, drawn to the prior."""
    from scipy.optimize import nnls  # takes a while to import, and only a fit needs it

    device = X["measure"] == DEVICE
    gpus = sorted(set(X["gpu"][device].tolist()))
    parts = sizes(X, np.full(len(y), growth))
    table = np.column_stack([*(parts[part] for part in PRIOR), *(GIB * (device & (X["gpu"] == gpu)) for gpu in gpus)])
    prior = np.array([*PRIOR.values(), *(1.0 for _ in gpus)])
    drawn = np.array([1.0] * len(PRIOR) + [FREE] * len(gpus))
    penalty = np.diag(SPREAD * np.sqrt(strength * len(y)) * drawn / prior)
    found, _ = nnls(np.vstack([table / y[:, None], penalty]), np.concatenate([np.ones(len(y)), penalty @ prior]))
    coefficients = dict(zip(PRIOR, map(float, found[: len(PRIOR)]), strict=True))
    return coefficients, {gpu: float(GIB * each) for gpu, each in zip(gpus, found[len(PRIOR) :], strict=True)}
