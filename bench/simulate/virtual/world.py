"""Time and chance inside one simulated run: the clocks, random, secrets, uuid, and threads of jobs.

Invariant: whatever happens inside, the process has its own clocks and chance back afterwards.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import structlog

import engine.core.daemon_thread
from bench.simulate.virtual.loop import BEGIN, EPOCH, VirtualLoop, loop_here

Say = Callable[[float, str, dict[str, Any]], None]
"""(seconds since the run began, event, fields): a line of the engine's log."""


@contextmanager
def world(loop: VirtualLoop, seed: int, say: Say | None = None) -> Iterator[None]:
    """`loop` gives the time, `seed` what the code under test draws; `say` gets its log."""
    dice = random.Random(f"chance {seed}")
    now, state = (lambda: loop.now), random.getstate()
    logging = structlog.get_config()
    with ExitStack() as patches:

        def replace(owner: Any, name: str, by: Any) -> None:
            patches.enter_context(mock.patch.object(owner, name, by))

        for name in ("monotonic", "perf_counter"):
            replace(time, name, now)
            replace(time, f"{name}_ns", lambda: int(loop.now * 1e9))
        replace(time, "time", lambda: EPOCH + loop.now)
        replace(time, "time_ns", lambda: int((EPOCH + loop.now) * 1e9))
        replace(time, "sleep", lambda _seconds: None)
        replace(secrets, "token_bytes", lambda n=32: dice.randbytes(n))
        replace(secrets, "token_hex", lambda n=32: dice.randbytes(n).hex())
        replace(uuid, "uuid4", lambda: uuid.UUID(int=dice.getrandbits(128), version=4))
        replace(engine.core.daemon_thread, "start_daemon", lambda _work, _name: None)
        replace(engine.core.daemon_thread.DaemonThread, "submit", _submit)
        random.seed(dice.random())
        structlog.configure(**_logging(loop, say))
        try:
            yield
        finally:
            structlog.configure(**logging)
            random.setstate(state)


def _submit(
    _thread: object, function: Callable[..., Any], *arguments: Any
) -> asyncio.Future[engine.core.daemon_thread.Outcome]:
    """`DaemonThread.submit`, in the loop."""
    loop = loop_here()
    outcome: asyncio.Future[engine.core.daemon_thread.Outcome] = loop.create_future()

    def work() -> engine.core.daemon_thread.Outcome:
        try:
            return function(*arguments), None
        except BaseException as raised:  # noqa: BLE001 (handed to the one who waits)
            return None, raised

    loop.later(outcome, work)
    return outcome


def _logging(loop: VirtualLoop, say: Say | None) -> dict[str, Any]:
    if say is None:
        return {"wrapper_class": _Silent}

    def tell(_logger: Any, _name: str, fields: Any) -> Any:
        say(loop.now - BEGIN, str(fields.pop("event")), dict(fields))
        raise structlog.DropEvent

    return {"processors": [tell], "wrapper_class": structlog.BoundLogger}


class _Silent(structlog.BoundLoggerBase):
    """Takes every line of a log and drops it."""

    def _drop(self, _event: str = "", **_fields: Any) -> None:
        pass

    debug = info = warning = error = exception = critical = _drop
