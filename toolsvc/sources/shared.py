"""What all tools of a session share, where several tools stand for one thing: a session elsewhere,
a recording, a world that a model plays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from toolsvc.types import SessionInfo

T = TypeVar("T")


class Shared(Generic[T]):
    """Made by the first tool that opens a state in the session, gone with the last state."""

    def __init__(self, make: Callable[[SessionInfo], T]) -> None:
        self._make = make
        self._made: WeakValueDictionary[str, T] = WeakValueDictionary()

    def of(self, session: SessionInfo) -> T:
        found = self._made.get(session.session_id)
        if found is None:
            found = self._made[session.session_id] = self._make(session)
        return found
