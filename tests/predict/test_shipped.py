"""The fits that are shipped: one for each recipe, with its data, its errors, and the class that its recipe makes."""

from __future__ import annotations

import json
from time import perf_counter
from typing import get_type_hints

import pytest

from gpuwise.predict import registry
from gpuwise.predict.fitting.recipes import recipes

NAMES = sorted(recipes())


def test_there_is_one_for_each_recipe() -> None:
    assert sorted(path.stem for path in registry.SHIPPED.glob("*.json")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is(name: str) -> None:
    recipe, fitted = recipes()[name], registry.read(registry.SHIPPED / f"{name}.json")
    assert type(fitted.predictor) is get_type_hints(recipe.fit)["return"]
    assert tuple(source.name for source in fitted.data) == recipe.data
    assert all(registry.is_permissive(source) for source in fitted.data)
    assert fitted.what == recipe.what
    assert fitted.errors
    for row in fitted.errors:
        assert row["predictor"] == name
        assert row["rows"] > 0
        assert 0 <= row["coverage"] <= 1


def test_they_are_small_and_quick_to_load() -> None:
    paths = list(registry.SHIPPED.glob("*.json"))
    assert sum(path.stat().st_size for path in paths) < 4e6
    for path in paths:
        registry.read(path)  # what they import is not what is timed
    begun = perf_counter()
    for path in paths:
        registry.read(path)
    loaded_s = perf_counter() - begun
    begun = perf_counter()
    for path in paths:
        json.loads(path.read_text())
    assert loaded_s < 6 * (perf_counter() - begun) + 0.05
