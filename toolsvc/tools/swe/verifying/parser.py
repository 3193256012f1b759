"""The parser of submissions, as `toolsvc.confined` wants one: tar archives of trees.

Invariants
- The answer's table has a row for each file and link that counts, and content once: a hard link
  names the place of the content that it shares.
- The contents of all rows together, those of links counted each, have at most so many bytes.
- What would not stay below the folder, is sparse, or is linked to nothing, makes no tree.
"""

from __future__ import annotations

import io
import stat
import struct
import tarfile
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import BinaryIO

EXCLUDED = (
    *(".git", "__pycache__", ".venv", "venv", "node_modules", ".tox", ".nox", ".eggs"),
    *(".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".coverage", "*.pyc"),
    *("*.egg-info", "*.dist-info"),
)
"""Names that are no part of a submission, in lower case. Compiled Python above all: it would be run
in place of the verifier's sources. And what an installation leaves beside the sources: test runners
load the plugins that it names."""
MOST_FILES = 200_000
MOST_PATH = 4096
"""Bytes of a path, or of what a link points to: the kernel's own bound."""

TREE, BAD = b"T", b"B"
"""First byte of an answer."""
LENGTH = struct.Struct("=Q")

Rows = dict[str, tuple[int, int, int]]
"""Path -> mode, offset and size of the content."""


class BadTree(Exception):
    """What came out of the box is not the tree of a submission."""


def rehearse() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("é" * 120)  # longer than a plain header holds
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    out.seek(0)
    work("1024", out)


def work(request: str, file: BinaryIO) -> bytes:
    """`request`: the most bytes. Answers as `answer_of`; where it is no such tree, BAD and why."""
    try:
        return answer_of(*read_members(file, int(request)))
    except BadTree as error:
        return BAD + str(error)[:500].encode("utf-8", "replace")


def answer_of(rows: Rows, content: bytes) -> bytes:
    """TREE, the table's length, the table, the contents. A row of the table is mode, offset, size
    and path, with spaces between, and ends with NUL."""
    table = b"".join(
        b"%d %d %d %s\0" % (*row, path.encode("utf-8", "surrogateescape"))
        for path, row in rows.items()
    )
    return b"".join((TREE, LENGTH.pack(len(table)), table, content))


def read_members(file: BinaryIO, most: int) -> tuple[Rows, bytes]:
    """Raises BadTree."""
    rows: Rows = {}
    content = bytearray()
    total = 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for number, member in enumerate(archive):
                path = _checked(member, number)
                if _excluded(path):
                    continue
                mode = stat.S_IFREG | (0o755 if member.mode & 0o100 else 0o644)
                place = len(content), member.size
                if member.issym():
                    mode = stat.S_IFLNK | 0o777
                    target = _bounded(member.linkname).encode("utf-8", "surrogateescape")
                    place = len(content), len(target)
                    content += target
                elif member.islnk():
                    place = _shared(rows, str(PurePosixPath(member.linkname)))
                elif not member.isfile():
                    continue
                total += place[1]
                if total > most:
                    raise BadTree(f"its files have more than {most} bytes")
                if member.isfile():
                    content += _read(archive, member)
                rows[str(path)] = (mode, *place)
    except (tarfile.TarError, ValueError, KeyError, UnicodeError, OverflowError) as error:
        raise BadTree(f"no archive: {error}") from error
    return rows, bytes(content)


def _checked(member: tarfile.TarInfo, number: int) -> PurePosixPath:
    if number >= MOST_FILES:
        raise BadTree(f"it has more than {MOST_FILES} files")
    path = PurePosixPath(_bounded(member.name))
    if path.is_absolute() or ".." in path.parts:
        raise BadTree(f"{member.name!r} is not below the repository")
    if member.issparse() or member.size < 0:
        raise BadTree(f"{member.name!r} is sparse, or of no size")
    return path


def _bounded(name: str) -> str:
    if len(name) > MOST_PATH or "\0" in name:
        raise BadTree(f"{name[:100]!r}... is no path")
    return name


def _shared(rows: Rows, linked: str) -> tuple[int, int]:
    mode, offset, size = rows.get(linked, (0, 0, 0))
    if not stat.S_ISREG(mode):
        raise BadTree(f"a link to {linked!r}, which is no file before it")
    return offset, size


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    data = file.read() if file is not None else b""
    if len(data) != member.size:
        raise BadTree(f"{member.name!r} ends early")
    return data


def _excluded(path: PurePosixPath) -> bool:
    # Python's own look for what is installed ignores case.
    return any(fnmatchcase(part.lower(), name) for part in path.parts for name in EXCLUDED)
