"""`toolwright.ingress.v1` with scripted completions, on a real port.

It matches requests to calls as the contract says, keeps every call's ids, and replays marked
retries. It samples nothing, and keeps no journal.

Invariants
- A call's prompt is the recorded ids of the matched call and the tail, or the fresh ids.
- A call is known to later requests from Reply on.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.common.v1 import trajectory_pb2
from toolwright.ingress.limits import DIGEST_BYTES, ids_digest
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.ingress.v1 import ingress_pb2_grpc
from toolwright.rpc.errors import ServiceError, abort
from toolwright.rpc.server import Server
from toolwright.wire import pack, unpack

_SERVICE = pb.DESCRIPTOR.services_by_name["IngressService"].full_name

Script = Callable[[int, int], Sequence[int]]
"""(number of the call, from 0; number of the choice) -> ids of the completion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedNode:
    """One completion: ids of its prompt and its own, and the digests by which it is found."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    digest: bytes
    reasoning: bytes
    finished: pb.Finished
    parent: int | None
    """Node whose ids the prompt goes on from."""
    call: ScriptedCall
    text: bytes
    """Its message, if the call's text is kept."""
    text_after: int | None
    """Node whose text comes before the call's."""


@dataclass(slots=True, kw_only=True)
class ScriptedCall:
    """One call: what was asked, which ids came, what was replied."""

    ask: pb.Ask
    prompt: pb.Prompt
    reply: pb.Reply | None = None


@dataclass(slots=True)
class ScriptedEngine(ingress_pb2_grpc.IngressServiceServicer):
    """Async context manager. `address` answers while it is entered.

    keys: of the trajectories that there are. context: tokens of prompt and completion. ends: texts
    of the ids that end a turn; a completion without one was ended by its length.
    """

    script: Script
    keys: frozenset[str] = frozenset({"key"})
    reward_keys: frozenset[str] = frozenset()
    context: int = 1 << 20
    ends: Mapping[int, str] = field(default_factory=dict)
    chunk: int = 4
    """Tokens of one Delta."""
    nodes: list[ScriptedNode] = field(default_factory=list)
    calls: list[ScriptedCall] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    """Keys that CheckKey got."""
    failures: list[tuple[str, ServiceError]] = field(default_factory=list)
    """(before which step, the error): each ends one call. Steps: ask, delta, choice (the second
    completion), durable."""
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """No completion begins before it is set."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """The first prompt is here."""
    reports: list[pb.ReportRequest] = field(default_factory=list)
    over: bool = False
    """The run is over."""
    tasks: list[trajectory_pb2.Task] = field(default_factory=list)
    """Tasks that Take gives, the last one first."""
    ended: list[pb.EndedRequest] = field(default_factory=list)
    left: int = 0
    """Calls whose client has left them."""
    address: str = ""
    listen: str = "127.0.0.1:0"
    _server: Server | None = None
    _replies: dict[bytes, list[pb.Finished]] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        self.gate.set()
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listens; after `stop`, on the same port with the same nodes."""
        self._server = Server(self.address or self.listen)
        self._server.add(
            _SERVICE,
            lambda server: ingress_pb2_grpc.add_IngressServiceServicer_to_server(self, server),
        )
        await self._server.start()
        self.address = f"127.0.0.1:{self._server.port}"

    async def stop(self) -> None:
        """Ends all calls in flight."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def CheckKey(self, request: pb.CheckKeyRequest, context: Any) -> pb.CheckKeyResponse:
        self.checked.append(request.key)
        if request.key in self.reward_keys:
            return pb.CheckKeyResponse(use=pb.KEY_USE_REPORT)
        if request.key not in self.keys:
            await abort(context, _no_key())
        return pb.CheckKeyResponse(use=pb.KEY_USE_CALLS)

    async def Conversation(
        self, request: pb.ConversationRequest, context: Any
    ) -> pb.ConversationResponse:
        found = self._text(request.node) if request.node < len(self.nodes) else None
        if found is None:
            reason = reasons.ERROR_REASON_RESPONSE_NOT_FOUND
            await abort(context, ServiceError(reason, "the text is not kept"))
        digest = self.nodes[request.node].call.ask.request_digest
        return pb.ConversationResponse(request_digest=digest, messages=found)

    async def Take(self, request: pb.TakeRequest, context: Any) -> pb.TakeResponse:
        if not self.tasks:
            return pb.TakeResponse(over=self.over)
        return pb.TakeResponse(
            key=min(self.keys), reward_key=min(self.reward_keys, default=""), task=self.tasks.pop()
        )

    async def Report(self, request: pb.ReportRequest, context: Any) -> pb.ReportResponse:
        self.reports.append(request)
        return pb.ReportResponse()

    async def Ended(self, request: pb.EndedRequest, context: Any) -> pb.EndedResponse:
        self.ended.append(request)
        return pb.EndedResponse(calls=len(self.nodes))

    async def Generate(
        self, requests: AsyncIterator[pb.GenerateRequest], context: Any
    ) -> AsyncIterator[pb.GenerateResponse]:
        try:
            async for response in self._generate(requests):
                yield response
        except ServiceError as error:
            await abort(context, error)
        except asyncio.CancelledError:
            self.left += 1
            raise

    async def _generate(
        self, requests: AsyncIterator[pb.GenerateRequest]
    ) -> AsyncIterator[pb.GenerateResponse]:
        ask = (await anext(requests)).ask
        self._fail("ask")
        if ask.key not in self.keys:
            raise _no_key()
        repeats = ask.retry and not ask.only_open
        recorded = self._replies.get(ask.request_digest) if repeats else None
        if recorded is not None:
            yield pb.GenerateResponse(replay=pb.Replay(completions=recorded))
            await anext(requests)
            yield pb.GenerateResponse(durable=pb.Durable())
            return
        parent, matched = self._match(ask)
        by_prefix = parent is None
        attached = pb.Attached(room=self.context)
        prefix: tuple[int, ...] = ()
        if parent is not None:
            node = self.nodes[parent]
            prefix = node.prompt + node.completion
            attached.node, attached.matched = parent, matched
            attached.turn_ended = self._ends(prefix)
            attached.ids_digest = ids_digest(prefix) if ask.verify else b""
            attached.kept = self._text(parent) is not None
            attached.tokens, attached.room = len(prefix), self.context - len(prefix)
        yield pb.GenerateResponse(attached=attached)
        text_after = parent if attached.kept else None
        prompt = (await anext(requests)).prompt
        number = len(self.calls)
        self.calls.append(ScriptedCall(ask=ask, prompt=prompt))
        ids = prefix + _ids(prompt.tail) if prompt.HasField("tail") else _ids(prompt.fresh)
        if by_prefix and prompt.by_prefix:
            parent = self._longest(ids)
        if len(ids) >= self.context:
            raise ServiceError(
                reasons.ERROR_REASON_CONTEXT_FULL, f"{len(ids)} tokens > {self.context} maximum"
            )
        self.begun.set()
        await self.gate.wait()
        finished: list[pb.Finished] = []
        for choice in range(max(1, ask.n)):
            if choice:
                self._fail("choice")
            completion = tuple(self.script(number, choice))
            async for response in self._said(ask, choice, completion, finished, len(ids)):
                yield response
        reply = (await anext(requests)).reply
        self.calls[number].reply = reply
        self._fail("durable")
        for whole, canonical in zip(finished, reply.completions, strict=True):
            self.nodes.append(
                ScriptedNode(
                    prompt=ids,
                    completion=tuple(unpack(whole.token_ids, "i")),
                    digest=canonical.digest,
                    reasoning=canonical.reasoning,
                    finished=whole,
                    parent=parent if prompt.HasField("tail") or prompt.by_prefix else None,
                    call=self.calls[number],
                    text=canonical.message,
                    text_after=text_after,
                )
            )
        self._replies[ask.request_digest] = finished
        yield pb.GenerateResponse(durable=pb.Durable())

    def _text(self, number: int) -> list[bytes] | None:
        """Text of a conversation; None if it is not kept."""
        found = list[bytes]()
        at: int | None = number
        while at is not None:
            node = self.nodes[at]
            if not node.call.prompt.HasField("messages"):
                return None
            found += [node.text, node.call.prompt.messages]
            at = node.text_after
        return found[::-1]

    def _match(self, ask: pb.Ask) -> tuple[int | None, int]:
        """The deepest call in the request's chain, and the number of its messages; the later call
        among equals."""
        size = DIGEST_BYTES
        chain = [ask.digests[at : at + size] for at in range(0, len(ask.digests), size)]
        for place in range(len(chain) - 1, -1, -1):
            for number in range(len(self.nodes) - 1, -1, -1):
                node = self.nodes[number]
                sent = ask.reasoning.get(place, b"")
                if node.digest == chain[place] and sent in (b"", node.reasoning):
                    return number, place + 1
        return None, 0

    def _longest(self, ids: tuple[int, ...]) -> int | None:
        """The call whose ids are the longest prefix of the given ones."""
        found, longest = None, 0
        for number, node in enumerate(self.nodes):
            whole = node.prompt + node.completion
            if len(whole) > longest and ids[: len(whole)] == whole:
                found, longest = number, len(whole)
        return found

    async def _said(
        self,
        ask: pb.Ask,
        choice: int,
        completion: tuple[int, ...],
        finished: list[pb.Finished],
        prompt_tokens: int,
    ) -> AsyncIterator[pb.GenerateResponse]:
        """The deltas of a completion and its end; the whole of it is added to `finished`."""
        limit = ask.sampling.max_new_tokens if ask.sampling.HasField("max_new_tokens") else 0
        ended = self._ends(completion)
        if limit and len(completion) > limit:
            completion, ended = completion[:limit], False
        logprobs = array("f", [-0.5] * len(completion))
        at = 0
        while ask.stream and at + self.chunk < len(completion):
            if at:
                self._fail("delta")
            end = at + self.chunk
            delta = pb.Delta(
                choice=choice,
                token_ids=pack(completion[at:end], "i"),
                logprobs=pack(logprobs[at:end], "f"),
                node=len(self.nodes) + len(finished),
            )
            yield pb.GenerateResponse(delta=delta)
            at = end
        kind = trajectory_pb2.FINISH_KIND_STOP if ended else trajectory_pb2.FINISH_KIND_LENGTH
        whole = pb.Finished(
            choice=choice,
            token_ids=pack(completion, "i"),
            logprobs=pack(logprobs, "f"),
            finish=trajectory_pb2.FinishReason(kind=kind),
            stop=self.ends[completion[-1]] if ended else "",
            completion_tokens=len(completion),
            prompt_tokens=prompt_tokens,
            node=len(self.nodes) + len(finished),
        )
        finished.append(whole)
        rest = pb.Finished()
        rest.CopyFrom(whole)
        rest.token_ids, rest.logprobs = pack(completion[at:], "i"), pack(logprobs[at:], "f")
        yield pb.GenerateResponse(finished=rest)

    def _ends(self, ids: Sequence[int]) -> bool:
        """Whether the ids end with the end of a turn."""
        return bool(ids) and ids[-1] in self.ends

    def _fail(self, step: str) -> None:
        if self.failures and self.failures[0][0] == step:
            raise self.failures.pop(0)[1]


def _no_key() -> ServiceError:
    return ServiceError(reasons.ERROR_REASON_SESSION_NOT_FOUND, "no trajectory has the key")


def _ids(message: pb.Ids) -> tuple[int, ...]:
    """The ids of a message. Raises ServiceError if they are not as the contract says."""
    found = tuple(unpack(message.token_ids, "i"))
    authors = sum(run.count for run in message.authors)
    if len(found) != message.token_count or authors != message.token_count:
        raise ServiceError(
            reasons.ERROR_REASON_INVALID_REQUEST,
            f"{len(found)} ids, token_count {message.token_count}, authors of {authors}",
        )
    return found
