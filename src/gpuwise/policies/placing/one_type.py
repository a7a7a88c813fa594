"""Room on GPUs of one type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.units import WHOLE_GPU_MILLI


def of_one_type(shape: Shape, types: Sequence[str], code: int, alone: bool = False) -> Shape:
    """What a job asks for, on GPUs of one type only, and to itself if that is asked for."""
    # Capacities remember by a shape's number what it may run on, so this one needs a number of its own.
    return _narrowed(shape, -1 - ((shape.id * len(types) + code) * 2 + alone), types[code], alone)


@lru_cache(maxsize=4096)
def _narrowed(shape: Shape, number: int, gpu_type: str, alone: bool) -> Shape:
    narrow = replace(shape, id=number, gpu_types=(gpu_type,))
    if alone:
        narrow = replace(narrow, milli=WHOLE_GPU_MILLI, sharing=frozenset((Sharing.EXCLUSIVE,)))
    return narrow
