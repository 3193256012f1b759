"""A recipe's file and the fragments that it builds on, read into one set of tables.

`extends = ["presets/vt_math.toml", "mine.toml"]` at the top of a recipe, before its first table,
names fragments: the same TOML, with any of the tables. They are laid over each other in their order
and the recipe's own values over all of them. Tables are merged key by key; every other value, a
list too, replaces what was there. A fragment may extend others.

A name is looked for beside the file that names it, then among the recipes that come with the
package. Relative paths in a fragment are the recipe's: they start from the recipe's folder.

Knows nothing of the tables.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXTENDS = "extends"
_HERE = Path(__file__).parent
PACKAGED = (_HERE / "recipes", _HERE.parents[1] / "recipes")
"""Where the recipes of the package are: in a wheel, in a checkout."""


class LayerError(ValueError):
    """A file cannot be read, or what it extends; the message names it and the mend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """The merged tables, and the fragments in the order in which they were laid, without twins."""

    tables: dict[str, Any]
    fragments: tuple[Path, ...]


def read_layers(path: Path) -> Layers:
    """The file at `path` over everything that it extends. LayerError."""
    fragments: dict[Path, None] = {}
    return Layers(tables=_read(path, (), fragments), fragments=tuple(fragments))


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` laid over `below`; neither is changed."""
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
            for file in folder.glob("presets/*.toml")
        }
    )


def _read(path: Path, above: tuple[Path, ...], fragments: dict[Path, None]) -> dict[str, Any]:
    """The tables of a file and of all below it; `above`: the files that led here."""
    raw = _parse(path)
    below: dict[str, Any] = {}
    chain = (*above, path.resolve())
    for name in _names(raw.pop(EXTENDS, []), path):
        fragment = _find(name, path)
        if fragment in chain:
            circle = " extends ".join(str(p) for p in (*chain[chain.index(fragment) :], fragment))
            raise LayerError(f"{circle}: take one of these lines out")
        below = merged(below, _read(fragment, chain, fragments))
        fragments.setdefault(fragment)
    return merged(below, raw)


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise LayerError(f"no recipe at {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise LayerError(f"{path} cannot be read: {error}") from error
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
