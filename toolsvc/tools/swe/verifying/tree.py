"""What a policy changed, found by comparing its tree with a fresh one; pure.

Both come as tar archives out of boxes, and are read by `archives`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeVar

from toolsvc.tools.files import Entry
from toolsvc.tools.swe.verifying.parser import EXCLUDED, BadTree

Item = TypeVar("Item")


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
    """Writes the working directory to standard output, as `Archives.read` wants it."""
    left_out = " ".join(f"--exclude='{name}'" for name in EXCLUDED)
    return f"tar --create --file=- --format=pax {left_out} ."


def check_places(tree: dict[str, Entry]) -> None:
    """Raises BadTree if a file lies below what is no folder: written through such a link it would
    be elsewhere. No `tar` of an honest box writes that, but the box is the policy's."""
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


def without(tree: Mapping[str, Item], paths: Collection[str]) -> dict[str, Item]:
    """The tree without what stands at one of the paths, or below it."""
    return {
        path: item
        for path, item in tree.items()
        if path not in paths
        and not any(str(place) in paths for place in PurePosixPath(path).parents)
    }


def _places(tree: dict[str, Entry]) -> set[str]:
    """The files and the folders that they are in."""
    files = map(PurePosixPath, tree)
    return {str(place) for file in files for place in (file, *file.parents)}
