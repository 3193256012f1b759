"""Paths in a patch as git writes it. Pure."""

from __future__ import annotations

import re

_HEADER = re.compile(r"^diff --git (.*)$", re.MULTILINE)
_QUOTED = r'"{}/(?:[^"\\]|\\.)*"'
_PATHS = re.compile(rf"({_QUOTED.format('a')}|a/\S.*?) ({_QUOTED.format('b')}|b/\S.*)")


def changed_paths(patch: str) -> list[tuple[str, str]]:
    """(path before, path after) of each file that the patch changes, adds, removes or renames.

    Raises ValueError for a header without both paths, such as one without the prefixes a/ and b/.
    """
    found = []
    for header in _HEADER.findall(patch):
        paths = _PATHS.fullmatch(header.rstrip("\r"))
        if paths is None:
            raise ValueError(f"the patch's line 'diff --git {header:.200}' has no a/PATH b/PATH")
        found.append((_plain(paths[1]), _plain(paths[2])))
    return found


def _plain(path: str) -> str:
    """The path without its prefix. git quotes a path with other characters than ASCII's."""
    if path.startswith('"'):
        octets = path[1:-1].encode("latin-1").decode("unicode_escape").encode("latin-1")
        path = octets.decode("utf-8", "surrogateescape")
    return path[2:]
