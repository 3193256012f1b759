"""Messages of the engine to a tool service: a session's opening, a call.

`replies.py` has what it reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from google.protobuf.struct_pb2 import Struct

from engine.core.images.media import Media
from engine.core.tools.sessions.session import ServiceSession
from engine.errors import TaskUnfit
from engine.types import Call
from toolwright import wire
from toolwright.json_data import is_large
from toolwright.recipe import Tool as ToolTable
from toolwright.rpc.options import LONGEST_WAIT
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Task


async def open_request(
    session_id: str, owner: str, table: ToolTable, task: Task, media: Sequence[Media]
) -> pb.OpenSessionRequest:
    """The request that opens a session. Raises TaskUnfit for a task that cannot be sent. Large
    metadata are converted in a thread, so that other trajectories go on meanwhile."""
    try:
        if is_large(task.metadata):
            metadata, exact = await asyncio.to_thread(_metadata, task)
        else:
            metadata, exact = _metadata(task)
    except (TypeError, ValueError) as error:
        raise TaskUnfit(
            f"task {task.id}: its metadata is not JSON-like ({error}); tools get it as it is"
        ) from error
    return pb.OpenSessionRequest(
        session_id=session_id,
        owner=owner,
        lease=wire.duration(table.lease_s),
        tools=table.names,
        metadata=metadata,
        metadata_json=exact,
        queue_limit=wire.duration(table.queue_limit_s),
        blobs=[wire.blob_to_proto(one.blob) for one in media],
    )


def call_request(
    session: ServiceSession, call: Call, call_id: str, turn: int, turns_left: int
) -> pb.CallToolRequest:
    """The message of a call in `session`. Equal arguments give equal messages in every life of the
    engine, but for the fence.

    Raises TypeError, ValueError or OverflowError for arguments that no message can hold, including
    those nested deeper than any reader follows (`wire.struct`).
    """
    table = session.table
    message = pb.CallToolRequest(
        session_id=session.session_id,
        call_id=call_id,
        tool=call.tool,
        action=call.action,
        turn=turn,
        turns_left=turns_left,
        last_step=turns_left == 0,
        queue_limit=wire.duration(table.queue_limit_s),
        # Without a limit here, the service applies the tool's own.
        run_limit=None if table.run_limit_s is None else wire.duration(table.run_limit_s),
        wait=wire.duration(wait_of(table)),
        fence=session.fence,
    )
    if call.arguments is not None:
        message.arguments.CopyFrom(wire.struct(call.arguments))
        message.arguments_json = wire.exact_json(call.arguments)
    return message


def wait_of(table: ToolTable) -> float:
    """Longest time, in seconds, that a service may hold one request."""
    if table.run_limit_s is None:
        return LONGEST_WAIT
    return min(table.run_limit_s + table.queue_limit_s, LONGEST_WAIT)


def _metadata(task: Task) -> tuple[Struct, str]:
    return wire.struct(task.metadata), wire.exact_json(task.metadata)
