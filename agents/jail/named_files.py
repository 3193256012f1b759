"""Files that a jailed agent's command line names: a jail does not show the recipe's folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path


def moved(words: Sequence[str], folders: Sequence[str], folder: Path) -> list[str]:
    """The command line with each named file that a jail hides replaced by its copy in `folder`.

    words: a file's whole path, or PATH.py:NAME. folders: those that the jail shows. Raises OSError.
    """
    found = list(words)
    for place, word in enumerate(words):
        file, colon, name = word.rpartition(":")
        path = Path(file if colon and file.endswith(".py") else word)
        if not path.is_absolute() or not path.is_file() or _is_shown(path, folders):
            continue
        copy = folder / path.name
        shutil.copy(path, copy)
        found[place] = f"{copy}:{name}" if str(path) != word else str(copy)
    return found


def _is_shown(path: Path, folders: Sequence[str]) -> bool:
    return any(path.is_relative_to(one) for one in ("/usr", *folders))
