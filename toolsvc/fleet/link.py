"""The front's connection to one host: requests to it, and whether it lives.

Invariants
- A host is given up for good if it has died, or if its connection broke and does not come back.
  Then every wait for its answer ends.
- A connection that breaks and comes back is invisible to clients: the request is sent again, and
  the host recognises it by its id.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc
import grpc.aio

from toolsvc.fleet.hosts import HOST_NAME, HostGone, HostProcess, HostSilent, Ready
from toolsvc.serving import DRAIN_SECONDS
from toolwright.common.v1 import reasons_pb2
from toolwright.rpc.auth import on_behalf
from toolwright.rpc.channel import backoff, open_channel
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.rpc.tool_service import read_blob
from toolwright.tool.v1 import tool_pb2_grpc

GIVE_UP_SECONDS = 5.0
"""Longest wait for a broken connection to come back, in seconds. Ray takes longer to notice a
machine without power."""
END_SECONDS = DRAIN_SECONDS + 20.0
"""Longest wait for calls to finish and sessions to close, in seconds; then the host is killed."""
LONGEST_SECONDS = 600.0
"""Deadline of a request from a client that set no deadline, in seconds."""
RETRY_SECONDS = 0.2
"""Pause before a request that got no answer is sent again, in seconds."""
_PAUSE_SECONDS = 1.0
"""Pause before Ray is asked again about an actor that still answers gRPC, in seconds."""


class HostLost(Exception):
    """The host is given up; the message says why."""


class HostLink:
    """Must be made on the event loop that uses it. Every link needs `close`."""

    def __init__(self, number: int, process: HostProcess, ready: Ready, token: str) -> None:
        self.number = number
        self.isolation = ready.isolation
        self.tools = ready.tools
        self.at = ready.link
        self.endpoint = ready.endpoint
        """Address for clients; "" = only through the front."""
        self.why_lost = ""
        self.ended = False
        """Given up on purpose."""
        self._process = process
        self._lost = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._token = token
        self._channel = open_channel(
            ready.link, authority=ready.certificate or None, expected=HOST_NAME
        )
        self._stub: Any = tool_pb2_grpc.ToolServiceStub(self._channel)

    @property
    def lost(self) -> bool:
        return self._lost.is_set()

    def lose(self, why: str) -> None:
        """Gives the host up. Idempotent."""
        if not self.lost:
            self.why_lost = why
            self._lost.set()

    async def ask(self, method: str, request: Any, seconds: float) -> Any:
        """One RPC of ToolService, for the `caller`, within `seconds`; `request` may be sent twice.
        Raises ServiceError from the host, TransportError if the host does not answer in time, or
        HostLost."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        attempt = 0
        while True:
            if self.lost:
                raise HostLost(self.why_lost)
            try:
                return await getattr(self._stub, method)(
                    request, timeout=until - loop.time(), metadata=self._metadata()
                )
            except asyncio.CancelledError:
                if not self._cut():
                    raise
            except grpc.aio.AioRpcError as rpc_error:
                error = from_rpc_error(rpc_error)
                if not _broken(error) or loop.time() >= until:
                    raise error from rpc_error
                await self._look()
                await asyncio.sleep(backoff(attempt))
                attempt += 1

    async def blob(self, sha256: str, seconds: float) -> bytes:
        """Raises as `ask` does, but asks once."""
        if self.lost:
            raise HostLost(self.why_lost)
        try:
            return await read_blob(self._stub, sha256, timeout=seconds, metadata=self._metadata())
        except asyncio.CancelledError:
            if not self._cut():
                raise
            raise HostLost(self.why_lost) from None

    async def sessions(self) -> frozenset[str]:
        """Ids of its sessions, some seconds from now. Raises HostLost as soon as the host is given
        up."""
        while True:
            asking = asyncio.ensure_future(self._process.beat())
            losing = asyncio.ensure_future(self._lost.wait())
            try:
                await asyncio.wait((asking, losing), return_when=asyncio.FIRST_COMPLETED)
            finally:
                asking.cancel()
                losing.cancel()
            try:
                return await asking
            except asyncio.CancelledError:
                if not self._cut():
                    raise
            except HostGone as gone:
                self.lose(str(gone))
            except HostSilent:
                await self._look()
                await asyncio.sleep(_PAUSE_SECONDS)
            if self.lost:
                raise HostLost(self.why_lost)

    async def page(self) -> str:
        """Its metrics in Prometheus' text format; "" if it does not answer."""
        with contextlib.suppress(HostGone, HostSilent):
            return await self._process.page()
        return ""

    async def end(self) -> None:
        """Lets calls finish, ends every session, and closes. A host that does not answer in time is
        killed."""
        if not self.lost:
            self.ended = True
            with contextlib.suppress(HostGone, HostSilent, TimeoutError):
                await asyncio.wait_for(self._process.end(), END_SECONDS)
        await self.close()

    async def close(self) -> None:
        """Kills the host and drops the connection; every wait for an answer ends."""
        self.lose("it was ended")
        await self._process.kill()
        if self._looking is not None:
            await asyncio.wait((self._looking,))
        await self._channel.close()

    def _metadata(self) -> tuple[tuple[str, str]]:
        """Sent with each request, not by channel interceptors: they make every call more
        expensive."""
        return (("authorization", on_behalf(self._token)),)

    def _cut(self) -> bool:
        """Whether a wait ended because the host is given up, not because the waiting task was
        cancelled."""
        task = asyncio.current_task()
        return self.lost and (task is None or not task.cancelling())

    async def _look(self) -> None:
        """Returns when the host can be reached again, or is given up."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._wait_for_connection())
        await asyncio.wait((self._looking,))

    async def _wait_for_connection(self) -> None:
        ready = asyncio.ensure_future(self._channel.channel_ready())
        losing = asyncio.ensure_future(self._lost.wait())
        done, pending = await asyncio.wait(
            (ready, losing), timeout=GIVE_UP_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        for task in pending:
            task.cancel()
        if not done:
            self.lose(f"its host at {self.at} does not answer any more")


def seconds_left(context: Any) -> float:
    """Seconds left for a request on behalf of a client's RPC."""
    left: float | None = context.time_remaining()
    return LONGEST_SECONDS if left is None else min(left, LONGEST_SECONDS)


def unreachable(message: str) -> ServiceError:
    """Error for a request that may be sent again soon."""
    return ServiceError(reasons_pb2.ERROR_REASON_BACKEND_DOWN, message, retry_after=RETRY_SECONDS)


def unheard(host: HostLink, error: TransportError) -> ServiceError:
    """Error for a client whose request the host did not answer."""
    return unreachable(f"the host at {host.at} did not answer in time: {error}")


def _broken(error: Exception) -> bool:
    """Whether the connection did not carry the request or its answer."""
    return isinstance(error, TransportError) and error.code is grpc.StatusCode.UNAVAILABLE
