"""What is set for the time of a trace, and put back after it; and errors in the user's words."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from gpuwise.graph.ops import GraphError


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """Puts back, after code that may set them, PyTorch's defaults, random state and switches and the log's level."""
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


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without what libraries log and warn of; what a model prints goes to stderr, so that JSON stays clean."""
    level = logging.root.manager.disable
    logging.disable(max(level, logging.ERROR))
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


@contextlib.contextmanager
def plain_kernels() -> Iterator[None]:
    """Without fused kernels that hide products: recurrent and transformer layers are seen as what they are made of."""
    mkldnn, fast = torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(mkldnn)
        torch.backends.mha.set_fastpath_enabled(fast)


def in_one_line(error: BaseException) -> str:
    """An error's type and the first line of what it says."""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def why_not_traced(name: str, error: BaseException, layer: str) -> GraphError:
    """Says in the user's words why a model cannot be run on tensors without data."""
    where = f"{name}: in layer {layer}, " if layer else f"{name}: "
    if isinstance(error, DynamicOutputShapeException):
        return GraphError(
            f"{where}the shape of what {error.func} gives depends on the values of tensors, which a trace does not "
            "have; give a version of the model without it"
        )
    kind = type(error).__name__
    if isinstance(error, DataDependentOutputException) or "DataDependent" in kind or "data-dependent" in str(error):
        return GraphError(
            f"{where}control flow or a number depends on the values of tensors, which a trace does not have "
            f"({in_one_line(error)}); give a version of the model without it"
        )
    return GraphError(f"{where}the model could not be run on its example inputs: {in_one_line(error)}")
