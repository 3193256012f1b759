"""All queries at once, each as the only call of its own trajectory."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolsvc.backends.search.vectors import encode_vector
from toolsvc.tools.search import VECTOR
from toolwright import wire
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.channel import open_channel
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

TIMEOUT_S = 120.0
_TITLE = re.compile(r"^Doc \d+\(Title: \S+ (\d+)\)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """One burst of all queries."""

    seconds: float
    """From the first query to the last answer."""
    latency_ms: Sequence[float]
    found: Sequence[Sequence[int]]
    """Numbers of the passages of each answer."""
    batch: float
    """Mean size of the batch in which the service answered a query."""


def actions(
    texts: Sequence[str], vectors: NDArray[np.float32] | None
) -> list[tuple[str, dict[str, str]]]:
    """Action text and metadata of each call."""
    metadata = (
        [{}] * len(texts) if vectors is None else [{VECTOR: encode_vector(v)} for v in vectors]
    )
    return [(f"<search>{text}</search>", own) for text, own in zip(texts, metadata, strict=True)]


async def bursts(
    address: str, calls: Sequence[tuple[str, dict[str, str]]], count: int
) -> list[Burst]:
    """`count` bursts after one to warm up, each in new sessions."""
    async with open_channel(address) as channel:
        stub = tool_pb2_grpc.ToolServiceStub(channel)
        return [await _burst(stub, calls) for _ in range(count + 1)][1:]


async def _burst(stub: Any, calls: Sequence[tuple[str, dict[str, str]]]) -> Burst:
    name = uuid.uuid4().hex
    requests = []
    for number, (action, metadata) in enumerate(calls):
        session = f"{name}-{number}"
        opening = pb.OpenSessionRequest(session_id=session, owner=name)
        await rpc(stub.OpenSession, opening, timeout=TIMEOUT_S)
        requests.append(
            pb.CallToolRequest(
                session_id=session,
                call_id=f"{session}/0",
                action=action,
                metadata=wire.struct(metadata) if metadata else None,
            )
        )

    async def ask(request: pb.CallToolRequest) -> tuple[float, pb.CallResult]:
        began = time.perf_counter()
        answer = await rpc(stub.CallTool, request, timeout=TIMEOUT_S)
        return (time.perf_counter() - began) * 1e3, answer.result

    began = time.perf_counter()
    answers = await asyncio.gather(*map(ask, requests))
    seconds = time.perf_counter() - began
    for request in requests:
        closing = pb.CloseSessionRequest(session_id=request.session_id)
        await rpc(stub.CloseSession, closing, timeout=TIMEOUT_S)
    return Burst(
        seconds=seconds,
        latency_ms=[latency for latency, _ in answers],
        found=[
            [int(row) for row in _TITLE.findall(result.observation[0].text)]
            for _, result in answers
        ],
        batch=sum(result.metrics["batch"] for _, result in answers) / len(answers),
    )
