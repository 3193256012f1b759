"""Requests that are sent again until they are answered: the loop of every client of a run."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc.aio

from toolwright.rpc.channel import backoff, call, may_retry
from toolwright.rpc.errors import Code, ServiceError, TransportError, from_rpc_error

Answer = TypeVar("Answer")

REMIND_S = 10.0
"""Shortest time between two reports of a wait, in seconds."""


class Unanswered(Exception):
    """An attempt failed, and the same request may be sent again. The message is the reason.

    error: its `retry_after` is the next pause, if it has one. worked: whether the server worked on
    the answer until the connection broke; then the retry time starts again.
    """

    def __init__(
        self,
        reason: str,
        *,
        error: ServiceError | TransportError | None = None,
        worked: bool = False,
    ) -> None:
        super().__init__(reason)
        self.error = error
        self.worked = worked
        self.waited = 0.0
        """Time since the first failure, in seconds."""


class Retry:
    """The retries of one client.

    patience: longest time from a request's first failure to its last, in seconds. report: gets the
    reason and the time waited in seconds, at most every REMIND_S. quiet_s: time without a report.
    """

    def __init__(
        self,
        patience: Callable[[], float],
        report: Callable[[str, float], None],
        *,
        quiet_s: float = 0.0,
    ) -> None:
        self._patience = patience
        self._report = report
        self._quiet_s = quiet_s
        self._reported = -REMIND_S

    async def until_answered(self, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
        """Result of the first attempt that does not raise Unanswered.

        Raises the last Unanswered, with its `waited`, when the retry time is over.
        """
        failing_since = 0.0
        tries = 0
        while True:
            try:
                return await attempt()
            except Unanswered as failure:
                now = time.monotonic()
                if not tries or failure.worked:
                    failing_since, tries = now, 0
                failure.waited = now - failing_since
                if failure.waited > self._patience():
                    raise
                if failure.waited >= self._quiet_s and now - self._reported >= REMIND_S:
                    self._reported = now
                    self._report(str(failure), failure.waited)
                pause = backoff(tries, failure.error)
            await asyncio.sleep(pause)
            tries += 1

    @classmethod
    def endless(cls, report: Callable[[str, float], None], *, quiet_s: float = 0.0) -> Retry:
        """Retries without an end, for a process that waits for its engine."""
        return cls(lambda: math.inf, report, quiet_s=quiet_s)

    async def answer(
        self, method: Callable[..., Awaitable[Answer]], request: Any, *, timeout: float
    ) -> Answer:
        """As `until_called`, of one unary call. timeout: deadline of an attempt, in seconds."""
        return await self.until_called(
            lambda: call(method, request, timeout=timeout),
            type(request).__name__,
            worked_s=timeout,
        )

    async def until_called(
        self, attempt: Callable[[], Awaitable[Answer]], what: str, *, worked_s: float
    ) -> Answer:
        """As `until_answered`, of gRPC calls whose request is idempotent.

        what: name of the call, for reports. worked_s: an attempt that failed after so many seconds
        was being answered, unless its deadline passed. Raises ServiceError or TransportError for a
        refusal, and Unanswered.
        """

        async def once() -> Answer:
            began = time.monotonic()
            try:
                return await attempt()
            except (ServiceError, TransportError, grpc.aio.AioRpcError) as failure:
                broken = isinstance(failure, grpc.aio.AioRpcError)  # a stream's
                error = from_rpc_error(failure) if broken else failure
                if not may_retry(error):
                    raise error from (failure if broken else None)
                # A passed deadline may mean an engine without answers, or one that worked on it.
                took = time.monotonic() - began
                worked = took > worked_s and error.code is not Code.DEADLINE_EXCEEDED
                raise Unanswered(f"{what}: {error}", error=error, worked=worked) from error

        return await self.until_answered(once)
