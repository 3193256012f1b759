"""A request that is sent again until it is answered: the loop of every client of the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc.aio

from toolwright.rpc.channel import backoff, may_retry
from toolwright.rpc.errors import Code, ServiceError, TransportError, from_rpc_error

Answer = TypeVar("Answer")
REMIND_S = 10.0
"""Interval between two reports of one outage, in seconds."""


class Unanswered(Exception):
    """No answer came for as long as the caller waits.

    error: the last failure. waited: time since the first one, in seconds.
    """

    def __init__(self, error: ServiceError | TransportError, waited: float) -> None:
        super().__init__(f"no answer for {waited:.0f} s ({error})")
        self.error = error
        self.waited = waited


async def retried(
    attempt: Callable[[], Awaitable[Answer]],
    *,
    patience: Callable[[], float],
    waiting: Callable[[ServiceError | TransportError], None],
    worked_s: float,
) -> Answer:
    """Calls `attempt` until it returns. It may be called again: its request is idempotent.

    patience: longest time to retry, in seconds. waiting: reports an outage, every REMIND_S.
    worked_s: an attempt that failed after so many seconds was being answered. The time of the
    outage then begins again, unless the deadline passed. Raises ServiceError or TransportError for
    a refusal, and Unanswered.
    """
    failing_since = 0.0
    reminded = time.monotonic() - REMIND_S
    tries = 0
    while True:
        began = time.monotonic()
        try:
            return await attempt()
        except (ServiceError, TransportError, grpc.aio.AioRpcError) as failure:
            broken = isinstance(failure, grpc.aio.AioRpcError)  # a stream's
            error = from_rpc_error(failure) if broken else failure
            # A passed deadline may mean an engine without answers, or one that worked on it.
            took = time.monotonic() - began
            worked = took > worked_s and error.code is not Code.DEADLINE_EXCEEDED
            if not tries or worked:
                failing_since, tries = time.monotonic(), 0
            waited = time.monotonic() - failing_since
            if not may_retry(error):
                raise error from (failure if broken else None)
            if waited > patience():
                raise Unanswered(error, waited) from error
            if time.monotonic() - reminded >= REMIND_S:
                reminded = time.monotonic()
                waiting(error)
            await asyncio.sleep(backoff(tries, error))
            tries += 1
