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
from gpuwise.predict.fitting.data.tables import tell

VERSION = 1
SHIPPED = Path(__file__).with_name("fitted")
OWN = "GPUWISE_FITTED"
"""The variable that names a folder of predictors of one's own; one found there goes before the shipped one."""
_HOME = "gpuwise.predict."
PERMISSIVE = ("Apache-2.0", "MIT", "BSD", "ISC", "CC0", "CC-BY-4.0", "Unlicense")


@dataclass(frozen=True, slots=True)
class Source:
    """A data set that a predictor was fitted to."""

    name: str
    repository: str
    licence: str


@dataclass(frozen=True, slots=True)
class Fitted:
    """A predictor with where it comes from."""

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
    """A predictor's class; only gpuwise's own, whatever a file says."""
    module, _, kind = name.partition(":")
    if not module.startswith(_HOME):
        raise PredictionError(f"a predictor of class {name!r}, which is none of gpuwise's")
    found = getattr(importlib.import_module(module), kind)
    if not (isinstance(found, type) and issubclass(found, Predictor)):
        raise PredictionError(f"{name!r} is no predictor")
    return found


def source_of(data: Path, name: str) -> Source:
    """Where a data set comes from, and under which licence, as its SOURCE.md says."""
    path = data / name / "SOURCE.md"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        tell(f"where data set {name} comes from: there is no {path}. Do not ship what is fitted to it")
        return Source(name, "", "")
    said = {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in lines) if colon}
    if not said.get("Licence"):
        tell(f"the licence of data set {name}: {path} names none. Do not ship what is fitted to it")
    return Source(name, said.get("Repository", ""), said.get("Licence", ""))


def is_permissive(source: Source) -> bool:
    """Whether what is learned from a data set may be shipped."""
    return source.licence.startswith(PERMISSIVE)
