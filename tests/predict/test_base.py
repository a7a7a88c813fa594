"""What all predictors share: the contract, intervals, domains, forests, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwise.predict import registry
from gpuwise.predict.base import Estimates, NotFittedError, PredictionError, Predictor, pack, unpack
from gpuwise.predict.columns import floats
from gpuwise.predict.conformance import check_predictor
from gpuwise.predict.fitting.recipe import is_permissive, source_of
from gpuwise.predict.fitting.scores import score
from gpuwise.predict.intervals.conformal import Conformal, folds, left_out
from gpuwise.predict.intervals.domain import Domain


class Proportional(Predictor):
    """y = slope · x, the simplest that keeps to the contract."""

    def __init__(self, floor: float = 0.0) -> None:
        self.floor = floor

    def fit(self, X: Any, y: Any) -> Proportional:  # noqa: N803
        given, measured = floats(X, "x"), np.asarray(y, dtype=float)
        self.slope_ = float(np.exp(np.mean(np.log(measured / given))))
        self.interval_ = Conformal.of(measured, self.slope_ * given)
        self.domain_ = Domain.of(X, ["x"])
        return self

    def estimate(self, X: Any, coverage: float = 0.9) -> Estimates:  # noqa: N803
        self._check_fitted()
        value = np.maximum(self.slope_ * floats(X, "x"), self.floor)
        return self.interval_.around(value, coverage, self.domain_.contains(X))


def data(rows: int = 200, seed: int = 0) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(1.0, 10.0, rows)
    return {"x": x}, 3.0 * x * np.exp(rng.normal(0.0, 0.1, rows))


def test_a_predictor_that_keeps_to_the_contract_passes() -> None:
    check_predictor(Proportional(), *data())


class ChangesParameters(Proportional):
    def fit(self, X: Any, y: Any) -> ChangesParameters:  # noqa: N803
        self.floor = 1.0
        super().fit(X, y)
        return self


class Narrow(Proportional):
    def estimate(self, X: Any, coverage: float = 0.9) -> Estimates:  # noqa: N803
        made = super().estimate(X, coverage)
        return Estimates(made.value, made.value * 1.1, made.high, made.in_domain)


class Random(Proportional):
    def fit(self, X: Any, y: Any) -> Random:  # noqa: N803
        super().fit(X, np.asarray(y) * np.random.default_rng().uniform(1, 2))
        return self


class Eager(Proportional):
    def __init__(self, floor: float = 0.0) -> None:
        super().__init__(floor)
        self.slope_ = 1.0


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (ChangesParameters, "fit changes the parameters"),
        (Narrow, "begins above its value"),
        (Random, "two fits on the same data"),
        (Eager, "the constructor learns"),
    ],
)
def test_one_that_does_not_gets_an_error_that_says_why(kind: type[Predictor], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_predictor(kind(), *data())


def test_asked_before_it_is_fitted_it_says_so() -> None:
    with pytest.raises(NotFittedError, match="call fit"):
        Proportional().predict({"x": [1.0]})


def test_a_missing_column_is_named() -> None:
    with pytest.raises(PredictionError, match="column 'x' is needed"):
        Proportional().fit(*data()).predict({"z": [1.0]})


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(PredictionError, match="no parameter 'roof'"):
        Proportional().set_params(roof=1.0)


# -- intervals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_intervals_hold_new_measurements_as_often_as_they_say(coverage: float) -> None:
    # 400 residuals: the coverage on 20,000 new rows has a standard deviation of about sqrt(c (1 − c) / 400) < 0.025.
    fitted = Proportional().fit(*data(400))
    X, y = data(20_000, seed=1)  # noqa: N806
    made = fitted.estimate(X, coverage)
    assert np.mean((y >= made.low) & (y <= made.high)) == pytest.approx(coverage, abs=0.05)


def test_few_residuals_give_their_extremes() -> None:
    # With 5 residuals the 90 % interval needs the ⌈6 · 0.95⌉ = 6th smallest: there are 5, so it is the largest.
    assert Conformal([-0.2, -0.1, 0.0, 0.1, 0.3]).bounds(0.9) == pytest.approx((-0.2, 0.3))


def test_the_ranks_are_those_of_conformal_prediction() -> None:
    # 39 residuals 1..39 at 80 %: the upper end is the ⌈40 · 0.9⌉ = 36th, the lower the 4th from below.
    bounds = Conformal((np.arange(1, 40) - 20) / 100).bounds(0.8)
    assert bounds == pytest.approx((-0.16, 0.16))


def test_a_larger_scale_gives_a_wider_interval() -> None:
    interval = Conformal([-0.1, 0.1])
    made = interval.around(np.array([1.0, 1.0]), 0.9, np.array([True, True]), scale=[1.0, 2.0])
    assert made.high == pytest.approx(np.exp([0.1, 0.2]))


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1.0, float("nan")])
def test_a_coverage_that_is_none_is_refused(coverage: float) -> None:
    with pytest.raises(PredictionError, match="between 0 and 1"):
        Conformal([0.1]).bounds(coverage)


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(PredictionError, match="at least one residual"):
        Conformal([float("nan")])


def test_folds_leave_each_group_out_once_and_never_split_one() -> None:
    groups = list("aaaabbbcccddeef")
    masks = list(folds(groups, 3))
    assert np.sum(masks, axis=0).tolist() == [1] * len(groups)
    for mask in masks:
        assert not {g for g, out in zip(groups, mask, strict=True) if out} & {
            g for g, out in zip(groups, mask, strict=True) if not out
        }
    assert max(mask.sum() for mask in masks) <= 6


def test_predictions_for_left_out_rows_never_saw_them() -> None:
    def mean_of_the_rest(X: Any, y: Any, new: Any) -> Any:  # noqa: N803
        return np.full(len(new["x"]), np.mean(y))

    predicted = left_out(mean_of_the_rest, {"x": np.zeros(4)}, [0.0, 0.0, 10.0, 10.0], ["a", "a", "b", "b"], 2)
    assert predicted.tolist() == [10.0, 10.0, 0.0, 0.0]


# -- domains, packing, scores -----------------------------------------------------------------------------------------


def test_a_domain_knows_ranges_and_names() -> None:
    domain = Domain.of({"x": [1.0, 10.0], "gpu": ["V100", "T4"]}, ["x"], ["gpu"])
    asked = {"x": [5.0, 12.0, 13.0, 0.5], "gpu": ["T4", "V100", "T4", "A100"]}
    assert domain.contains(asked).tolist() == [True, True, False, False]  # 12 is within a quarter of 10, 13 is not


def test_what_is_packed_comes_back() -> None:
    value = {"a": np.array([1.5, 2.5]), "names": np.array(["x", "yy"]), "n": np.int64(3), "list": [1, "b", None]}
    back = unpack(json.loads(json.dumps(pack(value))))
    assert back["a"].tolist() == [1.5, 2.5]
    assert back["names"].tolist() == ["x", "yy"]
    assert (back["n"], back["list"]) == (3, [1, "b", None])


def test_scores_are_what_their_names_say() -> None:
    measured = np.array([100.0, 200.0])
    value = np.array([110.0, 180.0])
    made = Estimates(value, value - 15, value + 5, np.array([True, False]))
    found = score(measured, made)
    assert found.mape == pytest.approx(0.10)
    assert found.mae == pytest.approx(15.0)
    assert found.bias == pytest.approx(0.0)
    assert (found.under, found.under_5pct, found.in_domain) == (0.5, 0.5, 0.5)
    assert found.coverage == 0.5  # 100 is in 95..115, 200 is not in 165..185
    assert found.rmsle == pytest.approx(np.sqrt(np.mean(np.log(np.array([111 / 101, 181 / 201])) ** 2)))


# -- forests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["GradientBoostingRegressor", "RandomForestRegressor", "ExtraTreesRegressor"])
def test_a_forest_predicts_what_scikit_learn_does(kind: str) -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    from gpuwise.predict.trees import Forest

    rng = np.random.default_rng(0)
    table = rng.normal(size=(300, 4))
    y = table[:, 0] * 2 + np.sin(table[:, 1])
    grown = getattr(ensemble, kind)(n_estimators=20, random_state=0).fit(table, y)
    forest = Forest.of(grown)
    assert forest.predict(table) == pytest.approx(grown.predict(table), abs=1e-5)
    back = unpack(json.loads(json.dumps(pack(forest))))
    assert np.array_equal(back.predict(table), forest.predict(table))


# -- files ------------------------------------------------------------------------------------------------------------


def a_file(folder: Path, **changes: Any) -> Path:
    fitted = registry.Fitted(
        "mine", "a line", Proportional().fit(*data()), (registry.Source("d", "r", "MIT"),), "0.1", "2026-01-01"
    )
    path = registry.write(fitted, folder)
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(document))
    return path


def test_a_file_may_only_name_classes_of_gpuwise(tmp_path: Path) -> None:
    with pytest.raises(PredictionError, match="none of gpuwise's"):
        registry.read(a_file(tmp_path, **{"class": "subprocess:Popen"}))
    with pytest.raises(PredictionError, match="is no predictor"):
        registry.read(a_file(tmp_path, **{"class": "gpuwise.predict.base:pack"}))


@pytest.mark.parametrize("garbage", ["", "[]", "{}", '{"gpuwise_predictor": 1}', '{"gpuwise_predictor": 99}'])
def test_a_damaged_file_is_said_to_be_one(tmp_path: Path, garbage: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(garbage)
    with pytest.raises(PredictionError, match=r"x\.json"):
        registry.read(path)


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(PredictionError, match="there is no fitted predictor 'nope'; there are"):
        registry.load("nope")


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [("MIT (LICENSE copied)", True), ("Apache-2.0", True), ("no LICENSE file on that branch", False), ("", False)],
)
def test_only_permissive_data_may_be_shipped(
    tmp_path: Path, licence: str, allowed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "SOURCE.md").write_text(f"# d\n\nRepository: a/b @ 1\n\nLicence: {licence}\n")
    source = source_of(tmp_path, "d")
    assert source.repository == "a/b @ 1"
    assert is_permissive(source) is allowed
    assert ("names none" in caplog.text) is not bool(licence)
