"""One request of an agent from its digests to its reply, in no dialect's shape.

Rendering, encoding and digests run in threads. The pieces of completions come out as they are
certain, and the end comes out when the engine has the call on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from typing import Any

from ingress.canon import Digests, agent_label, call_id, digests_of, reply_digests
from ingress.config import ASIDE, POLICY, IngressTable
from ingress.errors import ApiError, wrong
from ingress.link import CallLost, EngineLink, Event, ids_message
from ingress.readers.registry import calls_required, chosen, make_reader
from ingress.response_ids import response_id
from ingress.text.completion import Completion, message_of
from ingress.text.rendering import in_call_order
from ingress.text.tails import PromptIds, Tails
from ingress.text.workers import TextWorkers
from ingress.types import (
    Begun,
    CallEnd,
    CallEvent,
    Complete,
    Constraint,
    End,
    IllFormed,
    ModelRequest,
    Piece,
    ReadCall,
    Said,
    TokenLogprob,
    ToolCall,
    Usage,
    Words,
)
from toolwright.chat.tokenizer import ChatTokenizer
from toolwright.common.v1 import trajectory_pb2
from toolwright.ingress.limits import MOST_RESULT
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.process.backoff import Backoff
from toolwright.wire import unpack


class Text:
    """What calls need of the policy: threads that encode, a tokenizer that decodes on the loop."""

    def __init__(self, tokenizer: ChatTokenizer, workers: TextWorkers, *, tails: bool) -> None:
        """tails: whether new messages may be rendered alone (`splittable`)."""
        self.tokenizer = tokenizer
        self.workers = workers
        self.tails = tails
        self.options = dict(tokenizer.variables)
        """Variables of the chat template, as the recipe sets them."""
        opened = tokenizer.chat([{"role": "user", "content": "x"}]).rstrip()
        self.thinking = tokenizer.thought is not None and opened.endswith(tokenizer.thought.open)
        """The generation prompt opens a thought."""


class ModelCall:
    """One call. Make it by `prepare`, then go through `events` once."""

    def __init__(
        self, request: ModelRequest, digests: Digests, text: Text, table: IngressTable
    ) -> None:
        self.request = request
        self._digests = digests
        self._text = text
        self._table = table
        self._choices: list[_Choice] = []
        self._usage = Usage()

    async def events(
        self, link: EngineLink, *, key: str, agent: str, retry: bool
    ) -> AsyncGenerator[CallEvent]:
        """Begun; pieces as they are certain, if the client streams; then the end. Begun comes again
        if a call that is not streamed begins again.

        retry: the client marked the request as a retry. Raises ApiError, ServiceError,
        TransportError or CallLost.
        """
        ask = self._ask(key, agent, retry=retry)
        begun: Begun | None = None
        for tries in count():
            self._begin()
            stream = link.generate(ask, self._prompt, self._reply)
            try:
                async with aclosing(stream):
                    async for event in stream:
                        if (first := self._begun(key, event)) not in (None, begun):
                            yield (begun := first)
                        for said in await self._read(event):
                            yield said
            except CallLost:
                if self.request.stream:
                    raise
                ask.retry = True  # the client has seen nothing: the new sample is as good
                await asyncio.sleep(LOST_BACKOFF.pause(tries))
            else:
                break
        yield CallEnd(completions=tuple(one.complete() for one in self._choices), usage=self._usage)

    def _begun(self, key: str, event: Event) -> Begun | None:
        if isinstance(event, pb.Durable):
            return None
        node = event.node - event.choice
        return Begun(response=response_id(key, self._digests.request, node))

    def _begin(self) -> None:
        self._choices = [self._choice(number) for number in range(self.request.n)]
        self._usage = Usage()

    async def _read(self, event: Event) -> list[Said]:
        """Reads new ids: many of them in a thread."""
        if isinstance(event, pb.Durable) or len(event.token_ids) < _MANY_BYTES:
            return self._take(event)
        return await asyncio.to_thread(self._take, event)

    def _take(self, event: Event) -> list[Said]:
        if isinstance(event, pb.Durable):
            return []
        if isinstance(event, pb.Finished):
            self._usage = Usage(
                prompt_tokens=event.prompt_tokens,
                completion_tokens=self._usage.completion_tokens + event.completion_tokens,
            )
        shown = self.request.logprobs or self.request.token_ids
        return self._choices[event.choice].take(event, shown=shown)

    def _choice(self, number: int) -> _Choice:
        request, tokenizer = self.request, self._text.tokenizer
        tools = () if request.tool_choice == "none" else request.tools
        completion = Completion(
            tokenizer,
            make_reader(self._table.tools, tools),
            stops=request.stops,
            turn_ends=tokenizer.turn_ends,
            thought=tokenizer.thought if request.raw is None else None,
            thinking=self._text.thinking,
        )
        return _Choice(number, completion, self._digests, tokenizer)

    def _ask(self, key: str, agent: str, *, retry: bool) -> pb.Ask:
        request, digests = self.request, self._digests
        constraint = self._constraint()
        ask = pb.Ask(
            key=key,
            agent=agent or agent_label(request, digests),
            root=digests.root,
            digests=b"".join(digests.messages),
            reasoning=digests.reasoning,
            request_digest=digests.request,
            retry=retry,
            n=request.n,
            stops=request.stops,
            stream=request.stream,
            aside=_model(request.model, self._table.aliases) == ASIDE,
        )
        if constraint is not None:
            setattr(ask.constraint, constraint.kind, constraint.text)
        for name in request.sampling.__slots__:
            value = getattr(request.sampling, name)
            if value is not None:
                setattr(ask.sampling, name, value)
        return ask

    def _constraint(self) -> Constraint | None:
        request = self.request
        if request.tool_choice == "required":
            tools = chosen(request.tools, request.named_tool)
            if not tools:
                raise wrong("tool_choice", "the request has no such tool")
            return calls_required(self._table.tools, tools)
        if request.schema is not None:
            return Constraint(kind="json_schema", text=request.schema)
        return None

    async def _prompt(self, attached: pb.Attached) -> pb.Prompt:
        """Ids of the prompt. Raises ApiError if the template refuses the messages."""
        matched = attached.matched if attached.HasField("node") else 0
        raw = self.request.raw
        new = self.request.messages[matched:]

        def encode(tails: Tails) -> tuple[bool, PromptIds]:
            if raw is not None:
                return False, tails.raw(raw)
            if attached.HasField("node") and self._text.tails:
                tail = tails.tail(new, self.request.tools, turn_ended=attached.turn_ended)
                if tail is not None:
                    return True, tail
            return False, tails.fresh(self.request.messages, self.request.tools)

        try:
            is_tail, found = await self._text.workers.run(encode)
        except ValueError as error:
            raise ApiError(str(error), param="messages" if raw is None else "prompt") from error
        except RecursionError as error:
            raise ApiError(_TOO_DEEP) from error
        ids = ids_message(found.token_ids, [(one.value, count) for one, count in found.authors])
        results = [
            pb.ReadResult(id=one.call_id, text=one.text[:MOST_RESULT])
            for one in new
            if one.role == "tool"
        ]
        kind = "tail" if is_tail else "fresh"
        return pb.Prompt(results=results, by_prefix=raw is not None, **{kind: ids})

    async def _reply(self) -> pb.Reply:
        return pb.Reply(completions=[one.canonical() for one in self._choices])


LOST_BACKOFF = Backoff(0.05, 5.0)
"""Pauses before a lost call begins again."""
_MANY_BYTES = 4 << 11
"""Bytes of ids that take some 2 ms to decode, and as long to read."""
_TOO_DEEP = "the request is nested too deeply"


class _Choice:
    """One completion while it arrives."""

    def __init__(
        self, number: int, completion: Completion, digests: Digests, tokenizer: ChatTokenizer
    ) -> None:
        self._number = number
        self._completion = completion
        self._digests = digests
        self._tokenizer = tokenizer
        self._ids: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._end: End = "stop"
        self._stop = ""

    def take(self, event: pb.Delta | pb.Finished, *, shown: bool) -> list[Said]:
        """Reads new ids. shown: the client wants their log-probs."""
        ids = unpack(event.token_ids, "i").tolist()
        if shown:
            logprobs = unpack(event.logprobs, "f")
            self._logprobs += [
                TokenLogprob(token=self._tokenizer.decode([one]), logprob=logprob, token_id=one)
                for one, logprob in zip(ids, logprobs, strict=True)
            ]
        pieces = self._completion.feed(ids)
        if isinstance(event, pb.Finished):
            pieces += self._completion.end(event.stop)
            self._stop = "" if event.stop in self._tokenizer.turn_ends else event.stop
        said = [self._said(piece) for piece in pieces]
        if isinstance(event, pb.Finished):
            if event.finish.kind == trajectory_pb2.FINISH_KIND_LENGTH:
                self._end = "length"
            elif self._ids:
                self._end = "tool_calls"
        return said

    def complete(self) -> Complete:
        return Complete(
            choice=self._number,
            message=message_of(self._completion.pieces, self._ids),
            end=self._end,
            stop=self._stop,
            logprobs=tuple(self._logprobs),
        )

    def canonical(self) -> pb.Canonical:
        """The completion's digests, and its calls for the record."""
        message = message_of(self._completion.pieces, self._ids)
        digests = reply_digests(self._digests, message)
        ids = iter(self._ids)
        calls = [
            pb.ReadCall(id=next(ids), name=one.name, arguments=one.arguments)
            if isinstance(one, ReadCall)
            else pb.ReadCall(arguments=one.text, invalid_reason=one.reason)
            for one in self._completion.pieces
            if isinstance(one, ReadCall | IllFormed)
        ]
        return pb.Canonical(digest=digests.message, reasoning=digests.reasoning, calls=calls)

    def _said(self, piece: Piece) -> Said:
        if isinstance(piece, ReadCall):
            number = len(self._ids)
            self._ids.append(call_id(self._digests, self._number, number))
            call = ToolCall(id=self._ids[-1], name=piece.name, arguments=piece.arguments)
            return Said(choice=self._number, piece=call, number=number)
        words = Words(text=piece.text) if isinstance(piece, IllFormed) else piece
        return Said(choice=self._number, piece=words)


def _model(name: str, aliases: Mapping[str, Any]) -> str:
    """The model of a request's name. Raises ApiError for an unknown name."""
    found = name if name in (POLICY, ASIDE) else aliases.get(name, "")
    if not found:
        raise ApiError(
            f"model: {name!r} is not served; send {POLICY!r} or {ASIDE!r}, or name it in "
            "ingress.aliases",
            status=404,
            code="model_not_found",
            param="model",
        )
    return str(found)


async def prepare(
    read: Callable[[bytes], ModelRequest], body: bytes, text: Text, table: IngressTable
) -> ModelCall:
    """The call of a body. read: the dialect's reader of bodies. Raises ApiError."""

    def work(_: Tails) -> tuple[ModelRequest, Digests]:
        request = read(body)
        messages = in_call_order(request.messages)
        request = replace(request, model=request.model or POLICY, messages=messages)
        try:
            return request, digests_of(request, text.options)
        except RecursionError as error:
            raise ApiError(_TOO_DEEP) from error

    request, digests = await text.workers.run(work)
    call = ModelCall(request, digests, text, table)
    _model(request.model, table.aliases)
    return call
