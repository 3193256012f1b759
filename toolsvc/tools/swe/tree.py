"""What a policy changed, found by comparing its tree with a fresh one; pure.

Both come as tar archives out of boxes. The policy's is data from a stranger: it is never unpacked
here, and what does not parse, or would not stay below the folder, is no tree.
"""

from __future__ import annotations

import io
import stat
import tarfile
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from toolsvc.tools.files import Entry

EXCLUDED = (
    *(".git", "__pycache__", ".venv", "venv", "node_modules", ".tox", ".nox", ".eggs"),
    *(".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".coverage", "*.pyc"),
    *("*.egg-info", "*.dist-info"),
)
"""Names that are no part of a submission, in lower case. Compiled Python above all: it would be run
in place of the verifier's sources. And what an installation leaves beside the sources: test runners
load the plugins that it names."""
_MOST_FILES = 200_000


class BadTree(Exception):
    """What came out of the box is not the tree of a submission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """`written`: files and links that are new or differ. `added`: files and folders that were not
    there. `removed`: files that are not there any more."""

    written: tuple[Entry, ...]
    added: frozenset[str]
    removed: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return (*(entry.path for entry in self.written), *self.removed)


def archive_command() -> str:
    """Writes the working directory to standard output, as `read_archive` wants it."""
    left_out = " ".join(f"--exclude='{name}'" for name in EXCLUDED)
    return f"tar --create --file=- --format=pax {left_out} ."


def read_archive(data: bytes) -> dict[str, Entry]:
    """Files and symbolic links by path. BadTree if it is no such archive."""
    found: dict[str, Entry] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for number, member in enumerate(archive):
                if number >= _MOST_FILES:
                    raise BadTree(f"it has more than {_MOST_FILES} files")
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts or "\0" in member.name:
                    raise BadTree(f"{member.name!r} is not below the repository")
                if _excluded(path):
                    continue
                if member.issym():
                    content = member.linkname.encode("utf-8", "surrogateescape")
                    found[str(path)] = Entry(str(path), stat.S_IFLNK | 0o777, content)
                elif member.isfile() or member.islnk():
                    file = archive.extractfile(member)
                    mode = stat.S_IFREG | (0o755 if member.mode & 0o100 else 0o644)
                    found[str(path)] = Entry(str(path), mode, file.read() if file else b"")
    except (tarfile.TarError, ValueError, KeyError, UnicodeError, OverflowError) as error:
        raise BadTree(f"no archive: {error}") from error
    return found


def check_places(tree: dict[str, Entry]) -> None:
    """BadTree if a file lies below what is no folder: written through such a link it would be
    elsewhere. No `tar` of an honest box writes that, but the box is the policy's."""
    for path in tree:
        for place in PurePosixPath(path).parents:
            if str(place) in tree:
                raise BadTree(f"{path!r} lies below {str(place)!r}, which is no folder")


def compare(base: dict[str, Entry], tree: dict[str, Entry]) -> Submission:
    """What makes `tree` of `base`."""
    return Submission(
        written=tuple(entry for path, entry in tree.items() if base.get(path) != entry),
        added=frozenset(_places(tree) - _places(base)),
        removed=tuple(path for path in base if path not in tree),
    )


def _places(tree: dict[str, Entry]) -> set[str]:
    """The files and the folders that they are in."""
    files = map(PurePosixPath, tree)
    return {str(place) for file in files for place in (file, *file.parents)}


def _excluded(path: PurePosixPath) -> bool:
    # Python's own look for what is installed ignores case.
    return any(fnmatchcase(part.lower(), name) for part in path.parts for name in EXCLUDED)
