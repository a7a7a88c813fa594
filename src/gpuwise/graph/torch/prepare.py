"""Prepares a trace: a module on tensors without data, a loss, and PyTorch's settings, restored after it."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from gpuwise.graph.ops import GraphError

_FILLS = ("normal_", "uniform_")
_LARGE_BYTES = 1 << 16
_TABLES = ("_parameters", "_buffers", "_modules")


class Unfilled(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Skips the random initial values of parameters while a model is built on the CPU: they are never read."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left: list[Any] = []
        self._ids: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by PyTorch for each operator."""
        name = func._schema.name.partition("::")[2]
        if name.endswith("_") and args and isinstance(args[0], torch.Tensor):
            storage = args[0].untyped_storage()
            if name in _FILLS and storage.nbytes() >= _LARGE_BYTES:
                self._left.append(storage)
                self._ids.add(id(storage))
            if id(storage) in self._ids:
                return args[0]
        return func(*args, **(kwargs or {}))


def plain_module(module: torch.nn.Module, args: Any, kwargs: Any) -> torch.nn.Module:
    """The module without the wrapper of ``torch.compile``, and with lazy parameters initialized to their shapes."""
    module = getattr(module, "_orig_mod", module)
    if any(torch.nn.parameter.is_lazy(each) for each in (*module.parameters(), *module.buffers())):
        on_meta = tree_map(lambda each: each.to("meta") if isinstance(each, torch.Tensor) else each, (args, kwargs))
        with torch.no_grad(), torch.device("meta"):
            module.to("meta")(*on_meta[0], **on_meta[1])
    return module


def without_data(module: torch.nn.Module) -> None:
    """Puts tensors without data in place of a module's tensors; what was shared stays shared."""
    made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # with the original, so that its id is not reused

    def empty(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor) or isinstance(tensor, FakeTensor):
            return tensor
        if id(tensor) not in made:
            fresh = example(tensor)
            if isinstance(tensor, torch.nn.Parameter):
                fresh = torch.nn.Parameter(fresh.detach(), requires_grad=tensor.requires_grad)
            made[id(tensor)] = tensor, fresh
        return made[id(tensor)][1]

    for layer in module.modules():
        tables: tuple[dict[str, Any], ...] = (layer._parameters, layer._buffers)
        for table in tables:
            table.update({name: empty(each) for name, each in table.items()})
        for name, value in list(vars(layer).items()):  # tensors that are kept as plain attributes, or in lists of them
            if name not in _TABLES and isinstance(value, (torch.Tensor, list, tuple, dict)):
                fresh = tree_map(empty, value)
                if any(new is not old for new, old in zip(tensors_in(fresh), tensors_in(value), strict=True)):
                    setattr(layer, name, fresh)


def example(value: Any) -> Any:
    """A tensor on the CPU without data in place of a tensor; anything else as it is."""
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        return value
    return torch.empty(value.shape, dtype=value.dtype, device="cpu", requires_grad=value.requires_grad)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in the inputs or outputs of a model: in tuples, mappings and dataclasses, nested."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors_in(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from tensors_in(getattr(value, each.name))


def usual_loss(output: Any) -> torch.Tensor:
    """The model's own loss if it returns one, cross entropy for class scores, else the mean of its outputs."""
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own if own.dim() == 0 else own.mean()
    scores = [each for each in tensors_in(output) if each.is_floating_point()]
    if not scores:
        raise GraphError(f"the model returns {type(output).__name__} without numbers for a loss; give a loss function")
    losses = [_loss_of(each) for each in scores if each.requires_grad]
    if not losses:
        raise GraphError("no output of the model depends on trained parameters, so it cannot be trained")
    return torch.stack(losses).sum() if len(losses) > 1 else losses[0]


def _loss_of(scores: torch.Tensor) -> torch.Tensor:
    if scores.dim() == 2 and scores.shape[1] > 1:
        return torch.nn.functional.cross_entropy(scores.float(), torch.empty(scores.shape[0], dtype=torch.long))
    return scores.float().mean()


@contextmanager
def unchanged() -> Iterator[None]:
    """Restores PyTorch's defaults, random state and switches and the level of the log after code that may set them."""
    level, dtype, device = logging.root.manager.disable, torch.get_default_dtype(), torch.get_default_device()
    mkldnn, fast = torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled()
    try:
        with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(torch.is_grad_enabled()):
            yield
    finally:
        logging.disable(level)
        torch.set_default_dtype(dtype)
        torch._C._set_mkldnn_enabled(mkldnn)
        torch.backends.mha.set_fastpath_enabled(fast)
        if torch.get_default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)


@contextmanager
def quietly() -> Iterator[None]:
    """Silences logs and warnings of libraries; what a model prints goes to stderr, so that JSON stays clean."""
    level = logging.root.manager.disable
    logging.disable(max(level, logging.ERROR))
    try:
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Disables fused kernels that hide products: recurrent and transformer layers run as their single operators."""
    mkldnn, fast = torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(mkldnn)
        torch.backends.mha.set_fastpath_enabled(fast)


def in_one_line(error: BaseException) -> str:
    """The type of an error and the first line of its message."""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def why_not_traced(name: str, error: BaseException, layer: str) -> GraphError:
    """The error for a model that cannot be run on tensors without data, in words for its user."""
    where = f"{name}: in layer {layer}, " if layer else f"{name}: "
    if isinstance(error, DynamicOutputShapeException):
        return GraphError(
            f"{where}the shape of the output of {error.func} depends on the values of tensors, which a trace "
            "does not have; give a version of the model without it"
        )
    kind = type(error).__name__
    if isinstance(error, DataDependentOutputException) or "DataDependent" in kind or "data-dependent" in str(error):
        return GraphError(
            f"{where}control flow or a number depends on the values of tensors, which a trace does not have "
            f"({in_one_line(error)}); give a version of the model without it"
        )
    return GraphError(f"{where}the model could not be run on its example inputs: {in_one_line(error)}")
