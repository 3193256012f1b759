"""The prompts of a warm-up beside those of rollouts: the first conversations, the first tasks."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path

from engine.config import RenderTable
from engine.core.build import build_protocol, open_source, task_recipes
from engine.core.text.codec import HuggingFaceCodec
from engine.errors import StartupError
from engine.offline.check.combining import opening_doubt, shows_tools, template_doubt, tools_doubt
from engine.offline.conversations.lines import conversations
from engine.offline.conversations.types import Conversation
from engine.offline.missing_inputs import who_makes_source
from toolwright.model.model_folder import ModelFolderError, tokenizer_hash
from toolwright.recipe import Recipe
from toolwright.types import Task

MOST_BAD_ROWS = 1 << 30
"""Another check counts them."""
FIRST = 20
"""Conversations, and tasks, that are compared."""


async def warm_up_doubts(recipe: Recipe, table: RenderTable, codec: HuggingFaceCodec) -> list[str]:
    """Sentences; what is not there yet is left out. codec: of the policy or its stand-in."""
    found = _of_folders(recipe, table)
    tasks = task_recipes(recipe)
    for name, given in table.files.items():
        file, own = recipe.resolve(given), tasks.get(name)
        source = own.shared.task.source if own else ""
        if own is None or not file.is_file() or who_makes_source(recipe, source):
            continue
        found += await _of_file(own, file, codec, ask_tools=table.ask_tools)
    return found


async def _of_file(
    recipe: Recipe, file: Path, codec: HuggingFaceCodec, *, ask_tools: bool
) -> list[str]:
    protocol = build_protocol(recipe)
    rows = [row for _, row in islice(conversations(file), FIRST) if isinstance(row, Conversation)]
    asked = await _first_tasks(recipe)
    if not rows or not asked:
        return []
    found = []
    bare = sum(not row.tools and row.told is None for row in rows)
    untold = bare and not ask_tools and recipe.shared.used_tools
    if untold and shows_tools(protocol, codec, asked[0]):
        found.append(tools_doubt(file.name, bare, len(rows)))
    found.append(opening_doubt(file.name, rows, asked, protocol, codec))
    return [line for line in found if line]


async def _first_tasks(recipe: Recipe) -> list[Task]:
    """Fewer, or none, where the source has no more; other commands say what is wrong with it."""
    found: list[Task] = []
    with suppress(StartupError):
        source = await open_source(recipe, max_bad_rows=MOST_BAD_ROWS)
        try:
            async for drawn in source.first(FIRST):
                found.append(drawn.task)  # noqa: PERF401 (those before an error count)
        finally:
            source.close()
    return found


def _of_folders(recipe: Recipe, table: RenderTable) -> list[str]:
    """Tokenizer and template of the folders that have a part in the warm-up."""
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
        found.append(template_doubt("render.model", key, hashes))
    return [line for line in found if line]
