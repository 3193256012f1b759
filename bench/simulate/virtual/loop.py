"""An event loop on a virtual clock: waiting costs nothing, and the same seed does the same.

Invariants
- Time moves only while nothing is ready, straight to the next timer.
- Tasks and futures hash by their order of creation, so sets of them iterate alike in each process.
- A thread's work runs in the loop, at a seeded later moment.
- Every task belongs to an owner (the context that created it). A dead owner's tasks are cancelled
  and its timers never fire; whatever its clean-up code tries must not reach the others.
"""

from __future__ import annotations

import asyncio
import selectors
from asyncio import base_events
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar

Answer = TypeVar("Answer")

EPOCH = 1_700_000_000.0
"""Unix time at which a simulation begins."""
BEGIN = 1_000.0
"""The monotonic clock then; not 0, because 0 means "not yet" to many readers of a stamp."""
TICK = 1e-6
"""Seconds that one turn of the loop takes."""
THREAD_S = 0.002
"""Mean delay of work that a thread does."""
MOST_TURNS = 300_000
"""Turns of the loop: a run that takes more goes round and round."""
MOST_CANCELS = 200
"""Rounds in which the tasks of a dead owner are cancelled."""


class Stuck(Exception):
    """Nothing is ready and no timer is set, or the loop turns for ever."""


class Gone(Exception):
    """The owner died before it answered."""


_OWNER: ContextVar[Owner | None] = ContextVar("owner", default=None)


class Owner:
    """A simulated process: the tasks of one life of the engine, of a tool host, of a learner."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.alive = True
        self.stray = False
        """Whether it lives on after another owner took over its work. The history then shows only
        its effects on others."""
        self.gone: asyncio.Future[None] = loop.create_future()
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._loop = loop
        self._context = copy_context()
        self._context.run(_OWNER.set, self)

    def spawn(self, work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        """A task of this owner, also when another owner starts it."""
        return self._loop.create_task(work, context=self._context.copy())

    async def ask(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """What `work` returns or raises, run by this owner. Raises Gone where the owner dies first.
        A caller that is cancelled cancels it."""
        if not self.alive:
            work.close()
            raise Gone(self.name)
        task = self.spawn(work)
        try:
            either: list[asyncio.Future[Any]] = [task, self.gone]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not self.alive:
            raise Gone(self.name)
        return task.result()

    def die(self) -> None:
        """This owner's tasks have no effect from now on; `buried` waits for its tasks."""
        self.alive = False
        if not self.gone.done():
            self.gone.set_result(None)

    async def buried(self) -> list[str]:
        """Cancels what is left until it has ended; the names of tasks that do not end."""
        for _ in range(MOST_CANCELS):
            if not self.tasks:
                return []
            for task in list(self.tasks):
                task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return self.names()

    def names(self) -> list[str]:
        """The tasks that have not ended."""
        return [repr(task.get_coro()) for task in self.tasks if not task.done()]

    def forget(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)
        if not self.alive and not task.cancelled():
            task.exception()  # its owner is dead: the exception matters no more


def loop_here() -> VirtualLoop:
    """The running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def owner_here() -> Owner | None:
    """Whose code runs now; None: the world's."""
    return _OWNER.get()


def stray_here() -> bool:
    """Whether a stray owner's code runs now."""
    owner = owner_here()
    return owner is not None and owner.stray


def alive_here() -> bool:
    """Whether the code that runs now belongs to the world, or to an owner that lives."""
    owner = owner_here()
    return owner is None or owner.alive


class _Task(asyncio.Task[Any]):
    def __init__(self, *args: Any, serial: int, **named: Any) -> None:
        self._serial = serial
        super().__init__(*args, **named)

    def __hash__(self) -> int:
        return self._serial


class _Future(asyncio.Future[Any]):
    def __init__(self, *, loop: VirtualLoop, serial: int) -> None:
        self._serial = serial
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial


class _Clockwork(selectors.BaseSelector):
    """Instead of waiting for sockets it moves the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        self._loop.pass_time(idle=timeout is None or timeout > 0)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise NotImplementedError("a simulation has no sockets")

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise NotImplementedError("a simulation has no sockets")

    def get_map(self) -> Any:
        return {}


class VirtualLoop(base_events.BaseEventLoop):
    """Call `after_turn` with what shall look at the world after each turn."""

    def __init__(self, random: Random, most_turns: int = MOST_TURNS) -> None:
        super().__init__()
        self._most_turns = most_turns
        self.now = BEGIN
        self.turns = 0
        self.world = copy_context()
        """Context without an owner: no death of an owner ends what runs in it."""
        self.hosts: dict[str, Callable[[Any], asyncio.Transport]] = {}
        """Servers by name: each makes a connection's transport."""
        self.after_turn: Callable[[], None] = lambda: None
        self.complaints: list[str] = []
        """What asyncio would have logged as an error of the program."""
        self._random = random
        self._serial = 0
        self._scheduled: list[asyncio.TimerHandle]
        self._selector = _Clockwork(self)
        self.set_exception_handler(self._complain)

    def time(self) -> float:
        return self.now

    def pass_time(self, *, idle: bool) -> None:
        self.after_turn()
        self.turns += 1
        if self.turns > self._most_turns:
            raise Stuck(f"{self._most_turns} turns of the loop and no end")
        self.now += TICK
        if idle:
            if not self._scheduled:
                raise Stuck("nothing is ready and no timer is set")
            self.now = max(self.now, self._scheduled[0].when())

    def create_task(
        self,
        coro: Any,
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        self._serial += 1
        task = _Task(coro, loop=self, name=name, context=context, serial=self._serial)
        owner = _OWNER.get() if context is None else context.get(_OWNER)
        if owner is not None:
            owner.tasks[task] = None
            task.add_done_callback(owner.forget)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        self._serial += 1
        return _Future(loop=self, serial=self._serial)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        owner = _OWNER.get() if context is None else context.get(_OWNER)
        if owner is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, _if_alive, owner, callback, args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """The function runs at a later moment; never, where its owner is dead by then."""
        outcome = self.create_future()
        self.later(outcome, func, *args)
        return outcome

    def later(self, outcome: asyncio.Future[Any], func: Callable[..., Any], *args: Any) -> None:
        """Settles `outcome` with what `func` does at a seeded later moment."""
        owner = _OWNER.get()
        if owner is not None and not owner.alive:
            outcome.cancel()
            return

        def work() -> None:
            try:
                value = func(*args)
            except Exception as error:  # noqa: BLE001 (handed to the one who waits)
                if not outcome.done():
                    outcome.set_exception(error)
            else:
                if not outcome.done():
                    outcome.set_result(value)

        self.call_later(self._random.expovariate(1 / THREAD_S), work)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, Any]:
        """A connection to what listens at `host`. Raises ConnectionError if nothing does."""
        protocol = protocol_factory()
        return self.hosts[host](protocol), protocol

    def _complain(self, _loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self.complaints.append(f"{context['message']}: {error!r}")

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def _if_alive(owner: Owner, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if owner.alive:
        callback(*args)
