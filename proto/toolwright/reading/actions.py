"""Content of an action: its blocks, its calls in JSON, its fenced programs; pure.

The engine and the tool host read actions with these functions, and so does everything that reads
recorded actions. `action_ends` says which tags count, here and in the sampler's streams.

Invariants
- A block ends at the first closing tag that counts, and begins at the first opening tag after the
  block before. So a body may hold its own opening tag.
- If that gives no JSON for a call, the call begins at the last opening tag before its end: an
  opening tag in the words before a call does not spoil it.
- What cannot be read is a value with a fault that the policy may be shown. Nothing raises.
- The work is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from toolwright.reading.action_ends import Grammar, Place, counted
from toolwright.reading.action_ends import Tags as Tags
from toolwright.reading.json_text.json_bounds import OutOfBounds, read_json

_BESIDE = frozenset(("name", "arguments", "id", "type"))
"""Keys of a call that say nothing about its arguments."""
_LONGEST_KEY = 40
"""Characters of a wrong key that a fault repeats."""


class JsonCall(NamedTuple):
    """A call as its JSON says it."""

    name: str = ""
    arguments: Mapping[str, Any] | None = None
    """None if there is a fault."""
    given: bool = False
    """The JSON has the arguments. A call without them has none."""
    fault: str = ""
    """Why it is not a call, or "". The policy may read it."""


class CallBlock(NamedTuple):
    """A block that should be a call. `piece`: the text from the end of the block before."""

    piece: str
    start: int
    """Place of its opening tag in the whole text; -1 without one."""
    end: int
    call: JsonCall


def last_span(text: str, opening: str, closing: str) -> tuple[int, int]:
    """Where the body of the block that ends last begins and ends. (-1, end) if nothing opens it,
    (-1, -1) if nothing closes it."""
    end = text.rfind(closing)
    if end < 0:
        return -1, -1
    before = text.rfind(closing, 0, end)
    start = text.find(opening, before + len(closing) if before >= 0 else 0, end)
    return (start + len(opening), end) if start >= 0 else (-1, end)


def no_block(end: int, opening: str, closing: str) -> str:
    """Why `last_span` found none, for the policy."""
    if end >= 0:
        return f"{closing} without {opening}"
    return f"the action has no {opening}...{closing} block"


def last_call(text: str, tags: Tags) -> JsonCall:
    """The call in the JSON block that ends last."""
    end = text.find(tags.close)
    if end >= 0 and end + len(tags.close) == len(text):  # most actions: one call, and nothing else
        start = text.find(tags.open, 0, end)
        if start >= 0:
            call = call_in(text[start + len(tags.open) : end])
            if not call.fault:
                return call
    found = counted(text, Grammar(ends=(tags.close,), json=(tags,)))
    if not found.ends:
        return JsonCall(fault=no_block(-1, *tags))
    last = found.ends[-1]
    at = found.ends[-2].end if len(found.ends) > 1 else 0
    opened = [place for place in found.opened if at <= place.start < last.start]
    return _call_block(text, at, opened[-1] if opened else None, last, tags).call


def calls_in(
    text: str,
    tags: Tags,
    most: int | None = None,
    *,
    thought: Tags | None = None,
    thinking: bool = False,
) -> list[CallBlock]:
    """The blocks of calls in order, at most the first `most`. thought, thinking: see `counted`; a
    call drafted in a thought is not a call."""
    calls = _whole_calls(text, tags, most) if thought is None else None
    if calls is not None:
        return calls
    grammar = Grammar(ends=(tags.close,), json=(tags,), thought=thought)
    found = counted(text, grammar, thinking=thinking, most=most)
    calls = []
    opened = iter((*found.opened, None))
    opening = next(opened)
    at = 0
    for end in found.ends:
        last: Place | None = None
        while opening is not None and opening.start < end.start:
            last = opening if opening.start >= at else last
            opening = next(opened)
        calls.append(_call_block(text, at, last, end, tags))
        at = end.end
    return calls


def _whole_calls(text: str, tags: Tags, most: int | None) -> list[CallBlock] | None:
    """The calls of a text in which each closing tag follows whole JSON; None for another text.
    Most texts are such, and the library reads them quicker than `counted`."""
    calls: list[CallBlock] = []
    at = 0
    while (end := text.find(tags.close, at)) >= 0 and len(calls) != most:
        start = text.find(tags.open, at, end)
        call = call_in(text[start + len(tags.open) : end]) if start >= 0 else None
        if call is None or call.fault:
            return None
        after = end + len(tags.close)
        calls.append(CallBlock(text[at:after], start, after, call))
        at = after
    return calls


def _call_block(text: str, at: int, opening: Place | None, end: Place, tags: Tags) -> CallBlock:
    """The block between the end of the one before, `at`, and its own closing tag, `end`."""
    start = opening.start if opening is not None else text.find(tags.open, at, end.start)
    if start < 0:
        call = JsonCall(fault=no_block(end.start, *tags))
    else:
        call = call_in(text[start + len(tags.open) : end.start])
        later = text.rfind(tags.open, start + 1, end.start) if call.fault else -1
        if later >= 0:
            again = call_in(text[later + len(tags.open) : end.start])
            if not again.fault:
                start, call = later, again
    return CallBlock(text[at : end.end], start, end.end, call)


def call_in(body: str) -> JsonCall:
    """The call that a block's body is."""
    try:
        value = read_json(body)
    except OutOfBounds as error:
        return JsonCall(fault=f"the call is not JSON: {error}")
    return call_of(value)


def call_of(value: object) -> JsonCall:
    """The call that a value of JSON is: {"name": ..., "arguments": {...}}, where a call without
    arguments may leave them out. Another key in their place is a fault that names it: a tool with
    defaults would otherwise run with the wrong values."""
    name = value.get("name") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(name, str):
        return JsonCall(fault='the call needs {"name", "arguments"}')
    given = "arguments" in value
    arguments = value.get("arguments", {})
    if not isinstance(arguments, Mapping):
        return JsonCall(name=name, fault='"arguments" is not a JSON object')
    if not given:
        wrong = next((key for key in value if key not in _BESIDE), None)
        if wrong is not None:
            fault = f'the call has "{wrong[:_LONGEST_KEY]}" in place of "arguments"'
            return JsonCall(name=name, fault=fault)
    return JsonCall(name=name, arguments=arguments, given=given)


MOST_FENCES = 16
"""Fences inside one string of a program. A program with more ends at its first fence."""

_OPENING = re.compile(
    r"^[ \t]*(`{3,})[ \t]*(?:python|py)[0-9.]{0,8}[ \t]*\r?\n", re.MULTILINE | re.IGNORECASE
)
_FENCE = re.compile(r"^[ \t]*(`{3,})", re.MULTILINE)
_TOKEN = re.compile(
    r"""\#[^\n]*|\"{3}|'{3}|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?""", re.VERBOSE | re.DOTALL
)
_IN_STRING = {quote: re.compile(rf"\\.|{quote}", re.DOTALL) for quote in ('"""', "'''")}


def python_blocks(text: str) -> Iterator[str]:
    """The bodies of the blocks fenced by ```python, in order. Other names of the language that
    models write are understood: py, py3, python3, in any case.

    A block ends at the first fence outside a string of the program: no program with a fence
    elsewhere compiles. If its string never ends, the block ends at its first fence.
    """
    at = 0
    while (opening := _OPENING.search(text, at)) is not None:
        closing = _closing(text, opening.end(), len(opening[1]))
        if closing is None:
            return
        yield text[opening.end() : closing.start()]
        # The fence may open the next block: a closing fence was forgotten.
        at = closing.start() if _OPENING.match(text, closing.start()) else closing.end()


def _closing(text: str, begin: int, ticks: int) -> re.Match[str] | None:
    first: re.Match[str] | None = None
    quote = ""
    at, passed = begin, 0
    for fence in _FENCE.finditer(text, begin):
        if len(fence[1]) < ticks:
            continue
        quote = _quote_at(text, at, fence.start(), quote)
        at = fence.start()
        if not quote:
            return fence
        first = first or fence
        passed += 1
        if passed > MOST_FENCES:
            break
    return first


def _quote_at(text: str, at: int, end: int, quote: str) -> str:
    """Which quotation marks are open at `end`, if `quote` is open at `at`; "" for none."""
    while at < end:
        found = (_IN_STRING[quote] if quote else _TOKEN).search(text, at, end)
        if found is None:
            return quote
        if found[0] in _IN_STRING:
            quote = "" if quote else found[0]
        at = found.end()
    return quote
