"""Paths in a patch as git writes it. Pure."""

from __future__ import annotations

import re

_HEADER = re.compile(
    r"^diff --git (.*)\n?"
    r"((?:(?:old|new|deleted|similarity|dissimilarity|rename|copy|index) .*\n?)*)",
    re.MULTILINE,
)
"""The line with both paths, and the lines of git's header after it."""
_MOVED = re.compile(r"^(?:rename|copy) (from|to) (.*?)\r?$", re.MULTILINE)
_QUOTED = r'"{}/(?:[^"\\]|\\.)*"'
_PATHS = re.compile(rf"({_QUOTED.format('a')}|a/\S.*?) ({_QUOTED.format('b')}|b/\S.*)")


def changed_paths(patch: str) -> list[tuple[str, str]]:
    """(path before, path after) of each file that the patch changes, adds, removes or renames.

    Raises ValueError for a header without both paths, such as one without the prefixes a/ and b/.
    """
    return [_pair(found[1].rstrip("\r"), found[2]) for found in _HEADER.finditer(patch)]


def _pair(header: str, more: str) -> tuple[str, str]:
    """A path may contain " b/", and then the header alone has several readings. Only a rename or a
    copy has two paths, and its own lines name them."""
    paths = _PATHS.fullmatch(header)
    if paths is None:
        raise ValueError(f"the patch's line 'diff --git {header:.200}' has no a/PATH b/PATH")
    moved = dict(_MOVED.findall(more))
    if moved.keys() == {"from", "to"}:
        return _plain(moved["from"]), _plain(moved["to"])
    half = len(header) // 2
    if header[half : half + 3] == " b/" and header[2:half] == header[half + 3 :]:
        return header[2:half], header[2:half]
    return _plain(paths[1])[2:], _plain(paths[2])[2:]


def _plain(path: str) -> str:
    """The path without quotation marks. git quotes a path with other characters than ASCII's."""
    if not path.startswith('"'):
        return path
    octets = path[1:-1].encode("latin-1").decode("unicode_escape").encode("latin-1")
    return octets.decode("utf-8", "surrogateescape")
