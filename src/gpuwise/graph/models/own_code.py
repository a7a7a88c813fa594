"""The user's own models: a function in a file or module, which is run."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from gpuwise.graph.models import FORMS
from gpuwise.graph.models.libraries import library, misses_torchvision
from gpuwise.graph.ops import GraphError
from gpuwise.graph.torch.prepare import in_one_line, tensors_in
from gpuwise.graph.torch.trace import Built

if TYPE_CHECKING:
    from gpuwise.graph.models.by_name import ModelSpec

RETURNS = "(module, inputs) or (module, inputs, loss), with a torch.nn.Module first"


@contextmanager
def importable(source: str) -> Iterator[None]:
    """Makes modules beside a file, or in the working directory, importable; unloads those beside the file after."""
    before, known = list(sys.path), set(sys.modules)
    folder = Path(source).resolve().parent if source.endswith(".py") else None
    if folder is not None:
        sys.path.insert(0, str(folder))
    else:
        sys.path.append(str(Path.cwd()))
    try:
        yield
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known if folder is not None else ():
            if folder in Path(getattr(sys.modules[name], "__file__", None) or "/").parents:
                del sys.modules[name]  # another file may have another module of that name beside it


def from_callable(spec: ModelSpec, source: str, name: str) -> Callable[[], Built]:
    """What a function returns: a module, its example inputs, and optionally a loss."""
    found = getattr(_load(source), name, None)
    if not callable(found):
        raise GraphError(f"{source} has no function {name!r}")
    return from_function(found, spec.batch, f"{source}:{name}")


def from_function(function: Callable[..., Any], batch: int, where: str) -> Callable[[], Built]:
    """What a function object returns; ``where`` is its name in messages."""
    takes = _batch_parameter(function)

    def build() -> Built:
        built = _built(_with_torchvision(lambda: function(**({takes: batch} if takes else {}))), where)
        return built if takes else _at_batch(built, batch, where)

    return build


def _batch_parameter(function: Callable[..., Any]) -> str | None:
    try:
        taken = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    return next((each for each in ("batch", "batch_size") if each in taken), None)


def _load(source: str) -> Any:
    """Runs a file or imports a module."""
    try:
        return _with_torchvision(lambda: _run_file(source) if source.endswith(".py") else import_module(source))
    except GraphError:
        raise
    except ModuleNotFoundError as error:
        if error.name == source.partition(".")[0]:
            raise GraphError(f"there is no module {source!r}; give {FORMS}") from error
        raise GraphError(f"{source} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise GraphError(f"{source} cannot be run: {in_one_line(error)}") from error


def _with_torchvision(run: Callable[[], Any]) -> Any:
    """Runs code that may import torchvision; a second time if torchvision could be imported only with a workaround."""
    try:
        return run()
    except RuntimeError as error:
        if not misses_torchvision(error):
            raise
        library("torchvision")
        return run()


def _run_file(source: str) -> ModuleType:
    path = Path(source).resolve()
    if not path.is_file():
        raise GraphError(f"there is no file {source}")
    spec = importlib.util.spec_from_file_location(f"_gpuwise_model_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise GraphError(f"{source} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _built(given: Any, where: str) -> Built:
    parts = given if isinstance(given, tuple) else (given,)
    if len(parts) not in (2, 3) or not isinstance(parts[0], torch.nn.Module):
        what = ", ".join(type(each).__name__ for each in parts) or "nothing"
        many = "a tuple of " if isinstance(given, tuple) else ""
        raise GraphError(f"{where} must return {RETURNS}; it returned {many}{what}")
    module, inputs, *loss = parts
    if loss and loss[0] is not None and not callable(loss[0]):
        raise GraphError(f"{where}: the loss must be a function of the model's output; it is {type(loss[0]).__name__}")
    if isinstance(inputs, Mapping):
        return Built(module, (), inputs, *loss)
    return Built(module, inputs if isinstance(inputs, (list, tuple)) else [inputs], None, *loss)


def _at_batch(built: Built, batch: int, where: str) -> Built:
    """Resizes example inputs to the batch size of the spec: only their shapes matter."""
    shapes = [each.shape for each in tensors_in((built.args, built.kwargs)) if each.dim()]
    if not shapes or shapes[0][0] == batch:
        return built
    given = shapes[0][0]

    def resized(value: Any) -> Any:
        fits = isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == given
        return value.new_empty((batch, *value.shape[1:])) if fits else value

    args, kwargs = tree_map(resized, (list(built.args), dict(built.kwargs or {})))
    note = f"{where} takes no batch: the first dimension of its inputs, {given}, is set to {batch}"
    return Built(built.module, args, kwargs, built.loss, (*built.notes, note))
