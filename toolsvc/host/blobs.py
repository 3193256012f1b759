"""Holds media that are too large to travel inside an observation, until a client fetches them.

Invariants
- A blob is named by the SHA-256 of its bytes; the same bytes are held once.
- It is held for the sessions whose observations name it, and goes with the last of them.
- A session holds at most `SESSION_BYTES`; beyond that its oldest blobs go first.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from toolsvc.plugin.results import failure
from toolsvc.types import Media, Part, Result
from toolwright.types import BlobRef, ToolErrorKind

INLINE_BYTES = 256 << 10
"""Media above this travel as blobs; the contract's bound."""
SESSION_BYTES = 64 << 20


@dataclass(slots=True)
class _Blob:
    data: bytes
    sessions: set[str] = field(default_factory=set)


class Blobs:
    """All blobs of one host."""

    def __init__(self) -> None:
        self._blobs: dict[str, _Blob] = {}
        self._of: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._blobs)

    def get(self, sha256: str) -> bytes | None:
        blob = self._blobs.get(sha256)
        return None if blob is None else blob.data

    async def take_out(self, session_id: str, result: Result) -> Result:
        """The result with references in place of its large media. One that the session cannot
        hold is a tool error."""
        large = [part for part in result.observation if is_large(part)]
        if not large:
            return result
        total = sum(len(part.data) for part in large)
        if total > SESSION_BYTES:
            return failure(
                ToolErrorKind.LIMIT,
                f"the observation's media have {total} bytes; the limit is {SESSION_BYTES}",
            )
        # In a thread: a hash of so many bytes would hold up every other call.
        names = await asyncio.to_thread(_names, large)
        for part, name in zip(large, names, strict=True):
            self._hold(session_id, name, part.data)
        references = iter(
            BlobRef(sha256=name, media_type=part.media_type, size=len(part.data))
            for part, name in zip(large, names, strict=True)
        )
        parts: list[Part] = [
            next(references) if is_large(part) else part for part in result.observation
        ]
        return replace(result, observation=tuple(parts))

    def forget(self, session_id: str) -> None:
        """The session has ended."""
        for name in self._of.pop(session_id, ()):
            self._let_go(session_id, name)

    def _hold(self, session_id: str, name: str, data: bytes) -> None:
        names = self._of.setdefault(session_id, [])
        if name in names:
            names.remove(name)  # it is the newest again
        names.append(name)
        self._blobs.setdefault(name, _Blob(data)).sessions.add(session_id)
        while sum(len(self._blobs[held].data) for held in names) > SESSION_BYTES:
            self._let_go(session_id, names.pop(0))

    def _let_go(self, session_id: str, name: str) -> None:
        blob = self._blobs[name]
        blob.sessions.discard(session_id)
        if not blob.sessions:
            del self._blobs[name]


def is_large(part: Part) -> TypeGuard[Media]:
    """Whether it has to travel as a blob."""
    return isinstance(part, Media) and len(part.data) > INLINE_BYTES


def _names(parts: Sequence[Media]) -> list[str]:
    return [hashlib.sha256(part.data).hexdigest() for part in parts]
