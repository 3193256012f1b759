"""IngressService: protobuf in, our types inside. One stream is one model call of an agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import grpc.aio
import structlog

from engine.core.rollout.outside_attempt import OutsideAttempt
from engine.core.rollout.outside_call import OutsideCall
from engine.core.rollout.outside_requests import (
    AgentEnd,
    CallRefused,
    CompletionReply,
    ModelRequest,
    PromptIds,
    ReadCall,
    Refusal,
)
from engine.core.trajectory.forest import Match, Node
from engine.serving.ingress.agents import Agents
from engine.serving.ingress.keys import KeyUse
from engine.serving.ingress.worker_lives import LifeOver, taker
from engine.types import Codec
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.common.v1 import trajectory_pb2
from toolwright.ingress.limits import DIGEST_BYTES, MOST_STOPS, ids_digest
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.ingress.v1 import ingress_pb2_grpc
from toolwright.rpc.errors import ServiceError, abort, answers_errors, internal
from toolwright.types import Author, Floats, Ids, RewardPart, StopReason

LONGEST_TAKE_WAIT = 60.0
"""Longest wait of a Take for a trajectory, in seconds; the worker repeats it."""
MOST_ANSWER = 1 << 20
"""Characters of an agent's answer."""
RETRY_S = 1.0
"""Pause before a request is repeated because its attempt does not go on yet, in seconds."""

log = structlog.get_logger("ingress")

Context = Any
"""grpc.aio.ServicerContext; the library is untyped."""

_REASONS = {
    Refusal.UNFIT: reasons.ERROR_REASON_INVALID_REQUEST,
    Refusal.CONTEXT_FULL: reasons.ERROR_REASON_CONTEXT_FULL,
    Refusal.TOO_MANY: reasons.ERROR_REASON_TOO_MANY_CALLS,
    Refusal.FULL: reasons.ERROR_REASON_TRAJECTORY_FULL,
    Refusal.OVER: reasons.ERROR_REASON_SESSION_CLOSED,
    Refusal.AWAY: reasons.ERROR_REASON_DRAINING,
}
_ENDS: Mapping[int, StopReason] = {
    pb.OUTCOME_DONE: StopReason.ANSWERED,
    pb.OUTCOME_FAILED: StopReason.ANSWERED,
    pb.OUTCOME_TIMED_OUT: StopReason.TRAJECTORY_TIMEOUT,
    pb.OUTCOME_INFRASTRUCTURE: StopReason.INFRASTRUCTURE_ERROR,
}
_USES = {KeyUse.CALLS: pb.KEY_USE_CALLS, KeyUse.REWARD: pb.KEY_USE_REPORT}
_PROMPT_AUTHORS = (Author.PROMPT, Author.TOOL, Author.TEMPLATE, Author.SYSTEM, Author.MEMORY)


class IngressServicer(ingress_pb2_grpc.IngressServiceServicer):
    """Model calls of outside agents, and the hand-out of their trajectories."""

    def __init__(
        self,
        agents: Agents,
        codec: Codec,
        vocab_size: int,
        tokenizer: str,
        over: Callable[[], bool],
    ) -> None:
        """tokenizer: digest of tokenizer and chat template, which the ingress must have too. over:
        whether no trajectory follows."""
        self._over = over
        self._agents = agents
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._ends = {codec.token_id(text) for text in codec.turn_ends} - {None}
        self._end = codec.token_id(codec.end_of_turn)

    async def Generate(
        self, requests: AsyncIterator[pb.GenerateRequest], context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        try:
            async with aclosing(self._generate(aiter(requests))) as responses:
                async for response in responses:
                    yield response
        except CallRefused as error:
            await abort(context, ServiceError(_REASONS[error.refusal], str(error)))
        except ServiceError as error:
            await abort(context, error)
        except (grpc.aio.AbortError, grpc.aio.BaseError):
            raise
        except Exception as error:
            log.exception("unexpected", method="Generate")
            await abort(context, internal(error))

    @answers_errors
    async def CheckKey(self, request: pb.CheckKeyRequest, context: Context) -> pb.CheckKeyResponse:
        for use, named in _USES.items():
            if self._agents.keys.attempt(request.key, use) is not None:
                self._same_tokenizer(request.tokenizer)
                return pb.CheckKeyResponse(use=named)
        raise _no_key()

    @answers_errors
    async def Conversation(
        self, request: pb.ConversationRequest, context: Context
    ) -> pb.ConversationResponse:
        attempt = await self._attempt(request.key, KeyUse.CALLS)
        try:
            found = attempt.forest.conversation(request.node)
        except ValueError:
            found = None
        if found is None:
            raise ServiceError(
                reasons.ERROR_REASON_RESPONSE_NOT_FOUND,
                f"the conversation of call {request.node} is not kept",
                subject="node",
                fix="send all messages",
            )
        digest = attempt.forest.node(request.node).asked.request
        return pb.ConversationResponse(request_digest=digest, messages=found)

    @answers_errors
    async def Take(self, request: pb.TakeRequest, context: Context) -> pb.TakeResponse:
        if not request.worker:
            raise _unfit("worker is empty", "worker")
        self._seen(request)
        wait = 0.0 if self._over() else min(wire.seconds(request.wait), LONGEST_TAKE_WAIT)
        name = taker(request.worker, request.life, request.number)
        attempt = await self._agents.take(name, wait, frozenset(request.tasks))
        if attempt is None:
            over = self._over()
            if self._agents.draining and not over:
                raise _stops()
            return pb.TakeResponse(over=over)
        keys, task = self._agents.keys, attempt.assignment.task
        reward_key, rewards = keys.key(attempt.name, KeyUse.REWARD), attempt.rules.reward_from
        return pb.TakeResponse(
            key=keys.key(attempt.name),
            reward_key=reward_key if rewards == "agent" else "",
            callback_key=reward_key if rewards == "callback" else "",
            trajectory_id=attempt.assignment.trajectory_id,
            attempt=attempt.name,
            task=wire.task_to_proto(task),
            context=attempt.context_tokens,
        )

    @answers_errors
    async def Hold(self, request: pb.HoldRequest, context: Context) -> pb.HoldResponse:
        if not (request.worker and request.life):
            raise _unfit("worker or life is empty", "worker, life")
        self._seen(request)
        return pb.HoldResponse(ended=self._agents.ended(request.keys))

    @answers_errors
    async def Report(self, request: pb.ReportRequest, context: Context) -> pb.ReportResponse:
        attempt = await self._attempt(request.key, KeyUse.REWARD)
        parts = [
            RewardPart(
                name=part.name,
                value=part.value,
                turn=part.turn if part.HasField("turn") else None,
            )
            for part in request.parts
        ]
        number = request.node if request.HasField("node") else None
        reward = request.reward if request.HasField("reward") else None
        try:
            attempt.report(reward, parts, number)
        except CallRefused as error:
            raise ServiceError(_REASONS[error.refusal], str(error)) from error
        await self._agents.durable()
        return pb.ReportResponse()

    @answers_errors
    async def Ended(self, request: pb.EndedRequest, context: Context) -> pb.EndedResponse:
        if request.outcome not in _ENDS:
            raise _unfit("outcome is not set", "outcome")
        if len(request.answer) > MOST_ANSWER:
            raise _unfit(f"an answer has at most {MOST_ANSWER:,} characters", "answer")
        name = self._name(request.key, KeyUse.CALLS, KeyUse.REWARD)
        attempt = await self._live(name)
        if attempt is None:
            calls = await self._agents.calls_of(name)
        else:
            calls = len(attempt.forest.accepted)
            lost = request.needs_calls and not calls
            failed = lost or request.outcome == pb.OUTCOME_INFRASTRUCTURE
            why = "the agent ended before its first model call" if lost else ""
            why = ": ".join(filter(None, (why, request.error))) or "infrastructure ended the agent"
            end = AgentEnd(
                reason=_ENDS[request.outcome],
                error="" if failed else request.error,
                answer=request.answer if request.HasField("answer") else None,
                failure=why if failed else "",
                output=request.output,
            )
            try:
                await attempt.end(end)
            except CallRefused as error:
                raise ServiceError(_REASONS[error.refusal], str(error)) from error
        await self._agents.durable()
        return pb.EndedResponse(calls=calls)

    def _same_tokenizer(self, theirs: str) -> None:
        """Raises ServiceError if the ingress would render other ids than the engine."""
        if theirs not in ("", self._tokenizer):
            raise ServiceError(
                reasons.ERROR_REASON_OTHER_TOKENIZER,
                f"the tokenizer or chat template of policy.model is {self._tokenizer[:12]} in the "
                f"engine and {theirs[:12]} in the ingress",
                subject="policy.model",
                fix="give both the same folder, or copies of it, and the same policy.template",
            )

    def _seen(self, request: pb.TakeRequest | pb.HoldRequest) -> None:
        if "/" in request.life:
            raise _unfit("a life has no /", "life")
        try:
            self._agents.seen(request.worker, request.life)
        except LifeOver as error:
            raise ServiceError(
                reasons.ERROR_REASON_NOT_OWNER, str(error), subject=request.worker
            ) from error

    async def _generate(
        self, requests: AsyncIterator[pb.GenerateRequest]
    ) -> AsyncGenerator[pb.GenerateResponse]:
        ask = (await _next(requests, "ask")).ask
        attempt, request = await self._attempt(ask.key, KeyUse.CALLS), _request(ask)
        if ask.retry:
            await attempt.unreserved(request.request)
        number = attempt.known(request.request, only_open=ask.only_open) if ask.retry else None
        if number is None:
            with attempt.reserved(request):
                match = attempt.match(request)
                prompt = self._guessed(ask.guess, match) if ask.HasField("guess") else None
                if prompt is None:
                    attached = self._attached(attempt, match, verify=ask.verify)
                    yield pb.GenerateResponse(attached=attached)
                    given = (await _next(requests, "prompt")).prompt
                    prompt = _prompt(given, self._vocab_size)
                call = attempt.ask(request, match, prompt)
            number = call.number
            with attempt.reading(call):
                async for response in self._completions(attempt, call, stream=ask.stream):
                    yield response
                await self._accept(attempt, number, requests)
        else:
            joined = attempt.call(number)
            if joined is not None:
                with attempt.reading(joined):
                    await joined.whole.wait()
                    _refuse_failed(attempt, joined)
                    yield _replay(attempt, number)
                    await self._accept(attempt, number, requests)
            else:
                yield _replay(attempt, number)
                await _next(requests, "reply")
        await self._agents.durable()  # nothing that an agent saw is unknown to a later life
        yield pb.GenerateResponse(durable=pb.Durable())

    async def _accept(
        self,
        attempt: OutsideAttempt,
        number: int,
        requests: AsyncIterator[pb.GenerateRequest],
    ) -> None:
        reply = (await _next(requests, "reply")).reply
        replies = []
        for one in reply.completions:
            if len(one.digest) != DIGEST_BYTES:
                raise _unfit(f"a digest has {DIGEST_BYTES} bytes", "completions.digest")
            calls = tuple(
                ReadCall(
                    id=call.id,
                    name=call.name,
                    arguments=call.arguments,
                    invalid_reason=call.invalid_reason,
                )
                for call in one.calls
            )
            accepted = CompletionReply(
                digest=one.digest, reasoning=one.reasoning, calls=calls, text=one.message
            )
            replies.append(accepted)
        attempt.reply(number, replies)

    async def _completions(
        self, attempt: OutsideAttempt, call: OutsideCall, *, stream: bool
    ) -> AsyncIterator[pb.GenerateResponse]:
        """Each completion's parts, if the client streams, and its end."""
        sent = {node.number: 0 for node in call.nodes}
        while sent:
            await call.changed.wait()
            call.changed.clear()
            _refuse_failed(attempt, call)
            for node in call.nodes:
                at = sent.get(node.number)
                if at is None:
                    continue
                token_ids, logprobs = call.written(node)
                if node.acted is not None:
                    yield pb.GenerateResponse(finished=_finished(node, at))
                    del sent[node.number]
                elif stream and len(token_ids) > at:
                    yield pb.GenerateResponse(delta=_delta(node, token_ids[at:], logprobs[at:]))
                    sent[node.number] = len(token_ids)

    def _guessed(self, guess: pb.Guess, match: Match | None) -> PromptIds | None:
        """The guessed prompt, as it goes on from a match; None if it does not fit."""
        if match is None or guess.matched != match.messages:
            return None
        prompt = _prompt(guess.prompt, self._vocab_size)
        if not self._turn_ended(match.node):
            return prompt
        if prompt.authors[:1] != ((Author.TEMPLATE, 1),) or prompt.token_ids[0] != self._end:
            return None
        return replace(prompt, token_ids=prompt.token_ids[1:], authors=prompt.authors[1:])

    def _turn_ended(self, node: Node) -> bool:
        last = node.acted.token_ids[-1:] if node.acted is not None else ()
        return not self._ends.isdisjoint(last)

    def _attached(
        self, attempt: OutsideAttempt, match: Match | None, *, verify: bool
    ) -> pb.Attached:
        if match is None:
            return pb.Attached(room=attempt.context_tokens)
        node = match.node
        return pb.Attached(
            node=node.number,
            matched=match.messages,
            room=max(0, attempt.context_tokens - node.end),
            tokens=node.end,
            turn_ended=self._turn_ended(node),
            ids_digest=ids_digest(attempt.forest.ids(node.number)) if verify else b"",
            kept=attempt.keeps(match),
        )

    async def _attempt(self, key: str, *uses: KeyUse) -> OutsideAttempt:
        attempt = await self._live(self._name(key, *uses))
        if attempt is None:
            raise ServiceError(reasons.ERROR_REASON_SESSION_CLOSED, "the trajectory has ended")
        return attempt

    def _name(self, key: str, *uses: KeyUse) -> str:
        """Name of the attempt of a key."""
        keys = self._agents.keys
        name = keys.attempt(key, *uses)
        if name is None:
            if keys.attempt(key, *KeyUse) is not None:
                raise ServiceError(
                    reasons.ERROR_REASON_NOT_OWNER,
                    "the key is not for this use",
                    subject="key",
                    fix="report with the reward key and make calls with the other one",
                )
            raise _no_key()
        return name

    async def _live(self, name: str) -> OutsideAttempt | None:
        """The attempt; None for one that has ended."""
        try:
            return await self._agents.attempt(name)
        except TimeoutError as error:
            raise ServiceError(
                reasons.ERROR_REASON_BACKEND_DOWN,
                f"{name} does not go on yet",
                subject=name,
                retry_after=RETRY_S,
            ) from error


async def _next(requests: AsyncIterator[pb.GenerateRequest], step: str) -> pb.GenerateRequest:
    """The stream's next request. Raises ServiceError if it is not the expected step."""
    request = await anext(requests, None)
    if request is None:
        raise _unfit(f"the stream ended before {step}", "step")
    if request.WhichOneof("step") != step:
        raise _unfit(f"{request.WhichOneof('step')} came in place of {step}", "step")
    return request


def _refuse_failed(attempt: OutsideAttempt, call: OutsideCall) -> None:
    """Raises CallRefused for a call that is over, or that no sampler takes."""
    if call.refused:
        attempt.drop(call.number, call.refused)
        raise CallRefused(Refusal.UNFIT, call.refused)
    attempt.call(call.number)


def _request(ask: pb.Ask) -> ModelRequest:
    if len(ask.root) != DIGEST_BYTES or len(ask.request_digest) != DIGEST_BYTES:
        raise _unfit(f"a digest has {DIGEST_BYTES} bytes", "root, request_digest")
    if len(ask.digests) % DIGEST_BYTES:
        raise _unfit(f"digests are {DIGEST_BYTES} bytes each", "digests")
    if len(ask.stops) > MOST_STOPS:
        raise _unfit(f"a request has at most {MOST_STOPS} stops", "stops")
    grammar = ask.constraint.WhichOneof("grammar")
    return ModelRequest(
        root=ask.root,
        digests=list(_pieces(ask.digests)),
        reasoning=dict(ask.reasoning),
        request=ask.request_digest,
        n=ask.n or 1,
        agent=ask.agent,
        sampling=wire.sampling_from_proto(ask.sampling),
        grammar=(grammar, getattr(ask.constraint, grammar)) if grammar else None,
        stops=tuple(text for text in ask.stops if text),
        stream=ask.stream,
        aside=ask.aside,
    )


def _pieces(digests: bytes) -> Iterator[bytes]:
    for at in range(0, len(digests), DIGEST_BYTES):
        yield digests[at : at + DIGEST_BYTES]


def _prompt(prompt: pb.Prompt, vocab_size: int) -> PromptIds:
    kind = prompt.WhichOneof("ids")
    if kind is None:
        raise _unfit("the prompt has no ids", "ids")
    given = getattr(prompt, kind)
    if len(given.token_ids) != 4 * given.token_count:
        raise _unfit(f"{len(given.token_ids)} bytes are not {given.token_count} ids", "token_ids")
    if any(run.author not in _PROMPT_AUTHORS for run in given.authors):
        raise _unfit("an author of a prompt is PROMPT, TOOL, TEMPLATE, SYSTEM or MEMORY", "authors")
    if sum(run.count for run in given.authors) != given.token_count:
        raise _unfit("the authors' counts do not add up to token_count", "authors")
    token_ids = wire.unpack(given.token_ids, "i")
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) < vocab_size:
        raise _unfit(
            f"an id of the prompt is not below the policy's vocab_size, {vocab_size}: start the "
            "ingress with the engine's recipe",
            "token_ids",
        )
    return PromptIds(
        token_ids=token_ids,
        authors=tuple((Author(run.author), run.count) for run in given.authors),
        fresh=kind == "fresh",
        by_prefix=prompt.by_prefix,
        results=tuple((one.id, one.text) for one in prompt.results),
        text=prompt.messages if prompt.HasField("messages") else None,
    )


def _replay(attempt: OutsideAttempt, number: int) -> pb.GenerateResponse:
    completions = [_finished(node, 0) for node in attempt.forest.call(number)]
    return pb.GenerateResponse(replay=pb.Replay(completions=completions))


def _delta(node: Node, token_ids: Ids, logprobs: Floats) -> pb.Delta:
    return pb.Delta(
        choice=node.choice,
        token_ids=wire.pack(token_ids, "i"),
        logprobs=wire.pack(logprobs, "f"),
        node=node.number,
    )


def _finished(node: Node, sent: int) -> pb.Finished:
    """The end of a whole completion, with its tokens after the first `sent`."""
    acted = node.acted
    if acted is None:
        raise ValueError(f"completion {node.number} is not whole")
    finish = trajectory_pb2.FinishReason(
        kind=int(acted.finish.kind),  # type: ignore[arg-type]
        matched_token=acted.finish.matched_token,
        matched_text=acted.finish.matched_text,
    )
    return pb.Finished(
        choice=node.choice,
        token_ids=wire.pack(acted.token_ids[sent:], "i"),
        logprobs=wire.pack(acted.logprobs[sent:], "f"),
        finish=finish,
        stop=acted.stop or "",
        completion_tokens=len(acted.token_ids),
        prompt_tokens=node.start,
        node=node.number,
    )


def _stops() -> ServiceError:
    return ServiceError(
        reasons.ERROR_REASON_DRAINING, "the engine stops; its next life hands out trajectories"
    )


def _no_key() -> ServiceError:
    return ServiceError(
        reasons.ERROR_REASON_SESSION_NOT_FOUND, "no trajectory has this key", subject="key"
    )


def _unfit(message: str, subject: str) -> ServiceError:
    return ServiceError(reasons.ERROR_REASON_INVALID_REQUEST, message, subject=subject)
