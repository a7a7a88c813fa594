"""The bytes that an operator of PyTorch moves: what it reads of its arguments, and what it writes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_LOOK_UPS = """
    embedding _embedding_bag _embedding_bag_forward_only index_select index gather _unsafe_index take masked_select
    take_along_dim
"""
LOOK_UPS = frozenset(_LOOK_UPS.split())
"""Operators that read of their first argument only the rows they are asked for."""
_SCATTERS = """
    index_put _index_put_impl _unsafe_index_put scatter scatter_add scatter_reduce index_add index_copy put
    masked_scatter
"""
SCATTERS = frozenset(_SCATTERS.split())
"""Operators that, in place, change of their first argument only the rows they are given."""
_OVERWRITES = """
    copy_ fill_ zero_ bernoulli_ normal_ uniform_ random_ exponential_ zeros_like ones_like full_like rand_like
    randn_like randint_like new_zeros new_ones new_full
"""
OVERWRITES = frozenset(_OVERWRITES.split())
"""Operators for which the values of their first argument do not matter."""


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
    """What a look-up reads: as much as it gives; one that sums rows reads a row for each index."""
    if name.startswith("_embedding_bag"):
        table, indices = given[:2]
        return indices.numel() * table.shape[-1] * table.itemsize
    return sum(map(touched_bytes, made[:1]))


def touched_bytes(tensor: torch.Tensor) -> int:
    """What of a tensor is in memory: one that was expanded is read once."""
    return min(tensor.numel() * tensor.itemsize, tensor.untyped_storage().nbytes())
