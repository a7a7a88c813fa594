"""What networks with measured step times have to do, shipped so that fitting needs neither PyTorch nor timm.

A summary is the row of `gpuwise.predict.time.work.work`. Networks without a shipped one are traced when first needed.
``python -m gpuwise.predict.fitting.graphs.summaries SOURCE --data FOLDER`` traces all again and writes the file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gpuwise.graph.cache import FUSED, cached_graph
from gpuwise.graph.models.by_name import ModelSpec, graph_of
from gpuwise.graph.ops import Graph, GraphError, Optimizer, Precision
from gpuwise.predict.base import Bools, PredictionError
from gpuwise.predict.fitting.data import timm_bench, torchvision_bench
from gpuwise.predict.fitting.data.tables import log, log_left_out
from gpuwise.predict.time.work import work

Key = tuple[str, int, int]
"""A model, the size of its images, and the batch."""


@cache
def summaries(source: str) -> Mapping[Key, Mapping[str, float]]:
    """All networks of a source: ``torchvision`` (FP32) or ``timm`` (mixed precision)."""
    document = _document(source)
    columns = document["columns"]
    return {
        (model, image, batch): dict(zip(columns, values, strict=True))
        for model, image, batch, values in document["graphs"]
    }


@cache
def summary(source: str, key: Key) -> Mapping[str, float] | None:
    """The work of one network; None where it cannot be traced."""
    if key in summaries(source):
        return summaries(source)[key]
    if list(key) in _document(source)["left_out"]:
        return None
    try:
        return work(traced(source, key, cached_graph))
    except GraphError:
        return None


def with_work(table: Mapping[str, Any], source: str) -> tuple[dict[str, Any], Bools]:
    """Measured steps with the work of their networks, and which rows have one; the others are left out and logged."""
    keys = [(str(m), int(i), int(b)) for m, i, b in zip(table["model"], table["image"], table["batch"], strict=True)]
    new = {key for key in keys if key not in summaries(source) and list(key) not in _document(source)["left_out"]}
    if new:
        log.warning(
            "%d networks of %s have no shipped summary: each is traced once, in a second or two", len(new), source
        )
    rows = [summary(source, key) for key in keys]
    found = np.asarray([row is not None for row in rows], dtype=np.bool_)
    if lost := sorted({key[0] for key, row in zip(keys, rows, strict=True) if row is None}):
        log_left_out(f"{len(lost)} networks that {source} cannot make here: {', '.join(lost)}")
    if not found.any():
        raise PredictionError(f"none of the measured networks is one that {source} can make: {', '.join(lost)}")
    kept = [row for row in rows if row is not None]
    names = sorted({name for row in kept for name in row} - {"batch"})
    columns = {name: np.asarray([row.get(name, 0.0) for row in kept]) for name in names}
    return {name: np.asarray(column)[found] for name, column in table.items()} | columns, found


def traced(source: str, key: Key, trace: Callable[[ModelSpec], Graph] = graph_of) -> Graph:
    """The graph of a network as it was measured: in FP32 for torchvision, in mixed precision for timm."""
    model, image, batch = key
    precision = Precision.FP32 if source == "torchvision" else Precision.FP16
    with _attention_not_fused() if source == "timm" else nullcontext():
        return trace(ModelSpec(f"{source}:{model}", batch, precision, Optimizer.MOMENTUM, image=image))


@cache
def _document(source: str) -> Any:
    path = Path(__file__).with_name(f"{source}.json")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PredictionError(f"no summaries of {source}: {error}; run python -m {__name__}") from error


@contextmanager
def _attention_not_fused() -> Iterator[None]:
    """Sets timm as it was when it was measured, before PyTorch's fused attention, and restores it."""
    from gpuwise.graph.models.libraries import library  # imports PyTorch

    layers, given = library("timm").layers, os.environ.get(FUSED)
    usual = layers.use_fused_attn()
    os.environ[FUSED] = "0"
    layers.set_fused_attn(False)
    try:
        yield
    finally:
        layers.set_fused_attn(usual)
        os.environ.pop(FUSED)
        os.environ |= {} if given is None else {FUSED: given}


# -- writing the files ------------------------------------------------------------------------------------------------


def keys(data: Path, source: str) -> list[Key]:
    """The networks of a source that have measured steps, and all of torchvision's that were trained on ImageNet."""
    table = torchvision_bench.steps(data) if source == "torchvision" else timm_bench.steps(data)
    named = zip(table["model"], table["image"], table["batch"], strict=True)
    found = {(str(model), int(image), int(batch)) for model, image, batch in named}
    if source == "torchvision":
        from gpuwise.graph.models.libraries import library  # imports PyTorch

        models = library("torchvision").models
        plain = models.list_models(module=models)
        found |= {(name, torchvision_bench.IMAGE, torchvision_bench.BATCH) for name in plain}
    return sorted(found)


def document(source: str, rows: Iterable[tuple[Key, dict[str, float]]], left_out: Iterable[Key]) -> str:
    """The text of a file: one line per network."""
    table = sorted(rows)
    columns = sorted({name for _, row in table for name, value in row.items() if value})
    lines = [
        json.dumps([*key, [float(f"{row.get(name, 0.0):.6g}") for name in columns]]).replace(".0,", ",")
        for key, row in table
    ]
    about = f"what a training step of {source}'s networks has to do, by gpuwise.predict.fitting.graphs.summaries"
    head = json.dumps({"about": about, "left_out": sorted(left_out), "columns": columns})[:-1]
    return f'{head}, "graphs": [\n' + ",\n".join(lines) + "\n]}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the summaries of one source."""
    parser = argparse.ArgumentParser(prog="python -m gpuwise.predict.fitting.graphs.summaries", description=__doc__)
    parser.add_argument("source", choices=("torchvision", "timm"))
    parser.add_argument("--data", type=Path, required=True, help="the folder of all data sets")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    given = parser.parse_args(arguments)
    rows, left_out = [], []
    for key in keys(given.data, given.source):
        try:
            rows.append((key, work(traced(given.source, key))))
        except GraphError as error:
            left_out.append(key)
            print(f"left out: {error}", file=sys.stderr)
    (given.out / f"{given.source}.json").write_text(document(given.source, rows, left_out), encoding="utf-8")
    print(f"{len(rows)} networks in {given.out / given.source}.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
