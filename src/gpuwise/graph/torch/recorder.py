"""Records every operator of PyTorch, its bytes and live memory, while a model runs on tensors without data."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
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

BLOCK_BYTES = 512
"""PyTorch's allocator allocates multiples of this."""
_LOOK_UPS = """
    embedding _embedding_bag _embedding_bag_forward_only index_select index gather _unsafe_index take masked_select
    take_along_dim
"""
LOOK_UPS = frozenset(_LOOK_UPS.split())
"""Operators that read only the indexed rows of their first argument."""
_SCATTERS = """
    index_put _index_put_impl _unsafe_index_put scatter scatter_add scatter_reduce index_add index_copy put
    masked_scatter
"""
SCATTERS = frozenset(_SCATTERS.split())
"""Operators that, in place, change only the indexed rows of their first argument."""
_OVERWRITES = """
    copy_ fill_ zero_ bernoulli_ normal_ uniform_ random_ exponential_ zeros_like ones_like full_like rand_like
    randn_like randint_like new_zeros new_ones new_full
"""
OVERWRITES = frozenset(_OVERWRITES.split())
"""Operators for which the values of their first argument do not matter."""


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operators of a step, and the memory that is live while they run."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[Op] = []
        self.phase = Phase.FORWARD
        self.unknown: Counter[str] = Counter()
        self.memory = _Memory()
        self.made_by: dict[int, int] = {}
        """The index of the operator that last wrote a storage."""
        self.failed_in = ""
        """The layer that ran when PyTorch refused an operator."""
        self._layers: list[str] = []
        self._layer_of: dict[int, str] = {}
        """The layer in which an autograd node was made, by its sequence number."""
        self._unused: Counter[int] = Counter()
        """Parameters that no operator has used yet, by their storage."""
        for weight in module.parameters():
            self._unused[id(weight.untyped_storage())] += weight.numel()
        for each in (*module.parameters(), *module.buffers()):
            self.memory.ignore(each)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by PyTorch for each operator."""
        kwargs = kwargs or {}
        if func.namespace == "prim":  # queries about a tensor
            return func(*args, **kwargs)
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        try:
            out = func(*args, **kwargs)
        except Exception:
            self.failed_in = self.failed_in or self._layer()
            raise
        if func is torch.ops.aten.rand.default and out.dim() == 0:
            out = torch.tensor(0.5)  # a scalar decides whether a layer is skipped (stochastic depth): usually it is not
        made = [each for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
        self.memory.track(made)
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
        """Number of parameters used for the first time; a cast one counts for the operator that reads the cast."""
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
            except (IndexError, KeyError, TypeError, ValueError):  # called in a way that the formula does not cover
                pass
        elements = float(max((prod(shape) for shape in (*call.inputs, *call.outputs)), default=0))
        if formula is None and torch.Tag.pointwise in func.tags:
            return Cost(Kind.ELEMENTWISE, elements)
        self.unknown[f"{func.namespace}.{name}"] += 1
        return Cost(Kind.OTHER, elements)

    # -- where in the model ---------------------------------------------------------------------------------------

    @contextmanager
    def inside(self, module: torch.nn.Module) -> Iterator[None]:
        """Tracks which layer is running inside the context."""
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
        """The running layer (with checkpoints also in the backward pass), else the one that ran in the forward pass."""
        here = self._layers[-1] if self._layers else ""
        node = torch._C._current_autograd_node()
        if node is not None and not here:
            return self._layer_of.get(node._sequence_nr(), "")
        self._layer_of.setdefault(torch._C._autograd._get_sequence_nr() - 1, here)  # its node was just made
        return here


class _Memory:
    """Live memory, in blocks of the allocator."""

    def __init__(self) -> None:
        self.live_bytes = 0
        self.peak_bytes = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def ignore(self, tensor: torch.Tensor) -> None:
        """Leaves out a tensor that existed before the step."""
        storage = tensor.untyped_storage()
        self._known[id(storage)] = weakref.ref(storage)

    def track(self, tensors: list[torch.Tensor]) -> None:
        """Counts the new storages among tensors until they are freed."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            known = self._known.get(id(storage))
            if known is not None and known() is storage:
                continue
            size = -(-storage.nbytes() // BLOCK_BYTES) * BLOCK_BYTES
            self._known[id(storage)] = weakref.ref(storage, partial(self._free, size))
            self.live_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _free(self, size: int, _: object) -> None:
        self.live_bytes -= size


def _shapes(tree: Any) -> Any:
    """Shapes in place of tensors."""
    return tree_map(lambda each: tuple(each.shape) if isinstance(each, torch.Tensor) else each, tree)


def _sizes(tensors: list[torch.Tensor]) -> list[tuple[int, ...]]:
    return [tuple(each.shape) for each in tensors]


def traffic(name: str, given: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> tuple[float, float]:
    """Bytes read and bytes written by an operator, each tensor once."""
    in_place = name.endswith("_")
    plain = name.rstrip("_")
    read = [touched_bytes(each) for each in given]
    written = sum(map(touched_bytes, given[:1] if in_place else made))
    if plain in SCATTERS and in_place and read:
        changed = min(read[0], read[-1])
        return float(sum(read[1:]) + changed), float(changed)
    if plain in LOOK_UPS and len(given) > 1:
        read[0] = min(read[0], _rows_bytes(plain, given, made))
    elif name in OVERWRITES and read:
        read[0] = 0
    return float(sum(read)), float(written)


def _rows_bytes(name: str, given: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> int:
    """What a look-up reads: as much as it returns; one that sums rows reads a row per index."""
    if name.startswith("_embedding_bag"):
        table, indices = given[:2]
        return indices.numel() * table.shape[-1] * table.itemsize
    return sum(map(touched_bytes, made[:1]))


def touched_bytes(tensor: torch.Tensor) -> int:
    """The size of a tensor in memory: an expanded one is read once."""
    return min(tensor.numel() * tensor.itemsize, tensor.untyped_storage().nbytes())
