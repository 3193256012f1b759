"""Who imports whom: no cycle of modules, and recipes know the engine's public names alone."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from toolwright.process.own_packages import OURS

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
OUTSIDE = sorted(
    file
    for folder in ("recipes", "examples", *sorted({*OURS} - {"toolwright", "engine", "bench"}))
    for file in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize("package", OURS)
def test_no_module_imports_itself_on_a_way_round(package: str) -> None:
    graph = grimp.build_graph(package, cache_dir=None)
    ways = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(ways).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def engine_modules(source: str) -> set[str]:
    """Modules of the engine that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name == "engine" or name.startswith("engine.")}


def test_a_file_outside_of_the_engine_imports_its_public_names_alone() -> None:
    assert engine_modules("import engine.core.build\nfrom engine.types import Say") == {
        "engine.core.build",
        "engine.types",
    }
    imported = {file: engine_modules(file.read_text(encoding="utf-8")) for file in OUTSIDE}
    wrong = {file: names for file, names in imported.items() if names - {"engine.api"}}
    assert not wrong
    assert any(imported.values()), "the recipes were not found"
