"""Forecasts: a model becomes a row for each GPU or VM, every number with its interval."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="models are traced with PyTorch")

import gpuwise
from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.graph.ops import GraphError
from gpuwise.service.offline.forecast import QUANTITIES, Forecast, Quantity
from gpuwise.service.offline.predict import costliest, predict

MODEL = """
import torch

def small(batch):
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.BatchNorm2d(64), torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(64, 10),
    )
    return layers, torch.zeros(batch, 3, 64, 64)
"""

SEPARABLE = """
import torch

def net(batch):
    blocks = [torch.nn.Conv2d(3, 192, 1)]
    for _ in range(12):  # depthwise kernels are far slower than their FLOPs and bytes say
        blocks += [torch.nn.Conv2d(192, 192, 3, padding=1, groups=192), torch.nn.BatchNorm2d(192), torch.nn.ReLU6()]
    return torch.nn.Sequential(*blocks, torch.nn.AdaptiveAvgPool2d(1)), torch.zeros(batch, 3, 56, 56)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "mine.py"
    path.write_text(MODEL)
    return f"{path}:small"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def forecast(model: str) -> Forecast:
    return predict(model, batch=16, gpus=["V100", "K80", "H100"])


def test_each_gpu_has_a_row_with_intervals(forecast: Forecast) -> None:
    assert [row.gpu for row in forecast] == ["V100", "K80", "H100"]
    for row in forecast:
        for name in QUANTITIES:
            quantity = getattr(row, name)
            if quantity is not None:
                assert 0 < quantity.low <= quantity.value <= quantity.high, name
        assert row.gpu_util_pct.high <= 100
        assert 0 <= row.p_oom <= 1
        assert row.source in ("measured nearby", "model family", "roofline")


def test_numbers_agree_with_each_other(forecast: Forecast) -> None:
    row = forecast["V100"]
    assert row.samples_per_s.value == pytest.approx(16 / row.step_time_s.value)
    assert row.samples_per_s.low == pytest.approx(16 / row.step_time_s.high)
    assert row.epoch_time_s.value == pytest.approx(row.step_time_s.value * 1_281_167 / 16)
    usd_per_hour = gpuwise.gpu_type("V100").usd_per_hour
    assert row.usd_per_epoch is not None
    assert row.usd_per_epoch.value == pytest.approx(row.epoch_time_s.value / 3600 * usd_per_hour)


def test_a_newer_gpu_is_faster(forecast: Forecast) -> None:
    assert forecast["H100"].step_time_s.value < forecast["V100"].step_time_s.value < forecast["K80"].step_time_s.value


def test_a_larger_batch_takes_longer_and_more_memory(model: str, forecast: Forecast) -> None:
    (larger,) = predict(model, batch=256, gpus=["V100"])
    assert larger.step_time_s.value > 2 * forecast["V100"].step_time_s.value
    assert larger.memory_bytes.value > forecast["V100"].memory_bytes.value


def test_what_cannot_fit_is_said_not_to(model: str) -> None:
    (row,) = predict(model, batch=65536, gpus=["K80"])
    # 65,536 images of 64 × 64 with 64 channels of 4 bytes are 69 GB for one activation alone.
    assert not row.fits
    assert row.p_oom > 0.99
    assert row.shown()["fits"] == "no"


def test_vms_have_their_gpus_and_their_price(model: str) -> None:
    (row,) = predict(model, batch=16, vms=["Standard_NC24s_v3"])
    (alone,) = predict(model, batch=16, gpus=["V100"])
    assert (row.vm, row.gpu, row.gpus) == ("Standard_NC24s_v3", "V100", 4)
    assert row.step_time_s.value > alone.step_time_s.value
    assert row.samples_per_s.value == pytest.approx(4 * 16 / row.step_time_s.value)
    assert row.step_time_s.high / row.step_time_s.value > alone.step_time_s.high / alone.step_time_s.value


def test_a_cloud_is_all_its_vms(model: str) -> None:
    rows = predict(model, batch=16, vms=["azure"])
    assert len(rows) > 10
    assert all(row.vm for row in rows)


def test_a_cloud_with_gpus_that_nothing_is_known_of_is_shown_without_them(model: str) -> None:
    rows = predict(model, batch=16, vms=["aws"])
    assert "T4G" not in {row.gpu for row in rows}
    assert len(rows) > 10
    with pytest.raises(GpuwiseError, match="too little is published about T4G"):
        predict(model, batch=16, gpus=["T4G"])


def test_several_gpus_take_longer_a_step_and_are_used_less(model: str) -> None:
    (one,), (eight,) = (predict(model, batch=16, gpus=["V100"], count=count) for count in (1, 8))
    assert eight.step_time_s.value > one.step_time_s.value
    assert eight.gpu_util_pct.value < one.gpu_util_pct.value
    assert eight.usd_per_epoch is not None
    assert one.usd_per_epoch is not None
    # Eight cost eight times as much an hour, and share the samples.
    ratio = eight.step_time_s.value / one.step_time_s.value
    assert eight.usd_per_epoch.value == pytest.approx(one.usd_per_epoch.value * ratio)


def test_a_larger_batch_does_not_keep_a_gpu_less_busy(cache: Path) -> None:
    path = cache / "separable.py"
    path.write_text(SEPARABLE)
    rows = [predict(f"{path}:net", batch=batch, gpus=["RTX3090"], precision="fp16")[0] for batch in (4, 16, 64)]
    found = [row.gpu_util_pct.value for row in rows]
    assert found == sorted(found)


def test_what_was_measured_is_carried_over(model: str) -> None:
    (row,) = predict(model, batch=16, gpus=["V100"], measured={"Tesla P100": 1.0})
    assert row.source == "measured nearby"
    assert 0.2 < row.step_time_s.value < 1.0  # a V100 is faster than a P100, but not five times
    with pytest.raises(GpuwiseError, match="a step of 0 s on V100"):
        predict(model, batch=16, gpus=["V100"], measured={"V100": 0})


def test_half_precision_keeps_the_gpu_busy_for_a_shorter_time(model: str) -> None:
    from gpuwise.predict.time.work import own_row

    single, half = (predict(model, batch=256, gpus=["V100"], precision=each).graph for each in ("fp32", "fp16"))
    assert own_row(half, "V100")["busy_time_s"] < own_row(single, "V100")["busy_time_s"]


def test_without_names_the_common_gpus_are_shown(model: str) -> None:
    assert {"V100", "A100", "H100"} <= {row.gpu for row in predict(model, batch=16)}


def test_it_shows_well(forecast: Forecast) -> None:
    text, page = str(forecast), forecast._repr_html_()
    assert "parameters" in text.splitlines()[0]
    assert all(gpu in text and f"<td>{gpu}</td>" in page for gpu in ("V100", "K80", "H100"))
    frame = forecast.to_frame()
    assert frame.shape[0] == 3
    assert {"step_time_s", "step_time_s_low", "step_time_s_high"} <= set(frame.columns)
    assert json.loads(json.dumps(forecast.to_dicts()))[0]["step_time_s"].keys() == {"value", "low", "high"}


def test_html_is_escaped(model: str) -> None:
    made = predict(model, batch=16, gpus=["V100"])
    evil = Forecast("<script>", made.batch, made.epoch_samples, made.graph, made.rows, ("<b>",))
    assert "<script>" not in evil._repr_html_()
    assert "<b>" not in evil._repr_html_()


def test_the_costliest_operators_come_first(forecast: Forecast) -> None:
    rows = [row for row in costliest(forecast) if row["gpu"] == "V100"]
    shares = [row["share_frac"] for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert rows[0]["operator"] == "aten.convolution_backward"
    assert rows[0]["layer"] == "3"  # the convolution of 64 to 64 channels
    assert sum(shares) <= 1 + 1e-9


def test_a_function_and_a_graph_do_as_well_as_a_name(model: str, forecast: Forecast) -> None:
    assert predict(forecast.graph, gpus=["V100"]).rows == forecast.rows[:1]
    space: dict[str, object] = {}
    exec(MODEL, space)
    made = gpuwise.predict(space["small"], batch=16, gpus=["V100"])
    assert made.rows == forecast.rows[:1]


def test_predict_is_called_and_imported_from_in_any_order() -> None:
    for script in (
        "import gpuwise; call = gpuwise.predict; from gpuwise.predict.memory.need import MemoryNeed",
        "from gpuwise.predict.memory.need import MemoryNeed; import gpuwise; call = gpuwise.predict",
    ):
        asked = "\ntry: gpuwise.predict('nothing'), call('nothing')\nexcept gpuwise.GpuwiseError as error: print(error)"
        done = subprocess.run([sys.executable, "-c", script + asked], capture_output=True, text=True, check=True)
        assert "not the name of a model" in done.stdout


def test_the_second_time_nothing_is_traced(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = predict(model, batch=4, gpus=["V100"])

    def never(*_: object, **__: object) -> None:
        raise AssertionError("traced again")

    monkeypatch.setattr("gpuwise.graph.cache.graph_of", never)
    assert predict(model, batch=4, gpus=["V100"]).rows == first.rows
    with pytest.raises(AssertionError, match="traced again"):
        predict(model, batch=4, gpus=["V100"], fresh=True)
    with pytest.raises(AssertionError, match="traced again"):
        predict(model, batch=5, gpus=["V100"])


def test_a_changed_file_is_traced_again(tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    path.write_text(MODEL)
    before = predict(f"{path}:small", batch=4, gpus=["V100"])
    path.write_text(MODEL.replace("Linear(64, 10)", "Linear(64, 1000)"))
    after = predict(f"{path}:small", batch=4, gpus=["V100"])
    assert after.graph.parameters - before.graph.parameters == 990 * 65


def test_a_damaged_cache_is_no_trouble(model: str, cache: Path) -> None:
    first = predict(model, batch=4, gpus=["V100"])
    (kept,) = (cache / "gpuwise" / "graphs").glob("*.json")
    kept.write_text("{")
    assert predict(model, batch=4, gpus=["V100"]).rows == first.rows


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({"batch": 0}, GraphError, "a batch of 0"),
        ({"gpus": ["V1000"]}, UnknownNameError, "V1000"),
        ({"vms": ["NC9"]}, UnknownNameError, "NC9"),
        ({"precision": "fp13"}, GpuwiseError, "fp13"),
        ({"optimizer": "lion"}, GpuwiseError, "lion"),
        ({"epoch_samples": 0}, GpuwiseError, "an epoch of 0 samples"),
        ({"gpus": ["G1"]}, GpuwiseError, "too little is published about G1"),
    ],
)
def test_what_is_wrong_is_named(model: str, asked: dict[str, object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        predict(model, **{"batch": 4, "gpus": ["V100"], **asked})  # type: ignore[arg-type]


def test_quantities_turn_around() -> None:
    step = Quantity(0.5, 0.4, 0.8)
    assert step.inverse(32) == Quantity(64.0, 40.0, 80.0)
    assert step.times(2.0) == Quantity(1.0, 0.8, 1.6)
