"""A cache of graphs on disk: a model is traced once per batch size, precision and version of its code."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import tempfile
from dataclasses import asdict
from functools import cache
from pathlib import Path

from gpuwise.graph.models.by_name import ModelSpec, graph_of, is_onnx, split_name
from gpuwise.graph.ops import VERSION, Graph, GraphError

FUSED = "TIMM_FUSED_ATTN"
"""timm's own variable: whether its networks use PyTorch's fused attention."""
_PACKAGES = {"torchvision": ("torchvision", "torch"), "timm": ("timm", "torch"), "hf": ("transformers", "torch")}


def cached_graph(spec: ModelSpec, *, fresh: bool = False) -> Graph:
    """The graph of a model, from the cache if it was traced before; ``fresh`` traces it again.

    For a user's own function only its file is checked for changes, not the modules that the file imports: after a
    change there, pass ``fresh``.
    """
    path = folder() / f"{digest(spec)}.json"
    if not fresh:
        with contextlib.suppress(OSError, GraphError, UnicodeDecodeError):
            return Graph.from_json(path.read_text(encoding="utf-8"))
    graph = graph_of(spec)
    with contextlib.suppress(OSError):  # a cache that cannot be written is no reason to fail
        _write(path, graph.to_json())
    return graph


def folder() -> Path:
    """The folder of the cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gpuwise" / "graphs"


def digest(spec: ModelSpec) -> str:
    """A hash of everything that a graph depends on; nothing of it is imported."""
    source, name = ("", "") if is_onnx(spec.model) else split_name(spec.model)
    packages = _PACKAGES.get(source, ("onnx",) if is_onnx(spec.model) else ("torch",))
    what = {
        "graph": VERSION,
        "tracer": _tracer(),
        "spec": asdict(spec),
        "packages": {package: _version(package) for package in packages},
        "code": _code(spec.model, source, name),
        "fused": os.environ.get(FUSED, "") if source == "timm" else "",
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:32]


def code_files() -> list[Path]:
    """All code of this package: after a change of a formula all models are traced again."""
    return sorted(Path(__file__).parent.rglob("*.py"))


@cache
def _tracer() -> str:
    return "".join(map(_contents, code_files()))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _code(model: str, source: str, name: str) -> str:
    """A hash of the file of a model."""
    if is_onnx(model):
        return _contents(Path(model))
    if source == "hf":
        path = Path(name)
        return _contents(path / "config.json" if path.is_dir() else path)
    if source in _PACKAGES:
        return ""
    if source.endswith(".py"):
        return str(Path(source).resolve()) + _contents(Path(source))
    if (origin := _origin(source)) is not None:
        return _contents(origin)
    here = Path.cwd() / source.replace(".", "/")  # modules of the working directory can be imported too
    return str(here) + _contents(here.with_suffix(".py")) + _contents(here / "__init__.py")


def _origin(module: str) -> Path | None:
    """The file of a module, found through its package without importing either."""
    package, *inner = module.split(".")
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if found is None or not inner:
        return Path(found.origin) if found and found.origin else None
    for folder in found.submodule_search_locations or ():
        path = Path(folder).joinpath(*inner)
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None


def _contents(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    """Writes atomically, also when two processes write the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8", suffix=".part") as file:
        file.write(text)
    os.replace(file.name, path)
