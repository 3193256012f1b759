"""Objects that a recipe names: `package.module:name` or `./file.py:name`.

A folder of files is a package with an import name of its own. Files of two folders may therefore
have the same names, and a file may have the name of one of our packages. A folder needs no
`__init__.py`; with one, its subfolders belong to the same package.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from toolwright.process.own_packages import OURS, hidden, sentence_for

_PREFIX = "toolwright_recipe_"
_DOT = "%2E"
"""Spelling of a dot in a file's name, within an import name."""
_UNUSED = "_toolwright_import"
"""Name that takes the module of an import of several parts."""
_folders: dict[str, Path] = {}
"""Folder of each package of files, by its import name."""


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

    The file may import its neighbours: relatively, or by their bare names.
    """
    file = file.resolve()
    if not file.is_file():
        raise ImportPathError(f"no file {file}")
    if file.suffix != ".py":
        raise ImportPathError(f"{file} is not a Python file")
    folder = _package_folder(file)
    package = f"{_PREFIX}{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
    _folders[package] = folder
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    inner = file.relative_to(folder).with_suffix("").parts
    name = ".".join((package, *(part.replace(".", _DOT) for part in inner)))
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise ImportPathError(f"{file} cannot be imported: {_in_words(error)}") from error


def _package_folder(file: Path) -> Path:
    """The outermost folder of the file's package; the file's own folder without `__init__.py`."""
    folder = file.parent
    while all((one / "__init__.py").is_file() for one in (folder, folder.parent)):
        folder = folder.parent
    return folder


class _Finder:
    """Finds modules of the packages that `load_file` has named."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, *inner = name.split(".")
        folder = _folders.get(package)
        if folder is None:
            return None
        place = folder.joinpath(*(part.replace(_DOT, ".") for part in inner))
        init_file = place / "__init__.py"
        if init_file.is_file():
            loader = _Loader(name, str(init_file))
            return spec_from_file_location(
                name, init_file, loader=loader, submodule_search_locations=[]
            )
        file = place.with_name(f"{place.name}.py")
        if inner and file.is_file():
            return spec_from_file_location(name, file, loader=_Loader(name, str(file)))
        return ModuleSpec(name, None, is_package=True) if place.is_dir() else None


class _Loader(SourceFileLoader):
    """Reads a file whose imports of its neighbours are relative, however they are written."""

    def path_stats(self, path: object) -> Mapping[str, Any]:
        """No bytecode is kept: that of plain Python has the imports as they are written."""
        raise OSError

    def source_to_code(self, data: Any, path: Any, **options: Any) -> CodeType:  # type: ignore[override]
        root = _folders[self.name.partition(".")[0]]
        parents = Path(path).parents
        folders = parents[: parents.index(root) + 1]
        tree = _Neighbours(folders).visit(ast.parse(data, path))
        return super().source_to_code(ast.fix_missing_locations(tree), path, **options)


class _Neighbours(ast.NodeTransformer):
    """Makes absolute imports of a package's own files relative."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """folders: the file's own, then the one above it, up to the package's."""
        self._folders = folders

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        if not node.level:
            node.level = self._level(node.module or "")
        return node

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        return [one for alias in node.names for one in self._imports(node, alias)]

    def _imports(self, node: ast.Import, alias: ast.alias) -> Iterator[ast.stmt]:
        """The statements of one name in an import."""
        level = self._level(alias.name)
        if not level:
            yield ast.copy_location(ast.Import(names=[alias]), node)
            return
        inside, _, last = alias.name.rpartition(".")
        if inside and not alias.asname:  # `import kit.inner` binds the name `kit`
            first = ast.alias(name=alias.name.partition(".")[0])
            yield ast.copy_location(ast.ImportFrom(module=None, names=[first], level=level), node)
        bound = ast.alias(name=last, asname=alias.asname or (_UNUSED if inside else None))
        own = ast.ImportFrom(module=inside or None, names=[bound], level=level)
        yield ast.copy_location(own, node)

    def _level(self, name: str) -> int:
        """Number of dots of the relative import; 0 if no folder has the module.

        A loaded module of the standard library comes first. A folder without `__init__.py` comes
        last, after installed packages.
        """
        top = name.partition(".")[0]
        if not top or (top in sys.stdlib_module_names and top in sys.modules):
            return 0
        places = [folder / top for folder in self._folders]
        for level, place in enumerate(places, 1):
            if place.with_name(f"{top}.py").is_file() or (place / "__init__.py").is_file():
                return level
        if top in sys.modules or importlib.util.find_spec(top) is not None:
            return 0
        return next((level for level, one in enumerate(places, 1) if any(one.glob("*.py"))), 0)


def _module(where: str, path: str) -> ModuleType:
    try:
        return importlib.import_module(where)
    except (Exception, SystemExit) as error:
        raise ImportPathError(f"{path!r}: cannot import {where}: {_in_words(error)}") from error


def _in_words(error: BaseException) -> str:
    """The error in words. A syntax error of the file has file and line."""
    if isinstance(error, SystemExit):
        return "it calls sys.exit; leave that to `if __name__ == '__main__'`"
    if isinstance(error, ImportError) and (sentence := _hidden_package(error)):
        return sentence
    said = " ".join(str(error).split())
    for name, folder in _folders.items():
        said = said.replace(name, str(folder))
    if isinstance(error, ImportError) and "beyond top-level" in said:
        said += ": `..` needs an __init__.py in the folder of the file and in the one above it"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _hidden_package(error: ImportError) -> str:
    """The message for a file that hides one of our packages; "" without such a file."""
    package, *inner = (error.name or "").split(".")
    if package not in _folders:
        return sentence_for(error)
    ours = next((place for place, part in enumerate(inner) if part in OURS), None)
    if ours is None:
        return ""
    found = _Finder.find_spec(".".join((package, *inner[: ours + 1])))
    return hidden(inner[ours], found.origin) if found is not None and found.origin else ""
