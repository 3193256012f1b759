"""One action as text, over all its requests: its stop, its marks, its restored end. Pure.

Invariants
- The action ends with its first stop that counts (`toolwright.reading.action_ends`); what follows
  is dropped. A stop at which the server itself ends the action counts in any case.
- `on_mark` is called for each of the first `MOST_MARKS` marks as it counts, in order.
- Each new piece is searched once, by the `StopDetector` over characters in place of tokens, and
  only as far as the action may still grow.
- Token ids are the engine's own encoding of the text; log-probs are NaN, since the API gives none.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from math import nan
from typing import Any

from engine.core.sampler.openai.calls import CallPieces
from engine.core.sampler.policy_sampler import GenerateRequest
from engine.core.sampler.stops import StopDetector
from engine.core.sampler.wire.events import WireError
from engine.core.text.conversation_codec import ConversationCodec
from engine.core.text.turn_end import foreign_end
from engine.errors import SamplerFailed
from engine.types import Codec, Generated, StopHit
from toolwright.model_api.deltas import CallPart, Ending, Hint, ending_of
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


class TextAction:
    """Text of the action that `request` wants."""

    def __init__(
        self,
        request: GenerateRequest,
        codec: Codec,
        *,
        version: WeightVersion,
        call_tags: tuple[str, str],
    ) -> None:
        """version: of all the text."""
        self.generated: Generated | None = None
        """The whole action, once it has ended."""
        self.remarks: dict[str, Any] = {}
        """Remarks about the action's end, for the record."""
        self.marked = False
        """A mark was reported: its effects cannot be taken back."""
        self._stops = request.stops.of_characters()
        self._end_of_turn = codec.end_of_turn
        self._encode = codec.encode_action if isinstance(codec, ConversationCodec) else codec.encode
        self._version = version
        self.most = request.max_new_tokens
        """Token limit of the whole action."""
        self._tags = call_tags
        self._request = request
        self._begin("" if request.received is None else codec.decode(request.received.token_ids))

    def _begin(self, text: str) -> None:
        self._calls = CallPieces()
        self._parts = [text] if text else []
        self._bytes = len(text.encode(errors="replace"))
        self._mark_ids: list[int] = []
        """Ids up to the last mark."""
        self._marks_told = 0
        self._marked_to = 0
        """Characters up to the last mark."""
        self._marks: list[StopHit] = []
        """Marks that are not reported yet; they and stops count characters."""
        self._detector = StopDetector(
            self._stops, _text_of, self._marks.append if self._request.on_mark else None
        )
        self._detector.skip(_characters(text))

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

    def report_rest(self) -> None:
        """Gives the received part to `on_progress`, because no reader goes on. Only if no earlier
        life received a part."""
        request = self._request
        if request.on_progress is not None and request.received is None and self._parts:
            request.on_progress(self._made(_CONTINUED, read_ns=0))

    def fill(self, read_ns: int) -> None:
        """Ends the action, because its token limit is reached."""
        self.generated = self._made(_LENGTH, read_ns=read_ns)

    def begin_anew(self) -> None:
        """Drops the tokens of a broken request, because the server cannot go on from there. Raises
        SamplerFailed if a call of it runs."""
        if self.has_any and self.marked:
            raise SamplerFailed(
                "a stream broke after a call of its action, and this API cannot go on from there"
            )
        if self.has_any:
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
            self._parts.append(text)
            if self._ends_at(self._detector.feed(_characters(text)), read_ns):
                return False
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
        if self._ends_at(self._detector.finish(), read_ns):
            return
        texts = self._stops.texts
        stop: str | None = None
        if hint is not None:
            stop = hint.text if hint.text in texts else None
        else:
            stop = open_stop(self.text, sent)
            if stop is not None:
                self.remarks["stop_put_back"] = stop
        if stop is None and self._end_of_turn in texts:
            self._drop_foreign_end()
            stop = self._end_of_turn
        if stop is None:
            self.generated = self._made(FinishReason(kind=FinishKind.STOP), read_ns=read_ns)
            return
        self._parts.append(stop)
        self._stopped(stop, read_ns)

    def _drop_foreign_end(self) -> None:
        """Removes the markers of the server's own template, which end the text."""
        text = self.text
        marker = foreign_end(text)
        if not marker or len(text) - len(marker) < self._marked_to:
            return
        self.remarks["end_dropped"] = marker.strip()
        self._parts = [text.removesuffix(marker)]

    def _ends_at(self, stop: StopHit | None, read_ns: int) -> bool:
        """Reports the marks that count now. Ends the action at `stop`; False without one."""
        for mark in self._marks:
            if self._marks_told < MOST_MARKS:
                self._report_mark(mark, read_ns)
        self._marks.clear()
        if stop is None or stop.matched_text is None:
            return False
        self._parts = [self.text[: stop.keep]]
        self._stopped(stop.matched_text, read_ns)
        return True

    def _report_mark(self, mark: StopHit, read_ns: int) -> None:
        self._mark_ids += self._encode(self.text[self._marked_to : mark.keep])
        self._marked_to = mark.keep
        self.marked = True
        self._marks_told += 1
        if self._request.on_mark is not None:
            hit = StopHit(keep=len(self._mark_ids), matched_text=mark.matched_text)
            self._request.on_mark(array("i", self._mark_ids), hit, read_ns)

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


def _characters(text: str) -> list[int]:
    return list(map(ord, text))


def _text_of(characters: Sequence[int]) -> str:
    return "".join(map(chr, characters))


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
