"""`check_predictor`: what every predictor must do, for gpuwise's own and those of others."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gpuwise.predict.base import Estimates, NotFittedError, Predictor, learned


def check_predictor(predictor: Predictor, X: Mapping[str, Any], y: ArrayLike) -> None:  # noqa: N803
    """Raises AssertionError, with what is wrong, if a predictor does not keep to the contract on these data."""
    fresh = type(predictor)(**predictor.get_params())
    _check_parameters(fresh)
    _check_unfitted(fresh, X)
    before = copy.deepcopy(fresh.get_params())
    given = {name: copy.deepcopy(column) for name, column in X.items()}
    assert fresh.fit(given, y) is fresh, "fit does not return the predictor itself"
    assert _same(fresh.get_params(), before), "fit changes the parameters of the constructor"
    for name, column in X.items():
        assert _same(given[name], column), f"fit changes the column {name!r} it was given"
    assert learned(fresh), "fit learns nothing: no attribute ends in _"
    _check_estimates(fresh, X, len(np.asarray(y)))
    _check_determinism(fresh, X, y)
    _check_document(fresh, X)


def _check_parameters(predictor: Predictor) -> None:
    assert not learned(predictor), "the constructor learns: attributes that end in _ are for fit"
    params = predictor.get_params()
    again = type(predictor)().set_params(**params)
    assert _same(again.get_params(), params), "set_params(**get_params()) gives other parameters"


def _check_unfitted(predictor: Predictor, X: Mapping[str, Any]) -> None:  # noqa: N803
    try:
        predictor.predict(X)
    except NotFittedError:
        return
    raise AssertionError("predict before fit does not raise NotFittedError")


def _check_estimates(predictor: Predictor, X: Mapping[str, Any], rows: int) -> None:  # noqa: N803
    wide, narrow = predictor.estimate(X, 0.9), predictor.estimate(X, 0.5)
    for made in (wide, narrow):
        for name in ("value", "low", "high", "in_domain"):
            column = getattr(made, name)
            assert column.shape == (rows,), f"{name} has the shape {column.shape}, not ({rows},)"
        assert made.in_domain.dtype == np.bool_, "in_domain is not of truth values"
        assert np.all(np.isfinite(made.value)), "a value is not a number"
        assert np.all(made.low <= made.value), "an interval begins above its value"
        assert np.all(made.high >= made.value), "an interval ends below its value"
    assert np.all(wide.low <= narrow.low), "the interval of 90 % begins above that of 50 %"
    assert np.all(wide.high >= narrow.high), "the interval of 90 % ends below that of 50 %"
    assert np.array_equal(predictor.predict(X), wide.value), "predict is not the value of estimate"
    assert wide.in_domain.mean() > 0.5, "most of the data of the fit are called out of domain"


def _check_determinism(predictor: Predictor, X: Mapping[str, Any], y: ArrayLike) -> None:  # noqa: N803
    again = type(predictor)(**predictor.get_params()).fit(X, y)
    assert _equal(again.estimate(X), predictor.estimate(X)), "two fits on the same data predict differently"


def _check_document(predictor: Predictor, X: Mapping[str, Any]) -> None:  # noqa: N803
    text = json.dumps(predictor.to_document(), allow_nan=False)
    read = type(predictor).from_document(json.loads(text))
    assert _equal(read.estimate(X), predictor.estimate(X)), "a predictor read from its document predicts differently"


def _equal(one: Estimates, other: Estimates) -> bool:
    return all(
        np.allclose(getattr(one, name), getattr(other, name), rtol=1e-6)
        for name in ("value", "low", "high", "in_domain")
    )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(np.asarray(one), np.asarray(other)))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(_same(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)
