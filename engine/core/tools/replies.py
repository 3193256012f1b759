"""A tool service's record of a call, in the engine's types. Pure.

Any stranger may run a service. Unknown numbers, authors that no tool may be, and budgets that no
context has are read as their harmless neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.core.images.media import Media, media_of
from engine.core.tools.spec import spec
from engine.types import ToolSpec
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Author, BlobRef, CallOutcome, ToolErrorKind

LARGEST_BUDGET = 1 << 20
"""Largest budget of one observation in tokens, as in the contract. A larger request gets the
recipe's limit."""

_AUTHORS = (Author.TOOL, Author.MEMORY, Author.SYSTEM)
_ERRORS = frozenset(ToolErrorKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The outcome of a call, with new tools and media."""

    outcome: CallOutcome
    new_tools: tuple[ToolSpec, ...] = ()
    """Tools that its session has from here on."""
    media: tuple[Media, ...] = ()
    """Media of the observation that came with the reply. `outcome.parts` name them, and larger ones
    that their service holds."""


def refused(reason: str, kind: ToolErrorKind = ToolErrorKind.INVALID_ACTION) -> CallOutcome:
    """The policy's answer to an action that went to no service."""
    return CallOutcome(observation="", valid=False, invalid_reason=reason, error=kind)


def reply_of(result: pb.CallResult, service: str) -> Reply:
    """The engine's view of a result of `service`.

    A failure without an observation is shown by its message.
    """
    read = [_part(part) for part in result.observation]
    parts = tuple(part.blob if isinstance(part, Media) else part for part in read)
    text = "".join(part if isinstance(part, str) else f"[{part.media_type}]" for part in parts)
    outcome = CallOutcome(
        observation=text or result.error.message,
        parts=() if all(isinstance(part, str) for part in parts) else parts,
        valid=result.valid,
        invalid_reason=result.invalid_reason,
        done=result.done,
        error=_error(result),
        session_lost=result.error.session_lost,
        reward=_reward(result),
        metrics=dict(result.metrics),
        truncated=result.truncated,
        isolation=result.isolation,
        tool=result.tool,
        author=_author(result),
        token_budget=result.token_budget if result.token_budget <= LARGEST_BUDGET else 0,
        queued_s=wire.seconds(result.queued),
        run_s=wire.seconds(result.run),
    )
    return Reply(
        outcome=outcome,
        new_tools=tuple(spec(tool, service) for tool in result.new_tools),
        media=tuple(part for part in read if isinstance(part, Media)),
    )


def _part(part: pb.ObservationPart) -> str | Media | BlobRef:
    kind = part.WhichOneof("content")
    if kind == "media":
        return media_of(part.media.data, part.media.media_type)
    if kind == "blob":
        return wire.blob_from_proto(part.blob)
    return part.text


def _author(result: pb.CallResult) -> Author:
    found = int(result.author)
    return Author(found) if found in _AUTHORS else Author.TOOL


def _error(result: pb.CallResult) -> ToolErrorKind:
    if not result.HasField("error"):
        return ToolErrorKind.NONE
    kind = int(result.error.kind)
    known = kind in _ERRORS and kind != ToolErrorKind.NONE
    return ToolErrorKind(kind) if known else ToolErrorKind.EXCEPTION


def _reward(result: pb.CallResult) -> float | None:
    known = result.HasField("reward") and math.isfinite(result.reward)
    return result.reward if known else None
