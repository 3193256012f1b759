"""Checks that the Python files of a `[tools.NAME] serve = [...]` can be served, without serving
them.

A process of its own reads each file as `toolsvc serve` does. So a file without a tool, or one that
cannot be imported, is found before samplers start. No service and no sandbox is started.
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

LIST = (sys.executable, "-P", "-m", "toolsvc.cli", "list")
IMPORT_SECONDS = 30.0
"""Longest import, in seconds. A slower file is left to the start of the run."""
LONGEST_SENTENCE = 2000


async def check_tool_files(recipe: Recipe) -> list[str]:
    """Warnings about files that could not be checked. Raises StartupError for a file that cannot be
    served."""
    shared = recipe.shared
    lines = [
        await _check(name, file, recipe.folder)
        for name in shared.used_tools
        for file in tool_files(shared.tools[name].serve)
    ]
    return [line for line in lines if line]


def tool_files(words: Sequence[str]) -> Iterator[str]:
    """Python files among the words after `toolsvc serve`, without words that may be an option's
    value."""
    for before, word in zip(("", *words), words, strict=False):
        if word.endswith(".py") and not before.startswith("-") and not word.startswith("-"):
            yield word


async def _check(name: str, file: str, folder: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *(*LIST, file),
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
        return f"tools.{name}: {file} takes more than {IMPORT_SECONDS:g} s to import: not checked"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.returncode == 0:
        return ""
    lines = said.decode("utf-8", "replace").strip().splitlines()
    why = lines[-1].removeprefix("toolsvc: ") if lines else f"exit code {process.returncode}"
    raise StartupError(f"tools.{name}.serve: {why[:LONGEST_SENTENCE]}")
