"""The interface of a database system for the tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from toolsvc.plugin.tool import Cancellation, LiveState
from toolsvc.types import SessionInfo
from toolwright.types import ToolErrorKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlAnswer:
    """A statement's result as text; `kind` is NONE where it succeeded, else why it did not."""

    text: str
    kind: ToolErrorKind = ToolErrorKind.NONE
    cut: bool = False
    """Rows, or parts of cells, were left out."""
    lost: bool = False
    """The session's changes are lost."""


class SqlBackend(Protocol):
    """One database system. session: what `open` returned.

    Methods raise Refused if nothing ran, or if the session was lost without the policy's fault.
    """

    @property
    def isolation(self) -> str:
        """Isolation level of the sandbox that the statements run in; "" without a sandbox."""
        ...

    async def start(self) -> None:
        """Raises StartError if the backend cannot work."""
        ...

    async def stop(self) -> None: ...

    def figures(self) -> Mapping[str, float]:
        """Fill of the backend, with names as in `Tool.figures`."""
        ...

    async def open(self, info: SessionInfo) -> LiveState: ...

    async def close(self, session: Any) -> None: ...

    async def run(
        self,
        session: Any,
        sql: str,
        limit: float,
        cancellation: Cancellation,
        *,
        as_json: bool = False,
    ) -> SqlAnswer:
        """Runs one statement for at most `limit` seconds. `as_json`: all rows as JSON, and nothing
        for the policy to read; of SQLite alone."""
        ...
