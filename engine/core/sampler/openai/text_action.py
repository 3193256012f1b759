"""One action as text, over all its requests: its stop, its marks, its restored end. Pure.

Invariants
- The action ends with its first stop that counts (`toolwright.reading.action_ends`); what follows
  is dropped. A stop at which the server itself ends the action counts in any case.
- `on_mark` is called for each of the first `MOST_MARKS` marks as it counts, in order.
- Each new piece is searched once, with as many characters before it as a stop can have, and only as
  far as the action may still grow.
- Token ids are the engine's own encoding of the text; log-probs are NaN, since the API gives none.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence
from math import nan
from typing import Any, NamedTuple

from engine.core.sampler.openai.calls import CallPieces
from engine.core.sampler.policy_sampler import OnMark
from engine.core.sampler.stops import StopTable, tags_in
from engine.core.sampler.wire.events import WireError
from engine.core.text.turn_end import foreign_end
from engine.types import Generated, StopHit
from toolwright.model_api.deltas import CallPart, Ending, Hint, ending_of
from toolwright.reading.action_ends import Ends
from toolwright.types import FinishKind, FinishReason, WeightVersion

MOST_BYTES_A_TOKEN = 64
"""Average bytes of text per token; a server that writes more ignores its token limit."""
LEAST_BYTES = 4096
"""Bytes that are accepted in any case."""
MOST_MARKS = 256
"""Marks of one action that are reported. Each report carries all ids before it. Calls beyond them
are sent at the action's end."""

_LENGTH = FinishReason(kind=FinishKind.LENGTH)
_CONTINUED = FinishReason(kind=FinishKind.CONTINUED)


class _End(NamedTuple):
    """A stop or mark, and where it ends in the action's text."""

    end: int
    tag: str


class TextAction:
    """Text of one action. `encode` gives the ids of text that a policy wrote."""

    def __init__(
        self,
        *,
        stops: StopTable,
        end_of_turn: str,
        encode: Callable[[str], list[int]],
        version: WeightVersion,
        max_new_tokens: int,
        call_tags: tuple[str, str],
        on_mark: OnMark | None = None,
        text: str = "",
    ) -> None:
        """text: the part of the action that an earlier life received."""
        self.generated: Generated | None = None
        """The whole action, once it has ended."""
        self.remarks: dict[str, Any] = {}
        """Remarks about the action's end, for the record."""
        self.marked = False
        """A mark was reported: its effects cannot be taken back."""
        self._stops = stops
        self._end_of_turn = end_of_turn
        self._encode = encode
        self._version = version
        self.most = max_new_tokens
        """Token limit of the whole action."""
        self._tags = call_tags
        self._on_mark = on_mark
        self._texts = stops.texts
        self._marks = stops.marks if on_mark is not None else ()
        self._passing = (*self._marks, *stops.inner)
        self._window = max((len(one) for one in (*self._texts, *self._passing)), default=1) - 1
        self._calls = CallPieces()
        self._begin(text)

    def _begin(self, text: str) -> None:
        self._parts = [text] if text else []
        self._tail = text[-self._window :] if self._window else ""
        self._bytes = len(text.encode(errors="replace"))
        self._mark_ids: list[int] = []
        """Ids up to the last mark."""
        self._marks_told = 0
        self._length = len(text)
        """Characters of the text."""
        self._marked_to = 0
        """Characters up to the last mark."""
        self._ends: Ends[_End] = Ends(self._stops.grammar, thinking=self._stops.thinking)
        self._unread = ""
        """Text of a call's JSON that `_ends` has not read."""
        self._follow(text, 0)

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self._parts)

    @property
    def has_calls(self) -> bool:
        """Whether parts of tool calls came beside the text."""
        return bool(self._calls)

    @property
    def has_any(self) -> bool:
        """Whether anything came."""
        return bool(self._parts or self._calls)

    @property
    def room(self) -> int:
        """Tokens that may still come, by the engine's own count."""
        return self.most - len(self._encode(self.text)) if self._parts else self.most

    def partial(self) -> Generated | None:
        """The received part of an action that no reader continues; None if nothing came."""
        return self._made(_CONTINUED, read_ns=0) if self._parts else None

    def fill(self, read_ns: int) -> None:
        """Ends the action, because its token limit is reached."""
        self.generated = self._made(_LENGTH, read_ns=read_ns)

    def forget(self) -> None:
        """Begins the action anew, because the server cannot go on from the received part."""
        self._calls = CallPieces()
        self._begin("")

    def feed(self, text: str, read_ns: int, *, unseen: int = 0) -> bool:
        """Takes a piece and calls back at once for what it completes. Returns False if the rest is
        of no use. unseen: received bytes that are not part of the text."""
        if self.generated is not None:
            return False
        most = LEAST_BYTES + self.most * MOST_BYTES_A_TOKEN
        text, size = _first_bytes(text, most - self._bytes)
        self._bytes += size + unseen
        if text:
            window, before = self._tail + text, len(self._tail)
            self._take(text)
            for found in self._follow(window, before):
                if self._counts(found, read_ns):
                    return False
            self._tail = window[-self._window :] if self._window else ""
        if self._bytes > most:
            self.generated = self._made(_LENGTH, read_ns=read_ns)
            return False
        return True

    def add_calls(self, parts: Sequence[CallPart]) -> None:
        """Pieces of tool calls that the server sends beside the text. Raises WireError for too
        many."""
        self._calls.add(parts)
        self._bytes += sum(len(part.arguments) + len(part.name) for part in parts)

    def end(self, finish: str, hint: Hint | None, read_ns: int, *, sent: Sequence[str]) -> None:
        """Ends the action with the server's finish word. sent: stops in the request; a stop that
        the server cut away is put back. Raises WireError for a word that means an incomplete
        answer."""
        if self.generated is not None:
            return
        ending = ending_of(finish)
        if ending is Ending.FAILED:
            raise WireError(f"the stream ended with finish_reason {finish[:80]!r}")
        if self._calls and not self.feed(self._spelled_calls(), read_ns):
            return
        if ending is Ending.FILTERED:
            self.remarks["finish"] = finish
        elif ending is Ending.UNKNOWN:  # a stranger may send any text, so it is not recorded
            self.remarks["finish"] = "unknown word"
        if ending is Ending.LENGTH:
            self.generated = self._made(_LENGTH, read_ns=read_ns)
        elif ending is Ending.FILTERED:
            self.generated = self._made(FinishReason(kind=FinishKind.STOP), read_ns=read_ns)
        else:
            self._put_back(hint, sent, read_ns)

    def _put_back(self, hint: Hint | None, sent: Sequence[str], read_ns: int) -> None:
        """Restores the stop that ended the action and is missing in the text: OpenAI's API cuts it
        away."""
        for found in self._ends.finish():
            if self._counts(found, read_ns):
                return
        stop: str | None = None
        if hint is not None:
            stop = hint.text if hint.text in self._texts else None
        else:
            stop = open_stop(self.text, sent)
            if stop is not None:
                self.remarks["stop_put_back"] = stop
        if stop is None and self._end_of_turn in self._texts:
            self._drop_foreign_end()
            stop = self._end_of_turn
        if stop is None:
            self.generated = self._made(FinishReason(kind=FinishKind.STOP), read_ns=read_ns)
            return
        self._take(stop)
        self._stopped(stop, read_ns)

    def _drop_foreign_end(self) -> None:
        """Removes the markers of the server's own template, which end the text."""
        marker = foreign_end(self.text)
        if not marker or self._length - len(marker) < self._marked_to:
            return
        self.remarks["end_dropped"] = marker.strip()
        self._parts = [self.text.removesuffix(marker)]
        self._length -= len(marker)

    def _follow(self, window: str, before: int) -> list[_End]:
        """Reads the window's text from `before` to its end. Returns the stops and marks that count
        now, in order."""
        base = self._length - len(window)
        found: list[_End] = []
        at = before
        for end, tag in tags_in(window, before, self._passing, self._texts):
            if self._ends.reads:
                text = self._unread + window[at:end]
                found += self._ends.text(text[: max(0, len(text) - len(tag))])
            found += self._ends.tag(tag, _End(base + end, tag))
            self._unread = ""
            at = end
        if self._ends.reads:
            self._unread += window[at:]
        if self._ends.waits:
            found += self._ends.text(self._unread)
            self._unread = ""
        return found

    def _counts(self, found: _End, read_ns: int) -> bool:
        """Acts on a stop or mark that counts; True for a stop."""
        if found.tag in self._marks:
            if self._marks_told < MOST_MARKS:
                self._report_mark(found, read_ns)
            return False
        if found.tag not in self._texts:
            return False
        self._parts = [self.text[: found.end]]
        self._stopped(found.tag, read_ns)
        return True

    def _report_mark(self, mark: _End, read_ns: int) -> None:
        self._mark_ids += self._encode(self.text[self._marked_to : mark.end])
        self._marked_to = mark.end
        self.marked = True
        self._marks_told += 1
        if self._on_mark is not None:
            hit = StopHit(keep=len(self._mark_ids), matched_text=mark.tag)
            self._on_mark(array("i", self._mark_ids), hit, read_ns)

    def _take(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    def _stopped(self, stop: str, read_ns: int) -> None:
        finish = FinishReason(kind=FinishKind.STOP, matched_text=stop)
        self.generated = self._made(finish, stop=stop, read_ns=read_ns)

    def _made(self, finish: FinishReason, *, stop: str | None = None, read_ns: int) -> Generated:
        """The action. If the engine counts more tokens than the limit, the tokens that fit."""
        token_ids = array("i", self._encode(self.text))
        if len(token_ids) > self.most:
            token_ids, finish, stop = token_ids[: self.most], _LENGTH, None
        count = len(token_ids)
        return Generated(
            token_ids=token_ids,
            logprobs=array("f", [nan]) * count,
            versions=((self._version, count),) if count else (),
            finish=finish,
            stop=stop,
            read_ns=read_ns,
        )

    def _spelled_calls(self) -> str:
        """The calls as text, as a policy without a parser in its server writes them."""
        opened, closed = self._tags
        texts = []
        for name, arguments in self._calls.whole():
            spelled = json.dumps(name, ensure_ascii=False)
            texts.append(f'{opened}\n{{"name": {spelled}, "arguments": {arguments}}}\n{closed}')
        return "".join(texts)


def _first_bytes(text: str, most: int) -> tuple[str, int]:
    """The part of `text` that fits into so many bytes, and the bytes of all of it."""
    data = text.encode(errors="replace")
    if len(data) <= most:
        return text, len(data)
    return data[: max(most, 0)].decode(errors="ignore"), len(data)


def open_stop(text: str, stops: Sequence[str]) -> str | None:
    """The stop among `stops` that closes the tag which `text` opened last and left open; None if no
    tag is open. Stops that are not tags cannot be found so."""
    found: tuple[int, str] | None = None
    for stop in stops:
        if not (stop.startswith("</") and stop.endswith(">")):
            continue
        name = f"<{stop[2:-1]}"
        start = text.rfind(name)
        follows = text[start + len(name) : start + len(name) + 1]
        opened = start >= 0 and (follows == ">" or follows.isspace()) and stop not in text[start:]
        if opened and (found is None or start > found[0]):
            found = start, stop
    return found[1] if found else None
