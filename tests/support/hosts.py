"""Requests to a host, and tools that need no sandbox."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolsvc.errors import Reason, Refused
from toolsvc.host.host import Host
from toolsvc.plugin.tool import Tool
from toolsvc.types import (
    Call,
    CallRequest,
    OpenRequest,
    Recorded,
    Running,
    SessionInfo,
    Text,
)


class Counter(Tool):
    """Counts its calls; sleeps for as long as the action says."""

    name = "counter"
    stateful = True

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.calls = 0
        self.runs = asyncio.Event()
        """A call has begun to run."""

    async def open(self, session: SessionInfo) -> list[Any]:
        self.opened.append(session.session_id)
        return [session.session_id, 0]

    async def call(self, state: list[Any], call: Call) -> str:
        self.calls += 1
        self.runs.set()
        state[1] += 1
        count = state[1]
        await asyncio.sleep(float(call.arguments["text"] or 0))
        return str(count)

    async def close(self, state: list[Any]) -> None:
        self.closed.append(state[0])


class Parallel(Counter):
    name = "parallel"
    parallel_calls = True


class SlowToClose(Counter):
    """Closes a state when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.closes, self.may_close = asyncio.Event(), asyncio.Event()

    async def close(self, state: list[Any]) -> None:
        self.closes.set()
        await self.may_close.wait()
        await super().close(state)


def opening(name: str = "s", owner: str = "o", lease: float = 60.0, **more: Any) -> OpenRequest:
    fields: dict[str, Any] = {
        "session_id": name,
        "owner": owner,
        "lease": lease,
        "tools": (),
        "metadata": {},
        "queue_limit": 5.0,
        "digest": f"{name} {owner}".encode(),
    }
    return OpenRequest(**{**fields, **more})


@contextlib.asynccontextmanager
async def hosting(*tools: Tool, **options: Any) -> AsyncIterator[Host]:
    """A host of these tools with one open session, `s`; options: of the host."""
    async with Host(tools, **options) as host:
        await host.open(opening())
        yield host


def call_of(*, run_limit: float = 5.0, metadata: Any = None, **arguments: Any) -> Call:
    """A call as a tool gets it, of a session that no host has; run_limit: in seconds."""
    session = SessionInfo(session_id="s", owner="o", metadata={})
    return Call(
        session=session, call_id="c", action="", arguments=arguments, turn=0, turns_left=0,
        last_step=False, run_limit=run_limit, metadata=metadata or {},
    )  # fmt: skip


def calling(call_id: str, seconds: float = 0, session: str = "s", **more: Any) -> CallRequest:
    fields: dict[str, Any] = {
        "session_id": session,
        "call_id": call_id,
        "tool": "counter",
        "action": "",
        "arguments": {"text": str(seconds)},
        "turn": 0,
        "turns_left": 3,
        "last_step": False,
        "queue_limit": 5.0,
        "run_limit": 10.0,
        "wait": 20.0,
        "metadata": {},
        "digest": f"{call_id} {seconds}".encode(),
    }
    return CallRequest(**{**fields, **more})


def said(answer: Recorded | Running) -> str:
    (part,) = answer.result.observation
    assert isinstance(part, Text)
    return part.text


@contextlib.contextmanager
def refused(reason: Reason) -> Any:
    with pytest.raises(Refused) as failure:
        yield failure
    assert failure.value.reason is reason
