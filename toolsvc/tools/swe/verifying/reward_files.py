"""Rewards that a command writes into files, as Harbor's test scripts do; pure.

A file holds a number, or a JSON object with the number as its `reward` or its only value. Files of
the same run have to agree.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from toolwright.reading.json_text.json_bounds import fits_double

MOST_BYTES = 64 * 1024
"""Largest file of a reward, in bytes."""
_ABSENT, _THERE, _NO_FILE = b"a", b"f", b"o"


class NoReward(ValueError):
    """The files hold no reward. The message names the file."""


def clearing(paths: Sequence[str]) -> str:
    """Lines of bash that remove the files and make the folders that they go to. They fail if a file
    stays."""
    folders = {str(PurePosixPath(path).parent) for path in paths}
    files, places = (" ".join(map(shlex.quote, sorted(one))) for one in (paths, folders))
    return (
        f"rm -rf -- {files} && mkdir -p -- {places} || exit 1\n"
        f'for f in {files}; do if [ -e "$f" ] || [ -L "$f" ]; then exit 1; fi; done\n'
    )


def reading(path: str) -> str:
    """A command that writes the file for `reward_of`. A link is not followed."""
    file = shlex.quote(path)
    return (
        f"if [ -f {file} ] && [ ! -L {file} ]; then printf f; head -c {MOST_BYTES + 1} -- {file}; "
        f"elif [ -e {file} ] || [ -L {file} ]; then printf o; else printf a; fi"
    )


def reward_of(contents: Sequence[tuple[str, bytes]]) -> float:
    """The reward, from 0 to 1. contents: each path and what `reading` wrote of it. Raises
    NoReward."""
    found = {path: _read(path, data[1:]) for path, data in contents if _is_there(path, data)}
    if not found:
        raise NoReward(f"no reward in {', '.join(path for path, _ in contents)}")
    rewards = set(found.values())
    if len(rewards) > 1:
        said = ", ".join(f"{path} has {reward:g}" for path, reward in found.items())
        raise NoReward(f"the rewards differ: {said}")
    return rewards.pop()


def _is_there(path: str, data: bytes) -> bool:
    if data[:1] == _NO_FILE or data[:1] not in (_ABSENT, _THERE):
        raise NoReward(f"{path} is not a plain file")
    return data[:1] == _THERE


def _read(path: str, data: bytes) -> float:
    if len(data) > MOST_BYTES:
        raise NoReward(f"{path} has more than {MOST_BYTES} bytes")
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NoReward(f"{path} is not a number or JSON: {data[:40]!r}") from error
    if isinstance(found, dict):
        found = found.get("reward", next(iter(found.values())) if len(found) == 1 else None)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if not (is_number and fits_double(found)):
        raise NoReward(f"{path} holds no number as its reward")
    if not 0 <= found <= 1:
        raise NoReward(f"{path}: {found:g} is not from 0 to 1")
    return float(found)
