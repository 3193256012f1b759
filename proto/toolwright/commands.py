"""A command line whose commands are imported when somebody asks for them.

`toolsvc serve` starts without what `toolsvc check` imports: a process that is started often, by an
engine or beside each test, pays for its own command alone. `--help` imports all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup


def commands_of(places: Mapping[str, str]) -> type[TyperGroup]:
    """The class (`typer.Typer(cls=...)`) of a group with these commands. `places`: from what is
    typed to "module:name" of a command's function, or of a `typer.Typer` with commands below it."""

    class Commands(TyperGroup):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.commands = _Imported(places, self.rich_markup_mode)

    return Commands


class _Imported(MutableMapping[str, Any]):
    """Knows all names, and imports a command with the first look at it."""

    def __init__(self, places: Mapping[str, str], markup: Any) -> None:
        self._places = dict(places)
        self._markup = markup
        self._imported: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._imported:
            module, _, attribute = self._places[name].partition(":")
            found = getattr(import_module(module), attribute)
            self._imported[name] = _command(name, found, self._markup)
        return self._imported[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._imported[name] = command
        self._places.setdefault(name, "")

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._imported.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _command(name: str, found: Any, markup: Any) -> Any:
    above = typer.Typer(
        add_completion=False, rich_markup_mode=markup, pretty_exceptions_enable=False
    )
    above.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        above.add_typer(found, name=name)
    else:
        above.command(name)(found)
    return typer.main.get_group(above).commands[name]
