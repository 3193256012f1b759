"""One call from the queue to its record.

Invariants
- Time before the tool starts is queue time, bounded by the queue limit; time after is run time,
  bounded by the run limit. Neither is counted into the other.
- What was refused ran nothing, and leaves the call id free.
- A tool without parallel calls keeps its place until it is idle, also where the call has its
  answer already.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from toolsvc.actions import InvalidAction, find_tool, parse_arguments
from toolsvc.admission import Gate, Permit
from toolsvc.errors import Reason, Refused
from toolsvc.open_session import OpenSession, OpenTool, RunningCall
from toolsvc.results import failure, invalid
from toolsvc.types import Call, CallRequest, Recorded, Result
from toolwright.types import ToolErrorKind

LONGEST_RUN = 24 * 3600.0
_RETRY_SECONDS = 1.0


async def perform(
    session: OpenSession, request: CallRequest, running: RunningCall, gate: Gate
) -> Recorded:
    """From the queue to the record. Refused, or cancelled by the session's end, if nothing is
    to be recorded."""
    name = request.tool
    try:
        try:
            name = name or find_tool(request.action, session.descriptors)
            entry, arguments = _understand(session, request, name)
        except InvalidAction as error:
            recorded = _record(invalid(str(error)), name, running)
        else:
            call = Call(
                session=session.info,
                call_id=request.call_id,
                action=request.action,
                arguments=arguments,
                turn=request.turn,
                turns_left=request.turns_left,
                last_step=request.last_step,
                run_limit=min(request.run_limit or entry.tool.run_limit, LONGEST_RUN),
                metadata=request.metadata,
            )
            recorded = await _queue_and_run(entry, call, request.queue_limit, running, gate)
    except asyncio.CancelledError:
        if not running.cancellation.requested:
            raise
        # Cancelled while it queued.
        recorded = _record(failure(ToolErrorKind.CANCELLED, "cancelled"), name, running)
    except Refused:
        session.ledger.release(request.call_id)
        raise
    session.ledger.settle(request.call_id)
    return recorded


def _understand(
    session: OpenSession, request: CallRequest, name: str
) -> tuple[OpenTool, Mapping[str, Any]]:
    entry = session.tools.get(name)
    if entry is None:
        raise Refused(
            Reason.UNKNOWN_TOOL,
            f"session {request.session_id} has no tool {name!r}, only {', '.join(session.tools)}",
            subject=name,
        )
    arguments = request.arguments
    if arguments is None:
        arguments = parse_arguments(request.action, entry.descriptor)
    return entry, entry.tool.check(arguments)


async def _queue_and_run(
    entry: OpenTool, call: Call, queue_limit: float, running: RunningCall, gate: Gate
) -> Recorded:
    permit = await _queue(entry, call, queue_limit, running, gate)
    try:
        running.started_at = time.perf_counter()
        result = await entry.tool.run(entry.state, call, running.cancellation)
    finally:
        permit.release()
        running.cancellation.when_idle(entry.turnstile.leave)
    return _record(result, entry.tool.name, running, entry.tool.isolation)


async def _queue(
    entry: OpenTool, call: Call, queue_limit: float, running: RunningCall, gate: Gate
) -> Permit:
    """Waits for the tool, for what the call needs, and for leave to start."""
    if running.cancellation.requested:
        raise asyncio.CancelledError
    inside = entry.turnstile.try_enter()
    if inside and entry.tool.ready(entry.state):
        permit = gate.try_enter()
        if permit is not None:
            return permit
    running.queueing = True
    try:
        async with asyncio.timeout(queue_limit):
            if not inside:
                await entry.turnstile.enter()
                inside = True
            if not entry.tool.ready(entry.state):
                await entry.tool.prepare(entry.state)
            return await gate.enter()
    except TimeoutError:
        if inside:
            entry.turnstile.leave()
        raise Refused(
            Reason.QUEUE_LIMIT,
            f"call {call.call_id} did not start within its queue limit of {queue_limit:g} s",
            subject=call.call_id,
            retry_after=_RETRY_SECONDS,
            mend="raise the queue limit, or send fewer calls at once",
        ) from None
    except BaseException:
        if inside:
            entry.turnstile.leave()
        raise
    finally:
        running.queueing = False


def _record(result: Result, tool: str, running: RunningCall, isolation: str = "") -> Recorded:
    now = time.perf_counter()
    started = now if running.started_at is None else running.started_at
    return Recorded(
        result=result,
        tool=tool,
        queued=started - running.asked_at,
        run=now - started,
        isolation=isolation,
    )
