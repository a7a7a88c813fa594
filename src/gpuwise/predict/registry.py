"""Fitted predictors as files: what they learned, from which data, when, and how wrong they were on data left out."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuwise.predict.base import PredictionError, Predictor

VERSION = 1
SHIPPED = Path(__file__).with_name("fitted")
OWN = "GPUWISE_FITTED"
"""The environment variable with a folder of the user's own predictors, which take precedence over those shipped."""
_HOME = "gpuwise.predict."
CLASSES = {
    "AllReduceScaling": "scaling.data_parallel",
    "EndToEndTime": "scaling.end_to_end",
    "GpuTransfer": "time.transfer",
    "GpuUtilization": "time.utilization",
    "HistoryTime": "scaling.history",
    "Interference": "sharing.interference",
    "LayerTime": "time.layers",
    "MemoryNeed": "memory.need",
    "MigTime": "sharing.mig",
    "ParameterServerSpeed": "scaling.parameter_servers",
    "PerLayerLinear": "time.layers",
    "RooflineTime": "time.roofline",
    "StepTime": "time.step_time",
    "StepsToTarget": "convergence.steps_to_target",
    "TypicalScaling": "scaling.data_parallel",
}
"""The predictors that files may contain, and the modules in which they are."""


@dataclass(frozen=True, slots=True)
class Source:
    """A data set that a predictor was fitted to."""

    name: str
    repository: str
    licence: str


@dataclass(frozen=True, slots=True)
class Fitted:
    """A predictor with its origin."""

    name: str
    what: str
    predictor: Predictor
    data: tuple[Source, ...]
    gpuwise: str
    """The version that fitted it."""
    made: str
    """The day, as 2026-11-16."""
    errors: Sequence[Mapping[str, Any]] = ()
    """One row for each holdout: what was left out, and the measures of error."""


def load(name: str) -> Fitted:
    """A fitted predictor by its name."""
    return _load(name, os.environ.get(OWN, ""))


@lru_cache
def _load(name: str, own: str) -> Fitted:
    for folder in [Path(own)] * bool(own) + [SHIPPED]:
        path = folder / f"{name}.json"
        if path.is_file():
            return read(path)
    known = ", ".join(names()) or "none"
    raise PredictionError(
        f"there is no fitted predictor {name!r}; there are: {known}. gpuwise fit makes them from data"
    )


def names() -> list[str]:
    """The predictors that can be loaded."""
    folders = [Path(own)] if (own := os.environ.get(OWN)) else []
    return sorted({path.stem for folder in (*folders, SHIPPED) if folder.is_dir() for path in folder.glob("*.json")})


def read(path: Path) -> Fitted:
    """A predictor from its file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["gpuwise_predictor"] != VERSION:
            raise PredictionError(f"{path}: of another version of gpuwise; fit it again with gpuwise fit")
        sources = tuple(Source(**each) for each in document["data"])
        predictor = _class(document["class"]).from_document(document["predictor"])
        return Fitted(
            document["name"], document["what"], predictor, sources, document["gpuwise"], document["made"],
            document["errors"],
        )  # fmt: skip
    except PredictionError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PredictionError(
            f"{path}: not a fitted predictor ({error!r}); gpuwise fit makes them from data"
        ) from error


def write(fitted: Fitted, folder: Path) -> Path:
    """Writes a predictor to its file."""
    kind = type(fitted.predictor)
    document = {
        "gpuwise_predictor": VERSION,
        "name": fitted.name,
        "what": fitted.what,
        "class": f"{kind.__module__}:{kind.__name__}",
        "gpuwise": fitted.gpuwise,
        "made": fitted.made,
        "data": [asdict(each) for each in fitted.data],
        "errors": [dict(each) for each in fitted.errors],
        "predictor": fitted.predictor.to_document(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{fitted.name}.json"
    path.write_text(json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n", encoding="utf-8")
    return path


def _class(name: str) -> type[Predictor]:
    """The class of a predictor: one of gpuwise's own, by its name alone, as its module may have moved since the fit."""
    module, _, kind = name.partition(":")
    if not module.startswith(_HOME):
        raise PredictionError(f"a predictor of class {name!r}, which is none of gpuwise's")
    if kind not in CLASSES:
        raise PredictionError(f"{name!r} is no predictor of this version; there are: {', '.join(sorted(CLASSES))}")
    found: type[Predictor] = getattr(importlib.import_module(_HOME + CLASSES[kind]), kind)
    return found
