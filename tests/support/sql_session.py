"""Statements of one trajectory's side, as the tests of the sql tool ask them."""

from typing import Any

from tests.support.trajectory import Trajectory, said
from toolwright.types import ToolErrorKind


async def ask(session: Trajectory, sql: str, **more: Any) -> str:
    result = await session.act(f"<sql>{sql}</sql>", **more)
    assert result.error is None, result
    return said(result)


async def fail(session: Trajectory, sql: str, **more: Any) -> tuple[ToolErrorKind, str]:
    result = await session.act(f"<sql>{sql}</sql>", **more)
    assert result.error is not None, result
    assert not result.error.session_lost
    return result.error.kind, said(result)
