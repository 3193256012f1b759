"""Files that a command makes: whole or not at all, and none over one that is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tasks.errors import NotMade


def write_new(path: Path, lines: Iterable[str]) -> int:
    """Writes the lines and returns how many they are. Raises NotMade if the file is there already,
    or cannot be written. Whatever ends it before the last line leaves nothing under that name; what
    the making of a line raises comes through as it is."""
    if path.exists():
        raise NotMade(f"{path} is there already: remove it, or name another")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    count = 0
    try:
        with _own_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            opened = draft.open("x", encoding="utf-8")
        try:
            for line in lines:
                with _own_errors(path):
                    opened.write(line)
                count += 1
            with _own_errors(path):
                opened.flush()
                os.fsync(opened.fileno())
        finally:
            with _own_errors(path):  # what could not be written is tried once more here
                opened.close()
        with _own_errors(path):
            draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    return count


@contextlib.contextmanager
def _own_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotMade(f"{path} cannot be written: {error.strerror or error}") from error
