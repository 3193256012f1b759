"""New weights over a group of processes: the server's side and rank 0's.

No weights travel. `Rank0` replaces torch's store: a server's connection to it is that server's
membership, and carries a line with the number of bytes of each tensor. Three surprises of the real
server remain. It works on one control call at a time, and samples nothing during a call. It waits
for other members until they close their side, even if the client has left.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import orjson

from bench.scripted.scheduling.scheduler import Scheduler

RETRY_S = 0.05
"""Interval between tries to reach a store. The real server tries for half an hour."""
BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
NOT_FLUSHED = (
    "Weights were updated, but the cache was not flushed because requests are still running or "
    "queued."
)
OUTSIDE = (
    "update_weights_from_distributed must run between begin_weight_update() and end_weight_update()"
)

Answer = tuple[bool, str]
"""(whether the call succeeded, message of the server)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A server's connection to rank 0."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def line(self) -> dict[str, int]:
        """Raises ConnectionError if rank 0 has left."""
        raw = await self.reader.readline()
        if not raw:
            raise ConnectionError("Connection closed by peer")
        found: dict[str, int] = orjson.loads(raw)
        return found

    async def receive(self, size: int) -> None:
        """Raises ConnectionError if rank 0 broadcasts another number of bytes. The real server
        would hang or accept garbage."""
        came = (await self.line())["bytes"]
        if came != size:
            raise ConnectionError(f"{came} bytes came for a tensor of {size}")


class UpdateGroups:
    """The groups of one server, and the update that is open."""

    def __init__(self, scheduler: Scheduler, *, flush: Callable[[], bool], ranks: int) -> None:
        """ranks: processes of this server (tensor parallelism)."""
        self._scheduler = scheduler
        self._flush = flush
        self._ranks = ranks
        self._members: dict[str, _Member] = {}
        self._open = False
        self._calls: set[asyncio.Task[Answer]] = set()
        self.received: list[str] = []
        """Names of all received tensors, oldest first."""

    async def init(
        self, *, address: str, port: int, rank: int, world_size: int, name: str
    ) -> Answer:
        """Joins a group. Returns when the group is complete."""
        return await self.alone(lambda: self._join(address, port, rank, world_size, name))

    async def destroy(self, name: str) -> Answer:
        """Leaves a group."""

        async def work() -> Answer:
            member = self._members.pop(name, None)
            if member is None:
                return False, "The group to be destroyed does not exist."
            member.writer.close()
            return True, "Succeeded to destroy custom process group."

        return await self.alone(work)

    async def begin(self) -> Answer:
        """Opens an update."""
        return await self._set_open(
            True, "a weight-update session is already open; call end_weight_update() first"
        )

    async def end(self) -> Answer:
        """Closes the update."""
        return await self._set_open(
            False, "no weight-update session is open; call begin_weight_update() first"
        )

    async def _set_open(self, value: bool, refusal: str) -> Answer:
        async def work() -> Answer:
            if self._open is value:
                return False, refusal
            self._open = value
            return True, "Success"

        await self._scheduler.until_idle()
        return await self.alone(work)

    async def receive(
        self, tensors: Mapping[str, int], *, name: str, version: str | None, flush: bool
    ) -> Answer:
        """Receives tensors as rank 0 broadcasts them. tensors: bytes by name."""

        async def work() -> Answer:
            if not self._open:
                return False, OUTSIDE
            member = self._members.get(name)
            if member is None:
                return False, (
                    f"Failed to receive weights: Group {name} not in {list(self._members)}. "
                    "Please call `init_weights_update_group` first."
                )
            try:
                for size in tensors.values():
                    await member.receive(size)
            except (ConnectionError, OSError) as error:
                return False, f"Failed to receive weights: {error}"
            self.received.extend(tensors)
            if version is not None:
                self._scheduler.rename_weights(version)
            if flush and not self._flush():
                return False, NOT_FLUSHED
            named = "" if version is None else f" Weight version updated to {version}."
            return True, f"Succeeded to update parameter online.{named}"

        await self._scheduler.until_idle()
        return await self.alone(work)

    async def close(self) -> None:
        """Ends all calls and connections."""
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        for member in self._members.values():
            member.writer.close()

    async def _join(self, address: str, port: int, rank: int, world_size: int, name: str) -> Answer:
        try:
            while True:
                try:
                    reader, writer = await asyncio.open_connection(address, port)
                    break
                except ConnectionRefusedError:
                    await asyncio.sleep(RETRY_S)
            member = _Member(reader=reader, writer=writer)
            own = {"rank": rank, "ranks": self._ranks, "world_size": world_size, "name": name}
            writer.write(orjson.dumps(own) + b"\n")
            await member.line()
        except (ConnectionError, OSError) as error:
            return False, f"Failed to initialize custom process group: {error}."
        self._members[name] = member
        return True, "Succeeded to initialize custom process group."

    async def alone(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Runs `work` without any other control call. A client that leaves does not end it."""

        async def call() -> Answer:
            async with self._scheduler.occupied():
                return await work()

        task = asyncio.get_running_loop().create_task(call())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return await asyncio.shield(task)


class Rank0:
    """The learner's side of one group, for scripted servers.

    async with Rank0() as rank0:
        ...  # servers join at rank0.port
        await rank0.joined()
        await rank0.broadcast([64, 64])
    """

    def __init__(self, *, host: str = "127.0.0.1") -> None:
        self._host = host
        self._server: asyncio.Server | None = None
        self._members: list[asyncio.StreamWriter] = []
        self._whole = asyncio.Event()
        self.told: list[Mapping[str, Any]] = []
        """What each server sent: rank, ranks, world_size, name."""

    @property
    def port(self) -> int:
        """Port of loopback."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._met, self._host, 0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def joined(self) -> None:
        """Returns when the group is complete."""
        await self._whole.wait()

    async def broadcast(self, sizes: Sequence[int]) -> None:
        """Broadcasts tensors of these sizes in bytes."""
        for member in self._members:
            member.writelines(orjson.dumps({"bytes": size}) + b"\n" for size in sizes)
            await member.drain()

    async def close(self) -> None:
        """Closes the store and the group, as at the end of rank 0's process."""
        if self._server is not None:
            self._server.close()
        for member in self._members:
            member.close()

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if not line:  # a probe of the port
            writer.close()
            return
        told = orjson.loads(line)
        self.told.append(told)
        self._members.append(writer)
        if 1 + sum(int(one["ranks"]) for one in self.told) == told["world_size"]:
            for member in self._members:
                member.write(b'{"bytes": 0}\n')
            self._whole.set()


def sizes(
    names: Sequence[str], dtypes: Sequence[str], shapes: Sequence[Sequence[int]]
) -> dict[str, int]:
    """Bytes by name. Raises KeyError for an unknown type."""
    return {
        name: BYTES[dtype] * math.prod(shape)
        for name, dtype, shape in zip(names, dtypes, shapes, strict=True)
    }
