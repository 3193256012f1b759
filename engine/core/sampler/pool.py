"""Generation that survives a broken stream, on the quickest sampler.

`fleet.py` knows which servers are up, `routing.py` chooses a server for a request, `retry.py`
decides what follows a failure, `token_action.py` holds the received tokens. The pool joins them.

Invariants
- A trajectory stays on its server (prefix cache) until that server goes down or is clearly slower.
- A generation that breaks goes on from the tokens already received, with the reduced budget.
- No request id is a prefix of another: they all have one length (abort matches prefixes).
- A server's fault ends only its own stream, and no trajectory as the policy's fault.
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

from engine.core.sampler.fleet import Connect, Fleet
from engine.core.sampler.policy_sampler import GenerateRequest
from engine.core.sampler.retry import Fault, Over, Retry
from engine.core.sampler.server import ActionMoved, RequestInFlight, Server
from engine.core.sampler.token_action import TokenAction
from engine.core.sampler.waiting import WaitCause, Waiting
from engine.core.sampler.wire.client import ServerRefused, ServerUnreachable, fault_of
from engine.core.sampler.wire.events import WireError
from engine.core.sampler.wire.request import NO_ADAPTER, generate_request
from engine.core.time_limit import loop_now
from engine.errors import SamplerFailed
from engine.types import Codec, Generated
from toolwright.recipe import Sampler as SamplerTable
from toolwright.types import FinishKind, FinishReason

LOOK_SECONDS = 0.5
"""Interval between checks for actions that a slow server holds."""
MOST_MOVES = 32
"""Actions moved at one check; the next check sees the effect on the queues."""

_LARGEST_ID = 2**31 - 1
MOST_OF_A_CAUSE = 500
"""Characters of a server's answer that reach logs and records."""

log = structlog.get_logger("sampler")


@dataclass(slots=True, kw_only=True)
class _Pending:
    """One call of `generate` and its HTTP requests so far."""

    request: GenerateRequest
    waiting: Waiting
    retry: Retry
    refused: set[str] = field(default_factory=set)
    """Servers that refused the request."""
    movable: bool = True
    """The action has not moved yet. It moves once, from a slow server to a quick one."""


class SamplerPool(Fleet):
    """A fleet that generates, as the recipe's table says."""

    def __init__(
        self,
        table: SamplerTable,
        codec: Codec,
        *,
        vocab_size: int,
        connect: Connect | None = None,
    ) -> None:
        super().__init__(
            table.endpoints,
            silence=table.timeout_s,
            sees=codec.image_mark is not None,
            connect=connect,
        )
        self._table = table
        self._codec = codec
        self.vocab_size = vocab_size
        self._server_of: dict[str, str] = {}
        """Name of the server that has the prefix, by trajectory."""
        self._aborts: set[asyncio.Task[None]] = set()
        self._boot = secrets.token_hex(8)
        self._requests = itertools.count()

    async def close(self) -> None:
        """Ends requests in flight and closes the connections."""
        for task in list(self._aborts):
            task.cancel()
        await asyncio.gather(*self._aborts, return_exceptions=True)
        await super().close()

    def follow(self, key: str, other: str) -> None:
        """Sends a new trajectory, which begins like `other`, first to the server with the
        prefix."""
        if (server := self._server_of.get(other)) is not None:
            self._server_of[key] = server

    def release(self, key: str) -> None:
        """Forgets the server of a trajectory that is over."""
        self._server_of.pop(key, None)

    async def generate(self, request: GenerateRequest) -> Generated:
        """The action; it ends at a stop, at the length limit, or by a failure.

        Raises SamplerFailed if requests failed for `sampler.patience_s`, or if no sampler takes
        this one; permanent if the whole request came from the caller.
        """
        self._check_prompt(request.token_ids)
        action = TokenAction(request, codec=self._codec, known=self.known)
        pending = _Pending(
            request=request,
            waiting=Waiting(request.clock),
            retry=Retry(patience=self._table.patience_s, images=request.images is not None),
            movable=request.grammar is None,
        )
        try:
            generated = await self._finish(action, pending)
        except asyncio.CancelledError:
            action.report_rest()  # an engine that stops loses nothing of it
            raise
        finally:
            pending.waiting.end()
        if not request.top_logprobs:
            self.router.ended(len(generated.token_ids))
        return generated

    async def keep_alive(self) -> None:
        """Brings servers that went down back up, and moves actions from servers that turn out slow.
        Runs until cancelled."""
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
                    # An action that is longer than expected will likely take as long again.
                    left = max(flight.left, flight.came)
                    there = flight.prompt + flight.came
                    if self.router.better(server.name, up, tokens=left, prompt=there, now=now):
                        moves += 1
                        flight.leave()

    def _check_prompt(self, token_ids: array[int]) -> None:
        if not token_ids:
            return
        # Read as unsigned, a negative id exceeds any vocabulary: one comparison finds both.
        worst = int(np.maximum.reduce(np.frombuffer(token_ids, np.uint32)))
        if worst >= self.vocab_size:
            worst -= (worst > _LARGEST_ID) << 32
            raise SamplerFailed(
                f"token id {worst} is outside the policy's vocabulary", permanent=True
            )

    async def _finish(self, action: TokenAction, pending: _Pending) -> Generated:
        """Requests until the action is whole."""
        prompt, longest = pending.request.token_ids, pending.request.max_new_tokens
        while len(action.token_ids) < longest:
            before = len(action.token_ids)
            if before and pending.request.grammar is not None:
                raise SamplerFailed("the action under a grammar broke off")
            if before:  # a prompt of many thousand ids is copied only after a broken request
                prompt = pending.request.token_ids + action.token_ids
            server = await self._pick(pending, longest - before, len(prompt))
            try:
                finish = await self._request(server, action, pending, prompt)
            except ActionMoved:
                pending.movable = False
                self._server_of.pop(pending.request.key, None)
                log.info("action_moved", server=server.name, tokens=len(action.token_ids))
                continue
            except (ServerUnreachable, ServerRefused, WireError) as error:
                fault, cause = fault_of(error), str(error)
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
            pending.waiting.begin(WaitCause.BROKEN, loop_now() - silent_s)
            brought = len(action.token_ids) - before
            await asyncio.sleep(await self._after(fault, cause, server, pending, brought))
        return action.whole(FinishReason(kind=FinishKind.LENGTH))

    async def _request(
        self, server: Server, action: TokenAction, pending: _Pending, prompt: array[int]
    ) -> FinishReason:
        budget = pending.request.max_new_tokens - len(action.token_ids)
        rid = f"{self._boot}{next(self._requests):016x}"
        adapter = None if pending.request.sampling.adapter else server.adapter
        stops, interval = pending.request.stops, self._table.stream_interval
        # Marks, stops that the server does not know and clients that read along need small chunks.
        small = stops.marks or (stops.longer and not server.reads_text)
        if not small and pending.request.progress_ns is None:
            interval = self.router.chunk(server.name, interval)
        body = generate_request(
            rid=rid,
            input_ids=prompt,
            sampling=pending.request.sampling,
            max_new_tokens=budget,
            stop_token_ids=stops.stop_token_ids,
            stop=stops.longer if server.reads_text else (),
            stream_interval=interval,
            routing_key=pending.request.key,
            images=pending.request.images,
            top_logprobs=pending.request.top_logprobs,
            adapter=adapter or "",
            grammar=pending.request.grammar,
        )
        flight = RequestInFlight(
            server, self.router, action, pending.waiting,
            budget=budget, vocab_size=self.vocab_size, movable=pending.movable,
            adapter=adapter, can_have=self.can_have,
        )  # fmt: skip
        try:
            return await flight.run(body)
        finally:
            if not action.server_finished:
                self._abort(server, rid)

    async def _after(
        self, fault: Fault, cause: str, server: Server, pending: _Pending, brought: int
    ) -> float:
        """Seconds until the next request, after one that brought `brought` tokens. Raises
        SamplerFailed if no request should follow."""
        if fault is Fault.REFUSED and server.adapter and NO_ADAPTER in cause:
            fault = Fault.BROKEN  # it was started anew
        server.faults[fault] += 1
        cause = cause[:MOST_OF_A_CAUSE]
        news = fault is Fault.REFUSED
        lives = False
        if fault in (Fault.BROKEN, Fault.SILENT) and server.up.is_set():
            # One broken connection does not condemn a server that answers with this run's weights.
            lives = self.can_have(await server.weights(), server.version)
            if not lives:
                self.mark_down(server, cause)
        if fault is Fault.REFUSED:
            pending.refused.add(server.name)
        elif fault is not Fault.ABORTED:  # another client may have caused that
            news = self.router.failed(server.name, time.monotonic())
        # People see the first of several failures at once; the log's file has them all.
        log_line = log.warning if news else log.info
        log_line("request_failed", server=server.name, fault=str(fault), error=cause)
        decision = pending.retry.failed(
            fault,
            now=time.monotonic(),
            brought=brought,
            others=bool({*self.names_up} - pending.refused - {server.name}),
            lives=lives,
        )
        if isinstance(decision, Over):
            raise SamplerFailed(cause, permanent=decision.permanent)
        return decision.after

    async def _pick(self, pending: _Pending, budget: int, prompt: int) -> Server:
        while not (up := self.names_up):
            began = time.monotonic()
            pending.waiting.begin(WaitCause.NO_SAMPLER, loop_now())
            await self.wait_for_one()
            pending.waiting.end(WaitCause.NO_SAMPLER)
            pending.retry.waited(time.monotonic() - began)
        name = self.router.choose(
            [name for name in up if name not in pending.refused] or up,
            current=self._server_of.get(pending.request.key),
            tokens=self.router.expected(budget),
            prompt=prompt,
            now=time.monotonic(),
        )
        self._server_of[pending.request.key] = name
        return self.named(name)

    def _abort(self, server: Server, rid: str) -> None:
        """Ends a request without a reader. The pool owns the task until it is done."""

        async def post() -> None:
            try:
                await server.client.abort(rid)
            except (ServerUnreachable, ServerRefused, WireError) as error:
                log.info("abort_failed", server=server.name, error=str(error))

        task = asyncio.get_running_loop().create_task(post())
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)
