"""Compares prompts of a warm-up with those of rollouts: first conversations, first tasks."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path

from engine.config import RenderTable
from engine.core.build import build_protocol, open_source, task_recipes
from engine.core.text.codec import HuggingFaceCodec
from engine.errors import StartupError
from engine.offline.check.recipe_warnings import (
    opening_warning,
    shows_tools,
    template_warning,
    tools_warning,
)
from engine.offline.conversations.lines import conversations
from engine.offline.conversations.types import RecordedConversation
from engine.offline.missing_inputs import producer_of_source
from toolwright.model.model_folder import ModelFolderError, tokenizer_hash
from toolwright.recipe import Recipe
from toolwright.types import Task

MOST_BAD_ROWS = 1 << 30
"""No bound: another check counts bad rows."""
FIRST = 20
"""Number of conversations and of tasks that are compared."""


async def warm_up_warnings(
    recipe: Recipe, table: RenderTable, codec: HuggingFaceCodec
) -> list[str]:
    """Warnings as sentences; missing files are skipped. codec: the policy's or its stand-in's."""
    found = _folder_warnings(recipe, table)
    tasks = task_recipes(recipe)
    for name, given in table.files.items():
        file, own = recipe.resolve(given), tasks.get(name)
        source = own.shared.task.source if own else ""
        if own is None or not file.is_file() or producer_of_source(recipe, source):
            continue
        found += await _file_warnings(own, file, codec, ask_tools=table.ask_tools)
    return found


async def _file_warnings(
    recipe: Recipe, file: Path, codec: HuggingFaceCodec, *, ask_tools: bool
) -> list[str]:
    protocol = build_protocol(recipe)
    rows = [
        row
        for _, row in islice(conversations(file), FIRST)
        if isinstance(row, RecordedConversation)
    ]
    tasks = await _first_tasks(recipe)
    if not rows or not tasks:
        return []
    found = []
    bare = sum(not row.tools and row.with_tool_list is None for row in rows)
    hidden = bare and not ask_tools and recipe.shared.used_tools
    if hidden and shows_tools(protocol, codec, tasks[0]):
        found.append(tools_warning(file.name, bare, len(rows)))
    found.append(opening_warning(file.name, rows, tasks, protocol, codec))
    return [line for line in found if line]


async def _first_tasks(recipe: Recipe) -> list[Task]:
    """The first tasks, or fewer; other commands report errors of the source."""
    found: list[Task] = []
    with suppress(StartupError):
        source = await open_source(recipe, max_bad_rows=MOST_BAD_ROWS)
        try:
            async for drawn in source.first(FIRST):
                found.append(drawn.task)  # noqa: PERF401 (those before an error count)
        finally:
            source.close()
    return found


def _folder_warnings(recipe: Recipe, table: RenderTable) -> list[str]:
    """Folders of the warm-up with another tokenizer or template."""
    sft = recipe.raw.get("sft", {}).get("model")
    policy = recipe.shared.policy
    folders = {
        "policy.model": recipe.resolve(policy.model),
        "sft.model": recipe.resolve(sft) if isinstance(sft, str) and sft else None,
    }
    own = recipe.resolve(table.model or policy.model)
    found = []
    for key, folder in folders.items():
        if folder is None or folder == own or not (folder / "tokenizer.json").is_file():
            continue
        try:
            hashes = (tokenizer_hash(own, policy.template), tokenizer_hash(folder, policy.template))
        except ModelFolderError:
            continue  # the process that reads the folder names the file
        found.append(template_warning("render.model", key, hashes))
    return [line for line in found if line]
