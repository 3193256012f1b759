"""Runs servers on their event loop (`server_loop`), which is imported when it is created.

So a command without uvloop can still name the missing extra.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new event loop for an `asyncio.Runner`."""
    from toolwright.process.server_loop import Loop

    return Loop()


def run(main: Coroutine[Any, Any, Answer]) -> Answer:
    """Runs `main` like `asyncio.run`, on this loop. Raises ModuleNotFoundError without uvloop."""
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(main)
    finally:
        main.close()
