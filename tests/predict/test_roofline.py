"""Step time from the graph: sums over operators, their priors, and predictions for GPUs that were never measured."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwise.graph import cache
from gpuwise.graph.models.by_name import ModelSpec
from gpuwise.graph.models.libraries import library
from gpuwise.graph.ops import Graph, GraphError, Optimizer, Precision
from gpuwise.predict import registry
from gpuwise.predict.base import PredictionError
from gpuwise.predict.columns import rows_where
from gpuwise.predict.conformance import check_predictor
from gpuwise.predict.fitting.data import timm_bench, torchvision_bench
from gpuwise.predict.fitting.graphs.summaries import summaries, summary, traced, with_work
from gpuwise.predict.time.operator_sum import OperatorSum
from gpuwise.predict.time.roofline import RooflineTime
from gpuwise.predict.time.terms import NAMES, host_counts, priors, terms
from gpuwise.predict.time.work import work


def made_steps(rows: int = 160, seed: int = 0) -> tuple[dict[str, Any], Any]:
    """Networks of convolutions and norms on three GPUs that reach half of the peak and all of the bandwidth."""
    rng = np.random.default_rng(seed)
    flops, moved = 10 ** rng.uniform(11, 13, rows), 10 ** rng.uniform(8.5, 10, rows)
    gpus = rng.choice(["V100", "GTX1080Ti", "RTX2080Ti"], rows)
    table = {
        "gpu": gpus, "host": gpus, "precision": ["fp32"] * rows, "family": [f"f{row % 20}" for row in range(rows)],
        "forward_conv1x1_flops": flops, "backward_conv1x1_flops": 2 * flops, "forward_conv1x1_ops": np.full(rows, 20.0),
        "backward_conv1x1_ops": np.full(rows, 20.0), "forward_norm_bytes": moved, "backward_norm_bytes": 2 * moved,
        "flops": 3 * flops, "bytes": 3 * moved, "ops": np.full(rows, 40.0), "batch": np.full(rows, 32.0),
    }  # fmt: skip
    parts = terms(table)
    time = 2.0 * parts[:, NAMES.index("conv1x1 flops")] + parts[:, NAMES.index("forward norm")] * 3.0
    return table, time * np.exp(rng.normal(0.0, 0.02, rows))


def test_it_keeps_the_contract() -> None:
    table, time = made_steps()
    check_predictor(RooflineTime(inner=3, trees=5), table, time)


def test_efficiencies_are_found() -> None:
    table, time = made_steps()
    factors, launches = priors()
    found = OperatorSum.of(terms(table), host_counts(table), list(table["host"]), time, factors, launches, 0.9)
    gpu = np.mean([effect[0] for effect in found.machines.values()])
    assert np.exp(found.factors[NAMES.index("conv1x1 flops")] + gpu) == pytest.approx(2.0, rel=0.05)


def test_factors_without_data_stay_as_believed() -> None:
    table, time = made_steps()
    factors, launches = priors()
    found = OperatorSum.of(terms(table), host_counts(table), list(table["host"]), time, factors, launches, 0.9)
    assert found.factors[NAMES.index("attention flops")] == pytest.approx(factors[NAMES.index("attention flops")])


def test_a_step_of_many_small_operators_waits_for_the_host() -> None:
    table, time = made_steps()
    model = RooflineTime(inner=3).fit(table, time)
    small = rows_where(table, np.arange(1))
    small |= {"forward_conv1x1_flops": [1e6], "backward_conv1x1_flops": [2e6], "forward_norm_bytes": [1e4]}
    small |= {"backward_norm_bytes": [1e4], "forward_conv1x1_ops": [1000.0]}
    assert model.busy_share(small)[0] < 0.2
    assert model.busy_share(rows_where(table, np.arange(1)))[0] > 0.9


def test_a_gpu_that_was_never_measured_gets_a_wider_interval() -> None:
    table, time = made_steps()
    model = RooflineTime(inner=3).fit(table, time)
    one = rows_where(table, np.arange(1)) | {"host": ["elsewhere"]}
    known, new = model.estimate(one), model.estimate(one | {"gpu": ["A100"]})
    assert known.in_domain[0]
    assert not new.in_domain[0]
    assert new.high[0] / new.low[0] > known.high[0] / known.low[0]


def test_on_a_gpu_never_measured_a_network_is_no_surer_than_on_one_that_was() -> None:
    row = summaries("torchvision")["resnet152", 224, 12]
    asked = {name: [value] * 2 for name, value in row.items()} | {"gpu": ["RTX2080Ti", "V100"]}
    model: Any = registry.load("step_time").predictor
    found = model.roofline_.estimate(asked | {"precision": ["fp32"] * 2})
    known, new = found.high / found.low
    assert found.in_domain.tolist() == [True, False]
    assert new >= known


def test_steps_of_one_family_are_too_few() -> None:
    table, time = made_steps(4)
    with pytest.raises(PredictionError, match="one family alone, f0"):
        RooflineTime().fit(table | {"family": ["f0"] * 4}, time)


def test_a_faster_gpu_is_faster() -> None:
    table, time = made_steps()
    model = RooflineTime(inner=3).fit(table, time)
    one = rows_where(table, np.arange(1)) | {"host": ["elsewhere"]}
    assert model.predict(one | {"gpu": ["H100"]})[0] < model.predict(one | {"gpu": ["K80"]})[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layout": ["chwn"]}, "chwn"),
        ({"precision": ["int4"]}, "int4"),
        ({"gpu": ["abacus"]}, "abacus"),
        ({"forward_conv1x1_flops": [0.0], "backward_conv1x1_flops": [0.0], "forward_norm_bytes": [0.0],
          "backward_norm_bytes": [0.0], "forward_conv1x1_ops": [0.0], "backward_conv1x1_ops": [0.0]}, "no work"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(change: dict[str, Any], said: str) -> None:
    table, time = made_steps()
    model = RooflineTime(inner=3).fit(table, time)
    with pytest.raises(PredictionError, match=said):
        model.predict(rows_where(table, np.arange(1)) | change)


def test_recurrent_layers_are_not_counted_by_their_steps() -> None:
    torch = pytest.importorskip("torch")
    from gpuwise.graph.torch.trace import Built, trace
    from gpuwise.predict.time.work import work

    class Last(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(16, 16, batch_first=True)
            self.head = torch.nn.Linear(16, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    row = work(trace(lambda: Built(Last(), [torch.empty(4, 30, 16)]), "lstm", batch=4))
    assert row["forward_loop_heavy_ops"] >= 30  # a product for each of the 30 steps
    columns = {name: [value] for name, value in row.items()} | {"gpu": ["V100"], "precision": ["fp32"]}
    assert host_counts(columns).sum() < 0.2 * row["ops"]


def test_summaries_are_what_a_trace_gives() -> None:
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    key = ("resnet18", 224, 12)
    kept, fresh = summaries("torchvision")[key], work(traced("torchvision", key))
    for name, value in kept.items():
        assert fresh.get(name, 0.0) == pytest.approx(value, rel=1e-4), name


def test_a_network_without_a_summary_is_traced_once_for_all_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked: list[ModelSpec] = []
    usual = cache.graph_of

    def counted(spec: ModelSpec) -> Graph:
        asked.append(spec)
        return usual(spec)

    monkeypatch.setattr(cache, "graph_of", counted)
    rows = []
    for _ in range(2):  # two commands know nothing of each other
        summary.cache_clear()
        rows.append(summary("torchvision", ("squeezenet1_1", 64, 3)))
    assert [(ask.model, ask.image, ask.batch) for ask in asked] == [("torchvision:squeezenet1_1", 64, 3)]
    assert rows[0] == rows[1]
    assert rows[0]


def test_timm_has_its_usual_attention_again_after_a_network_was_traced_as_it_was_measured() -> None:
    try:
        layers = library("timm").layers
    except GraphError as error:
        pytest.skip(str(error))
    seen = []

    def trace(ask: ModelSpec) -> Graph:
        seen.append((layers.use_fused_attn(), cache.digest(ask)))
        raise GraphError("enough")

    with pytest.raises(GraphError, match="enough"):
        traced("timm", ("vit_tiny_patch16_224", 224, 1), trace)
    usual = cache.digest(ModelSpec("timm:vit_tiny_patch16_224", 1, Precision.FP16, Optimizer.MOMENTUM, image=224))
    assert not seen[0][0]
    assert seen[0][1] != usual, "both may be kept"
    assert layers.use_fused_attn()


def test_measured_steps_are_read_with_their_work(data_dir: Path) -> None:
    table, found = with_work(torchvision_bench.steps(data_dir), "torchvision")
    assert found.all()
    assert set(table["precision"]) == {"fp32"}
    table, found = with_work(timm_bench.steps(data_dir), "timm")
    assert set(table["layout"]) == {"nchw", "nhwc"}
    assert found.mean() > 0.97  # timm has renamed or dropped a few


@pytest.mark.parametrize(
    ("model", "family"),
    [("tf_efficientnet_b0_ns", "efficientnet"), ("ens_adv_inception_resnet_v2", "inception"), ("dla34", "dla")],
)
def test_families_of_timm_are_told_by_their_names(model: str, family: str) -> None:
    assert timm_bench.family(model) == family
