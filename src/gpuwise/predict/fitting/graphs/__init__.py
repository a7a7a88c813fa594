"""Summaries of the networks that step times were measured of, so that fitting needs neither PyTorch nor timm.

Each is the row of `gpuwise.predict.time.work.work`. ``python -m gpuwise.predict.fitting.graphs.make`` traces the
networks and writes the files again. Networks that are not among them are traced when they are asked for first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gpuwise.graph.ops import GraphError
from gpuwise.predict.base import Bools, PredictionError
from gpuwise.predict.fitting.data.tables import log, tell

Key = tuple[str, int, int]
"""A model, the size of its images, and the batch."""


def summaries(source: str) -> Mapping[Key, Mapping[str, float]]:
    """All networks of a source: ``torchvision`` (FP32) or ``timm`` (mixed precision)."""
    document = _document(source)
    columns = document["columns"]
    return {
        (model, image, batch): dict(zip(columns, values, strict=True))
        for model, image, batch, values in document["graphs"]
    }


def summary(source: str, key: Key) -> Mapping[str, float] | None:
    """The work of one network; None where it cannot be traced."""
    return _known(source).get(key) or _traced(source, key)


def with_work(table: Mapping[str, Any], source: str) -> tuple[dict[str, Any], Bools]:
    """Measured steps with their networks' work, and which rows have one; the others are left out, which is told."""
    keys = [(str(m), int(i), int(b)) for m, i, b in zip(table["model"], table["image"], table["batch"], strict=True)]
    new = {key for key in keys if key not in _known(source) and list(key) not in _document(source)["left_out"]}
    if new:
        log.warning(
            "%d networks of %s have no shipped summary: each is traced once, in a second or two", len(new), source
        )
    rows = [summary(source, key) for key in keys]
    found = np.asarray([row is not None for row in rows], dtype=np.bool_)
    if lost := sorted({key[0] for key, row in zip(keys, rows, strict=True) if row is None}):
        tell(f"{len(lost)} networks that {source} cannot make here: {', '.join(lost)}")
    if not found.any():
        raise PredictionError(f"none of the measured networks is one that {source} can make: {', '.join(lost)}")
    kept = [row for row in rows if row is not None]
    names = sorted({name for row in kept for name in row} - {"batch"})
    work = {name: np.asarray([row.get(name, 0.0) for row in kept]) for name in names}
    return {name: np.asarray(column)[found] for name, column in table.items()} | work, found


@cache
def _known(source: str) -> Mapping[Key, Mapping[str, float]]:
    return summaries(source)


@cache
def _document(source: str) -> Any:
    path = Path(__file__).with_name(f"{source}.json")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PredictionError(
            f"no summaries of {source}: {error}; run python -m gpuwise.predict.fitting.graphs.make"
        ) from error


@cache
def _traced(source: str, key: Key) -> Mapping[str, float] | None:
    if list(key) in _document(source)["left_out"]:
        return None
    from gpuwise.graph.cache import cached_graph
    from gpuwise.predict.fitting.graphs.make import traced
    from gpuwise.predict.time.work import work

    try:
        return work(traced(source, key, cached_graph))
    except GraphError:
        return None
