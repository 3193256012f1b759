"""The SQLite databases that sessions get copies of.

Finds the file that a session's metadata name, and keeps the bytes of recently used files. Each is a
sealed in-memory file: sessions of a sandbox can read it, and no process can change it.

Invariants
- All templates together take at most `cache_bytes`; the one used longest ago goes first. A
  `Template` stays readable while a caller holds it.
- A file is read as one consistent state, its write-ahead log included, and again once it has
  changed.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from toolsvc.errors import Reason, Refused, StartError

_SUFFIXES = ("", ".sqlite", ".db", ".sqlite3")
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_MODE_BYTES = slice(18, 20)
"""Bytes of the header: 2 = write-ahead log, which a database in memory cannot have; 1 = without."""

_LONGEST_NAME = 200
"""Maximum bytes of a name; a file system takes 255, with the suffix."""

Template = BinaryIO
"""A sealed in-memory file; its descriptor lives as long as the object."""


class Templates:
    def __init__(self, source: Path, *, key: str, cache_bytes: int) -> None:
        """`source`: a database, or a folder of them; `key` of the metadata then names one.
        Raises StartError if it does not exist."""
        if not source.exists():
            raise StartError(f"--set sql.databases={source}: there is no such file or folder")
        self._source = source
        self._key = key
        self._cache_bytes = cache_bytes
        self._held: OrderedDict[Hashable, Template] = OrderedDict()
        self.held_bytes = 0
        # One: a group's sessions all want the same database, and only its thread touches `_held`.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="templates")

    def find(self, metadata: Mapping[str, Any]) -> Path:
        """Path of the session's database. Raises Refused if the metadata name no existing
        database."""
        if self._source.is_file():
            return self._source
        name = metadata.get(self._key)
        if not isinstance(name, str) or not _is_file_name(name):
            raise Refused(
                Reason.INVALID_REQUEST,
                f"metadata.{self._key} is {name!r:.100}, not the name of a database",
                subject=self._key,
                fix=f"name a database of {self._source}",
            )
        for folder in (self._source, self._source / name):
            for suffix in _SUFFIXES:
                path = folder / f"{name}{suffix}"
                if path.is_file():
                    return path
        raise Refused(
            Reason.INVALID_REQUEST,
            f"there is no database {name!r}",
            subject=name,
            fix=f"put it into {self._source} as {name}.sqlite or {name}/{name}.sqlite",
        )

    async def get(self, path: Path) -> Template:
        """The file's template. Raises Refused if the file is not a database, or is larger than
        `cache_bytes`."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._get, path)
        except (OSError, sqlite3.Error) as error:
            raise _unreadable(path, str(error)) from error

    def _get(self, path: Path) -> Template:
        key = (path, _state(path), _state(_log(path)))
        held = self._held.get(key)
        if held is None:
            if path.stat().st_size > self._cache_bytes:
                raise _unreadable(path, "it is larger than sql.cache_mib allows")
            held = self._held[key] = _load(path)
            self.held_bytes += _size(held)
        self._held.move_to_end(key)
        while self.held_bytes > self._cache_bytes and len(self._held) > 1:
            _, oldest = self._held.popitem(last=False)
            self.held_bytes -= _size(oldest)
        return held

    def clear(self) -> None:
        self._held.clear()
        self.held_bytes = 0


def _is_file_name(name: str) -> bool:
    """Whether it is a valid file name, with a suffix."""
    size = len(name.encode("utf-8", "replace"))
    return 0 < size <= _LONGEST_NAME and name.isprintable() and Path(name).name == name != ".."


def _log(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _state(path: Path) -> Hashable:
    """Differs once the file has changed."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _size(template: Template) -> int:
    return os.fstat(template.fileno()).st_size


def _load(path: Path) -> Template:
    content = bytearray(_read(path))
    if content:
        content[_MODE_BYTES] = b"\x01\x01"
    file = open(  # noqa: SIM115 - the caller's
        os.memfd_create(path.name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b"
    )
    file.write(content)
    file.flush()
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    return file


def _read(path: Path) -> bytes:
    """Reads the database by SQLite itself, which handles the write-ahead log."""
    if not path.stat().st_size:
        return b""  # an empty database, which cannot be serialized
    # Without a log nothing needs to be written beside it, which its folder may not allow.
    mode = "mode=ro" if _log(path).exists() else "immutable=1"
    connection = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return connection.serialize()
    finally:
        connection.close()


def _unreadable(path: Path, why: str) -> Refused:
    return Refused(
        Reason.INVALID_REQUEST, f"database {path.name} cannot be used: {why}", subject=path.name
    )
