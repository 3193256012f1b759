"""Generation that survives a broken stream, on whichever sampler is quickest.

Who is up is `fleet.py`, which server a request goes to `routing.py`, what follows a failure
`retry.py`, what was received `action.py`; here they meet.

Invariants
- A trajectory stays on its server (prefix cache) until that server goes down or is clearly slower.
- A generation that breaks goes on from the tokens already received, with the reduced budget.
- A request id is never a prefix of another: they all have one length (abort matches prefixes).
- A server's fault ends no stream but its own, and no trajectory as the policy's fault.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from array import array
from dataclasses import dataclass, field

import numpy as np
import structlog

from engine.core.sampler.action import Action, OnAction, OnMark
from engine.core.sampler.fleet import Fleet
from engine.core.sampler.retry import Fault, Over, Retry
from engine.core.sampler.server import Flight, Moved, Server
from engine.core.sampler.stops import StopTable
from engine.core.sampler.waiting import Cause, Clock, Waiting
from engine.core.sampler.wire.client import ServerRefused, ServerSilent, ServerUnreachable
from engine.core.sampler.wire.events import WireError
from engine.core.sampler.wire.request import generate_request, numbers
from engine.errors import SamplerFailed
from engine.types import Codec, Generated, Images
from toolwright.recipe import Sampler as SamplerTable
from toolwright.types import FinishKind, FinishReason, SamplingParams

LOOK_SECONDS = 0.5
"""Between looks for actions that a slow server holds."""
MOST_MOVES = 32
"""Actions moved at one look; the next look sees what they did to the queues."""

_LARGEST_ID = 2**31 - 1
MOST_OF_A_CAUSE = 500
"""Characters of what a server said that reach logs and records."""

log = structlog.get_logger("sampler")


@dataclass(slots=True, kw_only=True)
class _Asked:
    """One call of `generate`, and what became of its requests so far."""

    key: str
    token_ids: array[int]
    sampling: SamplingParams
    max_new_tokens: int
    waiting: Waiting
    retry: Retry
    refused: set[str] = field(default_factory=set)
    """Servers that do not take the request."""
    movable: bool = True
    """It was not moved yet: an action goes from a slow server to a quick one, never on and on."""


class SamplerPool(Fleet):
    """A fleet that generates, as the recipe's table says."""

    def __init__(self, table: SamplerTable, codec: Codec, *, vocab_size: int) -> None:
        super().__init__(
            table.endpoints, silence=table.timeout_s, sees=codec.image_mark is not None
        )
        self._table = table
        self._codec = codec
        self.vocab_size = vocab_size
        self._server_of: dict[str, str] = {}
        """By trajectory, the name of the server that has its prefix."""
        self._aborts: set[asyncio.Task[None]] = set()
        self._boot = secrets.token_hex(8)
        self._requests = itertools.count()

    async def close(self) -> None:
        """Ends what is under way and hangs up."""
        for task in list(self._aborts):
            task.cancel()
        await asyncio.gather(*self._aborts, return_exceptions=True)
        await super().close()

    def follow(self, key: str, other: str) -> None:
        """A new trajectory begins as `other` does: it goes first to the server that has the
        prefix."""
        if (server := self._server_of.get(other)) is not None:
            self._server_of[key] = server

    def release(self, key: str) -> None:
        """The trajectory is over: its server may be forgotten."""
        self._server_of.pop(key, None)

    async def generate(
        self,
        *,
        key: str,
        token_ids: array[int],
        sampling: SamplingParams,
        max_new_tokens: int,
        stops: StopTable,
        on_action: OnAction,
        on_mark: OnMark | None = None,
        on_progress: OnAction | None = None,
        received: Generated | None = None,
        images: Images | None = None,
        clock: Clock | None = None,
        top_logprobs: int = 0,
    ) -> Generated:
        """One action after `token_ids` with their `images`; ends at a stop, the length, or a
        failure.

        on_action: called once, inside the read that brought the stop and before the stream has
        ended, with what then is returned; not called where no stop came. on_mark: called when one
        of the table's marks is complete. on_progress: called about once a second, and once more
        at cancellation, with what came since it was called last, from tokens on that `received`
        does not hold; a run of versions in it may be put right later, in what is returned.
        received: what an earlier life has of this action; it counts into `max_new_tokens` and
        into what is returned. clock: stops while the action waits for a sampler. top_logprobs: how
        many log-probs of the likeliest tokens come with each token; for beginnings of actions,
        whose length tells the router nothing.

        SamplerFailed when requests failed for `sampler.patience_s`, or no sampler takes this one;
        permanent where all of the request came from the caller.
        """
        self._check_prompt(token_ids)
        action = Action(
            stops=stops, codec=self._codec, known=self.known, on_action=on_action,
            on_mark=on_mark, on_progress=on_progress, received=received, images=images,
            top_logprobs=top_logprobs,
        )  # fmt: skip
        asked = _Asked(
            key=key,
            token_ids=token_ids,
            sampling=sampling,
            max_new_tokens=max_new_tokens,
            waiting=Waiting(clock),
            retry=Retry(patience=self._table.patience_s, images=images is not None),
        )
        try:
            generated = await self._finish(action, asked)
        except asyncio.CancelledError:
            action.tell_rest()  # an engine that is told to stop loses nothing of it
            raise
        finally:
            asked.waiting.end()
        if not top_logprobs:
            self.router.ended(len(generated.token_ids))
        return generated

    async def keep_alive(self) -> None:
        """Brings servers that went down back up, and takes actions from servers that turn out
        slow; runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().keep_alive())
            tasks.create_task(self._move_from_slow())

    async def _move_from_slow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            up = self.names_up
            now, moves = time.monotonic(), 0
            for server in map(self.named, up):
                if server.paused or not self.router.lags(server.name, up):
                    continue
                for flight in list(server.flights):
                    if not flight.movable or moves >= MOST_MOVES:
                        continue
                    # One that is longer than expected has about as much again to go.
                    left = max(flight.left, flight.came)
                    there = flight.prompt + flight.came
                    if self.router.better(server.name, up, tokens=left, prompt=there, now=now):
                        moves += 1
                        flight.leave()

    def _check_prompt(self, token_ids: array[int]) -> None:
        if not token_ids:
            return
        # Read as unsigned, a negative id is larger than any vocabulary: one look finds both.
        worst = int(numbers(token_ids).view(np.uint32).max())
        if worst >= self.vocab_size:
            worst -= (worst > _LARGEST_ID) << 32
            raise SamplerFailed(
                f"token id {worst} is outside the policy's vocabulary", permanent=True
            )

    async def _finish(self, action: Action, asked: _Asked) -> Generated:
        """Requests until the action is whole."""
        while len(action.token_ids) < asked.max_new_tokens:
            before = len(action.token_ids)
            # A prompt of many thousand ids is copied only where an earlier request broke.
            prompt = asked.token_ids + action.token_ids if before else asked.token_ids
            server = await self._pick(asked, asked.max_new_tokens - before, len(prompt))
            try:
                finish = await self._request(server, action, asked, prompt)
            except Moved:
                asked.movable = False
                self._server_of.pop(asked.key, None)
                log.info("action_moved", server=server.name, tokens=len(action.token_ids))
                continue
            except (ServerUnreachable, ServerRefused, WireError) as error:
                fault, cause = _fault(error), str(error)
            else:
                if action.goes_on(finish) and len(action.token_ids) > before:
                    continue
                if finish.kind is not FinishKind.ABORT:
                    self.router.served(server.name)
                    return action.whole(finish)
                if len(action.token_ids) > before:  # a pause, or a foreign abort: go on
                    continue
                fault, cause = Fault.ABORTED, f"{server.name} aborts again and again"
            silent_s = (time.monotonic_ns() - action.heard_ns) / 1e9
            asked.waiting.begin(Cause.BROKEN, asyncio.get_running_loop().time() - silent_s)
            brought = len(action.token_ids) - before
            await asyncio.sleep(await self._after(fault, cause, server, asked, brought))
        return action.whole(FinishReason(kind=FinishKind.LENGTH))

    async def _request(
        self, server: Server, action: Action, asked: _Asked, prompt: array[int]
    ) -> FinishReason:
        budget = asked.max_new_tokens - len(action.token_ids)
        rid = f"{self._boot}{next(self._requests):016x}"
        body = generate_request(
            rid=rid,
            input_ids=prompt,
            sampling=asked.sampling,
            max_new_tokens=budget,
            stop_token_ids=action.stops.stop_token_ids,
            stop=action.stops.longer if server.reads_text else (),
            stream_interval=self._table.stream_interval,
            routing_key=asked.key,
            images=action.images,
            top_logprobs=action.top_logprobs,
        )
        flight = Flight(
            server, self.router, action, asked.waiting,
            budget=budget, vocab_size=self.vocab_size, movable=asked.movable,
        )  # fmt: skip
        try:
            return await flight.fly(body)
        finally:
            if not action.server_finished:
                self._abort(server, rid)

    async def _after(
        self, fault: Fault, cause: str, server: Server, asked: _Asked, brought: int
    ) -> float:
        """Seconds until the next request, after one that brought so many tokens. SamplerFailed
        when there shall be none."""
        server.faults[fault] += 1
        cause = cause[:MOST_OF_A_CAUSE]
        news = fault is Fault.REFUSED
        lives = False
        if fault in (Fault.BROKEN, Fault.SILENT) and server.up.is_set():
            # One broken connection condemns no server that answers with weights of ours.
            lives = await server.weights() in self.known
            if not lives:
                self.mark_down(server, cause)
        if fault is Fault.REFUSED:
            asked.refused.add(server.name)
        elif fault is not Fault.ABORTED:  # that may be anybody's doing
            news = self.router.failed(server.name, time.monotonic())
        # People read the first of those that fail together, the log's file has them all.
        tell = log.warning if news else log.info
        tell("request_failed", server=server.name, fault=str(fault), error=cause)
        decision = asked.retry.failed(
            fault,
            now=time.monotonic(),
            brought=brought,
            others=bool({*self.names_up} - asked.refused - {server.name}),
            lives=lives,
        )
        if isinstance(decision, Over):
            raise SamplerFailed(cause, permanent=decision.permanent)
        return decision.after

    async def _pick(self, asked: _Asked, budget: int, prompt: int) -> Server:
        while not (up := self.names_up):
            began = time.monotonic()
            asked.waiting.begin(Cause.NO_SAMPLER, asyncio.get_running_loop().time())
            await self.wait_for_one()
            asked.waiting.end(Cause.NO_SAMPLER)
            asked.retry.waited(time.monotonic() - began)
        name = self.router.choose(
            [name for name in up if name not in asked.refused] or up,
            current=self._server_of.get(asked.key),
            tokens=self.router.expected(budget),
            prompt=prompt,
            now=time.monotonic(),
        )
        self._server_of[asked.key] = name
        return self.named(name)

    def _abort(self, server: Server, rid: str) -> None:
        """Ends a request that nobody reads any more; owned by the pool until it is done."""

        async def post() -> None:
            try:
                await server.client.abort(rid)
            except (ServerUnreachable, ServerRefused, WireError) as error:
                log.info("abort_failed", server=server.name, error=str(error))

        task = asyncio.get_running_loop().create_task(post())
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)


def _fault(error: ServerUnreachable | ServerRefused | WireError) -> Fault:
    if isinstance(error, WireError):
        return Fault.MALFORMED if error.retryable else Fault.REFUSED
    if isinstance(error, ServerRefused):
        return Fault.REFUSED
    return Fault.SILENT if isinstance(error, ServerSilent) else Fault.BROKEN
