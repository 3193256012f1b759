"""Files that a command makes: whole or not at all, and none over one that is there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tasks.errors import NotMade


def write_new(path: Path, lines: Iterable[str]) -> int:
    """Writes the lines and returns how many they are. NotMade where the file is there already, or
    cannot be written. Whatever ends it before the last line leaves nothing under that name."""
    if path.exists():
        raise NotMade(f"{path} is there already: remove it, or name another")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("x", encoding="utf-8") as opened:
            for line in lines:
                opened.write(line)
                count += 1
            opened.flush()
            os.fsync(opened.fileno())
        draft.rename(path)
    except OSError as error:
        raise NotMade(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)
    return count
