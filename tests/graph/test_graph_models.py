"""Models by name, and the user's own: what they may look like, and what is said when they cannot be traced."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tracing import only

from gpuwise.graph.models.by_name import ModelSpec, graph_of
from gpuwise.graph.ops import Graph, GraphError, Kind, Optimizer, Phase, Precision

HEAD = """
import sys, torch
from collections import namedtuple
from dataclasses import dataclass
from torch import nn
"""


@pytest.fixture
def ask(tmp_path: Path):
    """Writes a file with some code, and traces the function ``fn`` of it."""

    def asked(code: str, batch: int = 4, name: str = "fn", **how: object) -> Graph:
        path = tmp_path / "model.py"
        path.write_text(HEAD + code)
        return graph_of(ModelSpec(f"{path}:{name}", batch, **how))

    return asked


# -- what a function may return ---------------------------------------------------------------------------------------


def test_a_function_is_given_the_batch(ask) -> None:
    graph = ask("def fn(batch): return nn.Linear(8, 3), torch.empty(batch, 8)")
    assert (graph.batch, graph.input_shape, graph.forward_macs) == (4, (4, 8), 4 * 8 * 3)
    assert graph.model.endswith("model.py:fn")
    assert not graph.notes


def test_a_function_may_call_it_batch_size(ask) -> None:
    assert ask("def fn(batch_size=1): return nn.Linear(8, 3), torch.empty(batch_size, 8)").input_shape == (4, 8)


def test_a_function_without_a_batch_has_its_inputs_made_to_the_batch(ask) -> None:
    graph = ask("def fn(): return nn.Bilinear(8, 6, 3), [torch.empty(2, 8), torch.empty(2, 6)]")
    assert graph.input_shape == (4, 8)
    assert "the first dimension of its inputs, 2, is set to 4" in graph.notes[0]
    assert ask("def fn(): return nn.Linear(8, 3), torch.empty(4, 8)").notes == ()


def test_inputs_may_have_names(ask) -> None:
    graph = ask("""
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
    def forward(self, x, *, scale):
        return self.layer(x) * scale

def fn(batch): return Two(), {"x": torch.empty(batch, 8), "scale": torch.empty(batch, 1)}
""")
    assert graph.input_bytes == 4 * (4 * 8 + 4)


def test_a_function_may_give_a_loss(ask) -> None:
    graph = ask(
        "def fn(batch): return nn.Linear(8, 3), torch.empty(batch, 8), lambda out: nn.functional.mse_loss(out, out * 2)"
    )
    assert only(graph, Kind.LOSS).operator == "aten.mse_loss"


OUTPUTS = {
    "a tuple": "return self.layer(x), None, 3",
    "a mapping": "return {'out': [self.layer(x)], 'n': 3}",
    "a named tuple": "return namedtuple('Out', 'scores rest')(self.layer(x), None)",
    "a dataclass": "return Out(self.layer(x))",
    "its loss": "return {'loss': self.layer(x).sum(), 'scores': self.layer(x)}",
}


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_a_model_may_give_its_scores_in_many_forms(ask, output: str) -> None:
    graph = ask(f"""
@dataclass
class Out:
    scores: torch.Tensor

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
    def forward(self, x):
        {output}

def fn(batch): return Model(), torch.empty(batch, 8)
""")
    assert any(op.kind is Kind.LINEAR for op in graph.of(Phase.BACKWARD))


def test_a_function_of_a_module_can_be_named(ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_package_of_models.py").write_text(
        HEAD + "def fn(batch): return nn.Linear(8, 3), torch.empty(batch, 8)"
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    try:
        assert graph_of(ModelSpec("some_package_of_models:fn", 4)).forward_macs == 4 * 8 * 3
    finally:
        sys.modules.pop("some_package_of_models", None)
    assert sys.path == before


def test_a_file_finds_what_lies_beside_it_and_another_file_its_own(tmp_path: Path) -> None:
    for folder, width in (("one", 3), ("two", 5)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "parts.py").write_text(f"width = {width}")
        code = "def fn(batch):\n    import parts\n    return nn.Linear(8, parts.width), torch.empty(batch, 8)"
        (tmp_path / folder / "model.py").write_text(HEAD + code)
    before, known = list(sys.path), set(sys.modules)
    graphs = [graph_of(ModelSpec(f"{tmp_path / folder / 'model.py'}:fn", 1)) for folder in ("one", "two")]
    assert [graph.forward_macs for graph in graphs] == [24, 40]
    assert sys.path == before
    assert "parts" not in sys.modules
    assert not [
        name for name in set(sys.modules) - known if "model" in name and "gpuwise" in name and "graph" not in name
    ]


def test_tensors_outside_of_parameters_are_no_obstacle(ask) -> None:
    graph = ask("""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.scale = torch.ones(8)
        self.parts = [torch.ones(8), {"more": torch.ones(8)}]
        self.register_buffer("mean", torch.zeros(8))
    def forward(self, x):
        return self.layer(x) * self.scale + self.parts[0] * self.parts[1]["more"] - self.mean + torch.arange(8)

def fn(batch): return Model(), torch.empty(batch, 8)
""")
    assert graph.buffer_bytes == 4 * 8


def test_parameters_that_are_made_at_the_first_call_are_made(ask) -> None:
    graph = ask("def fn(batch): return nn.Sequential(nn.LazyLinear(6), nn.LazyBatchNorm1d()), torch.empty(batch, 8)")
    assert graph.parameters == 8 * 6 + 6 + 12


def test_a_compiled_model_is_traced_as_it_was_written(ask) -> None:
    graph = ask("def fn(batch): return torch.compile(nn.Linear(8, 3)), torch.empty(batch, 8)")
    assert graph.forward_macs == 4 * 8 * 3


def test_an_input_with_a_gradient_gets_one(ask) -> None:
    graph = ask("def fn(batch): return nn.Linear(8, 3), torch.empty(batch, 8, requires_grad=True)")
    assert sum(op.macs for op in graph.of(Phase.BACKWARD, Kind.LINEAR)) == 2 * 4 * 8 * 3


def test_a_model_that_looks_at_its_weights_while_it_is_built_is_built_on_the_cpu(ask) -> None:
    graph = ask("""
def fn(batch):
    layer = nn.Linear(8, 3)
    return (layer if float(torch.linspace(0, 1, 3)[1]) == 0.5 else None), torch.empty(batch, 8)
""")
    assert "built with its weights on the CPU" in graph.notes[0]


def test_a_layer_that_is_skipped_at_random_is_not_skipped(ask) -> None:
    graph = ask("""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
    def forward(self, x):
        for layer in self.layers:
            if torch.rand([]) < 0.1:
                continue
            x = layer(x)
        return x

def fn(batch): return Model(), torch.empty(batch, 8)
""")
    assert graph.forward_macs == 2 * 4 * 8 * 8


def test_what_a_model_prints_does_not_reach_stdout(ask, capsys: pytest.CaptureFixture[str]) -> None:
    ask("print('loading')\ndef fn(batch):\n    print('building')\n    return nn.Linear(8, 3), torch.empty(batch, 8)")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "loading" in captured.err


# -- what cannot be traced --------------------------------------------------------------------------------------------

MODULE = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.inner = Inner()
    def forward(self, x):
        return self.inner(self.layer(x))

class Inner(nn.Module):
    def forward(self, x):
        {}

def fn(batch): return Model(), torch.empty(batch, 8)
"""
BROKEN = {
    "an error while it is built": (
        "def fn(batch): raise RuntimeError('no such\\nlayer')",
        r"could not be built: RuntimeError: no such$",
    ),
    "sys.exit while it is built": ("def fn(batch): sys.exit(3)", r"could not be built: it called sys.exit\(3\)"),
    "sys.exit while it is read": ("sys.exit('bye')", r"model.py cannot be run: it called sys.exit\('bye'\)"),
    "sys.exit while it runs": (MODULE.format("sys.exit(0)"), r"example inputs: it called sys.exit\(0\)"),
    "an error while it is read": ("1 / 0", "model.py cannot be run: ZeroDivisionError: division by zero"),
    "no Python": ("def fn(:", "model.py cannot be run: SyntaxError: invalid syntax"),
    "a package that is missing": ("import no_such_package", "cannot be imported: No module named 'no_such_package'"),
    "no such function": ("def other(): pass", "model.py has no function 'fn'"),
    "a number in place of a function": ("fn = 3", "model.py has no function 'fn'"),
    "arguments that are not given": ("def fn(batch, depth): pass", "missing 1 required positional argument: 'depth'"),
    "nothing returned": ("def fn(batch): pass", r"must return \(module, inputs\).* it returned NoneType"),
    "a module alone": ("def fn(batch): return nn.Linear(8, 3)", "it returned Linear"),
    "an empty tuple": ("def fn(batch): return ()", "it returned a tuple of nothing"),
    "inputs first": ("def fn(batch): return torch.empty(2), nn.Linear(8, 3)", "it returned a tuple of Tensor, Linear"),
    "a loss that is none": (
        "def fn(batch): return nn.Linear(8, 3), torch.empty(4, 8), 3",
        "the loss must be a function",
    ),
    "inputs that do not fit": (
        "def fn(batch): return nn.Linear(8, 3), torch.empty(4, 9)",
        "could not be run on its example",
    ),
    "a loss of many numbers": (
        "def fn(batch): return nn.Linear(8, 3), torch.empty(4, 8), lambda out: out",
        r"the loss must be one number .* it is a tensor of shape \(4, 3\)",
    ),
    "nothing to train": (
        "def fn(batch): return nn.Linear(8, 3).requires_grad_(False), torch.empty(4, 8)",
        "no output of the model depends on trained parameters",
    ),
    "no numbers": (MODULE.format("return 'done'"), "the model returns str without numbers for a loss"),
    "control flow that depends on data": (
        MODULE.format("return x if x.sum() > 0 else -x"),
        "in layer inner, control flow or a number depends on the values of tensors",
    ),
    "a number of data": (
        MODULE.format("return x * x.max().item()"),
        "in layer inner, control flow or a number depends",
    ),
    "shapes that depend on data": (
        MODULE.format("return x[torch.nonzero(x)[0]]"),
        "in layer inner, the shape of the output of aten.nonzero.default depends on the values of tensors",
    ),
    "a mask as an index": (MODULE.format("return x[x > 0]"), "in layer inner, the shape of the output of aten"),
    "data as an array": (
        MODULE.format("return torch.from_numpy(x.detach().numpy())"),
        "could not be run on its example",
    ),
    "a GPU": ("def fn(batch): return nn.Linear(8, 3).cuda(), torch.empty(4, 8).cuda()", "could not be built: "),
}  # fmt: skip


@pytest.mark.parametrize(("code", "cause"), BROKEN.values(), ids=BROKEN.keys())
def test_a_model_that_cannot_be_traced_gets_one_line_that_names_the_cause(ask, code: str, cause: str) -> None:
    with pytest.raises(GraphError, match=cause) as error:
        ask(code)
    assert "\n" not in str(error.value)
    assert "model.py" in str(error.value)


NAMES = {
    "resnet50": "did you mean torchvision:resnet50 or timm:resnet50",
    "": "is not the name of a model; give torchvision:NAME",
    ":": "is not the name of a model",
    "model.py": "is not the name of a model",
    "torchvision:": "is not the name of a model",
    "no/such/file.py:fn": "there is no file no/such/file.py",
    "no_such_module:fn": "there is no module 'no_such_module'; give torchvision:NAME",
    "json:loads": "could not be built: TypeError",
    "json:no_such": "json has no function 'no_such'",
    "weights.pt": "gpuwise loads no pickles and needs no weights",
    "a/model.pkl": "gpuwise loads no pickles and needs no weights",
    "no/such/file.onnx": "there is no file no/such/file.onnx",
}


@pytest.mark.parametrize(("name", "cause"), NAMES.items(), ids=lambda each: repr(each)[:30])
def test_a_name_that_means_nothing_gets_one_line_that_says_what_would(name: str, cause: str) -> None:
    with pytest.raises(GraphError, match=cause) as error:
        graph_of(ModelSpec(name, 1))
    assert "\n" not in str(error.value)


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    import pickle

    class Harm:
        def __reduce__(self):
            return exec, ("raise SystemExit('unpickled')",)

    for suffix in (".pt", ".pth", ".pkl", ".bin", ".onnx", ".json", ".py"):
        path = tmp_path / f"model{suffix}"
        path.write_bytes(pickle.dumps(Harm()))
        for name in (str(path), f"hf:{path}", f"{path}:fn"):
            with pytest.raises(GraphError) as error:
                graph_of(ModelSpec(name, 1))
            assert "unpickled" not in str(error.value)


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ({"batch": 0}, "a batch of 0; it must be 1 or more"),
        ({"batch": -4}, "a batch of -4; it must be 1 or more"),
        ({"batch": 2.5}, "a batch of 2.5; it must be a whole number"),
        ({"batch": "8"}, "a batch of 8; it must be a whole number"),
        ({"batch": None}, "a batch of None; it must be a whole number"),
        ({"batch": True}, "a batch of True"),
        ({"batch": 1, "image": 0}, "images of 0 pixels; it must be 1 or more"),
        ({"batch": 1, "sequence": -1}, "sequences of -1 tokens; it must be 1 or more"),
        ({"batch": 1, "precision": "fp8"}, "no precision 'fp8'; give one of fp32, tf32, fp16, bf16"),
        ({"batch": 1, "optimizer": "lion"}, "no optimizer 'lion'; give one of none, sgd, momentum, adam"),
    ],
)
def test_what_cannot_be_asked_is_refused(how: dict[str, object], cause: str) -> None:
    with pytest.raises(GraphError, match=cause):
        ModelSpec("torchvision:resnet18", **how)


def test_precision_and_optimizer_may_be_words() -> None:
    ask = ModelSpec("torchvision:resnet18", 1, "bf16", "adam")
    assert (ask.precision, ask.optimizer) == (Precision.BF16, Optimizer.ADAM)
