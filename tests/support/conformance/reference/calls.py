"""Calls: made once, limited, recorded.

Invariants
- A call belongs to its session. `Call.answer` is its record: whoever settles it first, the tool,
  a limit, CancelCall or the session's end, says what the call came to, and nobody changes it.
- An error under which nothing ran takes the call out of the ledger, so that its id is free.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.support.conformance.reference.requests import refusal
from tests.support.conformance.reference.sessions import Sessions
from tests.support.conformance.reference.tools import (
    RUN,
    InvalidAction,
    ToolFailed,
    failed,
    find_tool,
    invalid,
    read_arguments,
)
from tests.support.conformance.reference.types import Call, ReferenceSession
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import ToolErrorKind

LONGEST_WAIT = 30.0
_LIMIT_SECONDS = 30.0
_RETRY_SECONDS = 0.1


class Calls(Sessions):
    async def call(self, request: pb.CallToolRequest) -> pb.CallToolResponse:
        self.require(request, "session_id")
        self.require(request, "call_id")
        wait = min(self.seconds(request, "wait", LONGEST_WAIT), LONGEST_WAIT)
        new = Call(
            request=request,
            identity=self.identity(request),
            queue_limit=self.seconds(request, "queue_limit", _LIMIT_SECONDS),
            run_limit=self.seconds(request, "run_limit", _LIMIT_SECONDS),
        )
        session = self.session(request.session_id)
        call = self.known(session, request)
        if call is None:
            call = new
            self.begin(session, call)
        return await self.answer(call, wait)

    def known(self, session: ReferenceSession, request: pb.CallToolRequest) -> Call | None:
        """The call of this id if it was made before; refuses what must not run."""
        call = session.calls.get(request.call_id)
        if call is not None:
            if call.identity != self.identity(request):
                raise refusal(
                    reasons.ERROR_REASON_CALL_ID_REUSED,
                    "the call_id came with another request",
                    request.call_id,
                )
            return call
        if request.turn < session.acknowledged or request.call_id in session.inherited:
            raise refusal(
                reasons.ERROR_REASON_RESULT_FORGOTTEN,
                "it ran, and its result is not held",
                request.call_id,
            )
        return None

    def begin(self, session: ReferenceSession, call: Call) -> None:
        call.answer.add_done_callback(lambda answer: answer.exception())  # seen, though unasked
        session.calls[call.request.call_id] = call
        session.acknowledged = max(session.acknowledged, call.request.turn)
        call.work = asyncio.create_task(self.work(session, call))

    async def work(self, session: ReferenceSession, call: Call) -> None:
        """From the queue to the record."""
        try:
            result = await self.perform(session, call)
        except ServiceError as error:
            self.free(session, call.request.call_id)
            self.settle(call, error)
        else:
            self.settle(call, result)

    async def perform(self, session: ReferenceSession, call: Call) -> pb.CallResult:
        request = call.request
        name = request.tool
        try:
            name = name or find_tool(request.action)
            tool = next((tool for tool in session.tools if tool.name == name), None)
            if tool is None:
                raise refusal(reasons.ERROR_REASON_UNKNOWN_TOOL, "no such tool here", name)
            arguments = read_arguments(request, tool)
        except InvalidAction as error:
            result = invalid(str(error))
        else:
            turnstile = self.turnstile(session, tool)
            await self.queue(turnstile, call.queue_limit, request.call_id)
            call.started = time.perf_counter()
            session.began[request.call_id] = None
            try:
                result = await self.run(session, tool, arguments, call.run_limit)
            finally:
                turnstile.release()
        result.tool = name
        result.queued.CopyFrom(wire.duration(call.queued_seconds))
        result.run.CopyFrom(wire.duration(call.run_seconds))
        return result

    def turnstile(self, session: ReferenceSession, tool: pb.ToolDescriptor) -> asyncio.Lock:
        """What a call of this tool has to hold while it runs."""
        return asyncio.Lock() if tool.parallel_calls else session.state.serial

    async def queue(self, turnstile: asyncio.Lock, limit: float, call_id: str) -> None:
        try:
            async with asyncio.timeout(limit):
                await turnstile.acquire()
        except TimeoutError:
            raise refusal(
                reasons.ERROR_REASON_QUEUE_LIMIT,
                f"not started within {limit:g} s",
                call_id,
                retry_after=_RETRY_SECONDS,
            ) from None

    async def run(
        self, session: ReferenceSession, tool: pb.ToolDescriptor, arguments: Any, limit: float
    ) -> pb.CallResult:
        try:
            async with asyncio.timeout(limit):
                return await RUN[tool.name](session.state, arguments)
        except TimeoutError:
            return failed(ToolErrorKind.TIMEOUT, f"stopped after {limit:g} s")
        except ToolFailed as error:
            return failed(ToolErrorKind.EXCEPTION, str(error))

    async def answer(self, call: Call, wait: float) -> pb.CallToolResponse:
        # Not `wait_for`: an RPC that goes away must not take the call with it.
        await asyncio.wait((call.answer,), timeout=wait)
        if call.answer.done():
            return pb.CallToolResponse(result=call.answer.result())
        return pb.CallToolResponse(
            running=pb.Running(
                queued=wire.duration(call.queued_seconds), run=wire.duration(call.run_seconds)
            )
        )

    def settle(self, call: Call, outcome: pb.CallResult | ServiceError) -> bool:
        """Records what a call came to, unless it is recorded. True if it was not."""
        if call.answer.done():
            return False
        if isinstance(outcome, ServiceError):
            call.answer.set_exception(outcome)
        else:
            call.answer.set_result(outcome)
        return True

    def free(self, session: ReferenceSession, call_id: str) -> None:
        """Nothing ran: the id may be used again."""
        del session.calls[call_id]

    def stop(self, call: Call) -> None:
        if call.work is not None:
            call.work.cancel()

    def cancel(self, session: ReferenceSession, call: Call) -> bool:
        result = failed(ToolErrorKind.CANCELLED, "cancelled")
        stopped = self.settle(call, result)
        self.stop(call)
        return stopped

    def end_calls(self, session: ReferenceSession) -> None:
        for call in session.calls.values():
            self.settle(call, self.gone(session.request.session_id))
            self.stop(call)

    def identity(self, request: pb.CallToolRequest) -> bytes:
        """Of everything that makes it this call and no other: all but the limits."""
        copy = pb.CallToolRequest()
        copy.CopyFrom(request)
        for name in ("queue_limit", "run_limit", "wait"):
            copy.ClearField(name)
        return copy.SerializeToString(deterministic=True)
