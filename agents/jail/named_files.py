"""Files that a jailed agent's command line names: a jail does not show the recipe's folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from agents.environment import RESULT, TASK
from agents.errors import StartError


def check_names(words: Sequence[str], folders: Sequence[str]) -> None:
    """Raises StartError if the copy of a file would replace another file of the agent's folder. The
    arguments are those of `moved`."""
    copies = dict[str, Path]()
    for _, path, _ in _hidden(words, folders):
        if path.name in (TASK, RESULT):
            raise StartError(
                f"task.agent.command: {path}: an agent's folder has a {path.name} of its own: "
                "rename the file"
            )
        if copies.setdefault(path.name, path) != path:
            raise StartError(
                f"task.agent.command: {copies[path.name]} and {path} are copied to one folder: "
                "rename one of them, or show its folder with task.agent.folders"
            )


def moved(words: Sequence[str], folders: Sequence[str], folder: Path) -> list[str]:
    """The command line with each named file that a jail hides replaced by its copy in `folder`.

    words: a file's whole path, or PATH.py:NAME. folders: those that the jail shows. Raises OSError.
    `check_names` has to accept them.
    """
    found = list(words)
    for place, path, rest in _hidden(words, folders):
        copy = folder / path.name
        shutil.copy(path, copy)
        found[place] = f"{copy}{rest}"
    return found


def _hidden(words: Sequence[str], folders: Sequence[str]) -> Iterator[tuple[int, Path, str]]:
    """Each word's place, its file, and the text after the file."""
    for place, word in enumerate(words):
        file, colon, name = word.rpartition(":")
        path = Path(file if colon and file.endswith(".py") else word)
        if path.is_absolute() and path.is_file() and not _is_shown(path, folders):
            yield place, path, f":{name}" if str(path) != word else ""


def _is_shown(path: Path, folders: Sequence[str]) -> bool:
    return any(path.is_relative_to(one) for one in ("/usr", *folders))
