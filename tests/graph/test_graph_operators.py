"""Single operators against arithmetic by hand. A multiplication with its addition is one MAC, and two FLOPs."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="graphs are traced with PyTorch, which is not installed")

import torch
from torch import nn
from torch.nn import functional
from tracing import only, product_macs, traced

from gpuwise.graph.ops import Graph, Kind, Optimizer, Phase, Precision


class Calls(nn.Module):
    """A module that calls a function with its inputs, and has a parameter so that there is something to train."""

    def __init__(self, function, *layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(layers)
        self.one = nn.Parameter(torch.ones(1))

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        return self.function(*self.layers, *inputs, **named) * self.one


# -- convolutions -----------------------------------------------------------------------------------------------------

CONVOLUTIONS = [
    # layer, input, output, MACs: output elements × kernel × input channels of a group
    (nn.Conv2d(8, 16, 3, padding=1), (2, 8, 10, 12), (2, 16, 10, 12), 2 * 16 * 10 * 12 * 9 * 8),
    (nn.Conv2d(8, 16, 3, stride=2, padding=1), (2, 8, 10, 12), (2, 16, 5, 6), 2 * 16 * 5 * 6 * 9 * 8),
    (nn.Conv2d(8, 16, (1, 5)), (2, 8, 10, 12), (2, 16, 10, 8), 2 * 16 * 10 * 8 * 5 * 8),
    (nn.Conv2d(8, 16, 3, padding=1, groups=4), (2, 8, 10, 12), (2, 16, 10, 12), 2 * 16 * 10 * 12 * 9 * 2),
    (nn.Conv2d(8, 8, 3, padding=1, groups=8), (2, 8, 10, 12), (2, 8, 10, 12), 2 * 8 * 10 * 12 * 9 * 1),
    (nn.Conv2d(8, 16, 3, dilation=2), (2, 8, 10, 12), (2, 16, 6, 8), 2 * 16 * 6 * 8 * 9 * 8),
    (nn.Conv1d(8, 16, 5), (2, 8, 20), (2, 16, 16), 2 * 16 * 16 * 5 * 8),
    (nn.Conv3d(4, 6, 3), (2, 4, 5, 6, 7), (2, 6, 3, 4, 5), 2 * 6 * 3 * 4 * 5 * 27 * 4),
    # Transposed: each input element is multiplied by its kernel for each output channel of its group.
    (nn.ConvTranspose2d(8, 16, 4, stride=2, padding=1), (2, 8, 5, 6), (2, 16, 10, 12), 2 * 8 * 5 * 6 * 16 * 16),
    (nn.ConvTranspose2d(8, 16, 2, stride=2, groups=4), (2, 8, 5, 6), (2, 16, 10, 12), 2 * 8 * 5 * 6 * 4 * 4),
]


@pytest.mark.parametrize(("layer", "given", "out", "macs"), CONVOLUTIONS, ids=lambda each: str(each)[:60])
def test_a_convolution_costs_its_output_times_its_kernel(layer: nn.Module, given, out, macs: int) -> None:
    graph = traced(lambda: layer, given)
    op = only(graph, Kind.CONV)
    assert (op.output, op.macs) == (out, macs)
    assert op.parameters == graph.parameters == sum(each.numel() for each in layer.parameters())
    assert only(graph, Kind.CONV, Phase.BACKWARD).macs == macs  # of weights only: it is the first layer
    assert op.is_depthwise == (layer.groups == given[1] and layer.groups > 1)
    sizes = torch.Size(given).numel() + torch.Size(out).numel() + graph.parameters
    assert op.bytes == 4 * sizes


def test_a_convolution_that_is_not_the_first_costs_twice_on_the_way_back() -> None:
    graph = traced(lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 16, 3, groups=2)), (2, 3, 9, 9))
    first, second = (op.macs for op in graph.of(Phase.FORWARD, Kind.CONV))
    assert (first, second) == (2 * 8 * 81 * 3, 2 * 16 * 49 * 9 * 4)
    assert sorted(op.macs for op in graph.of(Phase.BACKWARD, Kind.CONV)) == sorted([first, 2 * second])


def test_a_frozen_convolution_gives_no_gradient_of_its_weights() -> None:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 16, 3))
        model[1].requires_grad_(False)
        return model

    graph = traced(make, (2, 3, 9, 9))
    first, second = (op.macs for op in graph.of(Phase.FORWARD, Kind.CONV))
    assert product_macs(graph, Phase.BACKWARD) == first + second


# -- matrix products --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "rows"), [((4, 10), 4), ((4, 7, 10), 28), ((2, 3, 5, 10), 30)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_costs_rows_times_its_weights(given: tuple[int, ...], rows: int, bias: bool) -> None:
    graph = traced(lambda: nn.Linear(10, 6, bias=bias), given)
    op = only(graph, Kind.LINEAR)
    assert op.macs == rows * 10 * 6
    assert (op.detail["m"], op.detail["k"], op.detail["n"]) == (rows, 10, 6)
    assert product_macs(graph, Phase.BACKWARD) == rows * 10 * 6  # its weights
    assert op.parameters == 60 + 6 * bias


def test_batched_products_cost_as_many_products() -> None:
    graph = traced(lambda: Calls(lambda layer, a, b: layer(a) @ b, nn.Linear(5, 5)), (3, 4, 5), (3, 5, 6))
    op = only(graph, Kind.MATMUL)
    assert op.macs == 3 * 4 * 5 * 6
    assert op.detail == {"m": 4, "k": 5, "n": 6, "count": 3}
    assert only(graph, Kind.MATMUL, Phase.BACKWARD).macs == op.macs  # b has no gradient


@pytest.mark.parametrize(
    ("function", "macs"),
    [
        (lambda a, b: torch.baddbmm(torch.zeros(3, 4, 6), a, b), 3 * 4 * 5 * 6),
        (lambda a, b: torch.addbmm(torch.zeros(4, 6), a, b), 3 * 4 * 5 * 6),
        (lambda a, b: torch.einsum("bij,bjk->bik", a, b), 3 * 4 * 5 * 6),
        (lambda a, b: a[0] @ b[0, :, 0], 4 * 5),
        (lambda a, b: torch.dot(a[0, 0], b[0, :, 0]), 5),
    ],
    ids=["baddbmm", "addbmm", "einsum", "matrix-vector", "dot"],
)
def test_products_of_all_forms_are_counted(function, macs: int) -> None:
    graph = traced(lambda: Calls(function), (3, 4, 5), (3, 5, 6), optimizer=Optimizer.NONE)
    assert graph.forward_macs == macs


# -- attention --------------------------------------------------------------------------------------------------------

HEADS = (2, 4, 16, 8)  # batch, heads, tokens, width of a head


def unfused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1) @ v


def of_projections(attend):
    return lambda layer, x: attend(layer(x), layer(x), layer(x))


@pytest.fixture(scope="module")
def attentions() -> dict[str, Graph]:
    def graph(attend) -> Graph:
        return traced(lambda: Calls(of_projections(attend), nn.Linear(8, 8)), HEADS)

    def dropping(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1)

    return {
        "unfused": graph(unfused), "fused": graph(functional.scaled_dot_product_attention), "dropping": graph(dropping),
    }  # fmt: skip


def test_attention_costs_the_same_fused_or_not(attentions: dict[str, Graph]) -> None:
    # Q·Kᵀ: 16 × 16 scores of 8 products for each of 2 × 4 heads; the product with V as many again.
    macs = 2 * (2 * 4 * 16 * 16 * 8)
    apart, fused = attentions["unfused"], attentions["fused"]
    assert sum(op.macs for op in apart.of(Phase.FORWARD, Kind.MATMUL)) == macs
    assert only(fused, Kind.ATTENTION).macs == macs
    assert apart.forward_macs == fused.forward_macs


def test_fused_attention_computes_its_scores_again_on_the_way_back(attentions: dict[str, Graph]) -> None:
    apart, fused = attentions["unfused"], attentions["fused"]
    macs = only(fused, Kind.ATTENTION).macs
    assert sum(op.macs for op in apart.of(Phase.BACKWARD, Kind.MATMUL)) == 2.0 * macs
    assert only(fused, Kind.ATTENTION, Phase.BACKWARD).macs == 2.5 * macs


def test_fused_attention_does_not_keep_its_scores(attentions: dict[str, Graph]) -> None:
    scores, sums, outputs = 4 * 2 * 4 * 16 * 16, 4 * 2 * 4 * 16, 4 * 2 * 4 * 16 * 8
    # Both keep q, k, v and what attention gives, to be multiplied by a parameter; a fused one keeps a sum for each row.
    assert attentions["unfused"].saved_bytes == attentions["fused"].saved_bytes + scores - sums
    assert attentions["fused"].saved_bytes == 5 * outputs + sums  # with the input, of which q, k and v are made


def test_attention_that_drops_is_fused_as_on_a_gpu(attentions: dict[str, Graph]) -> None:
    fused, dropping = attentions["fused"], attentions["dropping"]
    assert [op.operator for op in dropping.ops] == [op.operator for op in fused.ops]


@pytest.mark.parametrize("optimizer", [Optimizer.NONE, Optimizer.ADAM])
def test_a_transformer_layer_is_seen_as_its_products_when_it_is_not_trained_too(optimizer: Optimizer) -> None:
    graph = traced(lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (2, 10, 32), optimizer=optimizer)
    linear = 2 * 10 * (4 * 32 * 32 + 2 * 32 * 64)  # q, k, v, out; and two of the feed forward part
    assert graph.forward_macs == linear + 2 * (2 * 4 * 10 * 10 * 8)
    assert not graph.unknown


# -- recurrent layers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "gates"),
    [
        (nn.LSTM(10, 20, num_layers=2, batch_first=True), 4),
        (nn.GRU(10, 20, num_layers=2, batch_first=True), 3),
        (nn.RNN(10, 20, num_layers=2, batch_first=True), 1),
    ],
    ids=["lstm", "gru", "rnn"],
)
@pytest.mark.parametrize("optimizer", [Optimizer.NONE, Optimizer.SGD])
def test_a_recurrent_layer_is_the_sum_of_its_linear_parts(layer: nn.Module, gates: int, optimizer: Optimizer) -> None:
    graph = traced(lambda: layer, (3, 7, 10), optimizer=optimizer)
    rows = 3 * 7  # each sample at each of 7 steps
    first, second = rows * gates * 20 * (10 + 20), rows * gates * 20 * (20 + 20)
    assert graph.forward_macs == first + second
    assert graph.parameters == sum(each.numel() for each in layer.parameters())
    assert not graph.unknown


def test_a_recurrent_layer_of_two_directions_costs_twice() -> None:
    one = traced(lambda: nn.LSTM(10, 20), (7, 3, 10))
    two = traced(lambda: nn.LSTM(10, 20, bidirectional=True), (7, 3, 10))
    assert two.forward_macs == 2 * one.forward_macs


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_an_embedding_reads_the_rows_it_is_asked_for_and_not_its_table() -> None:
    tokens = torch.zeros(2, 5, dtype=torch.long)
    graph = traced(lambda: nn.Embedding(1000, 16), input=tokens)
    op = only(graph, Kind.EMBEDDING)
    rows, indices = 4 * 2 * 5 * 16, 8 * 2 * 5
    assert (op.flops, op.read_bytes, op.write_bytes) == (0.0, rows + indices, rows)
    assert op.parameters == graph.parameters == 16_000
    assert only(graph, Kind.EMBEDDING, Phase.BACKWARD).write_bytes == 4 * 16_000  # the gradient of the whole table


def test_a_sum_of_embeddings_reads_a_row_for_each_index() -> None:
    graph = traced(lambda: nn.EmbeddingBag(1000, 16, mode="sum"), input=torch.zeros(2, 5, dtype=torch.long))
    op = next(iter(graph.of(Phase.FORWARD, Kind.EMBEDDING)))
    assert 4 * 2 * 5 * 16 <= op.read_bytes < 4 * 2 * 5 * 16 + 200


@pytest.mark.parametrize(
    ("layer", "given", "channels"),
    [
        (nn.BatchNorm2d(8), (2, 8, 4, 4), 8),
        (nn.GroupNorm(4, 8), (2, 8, 4, 4), 2),
        (nn.InstanceNorm2d(8, affine=True), (2, 8, 4, 4), 16),
        (nn.LayerNorm(8), (2, 16, 8), 8),
        (nn.LayerNorm((4, 8)), (2, 4, 8), 32),
    ],
    ids=lambda each: str(each)[:24],
)
def test_norms_cost_a_few_operations_for_each_element(layer: nn.Module, given, channels: int) -> None:
    graph = traced(lambda: layer, given)
    op = only(graph, Kind.NORM)
    assert op.flops == 5.0 * torch.Size(given).numel()
    assert op.detail["channels"] == channels
    assert only(graph, Kind.NORM, Phase.BACKWARD).flops == 8.0 * torch.Size(given).numel()


@pytest.mark.parametrize(
    ("layer", "given", "kernel", "flops"),
    [
        (nn.MaxPool2d(3, 2), (2, 8, 9, 9), [3, 3], 9 * 2 * 8 * 4 * 4),
        (nn.AvgPool2d(2), (2, 8, 8, 8), [2, 2], 4 * 2 * 8 * 4 * 4),
        (nn.AvgPool2d((2, 4)), (2, 8, 8, 8), [2, 4], 8 * 2 * 8 * 4 * 2),
        (nn.AdaptiveAvgPool2d(1), (2, 8, 8, 8), [8, 8], 2 * 8 * 8 * 8),
        (nn.AdaptiveAvgPool2d(4), (2, 8, 8, 8), [2, 2], 2 * 8 * 8 * 8),
        (nn.AdaptiveMaxPool2d(2), (2, 8, 8, 8), [4, 4], 2 * 8 * 8 * 8),
        (nn.MaxPool3d(2), (2, 8, 4, 4, 4), [2, 2, 2], 8 * 2 * 8 * 2 * 2 * 2),
    ],
    ids=lambda each: str(each)[:32],
)
def test_pooling_costs_its_window_for_each_output(layer: nn.Module, given, kernel: list[int], flops: int) -> None:
    op = only(traced(lambda: Calls(lambda pool, x: pool(x), layer), given), Kind.POOL)
    assert (op.detail["kernel"], op.flops) == (kernel, flops)


def test_pooling_of_a_line_has_a_window_of_one_dimension() -> None:
    op = only(traced(lambda: Calls(lambda x: functional.max_pool1d(x, 3)), (2, 4, 9)), Kind.POOL)
    assert op.flops == 3 * 2 * 4 * 3


@pytest.mark.parametrize(
    "function",
    [functional.relu, functional.relu6, functional.gelu, functional.silu, torch.tanh, torch.sigmoid,
     functional.hardswish, functional.leaky_relu, functional.elu, functional.mish, functional.softplus],
)  # fmt: skip
def test_activations_are_activations(function) -> None:
    graph = traced(lambda: Calls(lambda layer, x: function(layer(x)), nn.Linear(4, 4)), (2, 4))
    assert only(graph, Kind.ACTIVATION).flops >= 8.0
    assert only(graph, Kind.ACTIVATION, Phase.BACKWARD).flops >= 8.0
    assert not graph.unknown


@pytest.mark.parametrize(
    "loss",
    [
        lambda out: functional.cross_entropy(out, torch.zeros(2, dtype=torch.long)),
        lambda out: functional.mse_loss(out, torch.zeros(2, 4)),
        lambda out: functional.binary_cross_entropy_with_logits(out, torch.zeros(2, 4)),
        lambda out: functional.smooth_l1_loss(out, torch.zeros(2, 4)),
        lambda out: functional.huber_loss(out, torch.zeros(2, 4)),
    ],
    ids=["cross entropy", "squares", "binary", "smooth", "huber"],
)
def test_losses_are_counted(loss) -> None:
    graph = traced(lambda: nn.Linear(4, 4), (2, 4), loss=loss)
    assert not graph.unknown
    assert sum(op.flops for op in graph.of(Phase.FORWARD) if op.kind is not Kind.LINEAR) >= 8.0


def test_class_scores_get_cross_entropy_as_their_loss() -> None:
    graph = traced(lambda: nn.Linear(4, 10), (2, 4))
    operators = [op.operator for op in graph.of(Phase.FORWARD, Kind.LOSS)]
    assert operators == ["aten._log_softmax", "aten.nll_loss_forward"]


def test_dropout_is_one_kernel_that_keeps_a_mask_of_bytes_as_on_a_gpu() -> None:
    graph = traced(lambda: nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.1)), (4, 8))
    op = next(op for op in graph.ops if op.operator == "aten.native_dropout")
    assert op.write_bytes == 4 * 64 * (4 + 1)
    assert not traced(lambda: nn.Dropout(0.1), (4, 8), optimizer=Optimizer.NONE).ops


# -- what has no formula ----------------------------------------------------------------------------------------------


def test_an_operator_without_a_formula_is_counted_and_has_bytes() -> None:
    graph = traced(lambda: Calls(lambda layer, x: torch.linalg.qr(layer(x))[1], nn.Linear(6, 6)), (6, 6))
    assert graph.unknown["aten.linalg_qr"] == 1
    op = next(op for op in graph.ops if op.operator == "aten.linalg_qr")
    assert op.kind is Kind.OTHER
    assert op.flops > 0
    assert op.read_bytes == 4 * 36
    assert op.write_bytes == 2 * 4 * 36


def test_an_operator_of_the_users_own_is_counted_by_its_name() -> None:
    @torch.library.custom_op("gpuwise_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    doubled.register_fake(torch.empty_like)
    doubled.register_autograd(lambda ctx, grad: 2 * grad)
    graph = traced(lambda: Calls(lambda layer, x: doubled(layer(x)), nn.Linear(6, 6)), (6, 6))
    assert graph.unknown == {"gpuwise_tests.doubled": 1}
    assert next(op for op in graph.ops if "doubled" in op.operator).bytes == 2 * 4 * 36


def test_no_operator_with_results_has_zero_bytes() -> None:
    graph = traced(lambda: Calls(lambda layer, x: layer(x).cumsum(-1).sort().values.flip(0), nn.Linear(6, 6)), (6, 6))
    assert all(op.bytes > 0 for op in graph.ops)


# -- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
def test_mixed_precision_halves_the_bytes_of_products_and_keeps_parameters(precision: Precision) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))

    full, mixed = traced(make, (64, 3, 8, 8)), traced(make, (64, 3, 8, 8), precision=precision)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        for kind in (Kind.CONV, Kind.LINEAR):
            assert [2 * op.bytes for op in mixed.of(phase, kind)] == [op.bytes for op in full.of(phase, kind)]
    assert only(mixed, Kind.ACTIVATION).bytes == only(full, Kind.ACTIVATION).bytes / 2
    assert {op.dtype for op in mixed.of(kind=Kind.CONV)} == {"float16" if precision is Precision.FP16 else "bfloat16"}
    assert mixed.forward_macs == full.forward_macs
    assert (mixed.parameter_bytes, mixed.gradient_bytes) == (full.parameter_bytes, full.gradient_bytes)
    assert sum(op.parameters for op in mixed.of(kind=Kind.CONV)) == 3 * 8 * 9 + 8  # not with the cast of it
    assert mixed.saved_bytes < full.saved_bytes


def test_tf32_moves_what_fp32_moves() -> None:
    full, tensor = (
        traced(lambda: nn.Linear(8, 8), (4, 8), precision=each) for each in (Precision.FP32, Precision.TF32)
    )
    assert tensor.ops == full.ops
    assert tensor.precision is Precision.TF32


def test_mixed_precision_computes_norms_softmax_and_losses_in_fp32_as_on_a_gpu() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Softmax(-1))

    graph = traced(make, (4, 8), precision=Precision.FP16)
    assert only(graph, Kind.NORM).dtype == "float32"
    assert only(graph, Kind.SOFTMAX).dtype == "float32"
    assert {op.dtype for op in graph.of(Phase.FORWARD, Kind.LOSS)} == {"float32"}


def test_a_module_that_is_in_16_bits_already_has_half_of_everything() -> None:
    def make() -> nn.Module:
        return nn.Linear(8, 8).bfloat16()

    inputs = torch.empty(4, 8, dtype=torch.bfloat16)
    graph = traced(make, input=inputs, optimizer=Optimizer.ADAM)
    assert graph.parameter_bytes == graph.gradient_bytes == 2 * 72
    assert graph.optimizer_bytes == 2 * 2 * 72
    update = only(graph, Kind.OPTIMIZER, Phase.UPDATE)
    assert update.read_bytes == 2 * 72 * 4  # the value, its gradient, two states
    assert only(graph, Kind.LINEAR).dtype == "bfloat16"
