"""The file functions: they read and write a box's files, and edit outside of it.

So a box needs only a shell, and the policy cannot change the shown text or the undo history. The
texts are edited as by the `bash` tool.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping
from typing import Any

from toolsvc.sandbox.jailed.drivers.texts import Changes, EditFailed
from toolsvc.tools.files import FILE_MODE, Entry
from toolsvc.tools.swe.boxes.box import Box, BoxError

_LARGEST = 4 * 1024 * 1024
"""Bytes of a file that is looked at; larger ones are for the shell."""
_LISTING = 100_000
"""Bytes of a folder's listing."""


class Editor:
    """The file functions of one box."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._changes = Changes()

    async def edit(self, request: Mapping[str, Any], limit: float) -> str:
        """What the policy reads. Raises EditFailed if it cannot be done; BoxGone."""
        command, path = request["command"], str(request["path"])
        kind, file = await self._look(path, limit)
        if command == "view" and kind == "directory":
            if request["view_range"] is not None:
                raise EditFailed(f"{path} is a folder: view_range is for files")
            return await self._listing(path, limit)
        before = ""
        if command != "create":
            before = await self._text(path, kind, limit)
        elif kind:
            raise EditFailed(f"{path} exists: change it with str_replace, or remove it first")
        after, answer = self._changes.apply(command, request, path, file, before)
        if command != "view":
            await self._store(path, file, after, limit)
            self._changes.stored(command, file, before, after)
        return answer

    async def _look(self, path: str, limit: float) -> tuple[str, str]:
        """What stands at the path, "" for nothing, and where that really is."""
        quoted = shlex.quote(path)
        told = await self._read(
            f"realpath -mz -- {quoted}; stat -L -c %F -- {quoted} || "
            f"{{ [ ! -L {quoted} ] || echo link to nothing; }}",
            limit,
        )
        target, _, kind = told.partition("\0")
        return kind.strip().replace("regular empty file", "regular file"), target

    async def _text(self, path: str, kind: str, limit: float) -> str:
        if kind != "regular file":
            raise EditFailed(f"{path}: {f'it is a {kind}' if kind else 'no such file'}")
        try:
            data = await self._box.read(f"cat -- {shlex.quote(path)}", limit=limit, most=_LARGEST)
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise EditFailed(f"{path} is not a text in UTF-8") from None
        except BoxError as error:
            raise EditFailed(f"{path}: {error}: look at it in the shell") from error

    async def _store(self, path: str, target: str, text: str | None, limit: float) -> None:
        """Writes the text beside the file and then moves it, so that the file is changed wholly or
        not at all. None removes the file."""
        if text is None:
            await self._read(f"rm -- {shlex.quote(target)}", limit)
            return
        beside = f".{posixpath.basename(target)}.edit"
        quoted, whole = shlex.quote(beside), shlex.quote(target)
        content = text.encode("utf-8", "surrogateescape")
        try:
            await self._box.write([Entry(beside, FILE_MODE, content)])
            await self._box.read(
                f'mkdir -p -- "$(dirname -- {whole})" && '
                f"{{ [ ! -e {whole} ] || chmod --reference={whole} {quoted}; }} && "
                f"mv -fT -- {quoted} {whole}",
                limit=limit,
                most=0,
            )
        except BoxError as error:
            raise EditFailed(f"{path} could not be written: {error}") from error

    async def _listing(self, path: str, limit: float) -> str:
        """The folder and what is in it, two levels deep, without hidden entries."""
        top = shlex.quote(f"./{path}" if path.startswith("-") else path)
        listing = await self._read(
            rf"find {top} -mindepth 1 -maxdepth 2 -name '.*' -prune"
            r" -o -type d -printf '%p/\n' -o -printf '%p\n' | LC_ALL=C sort | head -n 500",
            limit,
        )
        return listing.rstrip("\n")

    async def _read(self, command: str, limit: float) -> str:
        try:
            data = await self._box.read(command, limit=limit, most=_LISTING)
        except BoxError as error:
            raise EditFailed(str(error)) from error
        return data.decode("utf-8", "replace")
