"""What a job will do: time, utilization, memory, interference, scaling and convergence, each with an interval.

Called, ``gpuwise.predict(model, batch=64)``, it gives the forecast of a model: see `gpuwise.service.predict.predict`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """A package that can be called: its name is also that of the use case which puts its parts together."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # By name and when it is called: the use case is a layer above, and this package needs nothing of it.
        return import_module("gpuwise.service.predict").predict(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
