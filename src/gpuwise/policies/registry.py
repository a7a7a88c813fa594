"""The policies by name: those of gpuwise, and those that other packages add."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, get_type_hints
from urllib.parse import parse_qsl

from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.core.protocols import Policy
from gpuwise.policies.drf import DominantResourceFairness
from gpuwise.policies.fifo import EasyBackfill, Fifo
from gpuwise.policies.gain import Even, FairGain, Gain
from gpuwise.policies.las import LeastAttainedService
from gpuwise.policies.mig import DynamicMig
from gpuwise.policies.mig_static import StaticMig
from gpuwise.policies.pack import Pack
from gpuwise.policies.proactive import Proactive
from gpuwise.policies.reactive import Reactive
from gpuwise.policies.share import Share
from gpuwise.policies.shortest import ShortestJobFirst, ShortestRemainingService, ShortestRemainingTime
from gpuwise.policies.tetris import Tetris
from gpuwise.policies.urgency import EarliestDeadline, PreemptivePriority, Priority

ENTRY_POINTS = "gpuwise.policies"
"""A package adds a policy by an entry point of this group: its name, and the class that makes it."""

Factory = Callable[..., Policy]

OWN: Mapping[str, Factory] = {
    "fifo": Fifo,
    "fifo-backfill": EasyBackfill,
    "sjf": ShortestJobFirst,
    "srtf": ShortestRemainingTime,
    "srsf": ShortestRemainingService,
    "edf": EarliestDeadline,
    "priority": Priority,
    "priority-preempt": PreemptivePriority,
    "las": LeastAttainedService,
    "drf": DominantResourceFairness,
    "tetris": Tetris,
    "share": Share,
    "mig": DynamicMig,
    "mig-static": StaticMig,
    "reactive": Reactive,
    "proactive": Proactive,
    "pack": Pack,
    "even": Even,
    "gain": Gain,
    "gain-fair": FairGain,
}


@cache
def policies() -> Mapping[str, Factory]:
    """Every policy that is installed, by name."""
    found = dict(OWN)
    for point in entry_points(group=ENTRY_POINTS):
        if point.name in OWN:
            raise GpuwiseError(
                f"the package behind {point.value!r} adds a policy {point.name!r}, which is one of gpuwise; rename it"
            )
        found[point.name] = _Lazy(point)
    return MappingProxyType(found)


def describe() -> dict[str, str]:
    """Every policy with one line about it."""
    return {name: (factory.__doc__ or "").strip().partition("\n")[0] for name, factory in policies().items()}


def parameters(name: str) -> dict[str, Any]:
    """The parameters of a policy with their defaults; those of other packages' policies are not included."""
    factory = policies()[name]
    return {each.name: each.default for each in fields(factory)} if is_dataclass(factory) else {}


class _Lazy:
    """A policy of another package, imported when it is first asked for."""

    def __init__(self, point: Any) -> None:
        self._point = point
        self.__doc__ = f"from {point.value}"

    def load(self) -> Factory:
        """Imports it."""
        factory: Factory = self._point.load()
        return factory

    def __call__(self, **parameters: Any) -> Policy:
        """Imports and makes it."""
        return self.load()(**parameters)


def make_policy(text: str) -> Policy:
    """A policy from its name and parameters: ``las``, or ``las?thresholds_gpu_s=3600,36000``."""
    name, _, query = text.partition("?")
    try:
        factory = policies()[name]
    except KeyError:
        raise UnknownNameError("policy", name, policies()) from None
    if isinstance(factory, _Lazy):
        factory = factory.load()
    parameters = dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True))  # a plus is a plus, not a space
    return factory(**{key: _convert(factory, name, key, value) for key, value in parameters.items()})


_WORDS: Mapping[Any, str] = {bool: "yes or no", int: "a whole number", float: "a number"}


def _convert(factory: Factory, policy: str, key: str, text: str) -> Any:
    kinds: dict[str, Any] = get_type_hints(factory) if is_dataclass(factory) else {}
    known: list[str] = [field.name for field in fields(factory)] if is_dataclass(factory) else []
    if is_dataclass(factory) and key not in known:
        if not known:
            raise GpuwiseError(f"policy {policy!r} has no parameters; {key!r} was given")
        raise UnknownNameError(f"parameter of policy {policy!r}", key, known)
    kind = kinds.get(key, str)
    try:
        if kind is bool:
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        if kind in (int, float, str):
            return kind(text)
        return tuple(float(part) for part in text.split(","))
    except (KeyError, ValueError):
        raise GpuwiseError(f"policy {policy!r}: {key} is {text!r}; it must be {_WORDS.get(kind, 'numbers')}") from None
