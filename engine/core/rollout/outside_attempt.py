"""One attempt of an outside agent: its model calls, from the first request to its end.

The agent runs elsewhere. This module knows neither HTTP nor gRPC: `engine.serving.ingress` hands
requests in. The log decides everything, so a later life of the engine goes on with open calls.

Invariants
- A call without a reader lives for `GRACE_S`; then it is dropped. A reply ends that.
- At most `MOST_CALLS` completions, and `MOST_AT_ONCE` calls in flight.
- The record has less than `MOST_RECORD` bytes: the learner gets it as one message.
- After the end no event is appended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

import structlog

from engine.core.rollout.assignment import Assignment, RolloutContext
from engine.core.rollout.outside_call import OutsideCall, forest_of
from engine.core.rollout.outside_requests import (
    AgentEnd,
    CallRefused,
    CompletionReply,
    ModelRequest,
    PromptIds,
    Refusal,
)
from engine.core.rollout.outside_results import answered, called, characters
from engine.core.rollout.outside_rewards import checked_report, has_reward
from engine.core.sampler.stops import StopTable
from engine.core.time_limit import TimeLimit
from engine.core.trajectory.events import (
    AnyEvent,
    Asked,
    Begun,
    Dropped,
    Ended,
    Noted,
    Replied,
)
from engine.core.trajectory.forest import Forest, Match
from engine.core.trajectory.log import AttemptLog
from engine.core.trajectory.state import LogError
from engine.errors import AttemptFailed, first_of_group
from toolwright.ingress.limits import MOST_AT_ONCE, MOST_CHOICES, MOST_TEXT
from toolwright.recipe import Agent
from toolwright.rpc.options import MESSAGE_LIMIT
from toolwright.types import (
    Author,
    Event,
    RewardPart,
    SamplingParams,
    StopReason,
)

GRACE_S = 15.0
"""Time for which a call without a reader goes on, in seconds: a client may retry."""
RETURN_S = 60.0
"""The same after a restart of the engine, because the ingress must find the engine first."""
MOST_CALLS = 1024
MOST_RECORD = MESSAGE_LIMIT - (8 << 20)
"""Largest size of sequences and calls, in bytes. The rest of a message is for everything else."""
TEXT_BYTES = 4
"""Largest size of a character."""
STOP_TABLES = 4
"""Tables that are kept: an agent sends the same stops with nearly all requests."""
MOST_ERROR = 500
MOST_OUTPUT = 1 << 14
"""Characters of what an agent wrote to its output."""
AGENT_ENDED = "agent_ended"
"""Kind of the note of an agent's end, while the trajectory waits for its reward."""

log = structlog.get_logger("ingress")


class OutsideAttempt:
    """`begin`, unless the log has begun, then `run` until the end. Requests come meanwhile."""

    def __init__(
        self, context: RolloutContext, assignment: Assignment, attempt: AttemptLog, rules: Agent
    ) -> None:
        self.assignment = assignment
        self.log = attempt
        self.rules = rules
        self._context = context
        self._limits = context.rules.limits
        codec = context.rules.codec
        self._stop_table = lru_cache(STOP_TABLES)(lambda stops: StopTable(stops, codec))
        self._calls: dict[int, OutsideCall] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._reserved: dict[asyncio.Event, ModelRequest] = {}
        """Requests that wait for their prompts, by an event that is set after the wait."""
        self._tasks: asyncio.TaskGroup | None = None
        self._end: asyncio.Future[AgentEnd] = asyncio.get_running_loop().create_future()
        self._over, self._concluded = asyncio.Event(), False
        self._rewarded = asyncio.Event()
        state = attempt.state
        spent = state.forest.spent_s if state.forest is not None else 0.0
        self._earlier_s, self._began = spent, time.monotonic()
        self._limit = TimeLimit(self._limits.seconds, spent=spent)

    @property
    def name(self) -> str:
        return self.log.attempt

    @property
    def forest(self) -> Forest:
        return forest_of(self.log)

    @property
    def context_tokens(self) -> int:
        """Tokens of the whole context."""
        return self._limits.model

    def begin(self, taker: str) -> None:
        """Logs that an agent works on it. taker: see `Begun`."""
        self.log.append(
            Begun(
                sampling=self.assignment.sampling,
                train_superseded=self.rules.superseded == "train",
                train_constrained=self.rules.constrained == "train",
                taker=taker,
                clock_s=time.time() - time.monotonic(),
                iteration=self.assignment.iteration,
            )
        )
        self._began = time.monotonic()

    async def run(self, started: Callable[[], None]) -> None:
        """Returns when the log has ended. Raises AttemptFailed if infrastructure ended the agent.
        started: called once requests may come."""
        try:
            with first_of_group(LogError):
                async with self._limit, asyncio.TaskGroup() as self._tasks:
                    for number in self.forest.open_calls:
                        self._start(self._call_in_flight(number, stream=False), RETURN_S)
                    self._end_as_before()
                    started()
                    end = await asyncio.shield(self._end)
                    self._stop_calls()
                    if not end.failure and self._awaits_reward:
                        await self._rewarded.wait()
        except TimeoutError:
            timeout = AgentEnd(reason=StopReason.TRAJECTORY_TIMEOUT)
            end = self._end.result() if self._end.done() else timeout
        finally:
            self._stop_calls()
            self._tasks = None
            self._context.pool.release(self.name)
            self._over.set()
        self._concluded = True
        if end.failure:
            raise AttemptFailed(end.failure[:MOST_ERROR])
        last: list[AnyEvent] = [
            Dropped(call=number, why="the trajectory ended") for number in self.forest.open_calls
        ]
        if end.error:
            last.append(self._note("agent_failed", error=end.error[:MOST_ERROR]))
        if end.output:
            last.append(self._note("agent_output", output=end.output[:MOST_OUTPUT]))
        seconds = self._earlier_s + time.monotonic() - self._began
        self.log.append_all([*last, Ended(reason=end.reason, seconds=seconds, answer=end.answer)])

    async def end(self, end: AgentEnd) -> None:
        """Ends the attempt; the first end counts. Returns when the log has the end, or the attempt
        is given up. With `reward_from = "callback"` the attempt then waits for its reward, until
        its time is up. Raises CallRefused if the engine stops first."""
        if not self._end.done():
            self._end.set_result(end)
            if not end.failure and self._awaits_reward and self.log.state.ended is None:
                reason = int(end.reason)
                note = self._note(AGENT_ENDED, reason=reason, error=end.error, answer=end.answer)
                self.log.append(note)
        if self._awaits_reward and not self._end.result().failure:
            return
        await self._over.wait()
        if not self._concluded:
            raise CallRefused(Refusal.AWAY, "the engine stops, and goes on later")

    def give_up(self, why: str) -> None:
        """Ends the attempt, unless it has ended: infrastructure lost its agent."""
        if not self._end.done():
            self._end.set_result(AgentEnd(reason=StopReason.INFRASTRUCTURE_ERROR, failure=why))

    def _end_as_before(self) -> None:
        """Repeats the end that an earlier life of the engine took."""
        for note in self.log.state.events:
            if note.kind == AGENT_ENDED and not self._end.done():
                reason = StopReason(int(note.data["reason"]))
                error, answer = note.data["error"], note.data["answer"]
                self._end.set_result(AgentEnd(reason=reason, error=error, answer=answer))

    @property
    def _awaits_reward(self) -> bool:
        """Whether the trajectory's reward is still to come, after the agent's end."""
        return self.rules.reward_from == "callback" and not has_reward(self.log.state)

    def report(self, reward: float | None, parts: Sequence[RewardPart], number: int | None) -> None:
        """Takes a reward. number: completion that parts without a turn belong to, or None. Raises
        CallRefused after the end, or if the report is unfit (`checked_report`)."""
        if not (self._end.done() and self._awaits_reward and self.log.state.ended is None):
            self._refuse_over()
        self.log.append(checked_report(self.forest, self.log.state, reward, parts, number))
        if not self._awaits_reward:
            self._rewarded.set()

    def known(self, request: bytes, *, only_open: bool = False) -> int | None:
        """The newest call with a request digest, if it is in flight or accepted. only_open: the
        newest in flight. Calls without a reader come first, since equal requests may run at once.
        """
        if only_open:
            same = (n for n in self._calls if self.forest.node(n).asked.request == request)
            return max(same, key=lambda n: (not self._calls[n].readers, n), default=None)
        number = self.forest.known(request)
        if number is None or number in self._calls:
            return number
        accepted = self.forest.node(number).turn is not None
        return number if accepted else None

    def match(self, request: ModelRequest) -> Match | None:
        """The completion that a request goes on from."""
        return self.forest.match(request.root, request.digests, request.reasoning)

    @contextmanager
    def reserved(self, request: ModelRequest) -> Iterator[None]:
        """Holds room for a call until its prompt comes. Raises CallRefused without room, or for a
        request that no attempt serves."""
        self._refuse_over()
        if not (1 <= request.n <= MOST_CHOICES and request.digests):
            raise CallRefused(
                Refusal.UNFIT, f"a request has messages, and 1 to {MOST_CHOICES} completions"
            )
        reserved = sum(one.n for one in self._reserved.values())
        if len(self.forest.nodes) + request.n > MOST_CALLS:
            raise CallRefused(
                Refusal.FULL, f"the trajectory has its {MOST_CALLS} completions: end it"
            )
        at_once = len(self._calls) + len(self._reserved)
        if len(self.forest.nodes) + reserved + request.n > MOST_CALLS or at_once >= MOST_AT_ONCE:
            raise CallRefused(Refusal.TOO_MANY, f"{MOST_AT_ONCE} calls are in flight already")
        settled = asyncio.Event()
        self._reserved[settled] = request
        try:
            yield
        finally:
            del self._reserved[settled]
            settled.set()

    async def unreserved(self, request: bytes) -> None:
        """Returns when no request with this digest waits for its prompt, so that a retry does not
        pass the request that it repeats; at the latest after `GRACE_S`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                for settled, one in list(self._reserved.items()):
                    if one.request == request:
                        await settled.wait()

    def ask(self, request: ModelRequest, match: Match | None, prompt: PromptIds) -> OutsideCall:
        """Logs a call and starts it. Raises CallRefused if its prompt leaves no room or does not
        fit the match, or if the record would become too large."""
        self._refuse_over()
        if match is None and not prompt.fresh:
            raise CallRefused(Refusal.UNFIT, "a new root needs all ids of its prompt")
        parent, shared, token_ids, authors = None, 0, prompt.token_ids, prompt.authors
        if match is not None and not prompt.fresh:
            parent, shared = match.node.number, match.node.end
        elif match is not None or prompt.by_prefix:
            found = self.forest.longest_prefix(request.root, token_ids, whole=prompt.by_prefix)
            parent, shared = (None, 0) if found is None else (found[0].number, found[1])
            token_ids, authors = token_ids[shared:], _runs_after(authors, shared)
        room = self._limits.model - shared - len(token_ids)
        if room < 1:
            raise CallRefused(
                Refusal.CONTEXT_FULL,
                f"{shared + len(token_ids)} tokens > {self._limits.model} maximum",
            )
        sampling = self._sampling(request.sampling)
        number = len(self.forest.nodes)
        texts = self.forest.text_bytes + len(prompt.text or b"")
        asked = Asked(
            call=number,
            root=request.root,
            digest=request.digests[-1],
            messages=len(request.digests),
            request=request.request,
            token_ids=token_ids,
            authors=authors,
            room=min(room, sampling.max_new_tokens or self._limits.action),
            sampling=replace(sampling, max_new_tokens=None),
            parent=parent,
            shared=shared,
            n=request.n,
            agent=request.agent,
            aside=request.aside,
            stops=request.stops,
            grammar=request.grammar,
            asked_ns=time.monotonic_ns(),
            text=prompt.text if texts <= MOST_TEXT else None,
            text_after=match.node.number if match is not None and self.keeps(match) else None,
            spent_s=self._limit.spent,
        )
        shown = TEXT_BYTES * (
            characters(self.log.state) + sum(len(text) for _, text in prompt.results)
        )
        if self.forest.asked(asked).record_bytes + shown > MOST_RECORD:
            raise CallRefused(
                Refusal.FULL,
                f"the record would have more than {MOST_RECORD >> 20} MiB, as each sequence "
                "repeats what it shares: end the trajectory",
            )
        above = {node.turn for node in self.forest.above(parent)} if prompt.results else set()
        results = answered(self.log.state, prompt.results, above)
        self.log.append_all([*results, asked])
        call = self._call_in_flight(number, stream=request.stream)
        self._start(call, GRACE_S)
        return call

    def call(self, number: int) -> OutsideCall | None:
        """A call in flight; None for an accepted one. Raises CallRefused for a dropped one."""
        self._refuse_over()
        call = self._calls.get(number)
        if call is None and self.forest.nodes[number] is None:
            raise CallRefused(Refusal.OVER, "the call had no reader and was dropped")
        return call

    @contextmanager
    def reading(self, call: OutsideCall) -> Iterator[None]:
        """Keeps a call alive. Without a reader it is dropped after `GRACE_S`."""
        call.readers += 1
        self._disarm(call.number)
        try:
            yield
        finally:
            call.readers -= 1
            if not call.readers and call.number in self._calls:
                self._arm(call.number, GRACE_S)

    def keeps(self, match: Match) -> bool:
        """Whether the text of a completion's conversation is kept."""
        return self.forest.conversation(match.node.number) is not None

    def reply(self, number: int, replies: Sequence[CompletionReply]) -> None:
        """Accepts a call, with its tool calls in one append. A second reply changes nothing. Raises
        CallRefused if it does not fit."""
        if self.call(number) is None:
            return
        nodes = self.forest.call(number)
        if len(replies) != len(nodes) or any(node.acted is None for node in nodes):
            raise CallRefused(Refusal.UNFIT, f"call {number} has {len(nodes)} whole completions")
        self._forget(number)
        kept = nodes[0].asked.text is not None
        events: list[AnyEvent] = [
            Replied(
                call=number,
                digests=tuple(one.digest for one in replies),
                reasoning=tuple(one.reasoning for one in replies),
                texts=tuple(one.text for one in replies) if kept else (),
                spent_s=self._limit.spent,
            )
        ]
        for turn, reply in enumerate(replies, len(self.forest.accepted)):
            for index, read in enumerate(reply.calls):
                events += called(self.name, turn, index, read)
        self.log.append_all(events)

    def _note(self, kind: str, **data: Any) -> Noted:
        return Noted(note=Event(kind=kind, turn=self.log.state.turn, data=data))

    def _sampling(self, wanted: SamplingParams) -> SamplingParams:
        own = self.assignment.sampling
        if self.rules.sampling == "recipe":
            return replace(own, seed=wanted.seed, max_new_tokens=wanted.max_new_tokens)
        names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
        given = {name: getattr(wanted, name) for name in names}
        return replace(
            own,
            seed=wanted.seed,
            max_new_tokens=wanted.max_new_tokens,
            **{name: value for name, value in given.items() if value is not None},
        )

    def _call_in_flight(self, number: int, *, stream: bool) -> OutsideCall:
        return OutsideCall(
            self._context,
            self.log,
            number,
            self._limit,
            stream=stream,
            stop_table=self._stop_table,
        )

    def _start(self, call: OutsideCall, grace_s: float) -> None:
        assert self._tasks is not None, "a call starts while the attempt runs"
        self._calls[call.number] = call
        self._running[call.number] = self._tasks.create_task(call.run())
        self._arm(call.number, grace_s)

    def _arm(self, number: int, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers[number] = loop.call_later(seconds, self.drop, number, "no reader")

    def _disarm(self, number: int) -> None:
        if (timer := self._timers.pop(number, None)) is not None:
            timer.cancel()

    def drop(self, number: int, why: str) -> None:
        """Gives a call up that is in flight."""
        call = self._calls.get(number)
        if call is not None and self.log.state.ended is None:
            self._forget(number)
            self.log.append(Dropped(call=number, why=why))
            log.info("call_dropped", attempt=self.name, call=number, why=why)

    def _forget(self, number: int) -> None:
        self._disarm(number)
        call = self._calls.pop(number)
        self._running.pop(number).cancel()
        call.whole.set()
        call.changed.set()

    def _stop_calls(self) -> None:
        for number in list(self._calls):
            self._forget(number)

    def _refuse_over(self) -> None:
        if self._end.done() or self.log.state.ended is not None:
            raise CallRefused(Refusal.OVER, "the trajectory has ended")
        if self._tasks is None:
            raise CallRefused(Refusal.AWAY, "the engine stops, and goes on later")


def _runs_after(
    authors: Sequence[tuple[Author, int]], shared: int
) -> tuple[tuple[Author, int], ...]:
    """The runs without their first `shared` ids."""
    found = []
    for author, count in authors:
        if count > shared:
            found.append((author, count - shared))
        shared = max(0, shared - count)
    return tuple(found)
