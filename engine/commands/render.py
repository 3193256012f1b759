"""Recorded conversations to trajectories for `learner sft`, token for token as rollouts are.

Where the protocol's prompts show the tools, the same tools have to be given here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.build import build_codec, build_protocol, tools_of
from engine.config import RenderTable
from engine.errors import StartupError
from engine.protocols import Protocol
from engine.text.codec import HuggingFaceCodec
from engine.types import ToolSpec
from toolwright.recipe import Recipe, refuse_open_ports
from toolwright.trajectory_files import write_trajectories
from toolwright.types import (
    Author,
    Segment,
    Sequence,
    Status,
    StopReason,
    Task,
    Trajectory,
    floats,
    ids,
)

_AUTHORS = {"prompt": Author.PROMPT, "model": Author.MODEL, "tool": Author.TOOL}


def render_recipe(recipe: Recipe, table: RenderTable) -> str:
    """`engine render`: returns what was written, as a line. StartupError."""
    if table.ask_tools:
        refuse_open_ports(recipe, "tools")
    codec = build_codec(recipe, table.model)
    tools = asyncio.run(tools_of(recipe)) if table.ask_tools else []
    output, conversations = recipe.resolve(table.output), recipe.resolve(table.conversations)
    count = render(conversations, output, build_protocol(recipe), codec, tools)
    return f"{count} trajectories: {output}"


def render(
    conversations: Path,
    output: Path,
    protocol: Protocol,
    codec: HuggingFaceCodec,
    tools: Iterable[ToolSpec] = (),
) -> int:
    """Writes the trajectories file; returns how many. StartupError names file and line."""
    return write_trajectories(output, _trajectories(conversations, protocol, codec, tuple(tools)))


def _trajectories(
    conversations: Path, protocol: Protocol, codec: HuggingFaceCodec, tools: tuple[ToolSpec, ...]
) -> Iterator[Trajectory]:
    if not conversations.is_file():
        raise StartupError(f"render.conversations: no file {conversations}")
    with conversations.open() as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row: Mapping[str, Any] = json.loads(line)
                runs = protocol.demonstration(row["messages"], codec, tools)
            except ValueError as error:
                raise StartupError(f"{conversations}:{number}: {error}") from error
            except (KeyError, TypeError, AttributeError) as error:
                raise StartupError(
                    f'{conversations}:{number}: a line is {{"messages": [{{"role", "content"}}, '
                    f"...]}} ({error!r})"
                ) from error
            yield _trajectory(str(row.get("id", number)), runs, codec.hash)


def _trajectory(
    identity: str, runs: list[tuple[str, list[int]]], tokenizer_hash: str
) -> Trajectory:
    segments, turn = [], 0
    for position, (author, token_ids) in enumerate(runs):
        wrote = author == "model"
        if wrote and position > 1:
            turn += 1
        segments.append(
            Segment(
                author=_AUTHORS[author],
                token_ids=ids(token_ids),
                turn=turn,
                trainable=wrote,
                logprobs=floats([0.0] * len(token_ids)) if wrote else None,
            )
        )
    return Trajectory(
        id=f"demonstration-{identity}",
        group_id=f"demonstration-{identity}",
        task=Task(id=identity),
        sequences=(Sequence(id=f"demonstration-{identity}.0", segments=tuple(segments)),),
        status=Status.COMPLETED,
        stop_reason=StopReason.ANSWERED,
        tokenizer_hash=tokenizer_hash,
    )
