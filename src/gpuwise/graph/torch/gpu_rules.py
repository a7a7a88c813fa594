"""Makes PyTorch choose kernels for CPU tensors as it would on a GPU.

A few operators choose their kernels by device. On a GPU dropout is one kernel that keeps a mask of bytes, attention
with dropout is fused too, and mixed precision computes normalization, softmax, exponentials and sums in fp32. A CPU
does none of this. Inside `as_on_gpu`, this thread gets the choice of a GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_map

_IN_FP32 = """
    layer_norm native_layer_norm group_norm rms_norm softmax.int log_softmax.int exp expm1 log log10 log2 log1p
    pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar rsqrt reciprocal softplus cumsum cumprod sum sum.dim_IntList
    norm.Scalar norm.ScalarOpt_dim linalg_vector_norm logsumexp cosine_similarity acos asin cosh sinh tan erfinv dist
    cdist renorm prod prod.dim_int
"""
IN_FP32 = tuple(_IN_FP32.split())
"""What CUDA's autocast computes in fp32 (PyTorch's documentation of torch.amp, "ops that autocast to float32")."""
HALVES = (torch.float16, torch.bfloat16)


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """The choice of kernels of a GPU for CPU tensors, in this thread."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    here = threading.get_ident()
    try:
        library.impl("dropout", _only_in(here, torch.ops.aten.dropout.default, _dropout), "AutogradCPU")
        attention = torch.ops.aten.scaled_dot_product_attention.default
        library.impl("scaled_dot_product_attention", _only_in(here, attention, _attention), "AutogradCPU")
        for name in IN_FP32:
            operator = _operator(name)
            if operator is not None and not _has_own_rule(name):
                library.impl(name, _in_fp32(operator, here), "AutocastCPU")
        yield
    finally:
        library._destroy()


def _only_in(thread: int, operator: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return rule(*args, **kwargs) if threading.get_ident() == thread else _usual(operator, *args, **kwargs)

    return kernel


def _usual(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """PyTorch's own choice."""
    return operator._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def _dropout(given: torch.Tensor, share: float, train: bool) -> Any:
    if not train or not 0.0 < share < 1.0 or not given.numel():
        return _usual(torch.ops.aten.dropout.default, given, share, train)
    return torch.ops.aten.native_dropout(given, share, True)[0]


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """A fused kernel draws its dropout mask while it runs and saves nothing of it: dropout costs nothing."""
    fused = torch.ops.aten.scaled_dot_product_attention.default
    return _usual(fused, query, key, value, attn_mask, 0.0, *args, **kwargs)


def _in_fp32(operator: Any, thread: int) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = tree_map(_widened, (args, kwargs)) if threading.get_ident() == thread else (args, kwargs)
        with torch.autocast("cpu", enabled=False):
            return operator(*given[0], **given[1])

    return kernel


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in HALVES else value


def _operator(name: str) -> Any:
    plain, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, plain, None)
    return getattr(packet, overload or "default", None)


def _has_own_rule(name: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU")
