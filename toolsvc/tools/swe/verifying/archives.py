"""Reads what comes out of boxes, tar archives that a stranger may have written, in confined
processes; and believes their answers no more than the archives."""

from __future__ import annotations

import asyncio
import stat
import struct
from collections.abc import Iterator
from pathlib import PurePosixPath

from toolsvc.confined.errors import InputFailed
from toolsvc.confined.pool import ConfinedPool, file_of
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.tools.files import Entry
from toolsvc.tools.swe.verifying.parser import BAD, LENGTH, BadTree

_SECONDS = 30.0
_PATIENCE_SECONDS = 60.0
_MEMORY_MIB = 256
_TABLE_BYTES = 64 * MIB
"""Longest table of an answer, in bytes."""
_AT_ONCE = 2
_MODES = {stat.S_IFLNK | 0o777, stat.S_IFREG | 0o755, stat.S_IFREG | 0o644}


class Archives:
    def __init__(self, most: int, sandbox: SandboxConfig | None = None) -> None:
        self.most = most
        """Largest archive, and largest content of one, in bytes."""
        self._pool = ConfinedPool(
            "toolsvc.tools.swe.verifying.parser",
            count=_AT_ONCE,
            memory_bytes=_MEMORY_MIB * MIB + 6 * most,
            sandbox=sandbox,
        )

    async def start(self) -> None:
        """Raises CannotStart."""
        await self._pool.start()

    async def close(self) -> None:
        await self._pool.close()

    async def read(self, data: bytes, caller: str) -> dict[str, Entry]:
        """Files and symbolic links by path. Raises BadTree if it is no such archive. Raises
        PoolFull or PoolDown."""
        async with self._pool.place(caller, _PATIENCE_SECONDS) as jobs:
            try:
                with await asyncio.to_thread(file_of, data) as file:
                    answer = await jobs.run(
                        str(self.most), file, seconds=_SECONDS, most=self.most + _TABLE_BYTES
                    )
            except InputFailed as error:
                raise BadTree(f"its archive cannot be read: {error}") from error
        return await asyncio.to_thread(as_tree, answer)


def as_tree(answer: bytes) -> dict[str, Entry]:
    """The entries of a parser's answer. Raises BadTree if it cannot be read. Content that files
    share is held once."""
    if answer[:1] == BAD:
        raise BadTree(answer[1:].decode("utf-8", "replace"))
    try:
        (length,) = LENGTH.unpack_from(answer, 1)
        rest = memoryview(answer)[1 + LENGTH.size :]
        return dict(_entries(bytes(rest[:length]).split(b"\0")[:-1], rest[length:]))
    except (struct.error, ValueError) as error:
        raise BadTree("its archive cannot be read") from error


def _entries(table: list[bytes], content: memoryview) -> Iterator[tuple[str, Entry]]:
    """Raises ValueError if a row cannot be read, or if the places of contents overlap."""
    held: dict[tuple[int, int], bytes] = {}
    unheld = len(content)
    for row in table:
        *numbers, name = row.split(b" ", 3)
        mode, offset, size = map(int, numbers)
        path = PurePosixPath(name.decode("utf-8", "surrogateescape"))
        if mode not in _MODES or path.is_absolute() or ".." in path.parts:
            raise ValueError(f"a row for {path}")
        if min(offset, size) < 0 or offset + size > len(content):
            raise ValueError(f"no content for {path}")
        place = (offset, size)
        if place not in held:
            unheld -= size
            if unheld < 0:
                raise ValueError("contents overlap")
            held[place] = bytes(content[offset : offset + size])
        yield str(path), Entry(str(path), mode, held[place])
