"""Forests as arrays: grown by scikit-learn, kept as JSON, walked with numpy alone."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpuwise.predict.base import Floats, PredictionError, packable

LEAF = -1


@packable
class Forest:
    """Trees of one feature table, summed (boosting) or averaged (random forest): ``base + weight · Σ tree(x)``."""

    def __init__(self, trees: Sequence[Mapping[str, Any]], base: float, weight: float) -> None:
        self._feature = [np.asarray(tree["feature"], dtype=np.int32) for tree in trees]
        self._threshold = [np.asarray(tree["threshold"], dtype=np.float64) for tree in trees]
        self._left = [np.asarray(tree["left"], dtype=np.int32) for tree in trees]
        self._right = [np.asarray(tree["right"], dtype=np.int32) for tree in trees]
        self._value = [np.asarray(tree["value"], dtype=np.float64) for tree in trees]
        self.base = base
        self.weight = weight

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """From scikit-learn's fitted (hist) gradient boosting, `RandomForestRegressor` or `ExtraTreesRegressor`.

        Numbers are kept in single precision, so that the same forest is predicted with now and after it was read back.
        """
        if hasattr(estimator, "_predictors"):
            trees = [_hist_tree(each[0].nodes) for each in estimator._predictors]
            return cls(trees, float(np.ravel(estimator._baseline_prediction)[0]), 1.0)
        grown = np.ravel(estimator.estimators_)
        trees = [_tree(each.tree_) for each in grown]
        if hasattr(estimator, "init_"):
            if estimator.init_ == "zero":
                return cls(trees, 0.0, estimator.learning_rate)
            return cls(trees, float(np.ravel(estimator.init_.constant_)[0]), estimator.learning_rate)
        return cls(trees, 0.0, 1.0 / len(trees))

    def __len__(self) -> int:
        return len(self._value)

    def predict(self, table: Floats) -> Floats:
        """A value for each row of a table of features."""
        rows = np.asarray(table, dtype=np.float32).astype(np.float64)  # as scikit-learn compares
        if rows.ndim != 2:
            raise PredictionError(f"a table of features has two dimensions, not {rows.ndim}")
        columns, total = np.ascontiguousarray(rows.T), np.zeros(len(rows))
        for number in range(len(self)):
            self._add(number, columns, total)
        return np.asarray(self.base + self.weight * total)

    def _add(self, number: int, columns: Floats, total: Floats) -> None:
        """Adds a tree's values: at each node the rows part, so that all rows of a leaf are done at once."""
        feature, threshold = self._feature[number].tolist(), self._threshold[number].tolist()
        left, right, value = self._left[number].tolist(), self._right[number].tolist(), self._value[number].tolist()
        open_nodes = [(0, np.arange(len(total)))]
        while open_nodes:
            node, rows = open_nodes.pop()
            if left[node] == LEAF:
                total[rows] += value[node]
                continue
            goes_left = columns[feature[node]][rows] <= threshold[node]
            parted = (left[node], rows[goes_left]), (right[node], rows[~goes_left])
            open_nodes += [each for each in parted if len(each[1])]

    def to_document(self) -> dict[str, Any]:
        """In types of JSON: the trees one after the other, each column as base64 of little-endian numbers."""
        leaf = [left == LEAF for left in self._left]
        number = [np.where(end, value, cut) for end, value, cut in zip(leaf, self._value, self._threshold, strict=True)]
        nodes = [len(left) for left in self._left]
        index = "<i2" if max(nodes) < 2**15 else "<i4"
        return {
            "nodes": nodes,
            "index": index,
            "left": _text(self._left, index),
            "right": _text(self._right, index),
            "feature": _text(self._feature, "<i2"),
            "number": _text(number, "<f4"),
            "base": self.base,
            "weight": self.weight,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `to_document`."""
        ends = np.cumsum(document["nodes"])[:-1]
        left, right = (np.split(_column(document[name], document["index"]), ends) for name in ("left", "right"))
        feature = np.split(_column(document["feature"], "<i2"), ends)
        number = np.split(_column(document["number"], "<f4").astype(np.float64), ends)
        trees = [
            {
                "feature": feature[tree],
                "threshold": np.where(left[tree] == LEAF, 0.0, number[tree]),
                "left": left[tree],
                "right": right[tree],
                "value": np.where(left[tree] == LEAF, number[tree], 0.0),
            }
            for tree in range(len(left))
        ]
        return cls(trees, document["base"], document["weight"])


def _text(columns: Sequence[NDArray[Any]], kind: str) -> str:
    return base64.b64encode(np.concatenate(columns).astype(kind).tobytes()).decode("ascii")


def _column(text: str, kind: str) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def _single(values: Any) -> Floats:
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def _at_most(values: Any) -> Floats:
    """The largest single precision numbers not above these: features of that precision compare with them alike."""
    exact = np.asarray(values, dtype=np.float64)
    near = exact.astype(np.float32)
    down = np.nextafter(near, np.float32(-np.inf))
    return np.where(near.astype(np.float64) > exact, down, near).astype(np.float64)


def _tree(grown: Any) -> dict[str, Any]:
    inner = grown.children_left != LEAF
    return {
        "feature": np.where(inner, grown.feature, 0),
        "threshold": _at_most(np.where(inner, grown.threshold, 0.0)),
        "left": grown.children_left,
        "right": grown.children_right,
        "value": _single(np.where(inner, 0.0, grown.value[:, 0, 0])),
    }


def _hist_tree(nodes: Any) -> dict[str, Any]:
    leaf = nodes["is_leaf"].astype(bool)
    return {
        "feature": np.where(leaf, 0, nodes["feature_idx"]),
        "threshold": _at_most(np.where(leaf, 0.0, nodes["num_threshold"])),
        "left": np.where(leaf, LEAF, nodes["left"].astype(np.int64)),
        "right": np.where(leaf, LEAF, nodes["right"].astype(np.int64)),
        "value": _single(np.where(leaf, nodes["value"], 0.0)),
    }
