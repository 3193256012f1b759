"""A session at another service, and its calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from toolsvc.errors import Reason, Refused, backend_down
from toolsvc.plugin.executors import Cancellation
from toolsvc.plugin.tool import LiveState, Tool
from toolsvc.plugin.waiting import WAIT_SECONDS
from toolsvc.sources.remote.link import ServiceLink
from toolsvc.sources.remote.wire import result_from_proto
from toolsvc.types import Call, Media, Result
from toolwright import wire
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.options import LONGEST_WAIT
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import BlobRef

GRACE = 10.0
"""Seconds beyond a call's limits after which a silent service is given up."""
QUEUE_SECONDS = 30.0

_LOST = ("SESSION_LOST", "SESSION_NOT_FOUND", "SESSION_CLOSED")


class RemoteSession(LiveState):
    """`tools` are all that the session there has; calls may add to them."""

    lost: str | None = None

    def __init__(self, link: ServiceLink, opened: pb.OpenSessionResponse) -> None:
        self._link = link
        self.id = opened.session_id
        self.endpoint = opened.endpoint or link.address
        self.tools: list[pb.ToolDescriptor] = list(opened.tools)
        self.own: dict[str, Tool] = {}
        """Stand-ins for tools that the service does not list, by name."""
        self.users = 0
        self._cancelling: set[asyncio.Task[None]] = set()

    async def call(
        self, tool: str, call: Call, *, arguments_known: bool, cancellation: Cancellation
    ) -> Result:
        """The result, with its media. Raises Refused as the other service does."""
        request = pb.CallToolRequest(
            session_id=self.id,
            call_id=call.call_id,
            tool=tool,
            action=call.action,
            arguments=wire.struct(call.arguments) if arguments_known else None,
            arguments_json=wire.exact_json(call.arguments) if arguments_known else "",
            turn=call.turn,
            turns_left=call.turns_left,
            last_step=call.last_step,
            queue_limit=wire.duration(QUEUE_SECONDS),
            run_limit=wire.duration(call.run_limit),
            wait=wire.duration(LONGEST_WAIT),
            metadata=wire.struct(call.metadata),
            metadata_json=wire.exact_json(call.metadata),
        )
        cancellation.on_request(lambda: self._cancel_later(call.call_id))
        try:
            # Its tool may wait for a backend, apart from its run, as one of ours may.
            longest = QUEUE_SECONDS + call.run_limit + WAIT_SECONDS
            async with asyncio.timeout(longest + LONGEST_WAIT + GRACE):
                answer = await self._answer(request)
        except TimeoutError:
            raise backend_down(
                f"{self._link.address} did not end a call of {call.run_limit:g} s"
            ) from None
        known = {descriptor.name for descriptor in self.tools}
        self.tools += [one for one in answer.new_tools if one.name not in known]
        # A result that loses the session is the policy's doing, so later calls are still sent.
        result = result_from_proto(answer)
        if any(isinstance(part, BlobRef) for part in result.observation):
            result = await self._with_media(result)
        return result

    async def _answer(self, request: pb.CallToolRequest) -> pb.CallResult:
        while True:
            try:
                response: pb.CallToolResponse = await self._link.ask(
                    lambda: self._link.stub(self.endpoint).CallTool,
                    request,
                    timeout=LONGEST_WAIT + GRACE,
                )
            except (ServiceError, TransportError) as error:
                if isinstance(error, ServiceError) and error.reason_name == "WRONG_ENDPOINT":
                    if error.endpoint in ("", self.endpoint):
                        raise self._link.refusal(error) from error
                    self.endpoint = error.endpoint
                    continue
                raise self._refusal(error) from error
            if response.HasField("result"):
                return response.result

    def _refusal(self, error: ServiceError | TransportError) -> Refused:
        if isinstance(error, ServiceError) and error.reason_name in _LOST:
            self.lost = error.message
            return Refused(Reason.SESSION_LOST, f"{self._link.address}: {error.message}")
        return self._link.refusal(error)

    def _cancel_later(self, call_id: str) -> None:
        """Sends the cancellation; the call's result reports it."""

        async def cancel() -> None:
            request = pb.CancelCallRequest(session_id=self.id, call_id=call_id)
            try:
                await rpc(self._link.stub(self.endpoint).CancelCall, request, timeout=GRACE)
            except (ServiceError, TransportError):
                return  # The call's own limit ends it.

        task = asyncio.get_running_loop().create_task(cancel())
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def _with_media(self, result: Result) -> Result:
        blob = self._link.blob
        return replace(
            result,
            observation=tuple(
                [
                    Media(media_type=part.media_type, data=await blob(self.endpoint, part))
                    if isinstance(part, BlobRef)
                    else part
                    for part in result.observation
                ]
            ),
        )
