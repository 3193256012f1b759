"""Finds stops and marks in a stream of tokens the moment they are complete: by id and by text.

A stop ends the action. A mark is a text that completes one of several calls while the action goes
on. After either, the token that holds the text's last character counts whole.

`toolwright.reading.action_ends` says which of them count: not those inside a string of a call's
JSON or inside a thought. A stop in a string waits for the string's end. If the JSON breaks instead,
the stop was the end: tokens after it are dropped.

Text is decoded only if a new token can hold a last character, and then only a window of it. So the
work for a token is one look-up. The work at such a token is bounded by the longest text, not by the
action's length.

This is exact because the text of tokens is the decoding of their joined bytes. An ASCII character
is one byte, so the token's own text shows whether it holds that character. A token whose own text
has a replacement character holds part of a character. It may hold the last byte of any character.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from weakref import WeakKeyDictionary, ref

from engine.types import Codec, StopHit
from toolwright.reading.action_ends import Ends, Grammar, Tags

REPLACEMENT = "\ufffd"
"""Decoding of bytes that are not, or not yet, a character."""

MOST_TABLES = 32
"""Tables of ending tokens of one codec. Each may grow as large as the vocabulary."""

_Hit = Callable[[StopHit], None]


class StopTable:
    """The stops and marks of one session. A text that is both is a stop.

    by_token: stops of one token, by its id. longer: the other stops. texts: all stops, which other
    tokens may spell too. inner: tags that end nothing, and that decide which stops and marks count.
    """

    def __init__(
        self,
        stops: Sequence[str],
        codec: Codec,
        marks: Sequence[str] = (),
        json_calls: Sequence[Tags] = (),
    ) -> None:
        """json_calls: tags of the calls whose body is JSON."""
        self.texts = tuple(text for text in dict.fromkeys(stops) if text)
        self.marks = tuple(text for text in dict.fromkeys(marks) if text and text not in self.texts)
        ids = {text: codec.token_id(text) for text in self.texts}
        self.by_token = {token: text for text, token in ids.items() if token is not None}
        self.stop_token_ids = sorted(self.by_token)
        self.longer = tuple(text for text, token in ids.items() if token is None)
        self.grammar = Grammar(
            ends=(*self.texts, *self.marks),
            json=tuple(dict.fromkeys(json_calls)),
            thought=codec.thought,
            turn_end=codec.end_of_turn,
        )
        ends = frozenset(self.grammar.ends)
        self.thinking = False
        """The action begins inside a thought, which the generation prompt opened."""
        self.inner = tuple(text for text in self.grammar.inner if text and text not in ends)
        every = (*self.texts, *self.marks, *self.inner)
        self.window = max((len(text.encode()) for text in every), default=0)
        self.may_end: dict[int, bool] = EndingTokens.shared(
            frozenset(text[-1] for text in every), codec
        )

    def inside_thought(self) -> StopTable:
        """The table of an action that begins inside a thought."""
        table = copy(self)
        table.thinking = True
        return table

    def of_characters(self) -> StopTable:
        """The table for a stream of characters, as code points, in place of tokens."""
        table = copy(self)
        table.by_token = {}
        last = (ord(text[-1]) for text in (*self.texts, *self.marks, *self.inner))
        table.may_end = defaultdict(bool, dict.fromkeys(last, True))
        return table


class EndingTokens(dict[int, bool]):
    """Whether a token can hold one of `characters`, learned token by token. Never larger than the
    vocabulary."""

    def __init__(self, characters: frozenset[str], codec: Codec) -> None:
        super().__init__()
        self._characters = characters
        self._codec = ref(codec)  # this table must not keep the codec alive
        self._split = not all(character.isascii() for character in characters)
        # Some decoders drop a blank at the edge of a text, so one token alone shows nothing.
        self._always = any(character.isspace() for character in characters)

    @classmethod
    def shared(cls, characters: frozenset[str], codec: Codec) -> EndingTokens:
        """The table shared by all sessions whose stops end alike. A codec keeps its newest ones:
        an outside agent may send other stops with each request."""
        known = _KNOWN.setdefault(codec, {})
        table = known.pop(characters, None)
        if table is None:
            table = cls(characters, codec)
        known[characters] = table
        if len(known) > MOST_TABLES:
            del known[next(iter(known))]
        return table

    def __missing__(self, token: int) -> bool:
        codec = self._codec()
        text = codec.decode([token]) if codec is not None else ""
        found = (
            self._always
            or not text
            or not self._characters.isdisjoint(text)
            or (self._split and REPLACEMENT in text)
        )
        self[token] = found
        return found


_KNOWN: WeakKeyDictionary[Codec, dict[frozenset[str], EndingTokens]] = WeakKeyDictionary()


class StopDetector:
    """One action's stream. Feed it every token that arrives until it reports a stop."""

    def __init__(
        self,
        table: StopTable,
        decode: Callable[[Sequence[int]], str],
        on_mark: _Hit | None = None,
    ) -> None:
        """on_mark: called for each mark that counts, in order."""
        self._table = table
        self._decode = decode
        self._on_mark = on_mark
        self._seen = 0
        self._tail: list[int] = []
        """The newest tokens, as many as can hold the beginning of a stop or mark."""
        marks = table.marks if on_mark else ()
        self._passing = (*marks, *table.inner)
        self._searched = (*table.texts, *self._passing)
        self._marks = frozenset(marks)
        self._ends: Ends[StopHit] = Ends(table.grammar, thinking=table.thinking)
        self._follow = not table.grammar.plain
        self._waits = self._reads = False
        """State of `_ends`, which changes only at tags; read at every chunk."""
        self._unread: list[int] = []
        """Tokens of a call's JSON that `_ends` has not read."""
        self._rest = ""
        """Text after the last tag within that tag's last token; `_ends` has not read it."""

    @property
    def sure(self) -> int:
        """Number of tokens that no later stop can take back."""
        held = self._ends.held
        return held[0].keep if held else self._seen

    def skip(self, token_ids: Sequence[int]) -> None:
        """Takes tokens that were searched before."""
        on_mark, self._on_mark = self._on_mark, None
        self.feed(token_ids)
        self._on_mark = on_mark

    def feed(self, token_ids: Sequence[int]) -> StopHit | None:
        """The first stop that counts, as a position in the whole action. It ends within
        `token_ids`, or before them if it had to wait."""
        table = self._table
        if not self._waits and not any(map(table.may_end.__getitem__, token_ids)):
            self._seen += len(token_ids)
            if table.window:
                self._tail = [*self._tail, *token_ids][-table.window :]
            if self._reads:
                self._unread += token_ids
            return None
        by_token = table.by_token
        start = 0
        for end, token in enumerate(token_ids):
            if token not in by_token:
                continue
            hit = self._search(token_ids[start:end])
            if hit is None:
                text = by_token[token]
                found = StopHit(keep=self._seen + 1, matched_token=token, matched_text=text)
                self._unread.append(token)
                before = self._decode(self._tail[-2:]) if self._reads else ""
                hit = self._report_marks(self._tag(text, found, before + text, len(before + text)))
                if self._waits and hit is None:
                    hit = self._report_marks(self._read_on())
                self._pass((token,), read=True)
            if hit is not None:
                return hit
            start = end + 1
        return self._search(token_ids[start:])

    def finish(self) -> StopHit | None:
        """The first stop that counts because nothing follows; call it at most once."""
        return self._report_marks(self._ends.finish())

    def _search(self, token_ids: Sequence[int]) -> StopHit | None:
        """Takes the tokens, and finds the texts that end in them."""
        if not token_ids:
            return None
        may_end = self._table.may_end
        follow = self._waits
        if not follow and any(map(may_end.__getitem__, token_ids)):
            text = self._decode([*self._tail, *token_ids])
            follow = any(map(text.__contains__, self._searched))
        if not follow:
            self._pass(token_ids)
            return None
        for token in token_ids:
            window = [*self._tail, token]
            self._unread.append(token)
            if may_end[token]:
                hit = self._ends_at(window, self._seen + 1)
                if hit is not None:
                    return hit
            if self._waits:
                hit = self._report_marks(self._read_on())
                if hit is not None:
                    return hit
            self._pass((token,), read=True)
        return None

    def _ends_at(self, window: Sequence[int], keep: int) -> StopHit | None:
        """The stop that counts and whose last character the window's last token holds. Marks there
        are reported."""
        window = window[max(0, len(window) - 1 - self._table.window) :]
        text = self._decode(window)
        if not any(map(text.__contains__, self._searched)):
            return None
        old = len(self._decode(window[:-1]).rstrip(REPLACEMENT))
        for end, tag in tags_in(text, old, self._passing, self._table.texts):
            hit = self._report_marks(
                self._tag(tag, StopHit(keep=keep, matched_text=tag), text, end)
            )
            if hit is not None:
                return hit
        return None

    def _tag(self, tag: str, hit: StopHit, text: str, end: int) -> list[StopHit]:
        """Gives a tag to the rule. `text`: decoded tokens up to the newest one, in which the tag
        ends at `end`. Returns the hits that count now."""
        if not self._follow:
            return [hit]
        ends = self._ends
        found: list[StopHit] = []
        if self._reads and not self._waits and text[: end - len(tag)].endswith("\n"):
            ends.outside()  # a line break in a string is not JSON
        elif self._reads:
            found += ends.text(self._text_up_to(len(text) - end + len(tag)))
        found += ends.tag(tag, hit)
        self._waits, self._reads = ends.waits, ends.reads
        self._unread.clear()
        self._rest = text[end:] if self._reads else ""
        return found

    def _read_on(self) -> list[StopHit]:
        """Gives the newest text to the rule, because a stop waits for it."""
        found = self._ends.text(self._text_up_to(0))
        self._waits, self._reads = self._ends.waits, self._ends.reads
        return found

    def _text_up_to(self, rest: int) -> str:
        """Unread text of a call's JSON, without its last `rest` characters."""
        text = self._rest + self._decode(self._unread)
        self._unread.clear()
        self._rest = ""
        return text[: max(0, len(text) - rest)]

    def _report_marks(self, hits: Sequence[StopHit]) -> StopHit | None:
        """Reports the marks among the hits. Returns the first stop."""
        for hit in hits:
            if hit.matched_text not in self._marks:
                return hit
            if self._on_mark is not None:
                self._on_mark(hit)
        return None

    def _pass(self, token_ids: Sequence[int], *, read: bool = False) -> None:
        """Counts tokens as seen. read: they are in `_unread` if they are needed."""
        if self._reads and not read:
            self._unread += token_ids
        elif not self._reads:
            self._unread.clear()
        self._seen += len(token_ids)
        size = self._table.window
        self._tail = [*self._tail, *token_ids][-size:] if size else []


def tags_in(
    text: str, old: int, passing: Sequence[str], stops: Sequence[str]
) -> Iterator[tuple[int, str]]:
    """(end, tag) of each tag that ends beyond character `old`, in order.

    passing: tags that end no action. If several end together, the longest of them comes first, and
    then the longest of the stops.
    """
    found = [
        (end, number, -len(tag), tag)
        for number, tags in enumerate((passing, stops))
        for tag in tags
        for end in _ends(text, old, tag)
    ]
    last = (-1, -1)
    for end, number, _, tag in sorted(found):
        if last != (end, number):
            yield end, tag
        last = end, number


def _ends(text: str, old: int, tag: str) -> Iterator[int]:
    start = text.find(tag, max(0, old - len(tag) + 1))
    while start >= 0:
        yield start + len(tag)
        start = text.find(tag, start + 1)
