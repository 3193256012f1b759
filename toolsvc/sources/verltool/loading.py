"""A VerlTool tool file as a module of `verl_tool.servers.tools`, which is what it takes itself for.

Invariants
- `from .base import ...` and `from verl_tool.servers.tools.base import ...` are the same module:
  verl_tool's own where it is installed, else `interface`.
- What stands beside the file (`from .utils.helper import ...`) can be imported from it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from toolsvc.errors import StartError
from toolsvc.sources.verltool import interface

PACKAGE = "verl_tool.servers.tools"


def load_tool_classes(file: Path) -> list[type[Any]]:
    """The tool classes that the file itself defines. Raises StartError if it cannot be imported or
    has none."""
    file = file.expanduser().resolve()
    if not file.is_file():
        raise StartError(f"verltool:{file}: there is no such file")
    base = _base()
    module = _load(file)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and issubclass(value, base.BaseTool)
    ]
    if not found:
        raise StartError(
            f"verltool:{file} defines no tool: subclass BaseTool of {PACKAGE}.base, set tool_type"
        )
    return found


def _load(file: Path) -> ModuleType:
    name = f"{PACKAGE}.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise StartError(f"verltool:{file} is not a Python file")
    package = sys.modules[PACKAGE]
    if str(file.parent) not in package.__path__:
        package.__path__.append(str(file.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise StartError(
            f"verltool:{file} cannot be imported: {error!r}; install what it imports, or, where "
            "that is another part of verl_tool, put verl-tool's checkout on PYTHONPATH"
        ) from error
    return module


def _base() -> Any:
    """The module of BaseTool."""
    if "verl_tool" not in sys.modules and importlib.util.find_spec("verl_tool") is None:
        _stand_in()
    try:
        return importlib.import_module(f"{PACKAGE}.base")
    except Exception as error:
        raise StartError(
            f"the installed verl_tool has no usable {PACKAGE}.base: {error!r}"
        ) from error


def _stand_in() -> None:
    """Enters packages of these names that hold nothing but the interface."""
    parent: ModuleType | None = None
    for name in ("verl_tool", "verl_tool.servers", PACKAGE):
        package = ModuleType(name, "Stands in for verl_tool, which is not installed.")
        package.__path__ = []
        sys.modules[name] = package
        if parent is not None:
            setattr(parent, name.rpartition(".")[2], package)
        parent = package
    sys.modules[f"{PACKAGE}.base"] = interface
    vars(sys.modules[PACKAGE])["base"] = interface
