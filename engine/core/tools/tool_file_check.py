"""Checks that the Python files of a `[tools.NAME] serve = [...]` can be served, without serving
them.

A process of its own reads the files as `toolsvc serve` does, with the options of their tools. So a
file without a tool, one that cannot be imported, or a wrong option is found before samplers start.
No service and no sandbox is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.errors import StartupError
from toolwright.recipe import Recipe

CHECK = (sys.executable, "-P", "-m", "toolsvc.commands.file_check")
IMPORT_SECONDS = 30.0
"""Longest import, in seconds. A slower file is left to the start of the run."""
LONGEST_SENTENCE = 2000


async def check_tool_files(recipe: Recipe) -> list[str]:
    """Warnings about files that could not be checked. Raises StartupError for a file that cannot be
    served, and for a wrong option of its tools."""
    shared = recipe.shared
    lines = [
        await _check(name, files, settings_for(shared.tools[name].words, files), recipe.folder)
        for name in shared.used_tools
        if (files := list(tool_files(shared.tools[name].serve)))
    ]
    return [line for line in lines if line]


def settings_for(words: Sequence[str], files: Sequence[str]) -> list[str]:
    """The `--set` options among the words; none if the words may name further files."""
    pairs = list(zip(("", *words), words, strict=False))
    others = [word for before, word in pairs if word.endswith(".py") and before != "--set"]
    if any(word not in files for word in others if not word.startswith("-")):
        return []
    split = (word for pair in pairs if pair[0] == "--set" for word in pair)
    return [*split, *(word for word in words if word.startswith("--set="))]


def tool_files(words: Sequence[str]) -> Iterator[str]:
    """Python files among the words after `toolsvc serve`, without words that may be an option's
    value."""
    for before, word in zip(("", *words), words, strict=False):
        if word.endswith(".py") and not before.startswith("-") and not word.startswith("-"):
            yield word


async def _check(name: str, files: Sequence[str], settings: Sequence[str], folder: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *(*CHECK, *settings, *files),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        cwd=folder,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(IMPORT_SECONDS):
            _, said = await process.communicate()
    except TimeoutError:
        shown = ", ".join(files)
        return f"tools.{name}: {shown} takes more than {IMPORT_SECONDS:g} s to import: not checked"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.returncode == 0:
        return ""
    lines = said.decode("utf-8", "replace").strip().splitlines()
    why = lines[-1].removeprefix("toolsvc: ") if lines else f"exit code {process.returncode}"
    raise StartupError(f"tools.{name}.serve: {why[:LONGEST_SENTENCE]}")
