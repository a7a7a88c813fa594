"""A trace leaves everything as it was, whether it succeeds or fails."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="graphs are traced with PyTorch, which is not installed")

import torch
from torch import nn
from tracing import traced

from gpuwise.graph.models.by_name import ModelSpec, graph_of
from gpuwise.graph.ops import GraphError, Precision
from gpuwise.graph.torch.trace import Built, trace

RUDE = """
import logging, sys, torch
from torch import nn
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.manual_seed(99)
sys.path.append("/somewhere")
logging.disable(logging.CRITICAL)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, x):
        torch.set_grad_enabled(True)
        {}
        return self.layer(x)

def fn(batch):
    torch.set_default_device("cpu")
    return Model(), torch.empty(batch, 4)
"""


def state() -> dict[str, object]:
    return {
        "device": torch.get_default_device(),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "mkldnn": torch._C._get_mkldnn_enabled(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "log": logging.root.manager.disable,
        "path": list(sys.path),
        "random": torch.get_rng_state().tolist(),
        "modes": torch._C._len_torch_dispatch_stack(),
        "functions": torch._C._len_torch_function_stack(),
        "warnings": list(warnings.filters),
        "stdout": sys.stdout,
        "dropout": torch._C._dispatch_has_kernel_for_dispatch_key("aten::dropout", "AutogradCPU"),
        "layer norm": torch._C._dispatch_has_kernel_for_dispatch_key("aten::layer_norm", "AutocastCPU"),
    }


@pytest.mark.parametrize("harm", ["pass", "raise ValueError('no')", "raise SystemExit", "x = x[x > 0]"])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16])
def test_a_trace_puts_back_what_it_and_the_model_have_set(tmp_path: Path, harm: str, precision: Precision) -> None:
    path = tmp_path / "rude.py"
    path.write_text(RUDE.format(harm))
    before = state()
    try:
        graph_of(ModelSpec(f"{path}:fn", 2, precision))
    except GraphError:
        assert harm != "pass"
    assert state() == before


def test_settings_of_the_caller_are_put_back_too() -> None:
    level = logging.root.manager.disable
    logging.disable(logging.INFO)
    torch._C._set_mkldnn_enabled(False)
    try:
        before = state()
        with torch.no_grad():
            traced(lambda: nn.Linear(4, 4), (2, 4))
            assert not torch.is_grad_enabled()
        assert state() == before
    finally:
        logging.disable(level)
        torch._C._set_mkldnn_enabled(True)


def test_a_module_has_no_hooks_left() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    trace(lambda: Built(model, [torch.empty(2, 4)]), "model", batch=2)
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())


def test_real_training_after_a_trace_is_what_it_was_before() -> None:
    def loss() -> float:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.LayerNorm(4))
        with torch.autocast("cpu", torch.bfloat16):
            return float(model(torch.ones(8, 4)).detach().float().pow(2)[:, 0].sum())

    before = loss()
    traced(lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), (2, 4), precision=Precision.BF16)
    assert loss() == before


def test_the_same_model_gives_the_same_graph() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.LSTM(4, 4))

    assert traced(make, (3, 2, 4)) == traced(make, (3, 2, 4))
