"""Objects that a recipe names: `package.module:name` or `./file.py:name`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class ImportPathError(ValueError):
    """The named object cannot be had; the message names the path and the mend."""


def load_object(path: str, folder: Path) -> Any:
    """The object at `path`; a file path is relative to `folder` and loaded once a process."""
    where, colon, name = path.rpartition(":")
    if not colon or not where:
        raise ImportPathError(f"{path!r}: write it as package.module:name or ./file.py:name")
    module = load_file(folder / where) if where.endswith(".py") else _module(where, path)
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ImportPathError(f"{path!r}: {where} has no {part!r}") from error
    return found


def load_file(file: Path) -> ModuleType:
    """A Python file as a module; a second call returns the same module."""
    file = file.resolve()
    name = f"_toolwright_file_{file.stem}_{abs(hash(str(file))):x}"
    if name in sys.modules:
        return sys.modules[name]
    if not file.is_file():
        raise ImportPathError(f"no file {file}")
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportPathError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ImportPathError(f"{file} cannot be imported: {_in_words(error)}") from error
    finally:
        sys.path.remove(str(file.parent))
    return module


def _module(where: str, path: str) -> ModuleType:
    try:
        return importlib.import_module(where)
    except Exception as error:
        raise ImportPathError(f"{path!r}: cannot import {where}: {_in_words(error)}") from error


def _in_words(error: Exception) -> str:
    """With file and line, where it is the file's own syntax."""
    return f"SyntaxError: {error}" if isinstance(error, SyntaxError) else repr(error)
