"""A span, independent of its encoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LONGEST_TEXT = 200
"""Most characters of an attribute: policies and services write names and reasons too."""

Value = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A related span of another trace."""

    trace: str
    span: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One timed piece of work. Ids are hex, see `toolwright.tracing.ids`."""

    trace: str
    id: str
    parent: str = ""
    """Id of the parent; "" for the first span of a trace."""
    name: str
    start_ns: int
    """Unix time, nanoseconds."""
    end_ns: int
    process: str
    """Process that did the work: engine, toolsvc or learner."""
    attributes: Mapping[str, Value] = field(default_factory=dict)
    error: str = ""
    """Why the work failed; "" = it did not."""
    links: tuple[Link, ...] = ()


def short(text: str) -> str:
    """The text, cut to the length of an attribute."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} ..."
