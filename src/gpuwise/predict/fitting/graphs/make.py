"""Traces the networks of the step time data and writes their summaries.

``python -m gpuwise.predict.fitting.graphs.make``
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from gpuwise.graph.cache import FUSED
from gpuwise.graph.models.by_name import ModelSpec, graph_of
from gpuwise.graph.models.libraries import library
from gpuwise.graph.ops import Graph, GraphError, Optimizer, Precision
from gpuwise.predict.fitting.data import timm_bench, torchvision_bench
from gpuwise.predict.fitting.graphs import Key
from gpuwise.predict.time.work import work


def keys(data: Path, source: str) -> list[Key]:
    """The networks of a source that have measured steps, and all of torchvision's that were trained on ImageNet."""
    table = torchvision_bench.steps(data) if source == "torchvision" else timm_bench.steps(data)
    named = zip(table["model"], table["image"], table["batch"], strict=True)
    found = {(str(model), int(image), int(batch)) for model, image, batch in named}
    if source == "torchvision":
        models = library("torchvision").models
        plain = models.list_models(module=models)
        found |= {(name, torchvision_bench.IMAGE, torchvision_bench.BATCH) for name in plain}
    return sorted(found)


def traced(source: str, key: Key, trace: Callable[[ModelSpec], Graph] = graph_of) -> Graph:
    """The graph as it was measured: FP32 in torchvision's case, mixed precision in timm's."""
    model, image, batch = key
    precision = Precision.FP32 if source == "torchvision" else Precision.FP16
    with _attention_not_fused() if source == "timm" else nullcontext():
        return trace(ModelSpec(f"{source}:{model}", batch, precision, Optimizer.MOMENTUM, image=image))


@contextmanager
def _attention_not_fused() -> Iterator[None]:
    """Timm as it was when it was measured, before PyTorch's fused attention; afterwards as before."""
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


def document(source: str, rows: Iterable[tuple[Key, dict[str, float]]], left_out: Iterable[Key]) -> str:
    """The file: one line for each network."""
    table = sorted(rows)
    columns = sorted({name for _, row in table for name, value in row.items() if value})
    lines = [
        json.dumps([*key, [float(f"{row.get(name, 0.0):.6g}") for name in columns]]).replace(".0,", ",")
        for key, row in table
    ]
    about = f"what a training step of {source}'s networks has to do, by gpuwise.predict.fitting.graphs.make"
    head = json.dumps({"about": about, "left_out": sorted(left_out), "columns": columns})[:-1]
    return f'{head}, "graphs": [\n' + ",\n".join(lines) + "\n]}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the summaries of one source."""
    parser = argparse.ArgumentParser(prog="python -m gpuwise.predict.fitting.graphs.make", description=__doc__)
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
