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
from collections.abc import Mapping
from typing import Any

import structlog

from engine.errors import SamplerFailed
from engine.sampler.action import Action, OnAction, OnMark
from engine.sampler.fleet import Fleet
from engine.sampler.retry import Fault, Over, Retry
from engine.sampler.routing import PREFILL
from engine.sampler.server import Flight, Server
from engine.sampler.stops import StopTable
from engine.sampler.waiting import Cause, Clock, Waiting
from engine.sampler.wire.client import ServerRefused, ServerSilent, ServerUnreachable
from engine.sampler.wire.events import Chunk, ChunkReader, WireError
from engine.sampler.wire.request import generate_request, numbers
from engine.sampler.wire.stream import QUIET_SECONDS
from engine.types import Codec, Generated, Images
from toolwright.recipe import Sampler as SamplerTable
from toolwright.types import FinishKind, FinishReason, SamplingParams

LOOK_SECONDS = 0.5
"""Between looks for actions that a slow server holds."""
MOST_MOVES = 32
"""Actions moved at one look; the next look sees what they did to the queues."""

log = structlog.get_logger("sampler")


class Moved(Exception):
    """The action leaves its server for a quicker one; no fault of anybody."""


class SamplerPool(Fleet):
    """A fleet that generates, as the recipe's table says."""

    def __init__(self, table: SamplerTable, codec: Codec, *, vocab_size: int) -> None:
        super().__init__(
            table.endpoints, silence=table.timeout_s, sees=codec.image_mark is not None
        )
        self._table = table
        self._codec = codec
        self._vocab_size = vocab_size
        self._held: dict[str, str] = {}
        """The server of each trajectory, by name."""
        self._aborts: set[asyncio.Task[None]] = set()
        self._boot = secrets.token_hex(8)
        self._requests = itertools.count()

    async def close(self) -> None:
        """Ends what is under way and hangs up."""
        for task in list(self._aborts):
            task.cancel()
        await asyncio.gather(*self._aborts, return_exceptions=True)
        await super().close()

    def release(self, key: str) -> None:
        """The trajectory is over: its server may be forgotten."""
        self._held.pop(key, None)

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
    ) -> Generated:
        """One action after `token_ids` with their `images`; ends at a stop, the length, or a
        failure.

        on_action: called once, inside the read that brought the stop and before the stream has
        ended, with what then is returned; not called where no stop came. on_mark: called when one
        of the table's marks is complete. on_progress: called at most once a second with what came
        since it was called last, from tokens on that `received` does not hold; a run of versions
        in it may be put right later, in what is returned. received: what an earlier life has of
        this action; it counts into `max_new_tokens` and into what is returned. clock: stops while
        the action waits for a sampler.

        SamplerFailed when requests failed for `sampler.patience_s`, or no sampler takes this one;
        permanent where all of the request came from the caller.
        """
        self._check_prompt(token_ids)
        action = Action(
            stops=stops, codec=self._codec, known=self.known, on_action=on_action,
            on_mark=on_mark, on_progress=on_progress, received=received, images=images,
        )  # fmt: skip
        waiting = Waiting(clock)
        try:
            generated = await self._finish(
                action, key, token_ids, sampling, max_new_tokens, waiting
            )
        finally:
            waiting.end()
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
                    if self.router.better(
                        server.name, up, tokens=left, prompt=flight.prompt, now=now
                    ):
                        moves += 1
                        flight.movable = False
                        flight.stream.end(Moved())

    def _check_prompt(self, token_ids: array[int]) -> None:
        if not token_ids:
            return
        ids = numbers(token_ids)
        worst = int(ids.max()) if int(ids.min()) >= 0 else int(ids.min())
        if not 0 <= worst < self._vocab_size:
            raise SamplerFailed(
                f"token id {worst} is outside the policy's vocabulary", permanent=True
            )

    async def _finish(
        self,
        action: Action,
        key: str,
        token_ids: array[int],
        sampling: SamplingParams,
        max_new_tokens: int,
        waiting: Waiting,
    ) -> Generated:
        """Requests until the action is whole."""
        retry = Retry(patience=self._table.patience_s, images=action.images is not None)
        refused: set[str] = set()
        movable = True
        while len(action.token_ids) < max_new_tokens:
            before = len(action.token_ids)
            # A prompt of many thousand ids is copied only where an earlier request broke.
            prompt = token_ids + action.token_ids if before else token_ids
            server = await self._pick(
                key, max_new_tokens - before, len(prompt), waiting, retry, refused
            )
            body = generate_request(
                rid=f"{self._boot}{next(self._requests):016x}",
                input_ids=prompt,
                sampling=sampling,
                max_new_tokens=max_new_tokens - before,
                stop_token_ids=action.stops.stop_token_ids,
                stop=action.stops.longer if server.reads_text else (),
                stream_interval=self._table.stream_interval,
                routing_key=key,
                images=action.images,
            )
            try:
                finish = await self._stream(
                    server, body, action, waiting, max_new_tokens - before, movable=movable
                )
            except Moved:
                movable = False
                self._held.pop(key, None)
                log.info("action_moved", server=server.name, tokens=len(action.token_ids))
                continue
            except (ServerUnreachable, ServerRefused, WireError) as error:
                fault, cause = _fault(error), error
            else:
                brought = len(action.token_ids) - before
                if finish.kind is not FinishKind.ABORT:
                    self.router.served(server.name)
                    return action.whole(finish)
                if brought:  # a pause, or a foreign abort: go on
                    continue
                fault, cause = (
                    Fault.ABORTED,
                    ServerUnreachable(f"{server.name} aborts again and again"),
                )
            silent_s = (time.monotonic_ns() - action.heard_ns) / 1e9
            waiting.begin(Cause.BROKEN, asyncio.get_running_loop().time() - silent_s)
            again = await self._after(
                fault, cause, server, retry, refused, brought=len(action.token_ids) - before
            )
            await asyncio.sleep(again)
        return action.whole(FinishReason(kind=FinishKind.LENGTH))

    async def _after(
        self,
        fault: Fault,
        cause: Exception,
        server: Server,
        retry: Retry,
        refused: set[str],
        *,
        brought: int,
    ) -> float:
        """Seconds until the next request. SamplerFailed when there shall be none."""
        server.faults[fault] += 1
        log.warning("request_failed", server=server.name, fault=str(fault), error=str(cause)[:500])
        lives = False
        if fault in (Fault.BROKEN, Fault.SILENT) and server.up.is_set():
            # One broken connection condemns no server that answers with weights of ours.
            lives = await server.weights() in self.known
            if not lives:
                self.mark_down(server, str(cause)[:500])
        if fault is Fault.REFUSED:
            refused.add(server.name)
        elif fault is not Fault.ABORTED:  # that may be anybody's doing
            self.router.failed(server.name, time.monotonic())
        decision = retry.failed(
            fault,
            now=time.monotonic(),
            brought=brought,
            others=any(name not in refused and name != server.name for name in self.names_up),
            lives=lives,
        )
        if isinstance(decision, Over):
            raise SamplerFailed(str(cause), permanent=decision.permanent) from cause
        return decision.after

    async def _pick(
        self,
        key: str,
        budget: int,
        prompt: int,
        waiting: Waiting,
        retry: Retry,
        refused: set[str],
    ) -> Server:
        while not (up := self.names_up):
            began = time.monotonic()
            waiting.begin(Cause.NO_SAMPLER, asyncio.get_running_loop().time())
            await self.wait_for_one()
            waiting.end(Cause.NO_SAMPLER)
            retry.waited(time.monotonic() - began)
        held = self._held.get(key)
        name = self.router.choose(
            [name for name in up if name not in refused] or up,
            held=held,
            tokens=self.router.expected(budget),
            prompt=prompt,
            now=time.monotonic(),
        )
        self._held[key] = name
        return self.named(name)

    async def _stream(
        self,
        server: Server,
        body: Mapping[str, Any],
        action: Action,
        waiting: Waiting,
        budget: int,
        *,
        movable: bool,
    ) -> FinishReason:
        """One request, to its finish or to what broke it."""
        router, name, prompt = self.router, server.name, len(body["input_ids"])
        unread = prompt / PREFILL

        def on_chunk(chunk: Chunk, read_ns: int) -> bool:
            nonlocal unread
            if waiting:
                waiting.end(Cause.BROKEN, Cause.QUIET)
            fresh = len(chunk.token_ids)
            if fresh:
                server.received += fresh
                seconds = (read_ns - action.heard_ns) / 1e9
                if not flight.paused:
                    router.measured(name, seconds, fresh + unread)
                unread = 0.0
                taken = min(flight.left, fresh)
                flight.left -= taken
                flight.came += fresh
                router.took(name, taken)
                flight.paused = server.paused
            return action.on_chunk(chunk, read_ns)

        def on_quiet(since: float) -> None:
            waiting.begin(Cause.QUIET, since)
            if not server.paused:
                router.measured(name, QUIET_SECONDS, 0)

        reader = ChunkReader(
            incremental=server.incremental, vocab_size=self._vocab_size, max_new_tokens=budget
        )
        now_ns = time.monotonic_ns()
        flight = Flight(
            stream=server.client.open_stream(reader=reader, on_chunk=on_chunk, on_quiet=on_quiet),
            waiting=waiting,
            prompt=prompt,
            left=router.expected(budget),
            movable=movable,
        )
        server.board(flight)
        router.begin(name, flight.left)
        action.begin(now_ns)
        try:
            await flight.stream.read(body)
        finally:
            router.end(name, flight.left, time.monotonic())
            server.land(flight)
            if not action.server_finished:
                self._abort(server, body["rid"])
        if action.finish is None:
            raise AssertionError("a stream ends with a finish reason or an error")
        return action.finish

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
