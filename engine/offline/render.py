"""Recorded conversations to trajectories for `learner sft`, token for token as rollouts are.

Where the protocol's prompts show the tools, a row's own tools are shown, or those of the services
where it carries none. Rows may have the layouts that `engine.offline.conversations` reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.config import RenderTable
from engine.core.build import build_codec, build_protocol, task_recipes, tools_of
from engine.core.protocols import Protocol
from engine.core.text.codec import HuggingFaceCodec
from engine.errors import StartupError
from engine.offline.check.remarks import WARNING
from engine.offline.check.warm_up import warm_up_doubts
from engine.offline.conversations.lines import conversations
from engine.offline.conversations.types import Conversation
from engine.offline.exits import tell_people
from engine.types import ToolSpec
from toolwright.reading.task_rows.refusal import RowRefused
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

Runs = list[tuple[str, list[int]]]
"""What a protocol makes of a conversation."""


def render_recipe(recipe: Recipe, table: RenderTable) -> str:
    """`engine render`: returns what was written, as a line. StartupError."""
    if table.ask_tools:
        refuse_open_ports(recipe, "tools")
    codec = build_codec(recipe, table.model)
    for doubt in asyncio.run(warm_up_doubts(recipe, table, codec)):
        tell_people(f"{WARNING}{doubt}")
    output = recipe.resolve(table.output)
    parts = [
        Part(
            file=recipe.resolve(file),
            protocol=build_protocol(own),
            tools=tuple(asyncio.run(tools_of(own))) if table.ask_tools else (),
        )
        for own, file in _files(recipe, table)
    ]
    count = render(parts, output, codec, max_bad_rows=table.max_bad_rows, tell=tell_people)
    return f"{count} trajectories: {output}"


def _files(recipe: Recipe, table: RenderTable) -> list[tuple[Recipe, Path]]:
    """(the recipe of a task, its conversations). StartupError for a task that is none."""
    tasks = task_recipes(recipe)
    for name in table.files:
        if name not in tasks:
            known = ", ".join(f"{one} = FILE" for one in tasks)
            form = f"{{ {known} }}" if known else "FILE"
            raise StartupError(f"render.conversations: write {form}, as the recipe has its tasks")
    return [(tasks[name], file) for name, file in table.files.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Conversations of one task. tools: of rows that carry none."""

    file: Path
    protocol: Protocol
    tools: tuple[ToolSpec, ...] = ()


def render(
    parts: Iterable[Part],
    output: Path,
    codec: HuggingFaceCodec,
    *,
    max_bad_rows: int = 0,
    tell: Callable[[str], None] = lambda line: None,
) -> int:
    """Writes the trajectories file, one part after the other; returns how many. StartupError names
    file and line.

    max_bad_rows: how many lines of a file that cannot be used are passed over. tell: hears of
    those, and of tools that no prompt shows.
    """
    return write_trajectories(output, _of_parts(parts, codec, max_bad_rows, tell))


def _of_parts(
    parts: Iterable[Part], codec: HuggingFaceCodec, most: int, tell: Callable[[str], None]
) -> Iterator[Trajectory]:
    for part in parts:
        if not part.file.is_file():
            raise StartupError(f"render.conversations: no file {part.file}")
        rendering = _Rendering(part.protocol, codec, part.tools)
        yield from _trajectories(part.file, rendering, most, tell)
        if rendering.unseen:
            tell(
                f"{part.file}: {rendering.unseen} rows carry tools that their prompts do not show, "
                "for neither the protocol nor the policy's chat template has a place for them"
            )


def _trajectories(
    file: Path, rendering: _Rendering, most: int, tell: Callable[[str], None]
) -> Iterator[Trajectory]:
    bad = 0
    for number, found in conversations(file, rendering.tools):
        try:
            if isinstance(found, RowRefused):
                raise found
            trajectory = rendering.trajectory(found)
        except ValueError as error:
            bad += 1
            said = f"{file}:{number}: {error}"
            if bad > most:
                over = f" ({bad} such lines, more than render.max_bad_rows = {most})" * (most > 0)
                raise StartupError(said + over) from error
            tell(f"passed over: {said}")
        else:
            yield trajectory


class _Rendering:
    """tools: those of rows that carry none. unseen: rows so far with tools that their prompts do
    not show."""

    def __init__(
        self, protocol: Protocol, codec: HuggingFaceCodec, tools: tuple[ToolSpec, ...]
    ) -> None:
        self._protocol = protocol
        self._codec = codec
        self.tools = tools
        self._shows: bool | None = None
        """Prompts show tools; unknown before the first row with its own."""
        self._ends = {codec.token_id(text): text for text in codec.turn_ends}
        self.unseen = 0

    def trajectory(self, conversation: Conversation) -> Trajectory:
        """ValueError where the protocol cannot tell the conversation."""
        try:
            runs = self._runs(conversation)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"the protocol or the chat template does not take its messages ({error!r})"
            ) from error
        for author, token_ids in runs:
            ends = self._ends.keys() & token_ids[:-1] if author == "model" else ()
            for end in ends:
                raise ValueError(
                    f"the assistant's text holds {self._ends[end]}, at which a rollout "
                    "would have ended: remove it"
                )
        return _trajectory(conversation.id, runs, conversation.untrained, self._codec.hash)

    def _runs(self, conversation: Conversation) -> Runs:
        own = conversation.tools
        runs = self._told(conversation, self.tools if own is None else own)
        if not own:
            return runs
        if self._shows is None:
            self._shows = runs[0] != self._told(conversation, ())[0]
        if self._shows:
            return runs
        if conversation.told is not None:
            return self._protocol.demonstration(conversation.told, self._codec, own)
        self.unseen += 1
        return runs

    def _told(self, conversation: Conversation, tools: tuple[ToolSpec, ...]) -> Runs:
        return self._protocol.demonstration(conversation.messages, self._codec, tools)


def _trajectory(
    identity: str, runs: Runs, untrained: Collection[int], tokenizer_hash: str
) -> Trajectory:
    segments, turn, spoken = [], 0, 0
    for position, (author, token_ids) in enumerate(runs):
        wrote = author == "model"
        if wrote and position > 1:
            turn += 1
        segments.append(
            Segment(
                author=_AUTHORS[author],
                token_ids=ids(token_ids),
                turn=turn,
                trainable=wrote and spoken not in untrained,
                logprobs=floats([0.0] * len(token_ids)) if wrote else None,
            )
        )
        spoken += wrote
    return Trajectory(
        id=f"demonstration-{identity}",
        group_id=f"demonstration-{identity}",
        task=Task(id=identity),
        sequences=(Sequence(id=f"demonstration-{identity}.0", segments=tuple(segments)),),
        status=Status.COMPLETED,
        stop_reason=StopReason.ANSWERED,
        tokenizer_hash=tokenizer_hash,
    )
