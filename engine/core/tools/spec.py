"""The contract's tool descriptors in the engine's types."""

from __future__ import annotations

from functools import lru_cache

from engine.types import ToolSpec
from toolwright import wire
from toolwright.text.schemas import in_order
from toolwright.tool.v1 import tool_pb2 as pb

KEPT = 1024
"""Descriptors that are cached. The bound keeps sessions with tools of their own from filling the
memory."""


def spec(tool: pb.ToolDescriptor, service: str) -> ToolSpec:
    """The engine's view of a descriptor; the same object for an equal one, since every session
    comes with its tools."""
    return _spec(tool.SerializeToString(deterministic=True), service)


@lru_cache(maxsize=KEPT)
def _spec(descriptor: bytes, service: str) -> ToolSpec:
    tool = pb.ToolDescriptor.FromString(descriptor)
    kind = tool.action_format.WhichOneof("format")
    tag = tool.action_format.tag if kind == "tag" else tool.action_format.json_call
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        usage=tool.usage,
        arguments_schema=in_order(wire.mapping(tool.arguments_schema)),
        stop_strings=tuple(tool.stop_strings),
        open_tag=tag.open if kind != "raw" else "",
        close_tag=tag.close if kind != "raw" else "",
        argument=tool.action_format.tag.argument if kind == "tag" else "",
        json_call=kind == "json_call",
        parallel_calls=tool.parallel_calls,
        stateful=tool.stateful,
        forks=tool.capabilities.fork,
        service=service,
    )
