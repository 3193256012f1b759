"""The tutorial of docs/tools/your-own.md: its files, the command that serves them, and those whose
output it shows."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import toolsvc

PAGE = Path(toolsvc.__file__).parents[1] / "docs" / "tools" / "your-own.md"
ADDRESS = "127.0.0.1:50061"
_EXAMPLE = re.compile(r"`(\w+\.py)`:\n\n```python\n(.*?)```\n\n```\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A tool in one file. A command is its words after `toolsvc` and what it prints; `ADDRESS`
    stands for the service."""

    file: str
    code: str
    commands: tuple[tuple[tuple[str, ...], str], ...]


def _commands(text: str) -> tuple[tuple[tuple[str, ...], str], ...]:
    found = []
    for block in text.split("$ toolsvc ")[1:]:
        line, _, output = block.partition("\n")
        found.append((tuple(shlex.split(line)), output))
    return tuple(found)


_TEXT = PAGE.read_text("utf-8")
EXAMPLES = [
    Example(file=file, code=code, commands=_commands(commands))
    for file, code, commands in _EXAMPLE.findall(_TEXT)
]
SERVED = re.findall(r"^\.venv/bin/toolsvc serve (.*shout\.py.*)$", _TEXT, re.MULTILINE)
"""What stands behind `toolsvc serve` where the page serves them all."""
(CHECK,) = _commands(re.findall(r"^\$ toolsvc check .*?(?=^```$)", _TEXT, re.M | re.S)[0])
"""The words of the check, and what it prints."""
