"""What every predictor is: parameters in the constructor, `fit`, `predict`, an interval, and the domain of its fit."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpuwise.core.errors import GpuwiseError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
COVERAGE = 0.9
"""The probability with which an interval contains the measurement, by default."""


class Columns(Protocol):
    """Anything with named columns of one length: a dict of arrays, a polars or a pandas frame."""

    def __getitem__(self, name: str, /) -> Any:
        """A column."""
        ...


class PredictionError(GpuwiseError):
    """A prediction that cannot be made, or data that a predictor cannot be fitted to."""


class NotFittedError(PredictionError):
    """A predictor that is used before it was fitted."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """Predictions for some rows: the value, the interval around it, and whether the row is like the data of the fit."""

    value: Floats
    low: Floats
    high: Floats
    in_domain: Bools

    def __len__(self) -> int:
        return len(self.value)

    def rows(self, which: Bools) -> Self:
        """The estimates of some rows."""
        return type(self)(self.value[which], self.low[which], self.high[which], self.in_domain[which])

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The estimates of several tables, one below the other."""
        names = ("value", "low", "high", "in_domain")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    @classmethod
    def spread(cls, count: int, parts: Iterable[tuple[Bools, Self]]) -> Self:
        """For ``count`` rows, from parts with the rows to which they belong; NaN for rows without a part."""
        value, low, high = np.full((3, count), np.nan)
        made = cls(value, low, high, np.zeros(count, dtype=np.bool_))
        for which, part in parts:
            made.value[which], made.low[which], made.high[which] = part.value, part.low, part.high
            made.in_domain[which] = part.in_domain
        return made


class Predictor:
    """The contract, as scikit-learn's estimators have it, without needing scikit-learn.

    A subclass stores its constructor's parameters as they are, learns attributes that end in ``_`` in `fit`, and can be
    written as a JSON document and read back: what is shipped is data, never a pickle.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of the constructor."""
        return {name: getattr(self, name) for name in _parameters(type(self))}

    def set_params(self, **params: Any) -> Self:
        """Changes parameters."""
        for name, value in params.items():
            if name not in _parameters(type(self)):
                raise PredictionError(f"{type(self).__name__} has no parameter {name!r}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({given})"

    def fit(self, X: Columns, y: ArrayLike) -> Self:  # noqa: N803 (scikit-learn's names)
        """Learns from rows and what was measured for each."""
        raise NotImplementedError

    def predict(self, X: Columns) -> Floats:  # noqa: N803
        """A value for each row."""
        return self.estimate(X).value

    def estimate(self, X: Columns, coverage: float = COVERAGE) -> Estimates:  # noqa: N803
        """A value for each row, with the interval that contains the measurement with probability ``coverage``."""
        raise NotImplementedError

    def to_document(self) -> dict[str, Any]:
        """Parameters and learned attributes in types of JSON."""
        return {"params": self.get_params(), "learned": {name: pack(value) for name, value in learned(self).items()}}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `to_document`."""
        predictor = cls(**document["params"])
        for name, value in document["learned"].items():
            setattr(predictor, name, unpack(value))
        return predictor

    def _check_fitted(self) -> None:
        if not learned(self):
            raise NotFittedError(f"{type(self).__name__} has not been fitted; call fit(X, y) first")


def _parameters(kind: type) -> list[str]:
    return list(inspect.signature(kind).parameters)


def learned(predictor: Predictor) -> dict[str, Any]:
    """The attributes that `fit` has set."""
    return {name: value for name, value in vars(predictor).items() if name.endswith("_") and not name.startswith("_")}


PACKED: dict[str, Any] = {}
"""Classes of objects that documents may contain beside numbers, text, lists and dicts, by their names in documents."""


def packable(kind: type) -> type:
    """Allows objects of a class with `to_document` and `from_document` in documents."""
    PACKED[kind.__name__] = kind
    return kind


def pack(value: Any) -> Any:
    """A learned attribute in types of JSON."""
    if type(value).__name__ in PACKED:
        return {"__kind__": type(value).__name__, "document": value.to_document()}
    if isinstance(value, np.ndarray):
        kind = value.dtype.kind
        return {"__array__": value.tolist(), "dtype": "str" if kind in "UO" else value.dtype.name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(name): pack(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [pack(each) for each in value]
    return value


def unpack(value: Any) -> Any:
    """The inverse of `pack`; tuples become lists."""
    if isinstance(value, dict):
        if "__array__" in value:
            return np.asarray(value["__array__"], dtype=value["dtype"])
        if "__kind__" in value:
            return PACKED[value["__kind__"]].from_document(value["document"])
        return {name: unpack(each) for name, each in value.items()}
    if isinstance(value, list):
        return [unpack(each) for each in value]
    return value
