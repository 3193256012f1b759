"""The interface of a dialect. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ingress.errors import ApiError
from ingress.types import CallEnd, ModelRequest, Said

ServerEvent = tuple[str, Mapping[str, Any] | str]
"""(name, data) of a server-sent event; "" = no name. A text is sent as it is, an object as JSON."""


class Reply(Protocol):
    """Writes the responses of one call: `whole` alone, or the events of a stream."""

    def begin(self, response: str) -> list[ServerEvent]:
        """Events before the first piece, or before `whole`. response: id of the response, without
        a prefix."""
        ...

    def said(self, said: Said) -> list[ServerEvent]:
        """Events of a piece."""
        ...

    def end(self, end: CallEnd) -> list[ServerEvent]:
        """Events of the end."""
        ...

    def failed(self, error: ApiError) -> list[ServerEvent]:
        """Events of a failure after the first byte."""
        ...

    def whole(self, end: CallEnd) -> dict[str, Any]:
        """The response object."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One API."""

    read: Callable[[object], ModelRequest]
    """The request of a JSON body. Raises ApiError, which names the wrong key."""
    reply: Callable[[ModelRequest], Reply]
    error: Callable[[ApiError], dict[str, Any]]
    """The body of a refusal."""
