"""Objects that a recipe names: `package.module:name` or `./file.py:name`."""

from __future__ import annotations

import importlib
import importlib.util
import os.path
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from toolwright.process.own_packages import OURS, is_ours, sentence_for

_PREFIX = "_toolwright_file_"
_beside: dict[str, dict[str, ModuleType]] = {}
"""By folder of a loaded file: the modules that its files imported from that same folder."""


_RECORDED = {
    "engine.api:Chat": "engine.protocols.chat:Chat",
    "engine.api:Tagged": "engine.protocols.tagged:Tagged",
    "engine.api:rewarded": "engine.sample.keep:rewarded",
}
"""New spellings of import paths, and those under which runs of earlier versions recorded them."""


def recorded(path: str) -> str:
    """The spelling of an import path in what a run records of its settings. It stays the same when
    an object gets a new public name, so a run of an earlier version goes on."""
    return _RECORDED.get(path, path)


class ImportPathError(ValueError):
    """A named object cannot be imported. The message names the path and the fix."""


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
            raise ImportPathError(
                f"{path!r}: {where} has no {part!r}: define it there, or correct the name"
            ) from error
    return found


def load_file(file: Path) -> ModuleType:
    """A Python file as a module; a second call returns the same module.

    It may import the files beside it by their names. Files of another folder may have the same
    names.
    """
    file = file.resolve()
    name = f"{_PREFIX}{file.stem}_{abs(hash(str(file))):x}"
    if name in sys.modules:
        return sys.modules[name]
    if not file.is_file():
        raise ImportPathError(f"no file {file}")
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportPathError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _at_home(str(file.parent)):
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise ImportPathError(f"{file} cannot be imported: {_in_words(error)}") from error
    return module


@contextmanager
def _at_home(folder: str) -> Iterator[None]:
    """Imports find the folder's own files, even if Toolwright or another loaded file's folder has
    the same names."""
    own = _beside.setdefault(folder, {})
    here = {entry.name.removesuffix(".py") for entry in os.scandir(folder)}
    hiding = {name for name in OURS if _hides(folder, name)}
    away = {
        name: module
        for name, module in sys.modules.items()
        if (top := name.partition(".")[0]) in hiding
        or (top in here and _home(name) not in ("", folder))
    }
    for name in away:
        del sys.modules[name]
    sys.modules.update(own)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)
        own.update({n: m for n, m in sys.modules.items() if _home(n) == folder})
        for name in [name for name in sys.modules if name.partition(".")[0] in hiding]:
            del sys.modules[name]
        sys.modules.update(away)


def _hides(folder: str, name: str) -> bool:
    """Whether the folder has a module of one of our names. Our own folder has ours."""
    file = os.path.join(folder, f"{name}.py")
    package = os.path.join(folder, name, "__init__.py")
    return os.path.isfile(file) or (
        os.path.isfile(package) and not is_ours(os.path.join(folder, name))
    )


def _home(name: str) -> str:
    """The folder of a loaded file beside which a module was found; "" for all other modules."""
    if name.startswith(_PREFIX):
        return ""
    file = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None) or ""
    folder, base = os.path.split(file)
    if base == "__init__.py":
        folder = os.path.dirname(folder)
    return folder if folder in _beside else ""


def _module(where: str, path: str) -> ModuleType:
    try:
        return importlib.import_module(where)
    except (Exception, SystemExit) as error:
        raise ImportPathError(f"{path!r}: cannot import {where}: {_in_words(error)}") from error


def _in_words(error: BaseException) -> str:
    """The error in words. A syntax error of the file has file and line."""
    if isinstance(error, SystemExit):
        return "it calls sys.exit; leave that to `if __name__ == '__main__'`"
    if isinstance(error, ImportError) and (sentence := sentence_for(error)):
        return sentence
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
