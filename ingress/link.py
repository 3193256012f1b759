"""One model call over `toolwright.ingress.v1`: Ask, Prompt, Reply, and what the engine answers.

Invariants
- An outage of the engine is no error: the call waits, and begins again under the same digest.
- A call that begins again is a retry only if the engine may have it: a prompt had been sent.
- Ids that are out are never taken back. If a call that begins again has other ids than those that
  its client has seen, CallLost is raised.
- The last event is Durable: the engine has the call on disk.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.ingress.v1 import ingress_pb2_grpc
from toolwright.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from toolwright.rpc.channel import backoff, may_retry
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.rpc.retrying import Retry
from toolwright.wire import pack, unpack

log = structlog.get_logger("ingress")

MakePrompt = Callable[[pb.Attached], Awaitable[pb.Prompt]]
MakeReply = Callable[[], Awaitable[pb.Reply]]
Answer = TypeVar("Answer")
Event = pb.Delta | pb.Finished | pb.Durable


class CallLost(Exception):
    """The engine gave up a call whose beginning the client has seen. A retry is a new sample."""


class BrokenOrder(Exception):
    """The engine sent a response that the contract does not have at this place."""


@dataclass(slots=True)
class _Progress:
    """How far a call has come, over all its streams."""

    prompted: bool = False
    """The prompt was sent: the engine may have the call."""
    seen: dict[int, array[int]] = field(default_factory=lambda: defaultdict(lambda: array("i")))
    """Ids that came, by choice."""
    finished: set[int] = field(default_factory=set)
    """Choices whose Finished came."""

    @property
    def begun(self) -> bool:
        """Whether a part of a completion came."""
        return bool(self.finished) or any(self.seen.values())


ALIVE_SECONDS = 1.0
"""Time in which an engine that is there answers a health check, in seconds."""
UNARY_SECONDS = 60.0
"""Deadline of a request that is no model call, after its own wait."""


class EngineLink:
    """The engine's half of all calls, on one channel."""

    def __init__(self, channel: grpc.aio.Channel, tokenizer: str = "") -> None:
        """tokenizer: digest that the engine compares with its own; "" = not compared."""
        self._tokenizer = tokenizer
        self._stub = cast(
            "ingress_pb2_grpc.IngressServiceAsyncStub",
            ingress_pb2_grpc.IngressServiceStub(channel),
        )
        self._retry = Retry.endless(
            lambda why, waited: log.info("engine does not answer", seconds=waited, error=why),
        )
        self._health: Any = health_pb2_grpc.HealthStub(channel)
        self._answered = time.monotonic()
        self._rollout = cast(
            "rollout_pb2_grpc.RolloutServiceAsyncStub",
            rollout_pb2_grpc.RolloutServiceStub(channel),
        )

    async def generate(
        self, ask: pb.Ask, prompt: MakePrompt, reply: MakeReply
    ) -> AsyncGenerator[Event]:
        """Each Delta and Finished of a call, then Durable.

        A Finished holds the ids after those that came before it. prompt: the ids for a place in
        the trajectory. reply: what the agent will see; called after the last Finished. Closing the
        iterator leaves the call. Raises ServiceError, TransportError or CallLost.
        """
        progress, given = _Progress(), ask
        failures = 0
        while True:
            try:
                async with aclosing(self._once(ask, prompt, reply, progress)) as events:
                    async for event in events:
                        failures = 0
                        yield event
            except grpc.aio.AioRpcError as error:
                found = from_rpc_error(error)
                if not may_retry(found):
                    raise found from error
            else:
                return
            log.info("engine does not answer", failures=failures, error=str(found))
            await asyncio.sleep(backoff(failures, found))
            failures += 1
            if progress.prompted:
                ask = _again(
                    ask, only_open=not progress.begun and (given.only_open or not given.retry)
                )

    async def silent_s(self) -> float:
        """Seconds since the engine answered, or since the start; it is called once more now."""
        with suppress(grpc.aio.AioRpcError):
            await self._health.Check(health_pb2.HealthCheckRequest(), timeout=ALIVE_SECONDS)
            self._answered = time.monotonic()
        return time.monotonic() - self._answered

    async def use_of_key(self, key: str) -> pb.KeyUse.ValueType:
        """What a key is for. Waits for an engine that is away. Raises ServiceError for a key that
        this run did not make, or if the engine has another tokenizer, or TransportError."""
        request = pb.CheckKeyRequest(key=key, tokenizer=self._tokenizer)
        found: pb.CheckKeyResponse = await self._retry.answer(
            self._stub.CheckKey, request, timeout=UNARY_SECONDS
        )
        return found.use

    async def conversation(self, key: str, node: int) -> pb.ConversationResponse | None:
        """Text of a call's conversation; None if it is not kept. Raises as `use_of_key`."""
        request = pb.ConversationRequest(key=key, node=node)
        try:
            found: pb.ConversationResponse = await self._retry.answer(
                self._stub.Conversation, request, timeout=UNARY_SECONDS
            )
        except ServiceError as error:
            if error.reason == reasons.ERROR_REASON_RESPONSE_NOT_FOUND:
                return None
            raise
        return found

    async def submit(
        self, request: rollout_pb2.SubmitTasksRequest
    ) -> rollout_pb2.SubmitTasksResponse:
        """Submits tasks; the engine has them on disk. Raises as `use_of_key`."""
        found: rollout_pb2.SubmitTasksResponse = await self._retry.answer(
            self._rollout.SubmitTasks, request, timeout=UNARY_SECONDS
        )
        return found

    async def take(self, request: pb.TakeRequest, wait: float) -> pb.TakeResponse:
        """A trajectory; no key after `wait` seconds without one. Raises as `use_of_key`."""
        found: pb.TakeResponse = await self._retry.answer(
            self._stub.Take, request, timeout=wait + UNARY_SECONDS
        )
        return found

    async def report(self, request: pb.ReportRequest) -> None:
        """Reports a reward; the engine has it on disk. Raises as `use_of_key`."""
        await self._retry.answer(self._stub.Report, request, timeout=UNARY_SECONDS)

    async def end(self, request: pb.EndedRequest) -> int:
        """Ends a trajectory; the number of its calls. Raises as `use_of_key`."""
        found: pb.EndedResponse = await self._retry.answer(
            self._stub.Ended, request, timeout=UNARY_SECONDS
        )
        return found.calls

    async def _once(
        self, ask: pb.Ask, prompt: MakePrompt, reply: MakeReply, progress: _Progress
    ) -> AsyncGenerator[Event]:
        # Without a deadline: a publish may hold a call for minutes. Pings find a dead engine.
        stream = self._stub.Generate()
        try:
            await _write(stream, pb.GenerateRequest(ask=ask))
            progress.prompted |= ask.HasField("guess")
            first = await _read(stream)
            if first.HasField("replay"):
                for finished in first.replay.completions:
                    rest = _rest(finished, progress.seen)
                    if finished.choice not in progress.finished:
                        progress.finished.add(finished.choice)
                        yield rest
            else:
                begun: pb.GenerateResponse | None = first
                if first.HasField("attached"):
                    if progress.begun:
                        raise CallLost("the engine has lost a call that had begun: send it again")
                    made = await prompt(first.attached)
                    progress.prompted = True
                    await _write(stream, pb.GenerateRequest(prompt=made))
                    begun = None
                elif not ask.HasField("guess"):
                    raise BrokenOrder("the engine's first response is neither Attached nor Replay")
                for _ in range(max(1, ask.n)):
                    async with aclosing(_completion(stream, progress.seen, begun)) as events:
                        async for event in events:
                            if isinstance(event, pb.Finished):
                                progress.finished.add(event.choice)
                            yield event
                    begun = None
            await _write(stream, pb.GenerateRequest(reply=await reply()))
            last = await _read(stream)
            if not last.HasField("durable"):
                raise BrokenOrder("the engine's last response is not Durable")
            await stream.done_writing()
            yield last.durable
        finally:
            stream.cancel()


async def _completion(
    stream: Any, seen: dict[int, array[int]], first: pb.GenerateResponse | None
) -> AsyncGenerator[Event]:
    """The events up to the next Finished. first: a response that was read already."""
    while True:
        response, first = first or await _read(stream), None
        if response.HasField("delta"):
            seen[response.delta.choice].extend(unpack(response.delta.token_ids, "i"))
            yield response.delta
        elif response.HasField("finished"):
            seen[response.finished.choice].extend(unpack(response.finished.token_ids, "i"))
            yield response.finished
            return
        else:
            raise BrokenOrder("the engine sent neither Delta nor Finished inside a completion")


def _rest(finished: pb.Finished, seen: dict[int, array[int]]) -> pb.Finished:
    """A recorded completion without the ids that came before. Raises CallLost for other ids."""
    known = seen[finished.choice]
    ids, logprobs = unpack(finished.token_ids, "i"), unpack(finished.logprobs, "f")
    if ids[: len(known)] != known:
        raise CallLost("the engine has another completion than the one that had begun")
    rest = pb.Finished()
    rest.CopyFrom(finished)
    rest.token_ids = pack(ids[len(known) :], "i")
    rest.logprobs = pack(logprobs[len(known) :], "f")
    known.extend(ids[len(known) :])
    return rest


async def _read(stream: Any) -> pb.GenerateResponse:
    """The next response. Raises AioRpcError if the stream has ended with an error."""
    response = await stream.read()
    if response is grpc.aio.EOF:
        raise BrokenOrder("the engine ended a call too early")
    return cast("pb.GenerateResponse", response)


async def _write(stream: Any, request: pb.GenerateRequest) -> None:
    """Sends a request. Raises AioRpcError if the stream has ended."""
    try:
        await stream.write(request)
    except asyncio.InvalidStateError:
        await stream.read()  # raises the stream's error
        raise BrokenOrder("the engine ended a call too early") from None


def _again(ask: pb.Ask, *, only_open: bool) -> pb.Ask:
    repeated = pb.Ask()
    repeated.CopyFrom(ask)
    repeated.retry, repeated.only_open = True, only_open
    repeated.ClearField("guess")  # a call that has begun is lost if the engine does not have it
    return repeated


def ids_message(token_ids: Sequence[int], authors: Sequence[tuple[int, int]]) -> pb.Ids:
    """Ids as the contract has them. authors: (author's number, count)."""
    return pb.Ids(
        token_ids=pack(token_ids, "i"),
        token_count=len(token_ids),
        authors=[pb.AuthorRun(author=author, count=count) for author, count in authors],  # type: ignore[arg-type]
    )


__all__ = ["BrokenOrder", "CallLost", "EngineLink", "ServiceError", "TransportError", "ids_message"]
