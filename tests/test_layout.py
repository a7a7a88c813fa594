"""The source stays easy to read: short files, short functions, and no module that needs itself to be imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
LONGEST_FILE = 350
LONGEST_FUNCTION = 50
LONGEST_NINE_OF_TEN = 16
"""Lines."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Imports = dict[str, set[str]]
"""Of each module, the modules of gpuwise that it imports."""


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def trees(source: Path) -> dict[str, tuple[Path, ast.Module]]:
    """The parsed modules, by name."""
    paths = sorted(source.rglob("*.py"))
    return {module_name(path, source): (path, ast.parse(path.read_text(encoding="utf-8"))) for path in paths}


def functions(source: Path) -> list[tuple[int, str]]:
    """The functions with their lengths, the longest first."""
    return sorted(
        (
            ((node.end_lineno or 0) - node.lineno + 1, f"{module}.{node.name}")
            for module, (_, tree) in trees(source).items()
            for node in ast.walk(tree)
            if isinstance(node, Function)
        ),
        reverse=True,
    )


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one that are executed at some time, without what is for type checkers only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from (other, *executed(other))
        else:
            yield from (child, *executed(child))


def imported(module: str, path: Path, node: ast.AST) -> Iterator[str]:
    """The names that a statement imports, which are modules or belong to one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        base = package[: len(package) - node.level + 1] if node.level else []
        base += node.module.split(".") if node.module else []
        yield from (".".join([*base, alias.name]) for alias in node.names)


def imports(source: Path) -> Imports:
    """What each module imports at run time, when it is imported or when one of its functions is called."""
    modules = trees(source)
    found: Imports = {}
    for module, (path, tree) in modules.items():
        names = [name for node in executed(tree) for name in imported(module, path, node)]
        targets = {name if name in modules else name.rpartition(".")[0] for name in names}
        found[module] = (targets & modules.keys()) - {module}
    return found


def cycle(graph: Imports) -> list[str]:
    """A chain of imports that ends where it begins; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(module) for module in error.args[1]]
    return []


def test_no_file_is_long() -> None:
    lengths = {
        module: len(path.read_text(encoding="utf-8").splitlines()) for module, (path, _) in trees(SOURCE).items()
    }
    assert not {module: lines for module, lines in lengths.items() if lines > LONGEST_FILE}


def test_no_function_is_long() -> None:
    assert not [each for each in functions(SOURCE) if each[0] > LONGEST_FUNCTION]


def test_nine_of_ten_functions_are_short() -> None:
    found = functions(SOURCE)
    assert found[len(found) // 10][0] <= LONGEST_NINE_OF_TEN


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports within functions count: they hide a cycle, and do not remove it."""
    assert cycle(imports(SOURCE)) == []


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("from .b import B", "from gpuwise.a import A", True),
        ("import gpuwise.b", "def f():\n    from . import a", True),
        ("from .b import B", "if TYPE_CHECKING:\n    from .a import A", False),
        ("from .b import B", "if TYPE_CHECKING:\n    pass\nelse:\n    from .a import A", True),
        ("from .b import B", "import os", False),
    ],
)
def test_cycles_are_found(first: str, second: str, expected: bool, tmp_path: Path) -> None:
    package = tmp_path / "gpuwise"
    package.mkdir()
    for name, text in (("__init__", ""), ("a", first), ("b", second)):
        (package / f"{name}.py").write_text(text + "\n", encoding="utf-8")
    assert sorted(set(cycle(imports(tmp_path)))) == (["gpuwise.a", "gpuwise.b"] if expected else [])
