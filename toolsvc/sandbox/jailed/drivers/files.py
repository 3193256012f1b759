"""The file tools of a session: view, create, str_replace, insert, undo.

Invariants
- A file is changed wholly or not at all: the new text is written beside it and moved into place.
- `undo` takes back only what these tools did: not when the file has changed since by other means.
- Nothing here knows a boundary: the process that runs it is confined.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from typing import Any

from .texts import Changes, EditFailed

_LARGEST = 4 * 1024 * 1024
"""Bytes of a file that is looked at; larger ones are for the shell."""
_ENTRIES = 500
_DEPTH = 2


class Files:
    def __init__(self) -> None:
        self._changes = Changes()

    def edit(self, request: dict[str, Any], folder: str) -> str:
        """Makes an edit and returns the text for the policy. Relative paths are below `folder`.
        Raises EditFailed."""
        path = os.path.expanduser(request["path"])
        home = os.getcwd()
        try:
            os.chdir(folder)
            return self._edit(request["edit"], path, request)
        except OSError as error:
            raise EditFailed(f"{path}: {error.strerror}") from error
        finally:
            os.chdir(home)

    def _edit(self, command: str, path: str, request: dict[str, Any]) -> str:
        if command == "view" and os.path.isdir(path):
            if request.get("view_range") is not None:
                raise EditFailed(f"{path} is a folder: view_range is for files")
            return "\n".join(_listing(path))
        before, file = "", os.path.abspath(path)
        if command != "create":
            before = _read(path)
        elif os.path.lexists(path):
            raise EditFailed(f"{path} exists: change it with str_replace, or remove it first")
        else:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        after, answer = self._changes.apply(command, request, path, file, before)
        if command != "view":
            _store(path, after)
            self._changes.stored(command, file, before, after)
        return answer


def unpack(descriptor: int) -> None:
    """Puts a tree of files into the working directory: a line of JSON that lists [path, mode,
    size], then their bytes. Raises OSError if there is no room for it."""
    with open(descriptor, "rb", closefd=False) as packed:
        packed.seek(0)
        for path, mode, size in json.loads(packed.readline()):
            if stat.S_ISDIR(mode):
                os.makedirs(path, exist_ok=True)
                continue
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            content = packed.read(size)
            if stat.S_ISLNK(mode):
                os.symlink(os.fsdecode(content), path)
                continue
            with open(path, "wb") as file:
                file.write(content)
            os.chmod(path, stat.S_IMODE(mode))


def _read(path: str) -> str:
    # Not blocking: a pipe without a writer would block the driver.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise EditFailed(f"{path} is not a file")
        if status.st_size > _LARGEST:
            raise EditFailed(f"{path} has {status.st_size} bytes: look at parts of it in the shell")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(_LARGEST).decode("utf-8")
    except UnicodeDecodeError:
        raise EditFailed(f"{path} is not a text in UTF-8") from None
    finally:
        os.close(descriptor)


def _store(path: str, text: str | None) -> None:
    """None removes the file."""
    if text is None:
        os.unlink(path)
        return
    path = os.path.realpath(path)
    beside = f"{path}.{os.getpid()}.edit"
    try:
        with open(beside, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
        with contextlib.suppress(FileNotFoundError):
            os.chmod(beside, stat.S_IMODE(os.stat(path).st_mode))
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise


def _listing(folder: str) -> list[str]:
    """The folder and what is in it, two levels deep, without hidden entries."""
    lines = [folder]

    def add(path: str, depth: int) -> None:
        for name in sorted(os.listdir(path)):
            if name.startswith("."):
                continue
            if len(lines) == _ENTRIES:
                lines.append("...")
            if len(lines) > _ENTRIES:
                return
            entry = os.path.join(path, name)
            inside = os.path.isdir(entry) and not os.path.islink(entry)
            lines.append(entry + "/" * inside)
            if inside and depth < _DEPTH:
                with contextlib.suppress(PermissionError):
                    add(entry, depth + 1)

    add(folder, 1)
    return lines
