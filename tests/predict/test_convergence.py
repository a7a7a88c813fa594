"""Loss curves: what is left to a target, from the run itself and from runs of its workload."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwise.predict.base import Estimates, PredictionError
from gpuwise.predict.conformance import check_predictor
from gpuwise.predict.convergence.loss_curve import FAMILIES, LossCurve, without_outliers
from gpuwise.predict.convergence.steps_to_target import StepsToTarget
from gpuwise.predict.convergence.training_runs import ALONE, Run, common_target
from gpuwise.predict.fitting.data import zeus
from gpuwise.predict.fitting.recipes import convergence as recipe
from gpuwise.predict.fitting.scores import Holdout, score

STEPS = np.arange(1.0, 101.0)


def hyperbola(step: Any) -> Any:
    return 1.0 / (0.05 * step + 0.4) + 0.3


def test_optimus_curve_finds_the_steps_left() -> None:
    curve = LossCurve().observe(STEPS[:50], hyperbola(STEPS[:50]))
    left, low, high = curve.steps_left(hyperbola(100.0))
    assert left == pytest.approx(50, rel=0.05)
    assert low <= left <= high


def test_a_metric_that_rises_is_turned_round() -> None:
    curve = LossCurve().observe(STEPS[:50], 1.0 - hyperbola(STEPS[:50]))
    assert curve.steps_left(1.0 - hyperbola(100.0))[0] == pytest.approx(50, rel=0.05)
    assert curve.predict(100.0) == pytest.approx(1.0 - hyperbola(100.0), abs=0.01)


def test_points_may_come_one_by_one_and_more_of_them_help() -> None:
    rng = np.random.default_rng(0)
    noisy = hyperbola(STEPS) + 0.01 * rng.standard_normal(100)
    curve, errors = LossCurve(), {}
    for step, value in zip(STEPS, noisy, strict=True):
        curve.observe(step, value)
        if step in (10, 80):
            errors[step] = abs(curve.reached_at(hyperbola(150.0)) - 150)
    assert errors[80] < errors[10]


def test_the_scale_of_the_loss_does_not_matter() -> None:
    small = LossCurve().observe(STEPS[:40], hyperbola(STEPS[:40])).reached_at(hyperbola(90.0))
    large = LossCurve().observe(STEPS[:40], 1e6 * hyperbola(STEPS[:40]) - 5e5).reached_at(1e6 * hyperbola(90.0) - 5e5)
    assert large == pytest.approx(small, rel=1e-3)


def test_an_outlier_does_not_move_the_curve() -> None:
    rng = np.random.default_rng(1)
    value = hyperbola(STEPS[:50]) + 0.002 * rng.standard_normal(50)
    spoiled = value.copy()
    spoiled[30] = 20.0
    assert without_outliers(spoiled)[30] < 1.5
    clean, hit = (LossCurve().observe(STEPS[:50], each).reached_at(hyperbola(100.0)) for each in (value, spoiled))
    assert hit == pytest.approx(clean, rel=0.1)


def test_a_loss_that_is_not_a_number_is_left_out() -> None:
    curve = LossCurve().observe([1, 2, 3, 4], [3.0, float("nan"), 2.0, 1.8])
    assert len(curve) == 3


def test_a_target_below_the_limit_of_the_curve_is_never_reached() -> None:
    curve = LossCurve("exponential").observe(STEPS[:50], np.exp(-0.1 * STEPS[:50]) + 1.0)
    assert curve.steps_left(0.9)[0] == np.inf


def test_a_target_that_was_reached_has_nothing_left() -> None:
    curve = LossCurve().observe(STEPS[:50], hyperbola(STEPS[:50]))
    assert curve.steps_left(hyperbola(20.0))[0] == 0.0
    assert curve.reached_at(hyperbola(20.0)) == 20.0


@pytest.mark.parametrize(
    ("family", "law"),
    [
        ("power", lambda k: 2.0 * k**-0.5 + 0.1),
        ("exponential", lambda k: 2.0 * np.exp(-0.02 * k) + 0.1),
        ("logarithm", lambda k: 3.0 - 0.4 * np.log(k)),
    ],
)
def test_each_family_finds_its_own_law(family: str, law: Any) -> None:
    curve = LossCurve(family).observe(STEPS[:50], law(STEPS[:50]))
    assert curve.reached_at(law(100.0)) == pytest.approx(100, rel=0.1)
    assert FAMILIES[family](STEPS[:50], law(STEPS[:50])).error < 0.01


def test_too_few_points_and_unknown_families_are_refused() -> None:
    with pytest.raises(PredictionError, match="2 points; a curve needs at least 3"):
        LossCurve().observe([1, 2], [3.0, 2.0]).steps_left(1.0)
    with pytest.raises(PredictionError, match="'cubic'; it is one of hyperbola"):
        LossCurve("cubic")
    with pytest.raises(PredictionError, match="a step above 0"):
        LossCurve().observe(0, 1.0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("last", [2.30, 2.33])
def test_a_loss_that_does_not_come_towards_its_target_never_reaches_it(family: str, last: float) -> None:
    curve = LossCurve(family).observe(STEPS[:20], np.linspace(2.30, last, 20))
    assert curve.steps_left(0.5) == (np.inf, np.inf, np.inf)


def test_an_accuracy_that_falls_never_reaches_its_target() -> None:
    assert LossCurve().observe(STEPS[:20], np.linspace(0.3, 0.2, 20)).steps_left(0.9)[0] == np.inf


def test_a_reached_target_leaves_nothing_to_be_unsure_of() -> None:
    assert LossCurve().observe(STEPS[:20], np.full(20, 2.3)).steps_left(2.3) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_interval_holds_its_value_after_a_dip_below_the_target(family: str) -> None:
    """The curve does not follow the dip, and would have it that there are steps left."""
    loss = 2.0 - 0.01 * STEPS[:20]
    loss[3] = 0.5
    left, low, high = LossCurve(family).observe(STEPS[:20], loss).steps_left(1.7)
    assert low <= left <= high


def test_points_at_one_step_are_no_curve() -> None:
    with pytest.raises(PredictionError, match="all points are at step 5"):
        LossCurve().observe([5, 5, 5], [3.0, 2.0, 1.0]).steps_left(0.5)
    with pytest.raises(PredictionError, match="a target of nan"):
        LossCurve().observe([1, 2, 3], [3.0, 2.0, 1.0]).steps_left(float("nan"))


def stepped(drop: float, noise: int) -> tuple[np.ndarray, np.ndarray]:
    """Accuracy that waits at 0.5 until the learning rate drops, then reaches 0.8: no curve can know."""
    rng = np.random.default_rng(noise)
    value = np.where(drop > STEPS, 0.5 * (1 - np.exp(-STEPS / 5)), 0.8) + 0.002 * rng.standard_normal(100)
    return STEPS, value


def workload(name: str, drops: list[float]) -> dict[str, Any]:
    curves = [stepped(drop, number) for number, drop in enumerate(drops)]
    return {
        "workload": [name] * len(drops),
        "batch": [8.0 * 2**number for number in range(len(drops))],
        "steps": [curve[0] for curve in curves],
        "values": [curve[1] for curve in curves],
        "target": [0.75] * len(drops),
    }


def test_a_drop_of_the_learning_rate_is_known_from_other_runs() -> None:
    known = workload("net", [60.0, 61.0, 60.0, 62.0])
    model = StepsToTarget().fit(known, [60.0, 61.0, 60.0, 62.0])
    steps, values = stepped(60.0, 9)
    asked = {"workload": ["net"], "batch": [20.0], "steps": [steps[:30]], "values": [values[:30]], "target": [0.75]}
    made = model.estimate(asked)
    assert made.value[0] == pytest.approx(60.0, rel=0.05)
    assert made.low[0] <= 60.0 <= made.high[0] + 1.0
    assert made.in_domain[0]


def test_an_unknown_workload_is_said_to_be_outside_and_uses_the_run_alone() -> None:
    model = StepsToTarget().fit(workload("net", [60.0, 61.0, 62.0]), [60.0, 61.0, 62.0])
    asked = {
        "workload": ["other"], "batch": [8.0], "steps": [STEPS[:50]], "values": [hyperbola(STEPS[:50])],
        "target": [hyperbola(100.0)],
    }  # fmt: skip
    made = model.estimate(asked)
    assert not made.in_domain[0]
    assert 50.0 <= made.value[0] <= 200.0


def test_a_prediction_is_never_less_than_what_was_done() -> None:
    model = StepsToTarget().fit(workload("net", [20.0, 21.0, 22.0]), [20.0, 21.0, 22.0])
    steps, values = stepped(90.0, 3)
    asked = {"workload": ["net"], "batch": [8.0], "steps": [steps[:80]], "values": [values[:80]], "target": [0.75]}
    assert model.predict(asked)[0] >= 80.0


def test_without_forgets_runs() -> None:
    model = StepsToTarget().fit(workload("net", [20.0, 60.0, 61.0, 62.0]), [20.0, 60.0, 61.0, 62.0])
    steps, values = stepped(60.0, 9)
    asked = {"workload": ["net"], "batch": [8.0], "steps": [steps[:10]], "values": [values[:10]], "target": [0.75]}
    assert model.without([0]).predict(asked)[0] > model.predict(asked)[0]


def test_runs_that_cannot_be_asked_are_refused() -> None:
    model = StepsToTarget().fit(workload("net", [20.0, 60.0, 61.0]), [20.0, 60.0, 61.0])
    row = {"workload": ["net"], "batch": [8.0], "steps": [STEPS[:9]], "values": [STEPS[:9] / 99], "target": [0.75]}
    for change, match in (
        ({name: [] for name in row}, "0, 0, 0, 0, 0 rows"),
        ({"batch": [0.0]}, "'batch' is 0 in row 0"),
        ({"target": [float("nan")]}, "a target of nan"),
        ({"target": [0.7, 0.8]}, "1, 1, 1, 1, 2 rows"),
    ):
        with pytest.raises(PredictionError, match=match):
            model.estimate({**row, **change})
    with pytest.raises(PredictionError, match="'values' is needed"):
        model.estimate({name: column for name, column in row.items() if name != "values"})


def test_it_keeps_the_contract() -> None:
    drops = [40.0, 44.0, 50.0, 53.0, 60.0]
    check_predictor(StepsToTarget(), workload("net", drops), drops)
    check_predictor(StepsToTarget(ALONE), workload("net", drops), drops)


def test_when_a_run_reached_what() -> None:
    run = Run.of("net", 8.0, [1, 2, 3, 4], [0.1, 0.5, 0.4, 0.9], target=0.5)
    assert run.reached([-0.1, -0.5, -0.6, -0.95])[:3].tolist() == [1.0, 2.0, 4.0]
    assert np.isnan(run.reached(-0.95))
    assert run.until(2).now == 2.0


def test_the_common_target_is_one_that_most_runs_reach() -> None:
    values = [np.array([0.1, 0.5, best]) for best in (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.4)]
    assert 0.8 < common_target(values, margin=0.0, share=0.8) <= 0.9
    falling = [1.0 - each for each in values]
    assert common_target(falling, 0.05, 0.8) == pytest.approx(1.0 - common_target(values, 0.05, 0.8))


def test_steps_out_of_order_are_refused() -> None:
    with pytest.raises(PredictionError, match="in order"):
        Run.of("net", 8.0, [2, 1], [0.1, 0.2], 0.5)


def test_zeus_runs_stop_at_the_last_value_they_reached(data_dir: Path) -> None:
    rows = zeus.curves(data_dir)
    assert len(rows["run"]) == len(set(rows["run"]))
    assert all(np.all(np.isfinite(steps)) and np.all(np.diff(steps) >= 0) for steps in rows["steps"])


def test_half_way_shows_no_more_than_half(data_dir: Path) -> None:
    rows = recipe.runs(data_dir, "pollux")
    for steps, total in zip(recipe.half_way(rows)["steps"], rows["total"], strict=True):
        assert not len(steps) or steps[-1] <= total / 2


def test_what_remains_is_the_second_half() -> None:
    """Of 10 epochs 5 are done: a prediction of 12 is off by 2 of 5. One below 5 says: any moment now."""
    made = Estimates(np.array([12.0, 4.0]), np.array([3.0, 3.0]), np.array([15.0, 11.0]), np.array([True, True]))
    total = Holdout("total", "StepsToTarget", ("made",), "the second half", "epochs", np.array([10.0, 10.0]), made)
    left = recipe.remaining(total, "left", recipe.TARGETS)
    assert left.measured.tolist() == [5.0, 5.0]
    assert left.estimates.value.tolist() == [7.0, recipe.LEAST_LEFT]
    assert left.estimates.low.tolist() == [recipe.LEAST_LEFT] * 2
    assert left.estimates.high.tolist() == [10.0, 6.0]
    assert left.targets == recipe.TARGETS
    assert total.targets == ()


def test_remaining_steps_half_way_reach_what_is_asked_and_the_total_half_of_that(data_dir: Path) -> None:
    left, total = islice(recipe.holdouts(data_dir), 2)
    assert left.targets == recipe.TARGETS
    assert not total.targets
    of_left, of_total = score(left.measured, left.estimates), score(total.measured, total.estimates)
    assert 0.15 < of_left.mape <= 0.20
    assert of_total.mape <= 0.10
    assert of_left.mape > 1.8 * of_total.mape
    assert 0.85 <= of_left.coverage <= 0.95
