"""Replays calls on a fresh database and reports what they changed.

Each recorded call ran exactly once, and one call followed the other. So the replay of a
trajectory's calls ends in the state in which its own server ended.

A replay copies only the users, reservations and flights that its calls read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any

from pydantic import validate_call

from .package import AirlinePackage

FAILURES = (ValueError, LookupError, TypeError, AttributeError)
"""Errors of the tools' code; the server answers each with an error."""
TABLES = ("users", "reservations", "flights")
Changes = Mapping[tuple[str, str], Mapping[str, Any]]
"""Changed rows as (table, id), each with its new values."""


class AirlineReplay:
    """Replays calls of the airline's tools, each time on the package's own database."""

    def __init__(self, package: AirlinePackage) -> None:
        self._package = package

    def changes(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> Changes:
        """Rows that the calls changed. calls: (tool, arguments) in order.

        Calls of tools that only read are skipped: `calculate` would run an expression of the policy
        here. A call that fails changes what it changed before the error, as on the server. Raises
        KeyError for an unknown tool.
        """
        before = self._package.database
        tables = {name: _CopiedRows(getattr(before, name)) for name in TABLES}
        tools = self._package.tools(type(before).model_construct(**tables))
        for name, arguments in calls:
            tool = getattr(tools, name, None)
            if not hasattr(tool, "__mutates_state__"):
                raise KeyError(f"the airline has no tool {name!r}")
            if not tool.__mutates_state__:
                continue
            with suppress(*FAILURES):
                # FastMCP reads arguments in the same way.
                validate_call(tool)(**deepcopy(dict(arguments)))
        return {
            (name, identity): row for name, rows in tables.items() for identity, row in rows.changed
        }


class _CopiedRows(dict[str, Any]):
    """Rows of a table. A row that is looked up becomes a copy; iteration reads the originals."""

    def __init__(self, rows: Mapping[str, Any]) -> None:
        super().__init__(rows)
        self._before = rows
        self._copied: set[str] = set()

    def __getitem__(self, identity: str) -> Any:
        if identity not in self._copied and identity in self._before:
            self[identity] = self._before[identity].model_copy(deep=True)
        self._copied.add(identity)
        return super().__getitem__(identity)

    def __setitem__(self, identity: str, row: Any) -> None:
        super().__setitem__(identity, row)
        self._copied.add(identity)

    @property
    def changed(self) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Rows with other values than before. No tool deletes a row."""
        for identity in sorted(self._copied & self.keys()):
            row = self[identity].model_dump(mode="json")
            old = self._before.get(identity)
            if old is None or old.model_dump(mode="json") != row:
                yield identity, row
