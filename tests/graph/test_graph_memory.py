"""Memory of a step against what PyTorch's allocator does when the same step runs on real tensors."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="graphs are traced with PyTorch, which is not installed")

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from tracing import only, product_macs, traced

from gpuwise.graph.ops import Kind, Optimizer, Phase
from gpuwise.graph.torch.prepare import plain_kernels


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(256, 512), nn.Linear(512, 256)
        self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):  # the same weights three times
            x = x + self.second(functional.gelu(self.first(self.norm(x))))
        return self.head(x)


class Deep(nn.Module):
    def __init__(self, checkpoints: bool, reentrant: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)) for _ in range(6))
        self.first, self.checkpoints, self.reentrant = nn.Linear(64, 64), checkpoints, reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant) if self.checkpoints else block(x)
        return x


def allocated_bytes(make, shape: tuple[int, ...]) -> float:
    """The most that one step of real training allocates, by PyTorch's own profiler; beside parameters and inputs."""
    torch.manual_seed(0)
    model, given, wanted = make().train(), torch.randn(shape), torch.zeros(shape[0], dtype=torch.long)
    with (
        plain_kernels(),
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile,
    ):
        functional.cross_entropy(model(given), wanted).backward()
    live = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return float(peak)


def kept_bytes(make, shape: tuple[int, ...]) -> float:
    """What autograd keeps of a real forward pass, each storage once, beside parameters."""
    model, given, wanted = make().train(), torch.randn(shape), torch.zeros(shape[0], dtype=torch.long)
    own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each), plain_kernels():
        functional.cross_entropy(model(given), wanted)
    return float(sum(each.nbytes() for address, each in kept.items() if address not in own))


MODELS = [(convolutions, (16, 3, 32, 32)), (Residual, (64, 256))]


@pytest.mark.parametrize(("make", "shape"), MODELS, ids=["convolutions", "residual"])
def test_the_peak_is_what_the_allocator_sees_in_a_real_step(make, shape: tuple[int, ...]) -> None:
    assert traced(make, shape).peak_bytes == pytest.approx(allocated_bytes(make, shape), rel=0.03)


@pytest.mark.parametrize(("make", "shape"), MODELS, ids=["convolutions", "residual"])
def test_what_is_saved_is_what_autograd_keeps_in_a_real_forward_pass(make, shape: tuple[int, ...]) -> None:
    assert traced(make, shape).saved_bytes == pytest.approx(kept_bytes(make, shape), rel=0.01)


def test_the_peak_of_a_chain_is_known_by_hand() -> None:
    graph = traced(lambda: nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(3))), (256, 1024))
    plane, weight = 4 * 256 * 1024, 4 * 1024 * 1024
    # Saved: the inputs of three layers, the first of which was there before, and what the loss keeps.
    assert graph.saved_bytes == pytest.approx(4 * plane, rel=0.01)
    # At the end: gradients of three weights, and the gradient of the plane with which the first is made.
    assert graph.peak_bytes == pytest.approx(3 * weight + plane, rel=0.01)


# -- parameters -------------------------------------------------------------------------------------------------------


def test_tied_weights_are_counted_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(100, 16), nn.Linear(16, 100, bias=False)
            self.head.weight = self.table.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(tokens))

    graph = traced(Tied, tokens=torch.zeros(2, 5, dtype=torch.long))
    assert graph.parameters == 1600 == sum(op.parameters for op in graph.ops)
    assert graph.parameter_bytes == graph.gradient_bytes == 6400


def test_frozen_parameters_have_neither_gradients_nor_states_nor_an_update() -> None:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
        model[0].requires_grad_(False)
        return model

    graph = traced(make, (2, 8), optimizer=Optimizer.ADAM)
    assert (graph.parameters, graph.trainable_parameters) == (8 * 16 + 16 + 16 * 4 + 4, 16 * 4 + 4)
    assert graph.gradient_bytes == 4 * 68
    assert graph.optimizer_bytes == 2 * 4 * 68
    assert only(graph, Kind.OPTIMIZER, Phase.UPDATE).output == (68,)
    assert product_macs(graph, Phase.BACKWARD) == 2 * 16 * 4  # the weights of the second layer only


OPTIMIZERS = [
    # optimizer, values kept for a parameter, values read and written in an update
    (Optimizer.SGD, 0, 2, 1),
    (Optimizer.MOMENTUM, 1, 3, 2),
    (Optimizer.ADAM, 2, 4, 3),
]


@pytest.mark.parametrize(("optimizer", "states", "read", "written"), OPTIMIZERS)
def test_an_update_reads_gradients_and_states_and_writes_states(
    optimizer: Optimizer, states: int, read: int, written: int
) -> None:
    graph = traced(lambda: nn.Linear(8, 8), (4, 8), optimizer=optimizer)
    assert graph.optimizer_bytes == states * 4 * 72
    update = only(graph, Kind.OPTIMIZER, Phase.UPDATE)
    assert (update.read_bytes, update.write_bytes) == (read * 4 * 72, written * 4 * 72)
    assert update.flops >= 2 * 72


# -- checkpoints ------------------------------------------------------------------------------------------------------


# What is needed again is run again: of each block all, or without the last product, of whose result nothing is kept.
@pytest.mark.parametrize(("reentrant", "products"), [(False, 1), (True, 2)], ids=["new", "reentrant"])
def test_checkpoints_save_memory_and_run_the_forward_pass_again(reentrant: bool, products: int) -> None:
    plain, again = traced(lambda: Deep(False), (512, 64)), traced(lambda: Deep(True, reentrant), (512, 64))
    blocks = 6 * products * 512 * 64 * 256
    assert again.forward_macs == plain.forward_macs
    assert product_macs(again, Phase.BACKWARD) == product_macs(plain, Phase.BACKWARD) + blocks
    assert again.peak_bytes < plain.peak_bytes / 1.5
    assert "blocks.5.0" in {op.layer for op in again.of(Phase.BACKWARD, Kind.LINEAR)}
