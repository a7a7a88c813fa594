"""Listens to PyTorch while a model runs on tensors without data, and writes down every operator."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from gpuwise.graph.ops import Kind, Op, Phase
from gpuwise.graph.torch.costs import Call, Cost
from gpuwise.graph.torch.formulas import FREE, formula_of
from gpuwise.graph.torch.traffic import traffic

BLOCK_BYTES = 512
"""PyTorch's allocator hands out multiples of this."""


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operators of a step, and the memory that is live while they run."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[Op] = []
        self.phase = Phase.FORWARD
        self.unknown: Counter[str] = Counter()
        self.memory = _Memory()
        self.made_by: dict[int, int] = {}
        """The number of the operator that was the last to write a storage."""
        self.failed_in = ""
        """The layer that ran when PyTorch refused an operator."""
        self._layers: list[str] = []
        self._layer_of: dict[int, str] = {}
        """Where in the model an autograd node was made, by its number."""
        self._unused: Counter[int] = Counter()
        """Parameters that no operator has used yet, by their storage."""
        for weight in module.parameters():
            self._unused[id(weight.untyped_storage())] += weight.numel()
        for each in (*module.parameters(), *module.buffers()):
            self.memory.ignore(each)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by PyTorch for each operator."""
        kwargs = kwargs or {}
        if func.namespace == "prim":  # questions about a tensor
            return func(*args, **kwargs)
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        try:
            out = func(*args, **kwargs)
        except Exception:
            self.failed_in = self.failed_in or self._layer()
            raise
        if func is torch.ops.aten.rand.default and out.dim() == 0:
            out = torch.tensor(0.5)  # one number decides in a model whether a layer is skipped: as a rule it is not
        made = [each for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
        self.memory.hold(made)
        self._note(func, args, kwargs, given, made)
        return out

    def _note(self, func: Any, args: Any, kwargs: Any, given: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        name = func._schema.name.partition("::")[2]
        layer = self._layer()
        if name in FREE or name.rstrip("_") in FREE or func.is_view:
            return
        shapes, named = _shapes((args, kwargs))
        cost = self._cost(func, name, Call(shapes, named, _sizes(given), _sizes(made)))
        read, written = traffic(name, given, made)
        self.made_by |= {id(each.untyped_storage()): len(self.ops) for each in made}
        self.ops.append(
            Op(
                kind=cost.kind,
                phase=self.phase,
                operator=f"{func.namespace}.{name}",
                layer=layer,
                flops=cost.flops,
                read_bytes=read,
                write_bytes=written,
                output=tuple(made[0].shape) if made else (),
                parameters=self._first_uses(name, given, made),
                dtype=str((made or given)[0].dtype).removeprefix("torch.") if made or given else "",
                detail=cost.detail,
            )
        )

    def _first_uses(self, name: str, given: list[torch.Tensor], made: list[torch.Tensor]) -> int:
        """How many parameters are used for the first time; one that is cast is used by what takes the cast."""
        count = sum(self._unused.pop(id(each.untyped_storage()), 0) for each in given)
        if count and name == "_to_copy":
            self._unused[id(made[0].untyped_storage())] = count
            return 0
        return count

    def _cost(self, func: Any, name: str, call: Call) -> Cost:
        formula = formula_of(name)
        if formula is not None:
            try:
                return formula(call)
            except (IndexError, KeyError, TypeError, ValueError):  # called in a way that the formula does not know
                pass
        elements = float(max((prod(shape) for shape in (*call.inputs, *call.outputs)), default=0))
        if formula is None and torch.Tag.pointwise in func.tags:
            return Cost(Kind.ELEMENTWISE, elements)
        self.unknown[f"{func.namespace}.{name}"] += 1
        return Cost(Kind.OTHER, elements)

    # -- where in the model ---------------------------------------------------------------------------------------

    @contextmanager
    def inside(self, module: torch.nn.Module) -> Iterator[None]:
        """Knows, while it lasts, which layer is running."""
        handles = []
        for name, layer in module.named_modules():
            handles.append(layer.register_forward_pre_hook(lambda *_, name=name: self._layers.append(name)))
            handles.append(layer.register_forward_hook(self._leave, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _leave(self, *_: object) -> None:
        self._layers.pop()

    def _layer(self) -> str:
        """The layer that runs (with checkpoints on the way back too), else the one that ran on the way forward."""
        here = self._layers[-1] if self._layers else ""
        node = torch._C._current_autograd_node()
        if node is not None and not here:
            return self._layer_of.get(node._sequence_nr(), "")
        self._layer_of.setdefault(torch._C._autograd._get_sequence_nr() - 1, here)  # its node has just been made
        return here


class _Memory:
    """What is live, in blocks of the allocator."""

    def __init__(self) -> None:
        self.live_bytes = 0
        self.peak_bytes = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def ignore(self, tensor: torch.Tensor) -> None:
        """Leaves a tensor out: it was there before."""
        storage = tensor.untyped_storage()
        self._known[id(storage)] = weakref.ref(storage)

    def hold(self, tensors: list[torch.Tensor]) -> None:
        """Counts what is new among tensors until it is let go."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            known = self._known.get(id(storage))
            if known is not None and known() is storage:
                continue
            size = -(-storage.nbytes() // BLOCK_BYTES) * BLOCK_BYTES
            self._known[id(storage)] = weakref.ref(storage, partial(self._let_go, size))
            self.live_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _let_go(self, size: int, _: object) -> None:
        self.live_bytes -= size


def _shapes(tree: Any) -> Any:
    """Shapes in place of tensors."""
    return tree_map(lambda each: tuple(each.shape) if isinstance(each, torch.Tensor) else each, tree)


def _sizes(tensors: list[torch.Tensor]) -> list[tuple[int, ...]]:
    return [tuple(each.shape) for each in tensors]
