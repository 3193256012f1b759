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
    """Warnings about what could not be checked. Raises StartupError for a file that cannot be
    served, and for a wrong option of its tools."""
    shared = recipe.shared
    return [
        f"tools.{name}: {line}"
        for name in shared.used_tools
        if (files := list(tool_files(shared.tools[name].serve)))
        for line in await _check(name, files, shared.tools[name].words, recipe.folder)
    ]


async def _check(name: str, files: Sequence[str], words: Sequence[str], folder: Path) -> list[str]:
    """Warnings. The files are imported in one process. If that takes too long, each is imported in
    a process of its own, so that one slow file leaves the others checked."""
    settings = _settings(words)
    others = _other_files(words, files) if settings else []
    slow: list[str] = []
    if not await _served(name, [*settings, *files, *["--partial"][: len(others)]], folder):
        slow = [
            file
            for file in files
            if len(files) == 1 or not await _served(name, [*settings, file, "--partial"], folder)
        ]
    return [
        *(f"{one!r} may be another file: options of its tools are not checked" for one in others),
        *(f"{one} takes more than {IMPORT_SECONDS:g} s to import: not checked" for one in slow),
    ]


def _settings(words: Sequence[str]) -> list[str]:
    """The `--set` options among the words."""
    pairs = zip(("", *words), words, strict=False)
    split = (word for pair in pairs if pair[0] == "--set" for word in pair)
    return [*split, *(word for word in words if word.startswith("--set="))]


def _other_files(words: Sequence[str], files: Sequence[str]) -> list[str]:
    """Words that may be a file or the value of another option."""
    return [
        word
        for before, word in zip(("", *words), words, strict=False)
        if word.endswith(".py") and before != "--set"
        if word not in files and not word.startswith("-")
    ]


def tool_files(words: Sequence[str]) -> Iterator[str]:
    """Python files among the words after `toolsvc serve`, without words that may be an option's
    value."""
    for before, word in zip(("", *words), words, strict=False):
        if word.endswith(".py") and not before.startswith("-") and not word.startswith("-"):
            yield word


async def _served(name: str, arguments: Sequence[str], folder: Path) -> bool:
    """Whether the files were checked in time. Raises StartupError if they cannot be served."""
    process = await asyncio.create_subprocess_exec(
        *(*CHECK, *arguments),
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
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.returncode == 0:
        return True
    lines = said.decode("utf-8", "replace").strip().splitlines()
    why = lines[-1].removeprefix("toolsvc: ") if lines else f"exit code {process.returncode}"
    raise StartupError(f"tools.{name}.serve: {why[:LONGEST_SENTENCE]}")
