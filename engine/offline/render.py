"""Renders recorded conversations to trajectories for `learner sft`, token for token like rollouts.

If the protocol's prompts show tools, a row's own tools are shown, or the services' for a row
without tools. `engine.offline.conversations` reads the rows.
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
from engine.offline.check.warm_up import warm_up_warnings
from engine.offline.conversations.lines import conversations
from engine.offline.conversations.types import RecordedConversation
from engine.offline.exits import print_to_stderr
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
"""(author, token ids) of the parts of a conversation, as a protocol renders it."""


def render_recipe(recipe: Recipe, table: RenderTable) -> str:
    """`engine render`: returns a line about the written file. Raises StartupError."""
    if table.ask_tools:
        refuse_open_ports(recipe, "tools")
    codec = build_codec(recipe, table.model)
    for sentence in asyncio.run(warm_up_warnings(recipe, table, codec)):
        print_to_stderr(f"{WARNING}{sentence}")
    output = recipe.resolve(table.output)
    parts = [
        RenderPart(
            file=recipe.resolve(file),
            protocol=build_protocol(own),
            tools=tuple(asyncio.run(tools_of(own))) if table.ask_tools else (),
        )
        for own, file in _files(recipe, table)
    ]
    count = render(parts, output, codec, max_bad_rows=table.max_bad_rows, show=print_to_stderr)
    return f"{count} trajectories: {output}"


def _files(recipe: Recipe, table: RenderTable) -> list[tuple[Recipe, Path]]:
    """(recipe of a task, its conversations). Raises StartupError for an unknown task."""
    tasks = task_recipes(recipe)
    for name in table.files:
        if name not in tasks:
            known = ", ".join(f"{one} = FILE" for one in tasks)
            form = f"{{ {known} }}" if known else "FILE"
            raise StartupError(f"render.conversations: the recipe has no such task: write {form}")
    return [(tasks[name], file) for name, file in table.files.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderPart:
    """Conversations of one task."""

    file: Path
    protocol: Protocol
    tools: tuple[ToolSpec, ...] = ()
    """Tools of rows that have none of their own."""


def render(
    parts: Iterable[RenderPart],
    output: Path,
    codec: HuggingFaceCodec,
    *,
    max_bad_rows: int = 0,
    show: Callable[[str], None] = lambda line: None,
) -> int:
    """Writes the trajectories of the parts in order; returns their number.

    max_bad_rows: most unusable lines of a file that are skipped. show: gets a line for each of
    those, and for tools that no prompt shows. Raises StartupError with file and line.
    """
    return write_trajectories(output, _trajectories_of_parts(parts, codec, max_bad_rows, show))


def _trajectories_of_parts(
    parts: Iterable[RenderPart], codec: HuggingFaceCodec, most: int, show: Callable[[str], None]
) -> Iterator[Trajectory]:
    for part in parts:
        if not part.file.is_file():
            raise StartupError(
                f"render.conversations: no file {part.file}: create it, or correct the path"
            )
        rendering = _Rendering(part.protocol, codec, part.tools)
        yield from _trajectories(part.file, rendering, most, show)
        if rendering.unseen:
            show(
                f"{part.file}: {rendering.unseen} rows have tools that their prompts do not show: "
                "neither the protocol nor the policy's chat template has a place for them"
            )


def _trajectories(
    file: Path, rendering: _Rendering, most: int, show: Callable[[str], None]
) -> Iterator[Trajectory]:
    bad = 0
    for number, found in conversations(file, rendering.tools):
        try:
            if isinstance(found, RowRefused):
                raise found
            trajectory = rendering.trajectory(found)
        except ValueError as error:
            bad += 1
            sentence = f"{file}:{number}: {error}"
            if bad > most:
                over = f" ({bad} such lines, more than render.max_bad_rows = {most})" * (most > 0)
                raise StartupError(sentence + over) from error
            show(f"skipped: {sentence}")
        else:
            yield trajectory


class _Rendering:
    """Renders the conversations of one part."""

    def __init__(
        self, protocol: Protocol, codec: HuggingFaceCodec, tools: tuple[ToolSpec, ...]
    ) -> None:
        self._protocol = protocol
        self._codec = codec
        self.tools = tools
        """Tools of rows that have none of their own."""
        self._shows: bool | None = None
        """Whether prompts show tools; None before the first row with tools."""
        self._ends = {codec.token_id(text): text for text in codec.turn_ends}
        self.unseen = 0
        """Number of rows with tools that their prompts do not show."""

    def trajectory(self, conversation: RecordedConversation) -> Trajectory:
        """Raises ValueError if the protocol cannot render the conversation."""
        try:
            runs = self._runs(conversation)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"the protocol or the chat template cannot render its messages ({error!r})"
            ) from error
        for author, token_ids in runs:
            ends = self._ends.keys() & token_ids[:-1] if author == "model" else ()
            for end in ends:
                raise ValueError(
                    f"the assistant's text holds {self._ends[end]}, at which a rollout "
                    "would have ended: remove it"
                )
        return _trajectory(conversation.id, runs, conversation.untrained, self._codec.hash)

    def _runs(self, conversation: RecordedConversation) -> Runs:
        own = conversation.tools
        runs = self._demonstration(conversation, self.tools if own is None else own)
        if not own:
            return runs
        if self._shows is None:
            self._shows = runs[0] != self._demonstration(conversation, ())[0]
        if self._shows:
            return runs
        if conversation.with_tool_list is not None:
            messages = conversation.with_tool_list
            return self._protocol.demonstration(messages, self._codec, own)
        self.unseen += 1
        return runs

    def _demonstration(
        self, conversation: RecordedConversation, tools: tuple[ToolSpec, ...]
    ) -> Runs:
        return self._protocol.demonstration(conversation.messages, self._codec, tools)


def _trajectory(
    identity: str, runs: Runs, untrained: Collection[int], tokenizer_hash: str
) -> Trajectory:
    segments, turn, written = [], 0, 0
    for position, (author, token_ids) in enumerate(runs):
        wrote = author == "model"
        if wrote and position > 1:
            turn += 1
        segments.append(
            Segment(
                author=_AUTHORS[author],
                token_ids=ids(token_ids),
                turn=turn,
                trainable=wrote and written not in untrained,
                logprobs=floats([0.0] * len(token_ids)) if wrote else None,
            )
        )
        written += wrote
    return Trajectory(
        id=f"demonstration-{identity}",
        group_id=f"demonstration-{identity}",
        task=Task(id=identity),
        sequences=(Sequence(id=f"demonstration-{identity}.0", segments=tuple(segments)),),
        status=Status.COMPLETED,
        stop_reason=StopReason.ANSWERED,
        tokenizer_hash=tokenizer_hash,
    )
