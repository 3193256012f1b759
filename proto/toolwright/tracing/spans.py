"""A span in our words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LONGEST_TEXT = 200
"""Characters of an attribute: names of tools and reasons come from policies and services too."""

Value = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Another trace that a span has to do with."""

    trace: str
    span: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that took its time.

    trace, id, parent: hex, see `toolwright.tracing.ids`; `parent` empty for the first of a trace.
    start_ns, end_ns: Unix time. process: who did it: engine, toolsvc, learner. error: why it
    failed, empty where it did not.
    """

    trace: str
    id: str
    parent: str = ""
    name: str
    start_ns: int
    end_ns: int
    process: str
    attributes: Mapping[str, Value] = field(default_factory=dict)
    error: str = ""
    links: tuple[Link, ...] = ()


def short(text: str) -> str:
    """The text as an attribute holds it."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} ..."
