"""Finds the stop in a stream of tokens the moment it is complete: by id and by text.

After a text stop the token that holds the stop's last character stays whole; whatever follows
is dropped. Work a chunk is bounded by the longest stop, not by the action's length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.text.cut import stop_cut
from engine.types import Codec, StopHit


class StopTable:
    """The stops of one session: those that are one token by id, all of them by text."""

    def __init__(self, stops: Sequence[str], codec: Codec) -> None:
        self.texts = tuple(stops)
        ids = {text: codec.token_id(text) for text in stops}
        self.by_token: Mapping[int, str] = {
            token: text for text, token in ids.items() if token is not None
        }
        self.longer = tuple(text for text, token in ids.items() if token is None)
        self.window = max((len(text.encode()) for text in stops), default=0)


class StopDetector:
    """One action's stream. Feed it every token that arrives until it reports a hit."""

    def __init__(self, table: StopTable, decode: Callable[[Sequence[int]], str]) -> None:
        self._table = table
        self._decode = decode
        self._token_ids: list[int] = []

    def feed(self, token_ids: Sequence[int]) -> StopHit | None:
        """The first stop that ends within `token_ids`, as a position in the whole action."""
        before = len(self._token_ids)
        by_token = self._table.by_token
        hit_at = next((i for i, token in enumerate(token_ids) if token in by_token), None)
        fresh = token_ids if hit_at is None else token_ids[:hit_at]
        self._token_ids.extend(fresh)
        text_hit = self._search_text(before) if fresh else None
        if text_hit is not None:
            return text_hit
        if hit_at is None:
            return None
        token = token_ids[hit_at]
        return StopHit(keep=before + hit_at + 1, matched_token=token, matched_text=by_token[token])

    def _search_text(self, before: int) -> StopHit | None:
        """A stop whose last character is in a token at or after position `before`.

        A token has at least one byte, so `window` tokens before the new ones hold any stop's
        beginning.
        """
        start = max(0, before - self._table.window)
        tail = self._token_ids[start:]
        _, stop, _ = stop_cut(self._decode(tail), self._table.texts)
        if stop is None:
            return None
        for end in range(before - start + 1, len(tail) + 1):
            _, stop, _ = stop_cut(self._decode(tail[:end]), self._table.texts)
            if stop is not None:
                return StopHit(keep=start + end, matched_text=stop)
        return None
