"""A recipe's file and the fragments that it builds on, read into one set of tables.

`extends = ["presets/vt_math.toml", "mine.toml"]` at the top of a recipe, before its first table,
names fragments: the same TOML, with any of the tables. They are merged in their order, and the
recipe's own values come last. Tables are merged key by key. Any other value, a list too, replaces
the value below. A fragment may extend others.

A name is looked for beside the file that names it, then among the recipes that come with the
package. Relative paths in a fragment are the recipe's: they start from the recipe's folder.

`Layers.laid` keeps which layer sets a key. Knows nothing of the tables' models.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXTENDS = "extends"
_HERE = Path(__file__).parents[1]
PACKAGED = (_HERE / "recipes", _HERE.parents[1] / "recipes")
"""Folders of the package's recipes: in a wheel, in a checkout."""


class LayerError(ValueError):
    """A recipe or a file that it extends cannot be read. The message names the file and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The keys that one file, or one assignment of the command line, sets itself."""

    source: str
    """Name of the file, or text of the assignment."""
    tables: Mapping[str, Any]
    packaged: bool = False
    """The file is a preset: a user chooses it as a whole."""
    typed: bool = False
    """The layer is an assignment."""

    def value(self, path: Sequence[str]) -> Any:
        """Its value of the key at `path`; None if it does not set the key. TOML has no None."""
        found: Any = self.tables
        for part in path:
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    def says(self, path: Sequence[str]) -> bool:
        """Whether it sets the key at `path`, or a list or value in place of a table above it."""
        found: Any = self.tables
        for part in path:
            if not isinstance(found, Mapping):
                return True
            if part not in found:
                return False
            found = found[part]
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """The merged tables and the layers that they come from."""

    tables: dict[str, Any]
    fragments: tuple[Path, ...]
    """The fragments in the order of their merging, without repeats."""
    laid: tuple[Layer, ...]
    """Every layer from the lowest to the recipe itself. A fragment that two others extend is in it
    twice."""


def read_layers(path: Path) -> Layers:
    """The file at `path`, merged over the files that it extends. Raises LayerError."""
    fragments: dict[Path, None] = {}
    laid: list[Layer] = []
    tables = _read(path, (), fragments, laid)
    return Layers(tables=tables, fragments=tuple(fragments), laid=tuple(laid))


def highest(layers: Sequence[Layer], path: Sequence[str]) -> int:
    """Index of the highest layer that sets the key at `path`; -1 if no layer does."""
    places = range(len(layers) - 1, -1, -1)
    return next((place for place in places if layers[place].value(path) is not None), -1)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """A merge in which values of `above` win; neither is changed."""
    out = dict(below)
    for key, value in above.items():
        under = out.get(key)
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            out[key] = merged(under, value)
        else:
            out[key] = value
    return out


def packaged_fragments() -> list[str]:
    """Names of the fragments that come with the package, as `extends` takes them."""
    return sorted(
        {
            file.relative_to(folder).as_posix()
            for folder in PACKAGED
            for file in folder.glob("presets/**/*.toml")
        }
    )


def _read(
    path: Path, above: tuple[Path, ...], fragments: dict[Path, None], laid: list[Layer]
) -> dict[str, Any]:
    """The tables of a file and of all below it; `above`: the files that led here."""
    raw = _parse(path)
    below: dict[str, Any] = {}
    chain = (*above, path.resolve())
    for name in _names(raw.pop(EXTENDS, []), path):
        fragment = _find(name, path)
        if fragment in chain:
            circle = " extends ".join(str(p) for p in (*chain[chain.index(fragment) :], fragment))
            raise LayerError(f"{circle}: remove one of these lines")
        below = merged(below, _read(fragment, chain, fragments, laid))
        fragments.setdefault(fragment)
    laid.append(Layer(source=path.name, tables=deepcopy(raw), packaged=_is_preset(path)))
    return merged(below, raw)  # overrides are written into it


def _is_preset(path: Path) -> bool:
    return any(path.resolve().is_relative_to((folder / "presets").resolve()) for folder in PACKAGED)


def _parse(path: Path) -> dict[str, Any]:
    try:
        # utf-8-sig: editors of Windows put a mark at the beginning.
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise LayerError(f"no recipe at {path}") from error
    except UnicodeDecodeError as error:
        raise LayerError(f"{path} cannot be read: {error}; save it as UTF-8") from error
    except IsADirectoryError as error:
        raise LayerError(f"{path} cannot be read: it is a folder, name the recipe in it") from error
    except OSError as error:
        raise LayerError(f"{path} cannot be read ({error.strerror})") from error
    except tomllib.TOMLDecodeError as error:
        raise LayerError(f"{path} is not valid TOML: {error}") from error
    except RecursionError as error:
        raise LayerError(f"{path} is not valid TOML: its lists lie too deep") from error


def _names(value: object, path: Path) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise LayerError(
            f'{path}: {EXTENDS} is a list of files: {EXTENDS} = ["presets/vt_math.toml"], above '
            "the first table"
        )
    return value


def _find(name: str, path: Path) -> Path:
    """The fragment's file: beside the file that names it, else the package's."""
    for folder in (path.resolve().parent, *PACKAGED):
        if (folder / name).is_file():
            return (folder / name).resolve()
    known = ", ".join(packaged_fragments())
    raise LayerError(
        f"{path} extends {name!r}, which is neither beside it nor one of the package's: {known}"
    )
