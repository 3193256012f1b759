"""A tool that records its work and answers with its session's count of calls.

Invariant: it writes an event for each session, and for each call before it sleeps.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from dataclasses import dataclass, field
from pathlib import Path

from bench.engine.plan import STOP, ids_of
from bench.history.events import Effect, SessionClosed, SessionOpened
from bench.history.stored import Appender
from tests.chaos.workload import Workload, answer_to
from toolsvc import Call, RawFormat, SessionInfo, Tool
from toolsvc.errors import Reason, Refused

CACHE_BYTES = 1 << 20


@dataclass(slots=True, kw_only=True)
class _Session:
    name: str
    calls: list[str] = field(default_factory=list)


class Count(Tool):
    """Sleeps as long as its call says; answers with its session's count of calls."""

    name = "sleep"
    description = "Sleeps."
    format = RawFormat()
    stop_strings = (STOP,)
    stateful = Workload.here().stateful
    run_limit = 60.0

    async def start(self) -> None:
        here = Workload.here()
        self._lines = Appender(Path(here.effects))
        self._cache = None
        if here.cache:
            from toolsvc.backends.cache import open_cache  # brings Redis and disk caches

            self._cache = await open_cache(here.cache, most_bytes=CACHE_BYTES, seconds=None)

    async def stop(self) -> None:
        if self._cache is not None:
            await self._cache.close()

    def open(self, session: SessionInfo) -> _Session:
        if session.metadata.get("refuse"):
            raise Refused(Reason.INVALID_REQUEST, "the task's metadata do not fit")
        if session.metadata.get("fail"):
            raise KeyError("fail")
        self._lines.write(SessionOpened(at=time.monotonic(), session=session.session_id))
        return _Session(name=session.session_id)

    def close(self, state: _Session) -> None:
        self._lines.write(SessionClosed(at=time.monotonic(), session=state.name))

    async def call(self, state: _Session, call: Call) -> str:
        state.calls.append(call.call_id)
        turn, _, rest = call.action.partition(".")
        calls = len(state.calls) if self.stateful else int(turn) + 1
        answer = answer_to(call.action, calls)
        self._lines.write(
            Effect(
                at=time.monotonic(),
                session=state.name,
                call_id=call.call_id,
                action=call.action,
                answer=array("i", ids_of(f"[{answer}]")),
            )
        )
        await asyncio.sleep(int(rest.partition("/")[0]) / 1000)
        return await self._kept(call.call_id, answer)

    async def _kept(self, call_id: str, answer: str) -> str:
        """The answer, from the cache where a call of this name was answered before."""
        if self._cache is None:
            return answer
        found = await self._cache.get(call_id)
        if found is None:
            await self._cache.put(call_id, answer.encode())
            return answer
        return found.decode()
