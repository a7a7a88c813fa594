"""The speed of jobs that share a GPU: a world whose truth is known, what must always hold, and Gavel's pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwise.predict.base import PredictionError
from gpuwise.predict.conformance import check_predictor
from gpuwise.predict.fitting.data.gavel import colocated_pairs
from gpuwise.predict.fitting.recipes.interference import NOISY
from gpuwise.predict.intervals.conformal import folds
from gpuwise.predict.sharing.contention import crowding
from gpuwise.predict.sharing.interference import Interference
from gpuwise.predict.sharing.sensitivity import Evidence, likeness

MODELS = [f"model-{number}" for number in range(7)]
BATCHES = (16.0, 64.0)


def world(seed: int = 0, quirk: float = 0.3) -> tuple[dict[str, Any], Any]:
    """All pairs of 14 jobs: odds = (t'/t)^½ · u', times what is peculiar to each model (in no feature)."""
    rng = np.random.default_rng(seed)
    jobs = [(model, batch) for model in MODELS for batch in BATCHES]
    time = np.array([0.01 * batch**0.5 * (1 + number // 2) for number, (_, batch) in enumerate(jobs)])
    busy = rng.uniform(0.4, 1.0, len(jobs))
    yields, presses = (np.repeat(rng.normal(0.0, quirk, len(MODELS)), len(BATCHES)) for _ in range(2))
    rows, speed = [], []
    for one in range(len(jobs)):
        for two in range(one, len(jobs)):
            for own, other in ((one, two), (two, one)):
                odds = np.sqrt(time[other] / time[own]) * busy[other] * np.exp(yields[own] + presses[other])
                rows.append((f"{one}+{two}", *jobs[own], time[own], busy[own]))
                speed.append(1 / (1 + odds * np.exp(rng.normal(0.0, 0.03))))
    group, model, batch, step, util = (np.array(column) for column in zip(*rows, strict=True))
    columns = {"group": group, "model": model, "batch_size": batch, "step_time_s": step, "gpu_util_frac": util}
    return {**columns, "gpu": np.full(len(group), "P100")}, np.array(speed)


def jobs_together(count: int, **columns: Any) -> dict[str, Any]:
    usual = {
        "group": "one",
        "gpu": "P100",
        "model": "new",
        "batch_size": 16.0,
        "step_time_s": 0.1,
        "gpu_util_frac": 0.9,
    }
    given = {**usual, **columns}
    return {name: value if isinstance(value, list) else [value] * count for name, value in given.items()}


@pytest.fixture(scope="module")
def fitted() -> Interference:
    """Fitted to the same world on two types of GPU."""
    X, y = world()  # noqa: N806
    twice = {name: np.tile(column, 2) for name, column in X.items()}
    twice["gpu"] = np.repeat(["K80", "P100"], len(y))
    twice["group"] = np.array([f"{gpu} {group}" for gpu, group in zip(twice["gpu"], twice["group"], strict=True)])
    return Interference().fit(twice, np.tile(y, 2))


def test_it_keeps_to_the_contract() -> None:
    check_predictor(Interference(), *world())


def test_pairs_never_seen_of_jobs_that_were_are_predicted_closely() -> None:
    X, y = world()  # noqa: N806
    out = next(folds(X["group"], 5))
    known = {name: column[~out] for name, column in X.items()}
    asked = {name: column[out] for name, column in X.items()}
    made = Interference().fit(known, y[~out]).estimate(asked)
    assert np.mean(np.abs(made.value - y[out])) < 0.015
    assert 0.8 <= np.mean((y[out] >= made.low) & (y[out] <= made.high)) <= 1.0


def test_a_model_never_seen_is_predicted_from_its_features_with_a_wider_interval() -> None:
    X, y = world(quirk=0.1)  # noqa: N806
    involved = np.isin(X["group"], X["group"][X["model"] == "model-3"])
    known = {name: column[~involved] for name, column in X.items()}
    asked = {name: column[involved] for name, column in X.items()}
    predictor = Interference().fit(known, y[~involved])
    made, seen = predictor.estimate(asked), predictor.estimate(known)
    assert np.mean(np.abs(made.value - y[involved])) < 0.05
    assert np.mean(made.high - made.low) > 1.5 * np.mean(seen.high - seen.low)


def test_a_job_alone_runs_at_exactly_its_solo_speed(fitted: Interference) -> None:
    made = fitted.estimate(jobs_together(2, group=["a", "b"], model=["model-1", "new"]))
    assert made.value.tolist() == made.low.tolist() == made.high.tolist() == [1.0, 1.0]
    assert made.in_domain.all()


def test_no_jobs_have_no_speeds(fitted: Interference) -> None:
    assert len(fitted.estimate(jobs_together(0))) == 0


def test_a_further_neighbour_never_speeds_anyone_up(fitted: Interference) -> None:
    rng = np.random.default_rng(0)
    for mode in ("time_slice", "mps"):
        for _ in range(50):
            count = int(rng.integers(1, 6))
            columns = {
                "model": rng.choice([*MODELS, "new"], count + 1).tolist(),
                "step_time_s": rng.uniform(0.005, 1.0, count + 1).tolist(),
                "gpu_util_frac": rng.uniform(0.0, 1.0, count + 1).tolist(),
                "mem_util_frac": rng.uniform(0.0, 1.0, count + 1).tolist(),
            }
            more = fitted.predict(jobs_together(count + 1, mode=mode, **columns))
            fewer = fitted.predict(jobs_together(count, mode=mode, **{name: c[:-1] for name, c in columns.items()}))
            assert np.all(more[:-1] <= fewer + 1e-12)
            assert np.all((more > 0) & (more <= 1))


def test_equal_jobs_beside_each_other_add_up_their_odds(fitted: Interference) -> None:
    two, four = fitted.predict(jobs_together(2))[0], fitted.predict(jobs_together(4))[0]
    assert 1 / four - 1 == pytest.approx(3 * (1 / two - 1))


def test_the_order_of_rows_and_the_names_of_groups_do_not_matter(fitted: Interference) -> None:
    X, _ = world()  # noqa: N806
    order = np.random.default_rng(1).permutation(len(X["group"]))
    shuffled = {name: column[order] for name, column in X.items()}
    shuffled["group"] = np.array([f"x{name}" for name in shuffled["group"]])
    assert np.allclose(fitted.predict(shuffled), fitted.predict(X)[order])


def test_mig_isolates_and_mps_is_between_it_and_time_slices(fitted: Interference) -> None:
    columns = {"gpu_util_frac": [0.7, 0.6], "mem_util_frac": [0.3, 0.3]}
    slices, mps, mig = (
        fitted.estimate(jobs_together(2, mode=mode, **columns)) for mode in ("time_slice", "mps", "mig")
    )
    assert np.all(slices.value < mps.value)
    assert np.all(mps.value < 1.0)
    assert mig.value.tolist() == [1.0, 1.0]
    assert not mps.in_domain.any(), "no MPS was measured"


def test_an_mps_pair_that_asks_for_little_may_still_collide_and_is_out_of_domain(fitted: Interference) -> None:
    little = {"gpu_util_frac": [0.4, 0.3], "mem_util_frac": [0.1, 0.1]}
    made = fitted.estimate(jobs_together(2, mode="mps", gpu="H100", **little))
    slices = fitted.estimate(jobs_together(2, gpu="H100", **little))
    assert made.value.tolist() == made.high.tolist() == [1.0, 1.0]
    assert made.low.tolist() == slices.low.tolist(), "it was not measured that they do not collide"
    assert not made.in_domain.any()


def test_mps_is_never_surer_of_the_low_end_than_time_slices(fitted: Interference) -> None:
    much = {"gpu_util_frac": [0.7, 0.6], "mem_util_frac": [0.3, 0.3]}
    mps, slices = (fitted.estimate(jobs_together(2, mode=mode, **much)) for mode in ("mps", "time_slice"))
    assert mps.low.tolist() == slices.low.tolist()
    assert np.all(mps.high >= mps.value)


def test_a_job_alone_and_a_mig_slice_are_in_domain_on_any_gpu(fitted: Interference) -> None:
    assert fitted.estimate(jobs_together(1, mode="mps", gpu="H100")).in_domain.all()
    mig = fitted.estimate(jobs_together(3, mode="mig", gpu="H100"))
    assert mig.in_domain.all()
    assert mig.low.tolist() == [1.0, 1.0, 1.0]


def test_mps_collides_only_where_more_is_asked_than_there_is() -> None:
    pair = np.zeros(2, dtype=np.int64)
    assert crowding("mps", pair, np.array([0.5, 0.4]), np.array([0.2, 0.2])).tolist() == [0.0, 0.0]
    # compute: (0.8 + 0.7 − 1)/0.7; memory: (0.9 + 0.9 − 1)/0.9 is more
    assert crowding("mps", pair, np.array([0.8, 0.7]), np.array([0.9, 0.9])) == pytest.approx([0.8 / 0.9] * 2)
    assert crowding("mps", pair, np.ones(2), np.zeros(2)).tolist() == [1.0, 1.0]
    assert crowding("mps", np.zeros(3, dtype=np.int64), np.full(3, 0.4), np.zeros(3)) == pytest.approx([0.2 / 0.8] * 3)


def test_what_is_unknown_of_a_job_is_taken_as_usual(fitted: Interference) -> None:
    blind = fitted.predict(jobs_together(2, step_time_s=float("nan"), gpu_util_frac=float("nan")))
    usual = fitted.usual_
    made = fitted.predict(jobs_together(2, step_time_s=usual["step_time_s"], gpu_util_frac=usual["gpu_util_frac"]))
    assert blind.tolist() == made.tolist()


def test_traits_tell_who_presses_and_who_yields() -> None:
    X, y = world(quirk=0.0)  # noqa: N806
    predictor = Interference().fit(X, y)
    traits = predictor.traits(jobs_together(2, step_time_s=[0.02, 0.5], model=["a", "b"]))
    assert traits["sensitivity"][0] > traits["sensitivity"][1], "short steps wait for long ones"
    assert traits["pressure"][0] < traits["pressure"][1]


def test_another_gpu_and_three_jobs_are_out_of_domain(fitted: Interference) -> None:
    assert fitted.estimate(jobs_together(2)).in_domain.all()
    assert not fitted.estimate(jobs_together(2, gpu="B200")).in_domain.any()
    assert not fitted.estimate(jobs_together(3)).in_domain.any()


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"mode": "magic"}, "no sharing mode 'magic'"),
        ({"mode": ["mps", "mig"]}, "different sharing modes"),
        ({"step_time_s": 0.0}, "step_time_s is 0.0"),
        ({"gpu_util_frac": -0.5}, "gpu_util_frac is -0.5"),
    ],
)
def test_what_cannot_be_is_refused(fitted: Interference, columns: dict[str, Any], says: str) -> None:
    with pytest.raises(PredictionError, match=says):
        fitted.predict(jobs_together(2, **columns))


def test_a_fit_takes_pairs_and_fractions_only() -> None:
    with pytest.raises(PredictionError, match="groups of two"):
        Interference().fit(jobs_together(3), [0.3, 0.3, 0.3])
    with pytest.raises(PredictionError, match=r"a speed of 1\.5"):
        Interference().fit(jobs_together(2), [1.5, 0.3])


def test_leaving_a_block_out_by_algebra_is_leaving_it_out() -> None:
    rng = np.random.default_rng(0)
    names, batch = np.array(["a", "a", "b", "c"]), np.array([1.0, 2.0, 1.0, 1.0])
    own, other, gpu = rng.integers(0, 4, 30), rng.integers(0, 4, 30), rng.integers(0, 2, 30)
    evidence = Evidence(likeness(names, batch, names, batch), gpu, own, other, np.ones(30))
    left, blocks = rng.normal(size=30), rng.integers(0, 5, 30)
    by_algebra = evidence.without(left, blocks)
    for block in range(5):
        out = blocks == block
        assert by_algebra[out] == pytest.approx(left[out] - evidence.elsewhere(left, ~out, out))


@pytest.fixture(scope="module")
def gavel(data_dir: Path) -> dict[str, Any]:
    if not (data_dir / "gavel").is_dir():
        pytest.skip("no gavel in the folder of measured data")
    return colocated_pairs(data_dir)


def absolute_error(rows: dict[str, Any], out: Any) -> float:
    known, asked = ({name: column[mask] for name, column in rows.items()} for mask in (~out, out))
    made = Interference().fit(known, known["speed"]).predict(asked)
    steady = ~np.isin(asked["gpu"], NOISY)
    return float(np.mean(np.abs(made - asked["speed"])[steady]))


def test_gavels_pairs_left_out_on_all_gpus_are_within_3_percent_of_solo_speed(gavel: dict[str, Any]) -> None:
    pair = [group.split(": ")[1] for group in gavel["group"]]
    assert absolute_error(gavel, next(folds(pair, 5))) < 0.03


def test_a_model_left_out_of_gavel_is_within_10_percent_of_solo_speed(gavel: dict[str, Any]) -> None:
    involved = np.isin(gavel["group"], gavel["group"][gavel["model"] == "Transformer"])
    assert absolute_error(gavel, involved) < 0.10
