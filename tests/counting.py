"""Work counted in function calls: the same on every machine, however busy it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls(run: Callable[[], Any]) -> int:
    """How many functions are called, of Python and of C."""
    count = 0

    def counting(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def calls_when_warm(run: Callable[[], Any]) -> int:
    """The same without what is imported, made or cached at first use."""
    run()
    return calls(run)
