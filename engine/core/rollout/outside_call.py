"""One model call of an outside agent in flight: its completions are sampled and logged.

Invariants
- Tokens that a reader got are never taken back: a request after a failure goes on from them.
- A publish or an outage delays a completion. Only a request that no sampler takes fails.
- A completion under a grammar begins again after a failure: no reader gets a part of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import structlog

from engine.core.rollout.action_text import action_text
from engine.core.rollout.assignment import RolloutContext
from engine.core.sampler.policy_sampler import GenerateRequest
from engine.core.sampler.stops import StopTable
from engine.core.text.thoughts import begins_inside
from engine.core.time_limit import TimeLimit
from engine.core.trajectory.events import Acted, Streamed
from engine.core.trajectory.forest import Forest, Node
from engine.core.trajectory.log import AttemptLog
from engine.core.trajectory.partials import with_part
from engine.errors import SamplerFailed
from engine.types import Generated
from toolwright.process.backoff import Backoff
from toolwright.types import Floats, Ids, floats, ids

DELTA_NS = 100_000_000
"""Interval between the parts that a streaming client gets. Each is a gRPC message, which costs the
engine 0.3 ms of CPU, and the ingress as much."""
LOGGED_NS = 750_000_000
"""Interval between the parts that are logged while a client reads along: an engine that dies takes
back no more than the last second of what the client has seen."""
BACKOFF = Backoff(0.5, 10.0)
"""Pauses after the sampler's own retries have failed."""

MOST_TRIES = 8
"""Tries of a completion under a grammar; each begins again."""

log = structlog.get_logger("ingress")


def forest_of(attempt: AttemptLog) -> Forest:
    """The forest of an outside attempt's log. Raises ValueError for another log."""
    if attempt.state.forest is None:
        raise ValueError(f"{attempt.attempt} is not the attempt of an outside agent")
    return attempt.state.forest


class OutsideCall:
    """A call whose prompt is logged. `run` samples what its completions lack."""

    def __init__(
        self,
        context: RolloutContext,
        attempt: AttemptLog,
        number: int,
        limit: TimeLimit,
        *,
        stream: bool,
        stop_table: Callable[[tuple[str, ...]], StopTable],
    ) -> None:
        """number: of the call. stream: a client reads along. stop_table: makes the table of some
        stops."""
        self.number = number
        self.readers = 0
        self.refused = ""
        """Why no sampler takes the request; "" if one does."""
        self.whole = asyncio.Event()
        """Set when all completions are whole, or the call is refused."""
        self.changed = asyncio.Event()
        """Set when there is more for the one reader that streams, which clears it."""
        self._context = context
        self._log = attempt
        self._limit = limit
        self._stream = stream
        self._stop_table = stop_table
        self._live = {node.number: node.partial for node in self.nodes}
        self._unlogged: dict[int, Generated] = {}
        self._logged_ns = time.monotonic_ns()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Its completions."""
        return forest_of(self._log).call(self.number)

    def written(self, node: Node) -> tuple[Ids, Floats]:
        """([n] int32, [n] float32) tokens and log-probs of a completion so far."""
        found = node.acted or self._live[node.number]
        return (found.token_ids, found.logprobs) if found is not None else (ids(), floats())

    async def run(self) -> None:
        """Returns when all completions are whole. Cancellation logs what has come."""
        nodes = [node for node in self.nodes if node.acted is None]
        try:
            async with asyncio.TaskGroup() as group:
                for node in nodes[1:]:
                    group.create_task(self._complete(node))
                for node in nodes[:1]:  # nearly always the only one: it needs no task of its own
                    await self._complete(node)
        except* SamplerFailed as errors:
            self.refused = str(errors.exceptions[0])
        self.whole.set()
        self.changed.set()

    async def _complete(self, node: Node) -> None:
        asked_ns = time.monotonic_ns()
        for tries in count():
            try:
                generated = await self._context.pool.generate(self._request(node))
            except SamplerFailed as error:
                if error.permanent or (node.asked.grammar and tries >= MOST_TRIES):
                    raise
                log.warning("call_waits", attempt=self._log.attempt, error=str(error))
                await asyncio.sleep(BACKOFF.pause(tries))
            except asyncio.CancelledError:
                self._log_part(node.number)  # an engine that stops loses nothing of it
                raise
            else:
                break
        text, stop = action_text(generated, self._context.rules.codec)
        acted_ns = time.monotonic_ns()
        self._unlogged.pop(node.number, None)
        self._log.append(
            Acted(
                node=node.number,
                token_ids=generated.token_ids,
                logprobs=generated.logprobs,
                versions=generated.versions,
                finish=generated.finish,
                text=text,
                stop=stop,
                ends_turn=stop == self._context.rules.codec.end_of_turn,
                seconds=(acted_ns - asked_ns) / 1e9,
                asked_ns=asked_ns,
                first_ns=generated.first_ns,
                acted_ns=acted_ns,
            )
        )
        self.changed.set()

    def _request(self, node: Node) -> GenerateRequest:
        asked, codec = node.asked, self._context.rules.codec
        prompt = forest_of(self._log).prompt_ids(node.number)
        stops = self._stop_table((*asked.stops, *codec.turn_ends))
        seed = asked.sampling.seed
        return GenerateRequest(
            key=self._log.attempt,
            token_ids=prompt,
            sampling=asked.sampling
            if seed is None
            else replace(asked.sampling, seed=seed + node.choice),
            stops=stops.inside_thought() if begins_inside(codec, prompt) else stops,
            max_new_tokens=asked.room,
            received=self._live[node.number],
            clock=self._limit,
            grammar=asked.grammar,
            on_progress=None if asked.grammar else lambda part: self._came(node.number, part),
            progress_ns=DELTA_NS if self._stream else None,
        )

    def _came(self, number: int, part: Generated) -> None:
        """Takes new tokens. If a client reads along, not every part of them is logged."""
        streamed = _streamed(number, part)
        self._live[number] = with_part(self._live[number], streamed)
        self._unlogged[number] = with_part(self._unlogged.get(number), streamed)
        now = time.monotonic_ns()
        if not self._stream or now - self._logged_ns >= LOGGED_NS:
            self._logged_ns = now
            for unlogged in list(self._unlogged):
                self._log_part(unlogged)
        self.changed.set()

    def _log_part(self, number: int) -> None:
        part = self._unlogged.pop(number, None)
        state = self._log.state
        if part is not None and state.ended is None and forest_of(self._log).nodes[number]:
            self._log.append(_streamed(number, part, self._limit.spent))


def _streamed(number: int, part: Generated, spent_s: float = 0.0) -> Streamed:
    return Streamed(
        node=number,
        token_ids=part.token_ids,
        logprobs=part.logprobs,
        versions=part.versions,
        spent_s=spent_s,
    )
