"""Tools that stand for tools elsewhere, and the state that several of them share in a session: a
session of another service, a recording, a world that a model plays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from toolsvc.plugin.actions import read_or_keep
from toolsvc.plugin.tool import OutOfProcess, Tool
from toolsvc.types import Descriptor, SessionInfo

T = TypeVar("T")


class StandIn(Tool):
    """Stands for a tool elsewhere, which alone knows its actions: an action that cannot be read
    here is passed on as it is, and no arguments are checked. It cannot fork."""

    executor = OutOfProcess

    def __init__(self, descriptor: Descriptor) -> None:
        """`descriptor`: of the tool elsewhere."""
        self._descriptor = descriptor.without_fork()
        self.name = descriptor.name
        self.run_limit = descriptor.run_limit

    def describe(self) -> Descriptor:
        return self._descriptor

    def parse(self, action: str, descriptor: Descriptor) -> dict[str, Any]:
        return read_or_keep(action, descriptor)

    def make_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(arguments)


class Shared(Generic[T]):
    """An object of a session: made by the first tool that opens a state there, ended with the last
    state."""

    def __init__(self, make: Callable[[SessionInfo], T]) -> None:
        self._make = make
        self._made: WeakValueDictionary[str, T] = WeakValueDictionary()

    def of(self, session: SessionInfo) -> T:
        found = self._made.get(session.session_id)
        if found is None:
            found = self._made[session.session_id] = self._make(session)
        return found
