"""The fits that are shipped: one for each recipe, with its data, its errors, and the class that its recipe makes."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path
from typing import get_type_hints

import pytest

from counting import calls_when_warm
from gpuwise import predict
from gpuwise.predict import registry
from gpuwise.predict.base import Predictor
from gpuwise.predict.fitting.recipe import is_permissive
from gpuwise.predict.fitting.recipes import recipes

NAMES = sorted(recipes())


def test_there_is_one_for_each_recipe() -> None:
    assert sorted(path.stem for path in registry.SHIPPED.glob("*.json")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is(name: str) -> None:
    recipe, fitted = recipes()[name], registry.read(registry.SHIPPED / f"{name}.json")
    assert type(fitted.predictor) is get_type_hints(recipe.fit)["return"]
    assert tuple(source.name for source in fitted.data) == recipe.data
    assert all(is_permissive(source) for source in fitted.data)
    assert fitted.what == recipe.what
    assert fitted.errors
    for row in fitted.errors:
        assert row["predictor"] == name
        assert row["rows"] > 0
        assert 0 <= row["coverage"] <= 1


@pytest.mark.parametrize("path", sorted(registry.SHIPPED.glob("*.json")), ids=lambda path: path.stem)
def test_the_file_names_the_class_where_it_is_now(path: Path) -> None:
    kind = type(registry.read(path).predictor)
    assert json.loads(path.read_text())["class"] == f"{kind.__module__}:{kind.__name__}"


def test_every_predictor_can_be_read_back_from_a_file() -> None:
    modules = [module.name for module in pkgutil.walk_packages(predict.__path__, "gpuwise.predict.")]
    found = [
        (kind.__name__, kind.__module__)
        for name in modules
        for kind in vars(importlib.import_module(name)).values()
        if isinstance(kind, type) and issubclass(kind, Predictor) and kind is not Predictor
    ]
    assert {name: f"gpuwise.predict.{module}" for name, module in registry.CLASSES.items()} == dict(found)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("convergence", "gpuwise.predict.steps_to_target:StepsToTarget"),
        ("endtoend", "gpuwise.predict.history:HistoryTime"),
        ("interference", "gpuwise.predict.interference:Interference"),
        ("layer_time", "gpuwise.predict.layers:LayerTime"),
        ("memory", "gpuwise.predict.memory:MemoryNeed"),
        ("mig", "gpuwise.predict.mig:MigTime"),
        ("scaling", "gpuwise.predict.scaling:TypicalScaling"),
        ("step_time", "gpuwise.predict.steptime:StepTime"),
        ("utilization", "gpuwise.predict.utilization:GpuUtilization"),
    ],
)
def test_a_file_that_an_earlier_version_has_fitted_can_be_read(tmp_path: Path, name: str, kind: str) -> None:
    shipped = registry.SHIPPED / f"{name}.json"
    earlier = tmp_path / f"{name}.json"
    earlier.write_text(json.dumps(json.loads(shipped.read_text()) | {"class": kind}))
    read, now = registry.read(earlier).predictor, registry.read(shipped).predictor
    assert type(read) is type(now)
    assert read.to_document() == now.to_document()


def test_they_are_small_and_take_little_work_to_load() -> None:
    paths = list(registry.SHIPPED.glob("*.json"))
    assert sum(path.stat().st_size for path in paths) < 4e6
    assert calls_when_warm(lambda: [registry.read(path) for path in paths]) < 30_000  # 20,339 here
