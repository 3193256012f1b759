"""The engine's clients of tool services without an engine: their sessions, and calls in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from engine.core.tools.calls import PendingCall
from engine.core.tools.services import ToolServices, ToolSessions
from engine.types import Call
from tests.support.tools import ToolDouble, serving
from toolwright.recipe import Tool
from toolwright.types import Task

TASK = Task(id="t")
OWNER = "one and the same owner"


@asynccontextmanager
async def clients(
    tables: Mapping[str, Tool], *, opens: bool = False, renews: bool = False
) -> AsyncIterator[ToolServices]:
    """One life of the engine, which at its end leaves its sessions open.

    opens: the services are described first. renews: leases are renewed all the time.
    """
    tools = ToolServices(tables, OWNER)
    if opens:
        await tools.open()
    keeping = asyncio.create_task(tools.keep_leases()) if renews else None
    try:
        yield tools
    finally:
        if keeping is not None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await tools.close()


@asynccontextmanager
async def client(
    double: ToolDouble, *, renews: bool = False, **fields: object
) -> AsyncIterator[ToolServices]:
    """The double is served as the tool `python`; fields: more of its table."""
    async with (
        serving(double),
        clients({"python": Tool(service=double.address, **fields)}, renews=renews) as tools,  # type: ignore[arg-type]
    ):
        yield tools


def call_id(session: ToolSessions, turn: int) -> str:
    """The id of the call that `send` makes in a turn."""
    return f"{session.refs[0].session_id}/{turn}/0"


def send(session: ToolSessions, call: Call | str = "1+1", turn: int = 0) -> PendingCall:
    """Dispatches the call of one turn; a text is code for `python`."""
    if isinstance(call, str):
        call = Call(action=f"<python>{call}</python>", tool="python", arguments={"code": call})
    left = max(0, 9 - turn)
    sent = session.dispatch(call, call_id=call_id(session, turn), turn=turn, turns_left=left)
    assert isinstance(sent, PendingCall)
    return sent


async def said(session: ToolSessions, call: Call | str = "1+1", turn: int = 0) -> str:
    """The observation of such a call."""
    return (await send(session, call, turn).result()).outcome.observation
