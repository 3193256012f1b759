"""MemoryService: protobuf in, the memory's words inside.

Invariants
- Work that folds, embeds or waits for a disk runs in a thread. Merges run one after the other in a
  thread of their own, so that no question waits for a merge.
- At most MOST_WAITING requests wait; a request beyond that is refused and may be retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from memory.config import MemoryTable
from memory.edge import wire
from memory.edge.metrics import MemoryMetrics
from memory.errors import (
    BadWork,
    ChecksDown,
    GroupReused,
    MemoryFault,
    NoChecks,
    NoVersion,
    Unusable,
)
from memory.graph.graph import ToolGraph
from memory.memory import Memory
from memory.search.described import joined
from memory.types import GroupMerged, GroupWork
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.memory.v1 import memory_pb2 as pb
from toolwright.memory.v1 import memory_pb2_grpc
from toolwright.rpc.errors import ServiceError, answers_errors

READERS = 4
"""Threads that answer questions."""
MOST_WAITING = 1024
COME_AGAIN_S = 0.5
LONGEST_TEXT = 100_000
"""Characters of all texts of a question."""
MOST_TOOLS = 256
"""Maximum number of tools that a question may ask for."""
PAGE_BYTES = 16 << 20
"""Maximum size of the nodes in a page of a snapshot, in bytes; one node is far smaller."""

_REASONS: dict[type[MemoryFault], int] = {
    BadWork: reasons.ERROR_REASON_INVALID_REQUEST,
    NoVersion: reasons.ERROR_REASON_INVALID_REQUEST,
    GroupReused: reasons.ERROR_REASON_CALL_ID_REUSED,
    NoChecks: reasons.ERROR_REASON_NOT_SERVED,
    ChecksDown: reasons.ERROR_REASON_BACKEND_DOWN,
    Unusable: reasons.ERROR_REASON_BACKEND_DOWN,
}

T = TypeVar("T")


class MemoryServicer(memory_pb2_grpc.MemoryServiceServicer):
    """Serves one memory. `close` ends its threads."""

    def __init__(
        self, memory: Memory, table: MemoryTable, *, store: str, metrics: MemoryMetrics
    ) -> None:
        """store: address that GetStatus reports, without a password."""
        self._metrics = metrics
        self._memory = memory
        self._table = table
        self._store = store
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="ask")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="merge")
        self._waiting = 0
        metrics.look_at(memory, lambda: self._waiting)

    def close(self) -> None:
        """Waits for what runs."""
        self._writer.shutdown()
        self._readers.shutdown()

    @answers_errors
    async def Retrieve(self, request: pb.RetrieveRequest, context: Any) -> pb.RetrieveResponse:
        return await self._read("Retrieve", lambda: self._retrieved(request))

    @answers_errors
    async def MergeGroup(
        self, request: pb.MergeGroupRequest, context: Any
    ) -> pb.MergeGroupResponse:
        def merged() -> pb.MergeGroupResponse:
            work = wire.work_from_proto(request, **self._rules())
            return wire.merged_to_proto(work, self._merged(work))

        return await self._write("MergeGroup", merged)

    @answers_errors
    async def Merge(self, request: pb.MergeRequest, context: Any) -> pb.MergeResponse:
        def merged() -> pb.MergeResponse:
            found = self._merged(wire.work_of_trajectory(request, **self._rules()))
            return pb.MergeResponse(version=found.version, refused=wire.refused_to_proto(found))

        return await self._write("Merge", merged)

    @answers_errors
    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:
        def registered() -> pb.RegisterResponse:
            found = self._merged(wire.work_of_tool(request, **self._rules()))
            for refused in found.refused:
                raise BadWork(f"{refused.name}: {refused.reason}")
            name = found.registered[request.tool.name]
            return pb.RegisterResponse(canonical=name, version=found.version)

        return await self._write("Register", registered)

    @answers_errors
    async def Snapshot(self, request: pb.SnapshotRequest, context: Any) -> pb.SnapshotResponse:
        return await self._read("Snapshot", lambda: self._page(request))

    @answers_errors
    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        graph = self._memory.graph
        return pb.GetStatusResponse(
            version=graph.version,
            nodes=len(graph.by_id),
            edges=len(graph.edges),
            embedder=joined(self._table.embedder, self._table.text_of),
            store=self._store,
            checks=self._memory.checks,
            waiting=len(graph.waiting),
        )

    def _retrieved(self, request: pb.RetrieveRequest) -> pb.RetrieveResponse:
        table = self._table
        texts = list(request.subtasks) or [request.question]
        if sum(map(len, texts)) > LONGEST_TEXT:
            raise BadWork(f"a question has at most {LONGEST_TEXT} characters in all its texts")
        wanted = request.k_per_subtask or table.per_subtask, request.k_total or table.in_all
        if max(wanted) > MOST_TOOLS:
            raise BadWork(f"{max(wanted)} tools are asked for, at most {MOST_TOOLS} are given")
        alpha = table.text_weight
        if request.HasField("text_weight"):
            alpha = wire.share("text_weight", request.text_weight)
        memory = self._memory
        version = self._version(request)
        found = memory.retrieve(
            texts,
            per_subtask=wanted[0],
            in_all=wanted[1],
            alpha=alpha,
            version=version,
            scoring=wire.scoring_from_proto(request.scoring, table.scoring),
            step=request.step if request.HasField("step") else None,
        )
        return pb.RetrieveResponse(
            tools=[
                pb.ScoredTool(tool=wire.node_to_proto(one.node), score=one.score) for one in found
            ],
            version=version,
        )

    def _version(self, request: pb.RetrieveRequest) -> int:
        ways = ("version", "before_weights", "iteration")
        given = [name for name in ways if request.HasField(name)]  # type: ignore[arg-type]
        if len(given) > 1:
            raise BadWork(f"{' and '.join(given)} are both given: give one of them")
        if given == ["iteration"]:
            version, registered = self._memory.begin(wire.iteration(request.iteration))
            self._metrics.registered(registered)
            return version
        if given == ["before_weights"]:
            return self._memory.before(*wire.weights(request.before_weights))
        return request.version if request.HasField("version") else self._memory.newest()

    def _page(self, request: pb.SnapshotRequest) -> pb.SnapshotResponse:
        version = request.version if request.HasField("version") else None
        graph = self._memory.at(version)
        out = pb.SnapshotResponse(version=graph.version)
        left = request.limit or len(graph.nodes)
        size = 0
        after = request.after_id if request.HasField("after_id") else -1
        shown: set[int] = set()
        for node in graph.nodes:
            if node.id <= after:
                continue
            if not left or size > PAGE_BYTES:
                out.more = True
                break
            message = wire.node_to_proto(node)
            out.nodes.append(message)
            shown.add(node.id)
            size += message.ByteSize()
            left -= 1
        _add_edges(out, graph, shown)
        return out

    def _rules(self) -> Any:
        table = self._table
        return {"delta": table.delta, "mode": table.mode, "prefer": table.prefer}

    def _merged(self, work: GroupWork) -> GroupMerged:
        merged = self._memory.merge_group(work)
        self._metrics.merged(merged)
        return merged

    async def _read(self, method: str, work: Callable[[], T]) -> T:
        return await self._in(self._readers, method, work)

    async def _write(self, method: str, work: Callable[[], T]) -> T:
        return await self._in(self._writer, method, work)

    async def _in(self, threads: ThreadPoolExecutor, method: str, work: Callable[[], T]) -> T:
        with self._metrics.request(method), self._place():
            try:
                # A caller that disconnects does not stop it: work that was begun is finished.
                return await asyncio.get_running_loop().run_in_executor(threads, work)
            except MemoryFault as error:
                reason = _REASONS.get(type(error), reasons.ERROR_REASON_INTERNAL)
                again = COME_AGAIN_S if isinstance(error, (ChecksDown, Unusable)) else None
                raise ServiceError(reason, str(error), retry_after=again) from error

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._waiting >= MOST_WAITING:
            raise ServiceError(
                reasons.ERROR_REASON_QUEUE_LIMIT,
                f"{self._waiting} requests wait already",
                retry_after=COME_AGAIN_S,
            )
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1


def _add_edges(out: pb.SnapshotResponse, graph: ToolGraph, shown: set[int]) -> None:
    """Adds the edges that begin at a node of the page."""
    for (one, other), count in graph.edges.items():
        if one in shown:
            edge = out.edges.add()
            setattr(edge, "from", graph.by_id[one].name)
            edge.to = graph.by_id[other].name
            setattr(edge, "count", count)  # noqa: B010 - a message's field
