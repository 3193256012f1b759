"""One request of an agent from its digests to its reply, in no dialect's shape.

Rendering, encoding and digests run in threads. The pieces of completions come out as they are
certain, and the end comes out when the engine has the call on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from typing import Any

import structlog

from ingress.canon import Digests, agent_label, digests_of
from ingress.choice import Choice
from ingress.config import ASIDE, POLICY, IngressTable
from ingress.dialects.reading import MOST_MESSAGES
from ingress.errors import ApiError, wrong
from ingress.link import CallLost, EngineLink, Event
from ingress.metrics import Metrics, Verified
from ingress.prompts import guessed, prompt_message
from ingress.readers.registry import calls_required, chosen, make_reader
from ingress.response_ids import is_response, node_of, response_id
from ingress.text.completion import Completion
from ingress.text.kept import not_kept, read_kept, written
from ingress.text.rendering import in_call_order
from ingress.text.tails import PromptIds, Tails
from ingress.text.workers import TextWorkers
from ingress.types import (
    Begun,
    CallEnd,
    CallEvent,
    Constraint,
    ModelRequest,
    Said,
    Usage,
)
from toolwright.chat.tokenizer import ChatTokenizer
from toolwright.ingress.limits import MOST_TEXT, ids_digest
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.process.backoff import Backoff


class Text:
    """What calls need of the policy: threads that encode, a tokenizer that decodes on the loop."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        workers: TextWorkers,
        *,
        tails: bool,
        metrics: Metrics,
    ) -> None:
        """tails: whether new messages may be rendered alone (`splittable`)."""
        self.metrics = metrics
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
        self,
        request: ModelRequest,
        digests: Digests,
        text: Text,
        table: IngressTable,
        key: str,
        guess: pb.Guess | None = None,
    ) -> None:
        """guess: see `guessed`."""
        self.request = request
        self._guess = guess
        self._key = key
        self._digests = digests
        self._text = text
        self._table = table
        self._choices: list[Choice] = []
        self._usage = Usage()
        self._verifying: asyncio.Task[None] | None = None

    async def events(
        self, link: EngineLink, *, agent: str, retry: bool
    ) -> AsyncGenerator[CallEvent]:
        """Begun; pieces as they are certain, if the client streams; then the end. Begun comes again
        if a call that is not streamed begins again.

        retry: the client marked the request as a retry. Raises ApiError, ServiceError,
        TransportError or CallLost.
        """
        try:
            ask = self._ask(agent, retry=retry)
            async with aclosing(self._events(link, ask)) as events:
                async for event in events:
                    yield event
            if self._verifying is not None:
                await self._verifying
        finally:
            if self._verifying is not None:
                self._verifying.cancel()
        yield CallEnd(completions=tuple(one.complete() for one in self._choices), usage=self._usage)

    async def _events(self, link: EngineLink, ask: pb.Ask) -> AsyncGenerator[CallEvent]:
        """Begun and pieces."""
        begun: Begun | None = None
        for tries in count():
            self._begin()
            stream = link.generate(ask, self._prompt, self._reply)
            try:
                async with aclosing(stream):
                    async for event in stream:
                        if (first := self._begun(event)) not in (None, begun):
                            yield (begun := first)
                        for said in await self._read(event):
                            yield said
            except CallLost:
                if self.request.stream:
                    raise
                # No reply was sent, so one that was accepted is another request's.
                ask.only_open = ask.only_open or not ask.retry
                ask.retry = True  # the client has seen nothing: the new sample is as good
                await asyncio.sleep(LOST_BACKOFF.pause(tries))
            else:
                break

    def _begun(self, event: Event) -> Begun | None:
        if isinstance(event, pb.Durable):
            return None
        node = event.node - event.choice
        return Begun(response=response_id(self._key, self._digests.request, node))

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

    def _choice(self, number: int) -> Choice:
        request, tokenizer = self.request, self._text.tokenizer
        tools = () if request.tool_choice == "none" else request.all_tools
        completion = Completion(
            tokenizer,
            make_reader(self._table.tools, tools),
            stops=request.stops,
            turn_ends=tokenizer.turn_ends,
            thought=tokenizer.thought if request.raw is None else None,
            thinking=self._text.thinking,
        )
        return Choice(number, completion, self._digests, tokenizer)

    def _ask(self, agent: str, *, retry: bool) -> pb.Ask:
        request, digests = self.request, self._digests
        constraint = self._constraint()
        ask = pb.Ask(
            key=self._key,
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
            verify=int.from_bytes(digests.request[:4]) < self._table.verify * 2**32,
        )
        if self._guess is not None and not (retry or ask.verify):
            ask.guess.CopyFrom(self._guess)
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
            tools = chosen(request.all_tools, request.named_tool)
            if not tools:
                raise wrong("tool_choice", "the request has no such tool")
            return calls_required(self._table.tools, tools)
        if request.schema is not None:
            return Constraint(kind="json_schema", text=request.schema)
        return None

    async def _prompt(self, attached: pb.Attached) -> pb.Prompt:
        """Ids of the prompt. Raises ApiError if the template refuses the messages."""
        matched = attached.matched if attached.HasField("node") else 0
        raw, as_deployed = self.request.raw, self._table.thinking == "template"
        new = self.request.messages[matched:]

        def encode(tails: Tails) -> tuple[bool, PromptIds]:
            if raw is not None:
                return False, tails.raw(raw)
            if attached.HasField("node") and self._text.tails and not as_deployed:
                tail = tails.tail(new, self.request.tools, turn_ended=attached.turn_ended)
                if tail is not None:
                    return True, tail
            return False, tails.fresh(self.request.messages, self.request.tools)

        try:
            is_tail, found = await self._text.workers.run(encode, self._key)
        except ValueError as error:
            raise ApiError(str(error), param="messages" if raw is None else "prompt") from error
        except RecursionError as error:
            raise ApiError(_TOO_DEEP) from error
        if is_tail and attached.ids_digest and self._verifying is None:
            self._verifying = asyncio.create_task(self._verify(attached, found.token_ids))
        prompt = prompt_message(found, new, "tail" if is_tail else "fresh")
        prompt.by_prefix = raw is not None
        if self.request.keep:
            first = max(matched if attached.kept else 0, self.request.instructions)
            text = written(self.request.messages[first:])
            if len(text) <= MOST_TEXT:
                prompt.messages = text
        return prompt

    async def _verify(self, attached: pb.Attached, tail: list[int]) -> None:
        """Renders the request as a whole and compares it with the ids of the call and the tail."""

        def work(tails: Tails) -> Verified:
            try:
                whole = tails.fresh(self.request.messages, self.request.tools).token_ids
            except (ValueError, RecursionError):
                return "refused"
            at = len(whole) - len(tail)
            if whole[max(0, at) :] != tail:
                return "tail"
            return "same" if ids_digest(whole[:at]) == attached.ids_digest else "history"

        found = await self._text.workers.run(work, self._key)
        self._text.metrics.verified(found)
        if found == "tail":
            request = self._digests.request.hex()
            log.warning("rendered_otherwise", request=request, tail_tokens=len(tail))

    async def _reply(self) -> pb.Reply:
        keep = self.request.keep
        return pb.Reply(completions=[one.canonical(keep=keep) for one in self._choices])


_Prepared = tuple[ModelRequest, Digests, pb.Guess | None]

log = structlog.get_logger("ingress")

LOST_BACKOFF = Backoff(0.05, 5.0)
"""Pauses before a lost call begins again."""
_MANY_BYTES = 4 << 11
"""Bytes of ids that take some 2 ms to decode, and as long to read."""
_TOO_DEEP = "the request is nested too deeply"


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
    read: Callable[[bytes], ModelRequest],
    body: bytes,
    text: Text,
    table: IngressTable,
    link: EngineLink,
    *,
    key: str,
) -> ModelCall:
    """The call of a body. read: the dialect's reader of bodies. key: the trajectory's. Raises
    ApiError, and as `EngineLink.conversation`."""

    guesses = text.tails and table.thinking != "template"

    def digested(request: ModelRequest, tails: Tails) -> _Prepared:
        messages = in_call_order(request.messages)
        request = replace(request, model=request.model or POLICY, messages=messages)
        # Text that is kept depends on the match, and a raw prompt has no messages.
        linear = guesses and request.raw is None and not request.keep
        guess = guessed(request, tails) if linear else None
        return request, digests_of(request, text.options), guess

    def first(tails: Tails) -> ModelRequest | _Prepared:
        request = read(body)
        return request if request.previous else digested(request, tails)

    try:
        found = await text.workers.run(first, key)
        if isinstance(found, ModelRequest):
            pieces, named = await _conversation(link, key, found.previous), found
            found = await text.workers.run(
                lambda tails: digested(_continued(named, pieces), tails), key
            )
    except RecursionError as error:
        raise ApiError(_TOO_DEEP) from error
    request, digests, guess = found
    call = ModelCall(request, digests, text, table, key, guess)
    _model(request.model, table.aliases)
    return call


def _continued(request: ModelRequest, pieces: Iterable[bytes]) -> ModelRequest:
    """The request with the messages of the response that it names. Raises ApiError for too many."""
    lead = request.instructions
    messages = (*request.messages[:lead], *read_kept(pieces), *request.messages[lead:])
    if len(messages) > MOST_MESSAGES:
        raise wrong(
            "previous_response_id",
            f"the conversation has {len(messages)} messages, and {MOST_MESSAGES} are the most",
        )
    return replace(request, messages=messages)


async def _conversation(link: EngineLink, key: str, response: str) -> Sequence[bytes]:
    """Kept text of the conversation that ends with a response. Raises ApiError if it is unknown."""
    node = node_of(response)
    found = None if node is None else await link.conversation(key, node)
    if found is None or not is_response(response, key, found.request_digest, node or 0):
        raise not_kept(response)
    return found.messages
