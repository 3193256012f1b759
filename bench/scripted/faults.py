"""Faults on purpose.

Owns the list of faults and their spelling on a command line; the server carries them out. Requests
are counted from 0 in the order in which their bodies arrived at /generate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class BreakHow(StrEnum):
    """How a stream ends before its time. None of them carries a finish reason."""

    CUT = "cut"
    """The connection is reset: a truncated chunked body."""
    DONE = "done"
    """A well-formed end, [DONE] included, as if the reply were complete."""
    ERROR = "error"
    """An error event and [DONE], as a gateway writes when its server dies."""
    STALL = "stall"
    """Silence on an open connection until the client leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """Send `chunks` chunks, then end the stream by `how`."""

    chunks: int
    how: BreakHow = BreakHow.CUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults of one server.

    `breaks` maps a request's number to the break of its stream. `refuse` are the requests whose
    connection is reset without an answer. `bad_images` are refused, as an image is whose pixels are
    cut short. `stale_weights` lets an update answer success and change nothing. `fail_updates` is
    how many weight updates answer 400 before one may succeed, `fail_joins` the same of groups that
    the server shall join.
    """

    breaks: Mapping[int, Break] = field(default_factory=dict)
    refuse: frozenset[int] = frozenset()
    bad_images: frozenset[bytes] = frozenset()
    stale_weights: bool = False
    fail_updates: int = 0
    fail_joins: int = 0


def parse_break(spec: str) -> tuple[int, Break]:
    """`REQUEST:CHUNKS[:HOW]` as a request number and its break.

    Raises:
        ValueError: another form.
    """
    request, _, rest = spec.partition(":")
    chunks, _, how = rest.partition(":")
    if not (request.isdigit() and chunks.isdigit() and how in {"", *BreakHow}):
        raise ValueError(
            f"{spec!r} is not REQUEST:CHUNKS[:HOW] with HOW one of {', '.join(BreakHow)}"
        )
    return int(request), Break(chunks=int(chunks), how=BreakHow(how or BreakHow.CUT))


def parse_numbers(spec: str) -> frozenset[int]:
    """`K` or `FROM-TO` (both included) as request numbers.

    Raises:
        ValueError: another form.
    """
    first, dash, last = spec.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise ValueError(f"{spec!r} is not a request number K or a range FROM-TO")
    return frozenset(range(int(first), int(last if dash else first) + 1))
