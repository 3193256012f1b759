"""One VerlTool tool object as a tool of this service.

Invariants
- Every session is a trajectory of its own, under an id that was never used: its environment begins
  with its first call and is deleted when the session is closed.
- Nothing of it but `parse_action` runs on the service's event loop: plain methods run in threads,
  coroutines on one loop in a thread of the tool's own, for its connections belong to the loop that
  made them.
- An environment is deleted after the last call has left it, even if that call was answered with
  TIMEOUT long before.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Sequence
from typing import Any

from toolsvc.plugin.tool import Tool
from toolsvc.sources.verltool.observations import as_result
from toolsvc.types import Call, RawFormat, Result, SessionInfo


def hosted(theirs: Any, stop_strings: Sequence[str], run_limit: float) -> Tool:
    """`theirs`: an object of a VerlTool tool class."""
    coroutines = asyncio.iscoroutinefunction(getattr(theirs, "aget_observations", None))
    kind = _OnItsLoop if coroutines else _InThreads
    return kind(theirs, tuple(stop_strings), run_limit)


class _Trajectory:
    """A session, as the tool knows it."""

    __slots__ = ("id", "lock")

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.lock = threading.Lock()


class _Hosted(Tool):
    format = RawFormat()
    stateful = True
    media = True

    def __init__(self, theirs: Any, stop_strings: tuple[str, ...], run_limit: float) -> None:
        self._theirs = theirs
        self.name = theirs.tool_type
        self.description = theirs.get_usage_inst()
        self.stop_strings = stop_strings
        self.run_limit = run_limit

    async def open(self, session: SessionInfo) -> _Trajectory:
        return _Trajectory()

    def accepts(self, action: str) -> bool:
        try:
            return bool(self._theirs.parse_action(action)[1])
        except Exception:  # noqa: BLE001 - as there: a parser that fails has not accepted
            return False

    def close(self, state: _Trajectory) -> None:
        with state.lock:
            if self._theirs.has_env(state.id):
                self._theirs.delete_env(state.id)


class _InThreads(_Hosted):
    """Has plain methods."""

    def call(self, state: _Trajectory, call: Call) -> Result:
        with state.lock:
            return _first(self._theirs.get_observations(*_batch(state, call)))


class _OnItsLoop(_Hosted):
    """Has a coroutine `aget_observations`."""

    def __init__(self, theirs: Any, stop_strings: tuple[str, ...], run_limit: float) -> None:
        super().__init__(theirs, stop_strings, run_limit)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"verltool {self.name}", daemon=True
        )

    async def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def call(self, state: _Trajectory, call: Call) -> Result:
        observing = self._theirs.aget_observations(*_batch(state, call))
        return _first(
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(observing, self._loop))
        )


def _batch(state: _Trajectory, call: Call) -> tuple[list[str], list[str], list[dict[str, Any]]]:
    """Trajectory ids, actions and extra fields of one call. What the trainer sends there with every
    action is the task's metadata here."""
    extra_field = {
        **call.session.metadata,
        **call.metadata,
        "current_step": call.turn,
        "turns_left": call.turns_left,
        "max_turns": call.turn + 1 + call.turns_left,
        "is_last_step": call.last_step,
        "finish": False,
    }
    return [state.id], [call.arguments["action"]], [extra_field]


def _first(batch: tuple[Sequence[Any], Sequence[Any], Sequence[Any]]) -> Result:
    observations, dones, valids = batch
    return as_result(observations[0], dones[0], valids[0])
