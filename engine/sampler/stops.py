"""Finds stops and marks in a stream of tokens the moment they are complete: by id and by text.

A stop ends the action. A mark is a text at which one of several calls of an action is complete
while the action goes on. After either, the token that holds the text's last character counts whole.

Text is decoded only where a new token can hold a last character, and then a window of it. So the
work a token is one look-up, and the work at such a token is bounded by the longest text, not by the
action's length.

Why that is exact: the text of tokens is the decoding of their joined bytes. An ASCII character is
one byte, so whether a token holds it is seen in the token's own text. A token whose own text holds
a replacement character has part of another character, and may hold the last byte of any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary, ref

from engine.types import Codec, StopHit

REPLACEMENT = "\ufffd"
"""What bytes that are no character, or not yet, decode to."""

_Hit = Callable[[StopHit], None]


class StopTable:
    """The stops and marks of one session.

    A text that is both is a stop. `by_token`: stops that are one token, by its id; `longer`: the
    other stops; `texts`: all stops, which may be spelled in other tokens too.
    """

    def __init__(self, stops: Sequence[str], codec: Codec, marks: Sequence[str] = ()) -> None:
        self.texts = tuple(text for text in dict.fromkeys(stops) if text)
        self.marks = tuple(text for text in dict.fromkeys(marks) if text and text not in self.texts)
        ids = {text: codec.token_id(text) for text in self.texts}
        self.by_token = {token: text for text, token in ids.items() if token is not None}
        self.stop_token_ids = sorted(self.by_token)
        self.longer = tuple(text for text, token in ids.items() if token is None)
        every = (*self.texts, *self.marks)
        self.window = max((len(text.encode()) for text in every), default=0)
        self.may_end = MayEnd.shared(frozenset(text[-1] for text in every), codec)


class MayEnd(dict[int, bool]):
    """Whether a token can hold one of `characters`, learned token by token. At most as large as
    the vocabulary."""

    def __init__(self, characters: frozenset[str], codec: Codec) -> None:
        super().__init__()
        self._characters = characters
        self._codec = ref(codec)  # the codec's life ends this one's, not the other way round
        self._split = not all(character.isascii() for character in characters)
        # Some decoders drop a blank at the edge of a text: then one token alone tells nothing.
        self._always = any(character.isspace() for character in characters)

    @classmethod
    def shared(cls, characters: frozenset[str], codec: Codec) -> MayEnd:
        """One for all sessions whose stops end alike."""
        known = _KNOWN.setdefault(codec, {})
        if characters not in known:
            known[characters] = cls(characters, codec)
        return known[characters]

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


_KNOWN: WeakKeyDictionary[Codec, dict[frozenset[str], MayEnd]] = WeakKeyDictionary()


class StopDetector:
    """One action's stream. Feed it every token that arrives until it reports a stop."""

    def __init__(
        self, table: StopTable, decode: Callable[[Sequence[int]], str], on_mark: _Hit | None = None
    ) -> None:
        """`on_mark` is called for each mark that completes, in order."""
        self._table = table
        self._decode = decode
        self._on_mark = on_mark
        self._seen = 0
        self._tail: list[int] = []
        """The newest tokens, as many as can hold the beginning of a stop or mark."""
        self._searched = (*table.texts, *table.marks) if on_mark else table.texts

    def skip(self, token_ids: Sequence[int]) -> None:
        """Takes tokens in which stops and marks were found before."""
        self._seen += len(token_ids)
        self._keep(token_ids)

    def feed(self, token_ids: Sequence[int]) -> StopHit | None:
        """The first stop that ends within `token_ids`, as a position in the whole action."""
        by_token = self._table.by_token
        if not any(map(self._table.may_end.__getitem__, token_ids)):
            self.skip(token_ids)
            return None
        end = next((i for i, token in enumerate(token_ids) if token in by_token), None)
        hit = self._search(token_ids[:end])
        if hit is not None or end is None:
            return hit
        token = token_ids[end]
        return StopHit(keep=self._seen + 1, matched_token=token, matched_text=by_token[token])

    def _search(self, token_ids: Sequence[int]) -> StopHit | None:
        """Takes the tokens, and finds the texts that end in them."""
        may_end = self._table.may_end
        window = [*self._tail, *token_ids]
        before = len(self._tail)
        if any(map(may_end.__getitem__, token_ids)):
            text = self._decode(window)
            if any(map(text.__contains__, self._searched)):
                for end in range(before, len(window)):
                    if may_end[window[end]]:
                        hit = self._ends_at(window[: end + 1], self._seen + end + 1 - before)
                        if hit is not None:
                            return hit
        self._seen += len(token_ids)
        self._keep(token_ids)
        return None

    def _ends_at(self, window: Sequence[int], keep: int) -> StopHit | None:
        """The stop whose last character the window's last token holds. Marks there are told."""
        window = window[max(0, len(window) - 1 - self._table.window) :]
        text = self._decode(window)
        if not any(map(text.__contains__, self._searched)):
            return None
        old = len(self._decode(window[:-1]).rstrip(REPLACEMENT))
        stop = min(_ends(text, old, self._table.texts), default=None)
        if self._on_mark is not None:
            told = 0
            for end, _, mark in sorted(_ends(text, old, self._table.marks)):
                if stop is not None and end > stop[0]:
                    break
                if end > told:  # of marks that end together the longest counts
                    self._on_mark(StopHit(keep=keep, matched_text=mark))
                    told = end
        return None if stop is None else StopHit(keep=keep, matched_text=stop[2])

    def _keep(self, token_ids: Sequence[int]) -> None:
        self._tail = [*self._tail, *token_ids][-self._table.window :] if self._table.window else []


def _ends(text: str, old: int, wanted: Sequence[str]) -> list[tuple[int, int, str]]:
    """(end, -length, text) of each of `wanted` that ends beyond character `old`."""
    found = []
    for one in wanted:
        start = text.find(one, max(0, old - len(one) + 1))
        while start >= 0:
            found.append((start + len(one), -len(one), one))
            start = text.find(one, start + 1)
    return found
