"""What the tool asks of a database system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from toolsvc.plugin.tool import Cancellation
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
    """What the session had changed is gone."""


class SqlBackend(Protocol):
    """One database system. `session` is whatever `open` returned.

    Refused where nothing ran, or where the session was lost by no doing of the policy's.
    """

    @property
    def isolation(self) -> str:
        """Of the sandbox that the statements run in; "" where there is none."""
        ...

    async def start(self) -> None:
        """StartError if it cannot work."""
        ...

    async def stop(self) -> None: ...

    def figures(self) -> Mapping[str, float]:
        """How full it is, in the words of `Tool.figures`."""
        ...

    async def open(self, info: SessionInfo) -> Any: ...

    async def close(self, session: Any) -> None: ...

    def ready(self, session: Any) -> bool: ...

    async def prepare(self, session: Any) -> None:
        """Gets what a statement needs before its time begins to run."""
        ...

    def lost(self, session: Any) -> str | None: ...

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
