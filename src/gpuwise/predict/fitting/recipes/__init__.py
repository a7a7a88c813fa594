"""How each shipped predictor is fitted from data, and how its error is measured on data it has not seen."""

from __future__ import annotations

from importlib import import_module

from gpuwise.predict.base import PredictionError
from gpuwise.predict.fitting.recipe import Recipe

AREAS = ("layers", "step_time", "end_to_end", "scaling", "utilization", "memory", "interference", "mig", "convergence")
"""The modules of this package, in the order they are shown."""


def recipes() -> dict[str, Recipe]:
    """All recipes, by name."""
    found = [recipe for area in AREAS for recipe in import_module(f"{__name__}.{area}").RECIPES]
    return {recipe.name: recipe for recipe in found}


def choose(names: list[str] | tuple[str, ...]) -> list[Recipe]:
    """Recipes by name, or all."""
    known = recipes()
    for name in names:
        if name not in known:
            raise PredictionError(f"there is no predictor {name!r}; there are: {', '.join(known)}")
    return [known[name] for name in names or known]
