"""The rule for which tags of an action count, for streams that stop and for parsers; pure.

A tag is any text that an action is searched for: it opens or closes a call, ends the action, or
opens or closes a thought. All tags count, with two exceptions:

- Inside a string of a call's JSON a tag is text. If the JSON breaks before the string has ended and
  JSON continues after it, the tags in that string count after all: a quotation mark was missing.
- Inside a thought of the chat template a tag is text, except the tag that closes the thought.

The end of the turn always counts.

Invariants
- The same tags count whether a text comes as one piece or token by token.
- The work is linear in the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Generic, NamedTuple, TypeVar

from toolwright.reading.json_text.json_prefix import JsonPrefix


class Tags(NamedTuple):
    """The two tags around a block."""

    open: str
    close: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """The tags of a session's actions."""

    ends: tuple[str, ...] = ()
    """Tags at which an action or one of its calls ends."""
    json: tuple[Tags, ...] = ()
    """Tags of calls whose body is a JSON object."""
    thought: Tags | None = None
    """Tags of a thought, if the chat template has thoughts."""
    turn_end: str = ""
    """End of the assistant's turn. It counts wherever it stands."""

    @property
    def plain(self) -> bool:
        """Every tag counts wherever it stands."""
        return not self.json and self.thought is None

    @property
    def inner(self) -> tuple[str, ...]:
        """Tags that end nothing and that have to be seen."""
        opening = (tags.open for tags in self.json)
        return tuple(dict.fromkeys([*opening, *(self.thought or ())]))


Item = TypeVar("Item")


class Ends(Generic[Item]):
    """The state between two tags of one action.

    The caller gives each tag in order, and the text between two tags while `reads` is true. A tag
    comes with an item of the caller's own, which is returned once the tag counts.
    """

    def __init__(self, grammar: Grammar, *, thinking: bool = False) -> None:
        """`thinking`: the action begins inside a thought, which the generation prompt opened."""
        self.thinking = thinking and grammar.thought is not None
        """The last tag stands inside a thought, or opened one."""
        self.opened = False
        """The last tag opened a call."""
        self._grammar = grammar
        self._json: JsonPrefix | None = None
        self._opening = frozenset(tags.open for tags in grammar.json)
        self._ending = frozenset(grammar.ends)
        self._held: list[Item] = []

    @property
    def reads(self) -> bool:
        """The text up to the next tag is needed: it belongs to a call's JSON."""
        return self._json is not None

    @property
    def waits(self) -> bool:
        """Tags inside a string wait for what follows: the text is needed at once."""
        return bool(self._held)

    @property
    def held(self) -> list[Item]:
        """Items of the tags that wait, in order."""
        return self._held

    def text(self, piece: str) -> list[Item]:
        """Takes text between two tags. Returns the items of earlier tags that count now."""
        if self._json is None or not piece:
            return []
        self._json.feed(piece)
        if self._held and self._json.settled:
            self._held = []
        return self._broken() if self._json.broken else []

    def outside(self) -> None:
        """The text before the next tag ends outside a string, as it does after a line break."""
        self._json = None

    def tag(self, tag: str, item: Item) -> list[Item]:
        """Takes a tag. Returns the items of the tags that count now, in their order."""
        grammar = self._grammar
        self.opened = False
        if tag == grammar.turn_end:
            self.thinking = False
            return [*self._broken(), item]
        if self.thinking:
            self.thinking = grammar.thought is None or tag != grammar.thought.close
            return []
        found: list[Item] = []
        if self._json is not None:
            if self._json.inside:
                found = self.text(tag)
                if self._json is not None:
                    if tag in self._ending:
                        self._json.settled = False
                        self._held.append(item)
                    return []
            else:
                found = self._broken()
        if tag in self._opening:
            self._json, self.opened = JsonPrefix(), True
        elif grammar.thought is not None and tag == grammar.thought.open:
            self.thinking = True
        return [*found, item] if tag in self._ending else found

    def finish(self) -> list[Item]:
        """The text is over: tags that wait count."""
        return self._broken()

    def _broken(self) -> list[Item]:
        self._json = None
        found, self._held = self._held, []
        return found


class Place(NamedTuple):
    """A tag in a text: text[start:end]."""

    start: int
    end: int
    tag: str


def places(text: str, tags: tuple[str, ...]) -> Iterator[Place]:
    """All places of the tags, in the order of their ends. Of those that end together, the longest
    alone."""
    waiting: list[tuple[int, int, str]] = []
    for tag in dict.fromkeys(tags):
        start = text.find(tag) if tag else -1
        if start >= 0:
            waiting.append((start + len(tag), start, tag))
    heapify(waiting)
    last = -1
    while waiting:
        end, start, tag = waiting[0]
        later = text.find(tag, start + 1)
        if later >= 0:
            heapreplace(waiting, (later + len(tag), later, tag))
        else:
            heappop(waiting)
        if end != last:
            yield Place(start, end, tag)
            last = end


class Counted(NamedTuple):
    """The tags of a text that count."""

    ends: list[Place]
    opened: list[Place]
    """Tags that open a call, outside thoughts and outside strings of JSON."""
    thoughts: list[tuple[int, int]]
    """Begin and end of each thought, with its tags."""


def counted(
    text: str, grammar: Grammar, *, thinking: bool = False, most: int | None = None
) -> Counted:
    """Tags that count in a whole text, up to `most` ends. Undecided tags at its end count."""
    ends: list[Place] = []
    opened: list[Place] = []
    thoughts: list[tuple[int, int]] = []
    state: Ends[Place] = Ends(grammar, thinking=thinking)
    began = at = 0
    for place in places(text, (*grammar.ends, *grammar.inner, grammar.turn_end)):
        if most is not None and len(ends) >= most:
            return Counted(ends[:most], opened, thoughts)
        if state.reads:
            ends += state.text(text[at : place.start])
        thought = state.thinking
        ends += state.tag(place.tag, place)
        at = place.end
        if state.opened:
            opened.append(place)
        elif state.thinking and not thought:
            began = place.start
        elif thought and not state.thinking:
            thoughts.append((began, place.end))
    if state.thinking:
        thoughts.append((began, len(text)))
    if state.reads:
        ends += state.text(text[at:])
    ends += state.finish()
    return Counted(ends if most is None else ends[:most], opened, thoughts)


def spoken(text: str, grammar: Grammar, *, thinking: bool = False) -> str:
    """The text without the thoughts of the chat template. A thought that does not end takes the
    rest of the text, but not the end of the turn."""
    if grammar.thought is None:
        return text
    pieces: list[str] = []
    at = 0
    for start, end in counted(text, grammar, thinking=thinking).thoughts:
        pieces.append(text[at:start])
        at = end
        if grammar.turn_end and text.endswith(grammar.turn_end, start, end):
            at = end - len(grammar.turn_end)
    return "".join((*pieces, text[at:]))
