"""Graphs that are kept: found again, and traced again when what they depend on has changed."""

from __future__ import annotations

import importlib.util
import json
import pkgutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="graphs are traced with PyTorch, which is not installed")

from gpuwise import graph
from gpuwise.graph import cache
from gpuwise.graph.models.by_name import ModelSpec
from gpuwise.graph.ops import GraphError, Optimizer

CODE = "import torch\ndef fn(batch): return torch.nn.Linear(8, {}), torch.empty(batch, 8)\n"


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ModelSpec]:
    """What was traced, with a cache of its own."""
    asked: list[ModelSpec] = []
    trace = cache.graph_of
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "graph_of", lambda spec: asked.append(spec) or trace(spec))
    return asked


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(CODE.format(3))
    return path


def test_a_model_is_traced_once_for_each_way_it_is_asked_for(traced: list[ModelSpec], model: Path) -> None:
    spec = ModelSpec(f"{model}:fn", 2)
    assert cache.cached_graph(spec) == cache.cached_graph(spec)
    assert traced == [spec]
    for other in (
        ModelSpec(spec.model, 3),
        ModelSpec(spec.model, 2, "fp16"),
        ModelSpec(spec.model, 2, optimizer=Optimizer.ADAM),
    ):
        assert cache.cached_graph(other).batch == other.batch
    assert len(traced) == 4
    cache.cached_graph(spec, fresh=True)
    assert len(traced) == 5


def test_a_model_whose_file_has_changed_is_traced_again(traced: list[ModelSpec], model: Path) -> None:
    spec = ModelSpec(f"{model}:fn", 1)
    assert cache.cached_graph(spec).forward_macs == 24
    model.write_text(CODE.format(5))
    assert cache.cached_graph(spec).forward_macs == 40


def test_a_module_of_the_working_directory_that_has_changed_is_traced_again(
    traced: list[ModelSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    digests = []
    for width in (3, 5):
        (tmp_path / "a_module_that_changes.py").write_text(CODE.format(width))
        digests.append(cache.digest(ModelSpec("a_module_that_changes:fn", 1)))
    assert digests[0] != digests[1]


def test_a_configuration_that_has_changed_is_traced_again(tmp_path: Path) -> None:
    digests = []
    for layers in (1, 2):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "num_hidden_layers": layers}))
        digests += [cache.digest(ModelSpec(name, 1)) for name in (f"hf:{tmp_path}", str(tmp_path / "config.json"))]
    assert len(set(digests)) == 4


def test_a_change_of_any_module_of_the_package_traces_all_models_again() -> None:
    modules = [module.name for module in pkgutil.walk_packages(graph.__path__, "gpuwise.graph.")]
    files = [importlib.util.find_spec(name).origin for name in ("gpuwise.graph", *modules)]
    assert {"gpuwise.graph.torch.costs", "gpuwise.graph.onnx.formulas", "gpuwise.graph.ops"} <= set(modules)
    assert set(map(Path, files)) == set(cache.code_files())


def test_a_kept_graph_that_is_damaged_is_traced_again(traced: list[ModelSpec], model: Path) -> None:
    spec = ModelSpec(f"{model}:fn", 1)
    graph = cache.cached_graph(spec)
    (kept,) = cache.folder().glob("*.json")
    kept.write_text(kept.read_text()[:100])
    assert cache.cached_graph(spec) == graph
    assert len(traced) == 2


def test_a_name_that_means_nothing_is_refused_before_anything_is_looked_up(traced: list[ModelSpec]) -> None:
    with pytest.raises(GraphError, match="is not the name of a model"):
        cache.cached_graph(ModelSpec("resnet18", 1))
    assert not traced


def test_a_cache_file_that_is_no_text_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text(
        "import torch\ndef build(batch): return torch.nn.Linear(4, 4), torch.zeros(batch, 4)\n"
    )
    spec = ModelSpec(f"{tmp_path}/mine.py:build", 2)
    first = cache.cached_graph(spec)
    (kept,) = (tmp_path / "cache" / "gpuwise" / "graphs").glob("*.json")
    kept.write_bytes(b"\xff\xfe{")
    assert cache.cached_graph(spec) == first


def test_a_package_is_not_imported_to_be_fingerprinted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "leaves_at_once"
    package.mkdir()
    (package / "__init__.py").write_text("import sys; sys.exit(3)")
    (package / "models.py").write_text("one")
    monkeypatch.syspath_prepend(tmp_path)
    before = cache.digest(ModelSpec("leaves_at_once.models:build", 2))
    (package / "models.py").write_text("two")
    assert cache.digest(ModelSpec("leaves_at_once.models:build", 2)) != before
