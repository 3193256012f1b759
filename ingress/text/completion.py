"""One completion: ids to text without its stop, reasoning and tool calls. Pure but for the
tokenizer.

Invariants
- What is out is never taken back: text that may begin a stop, a tag of a thought or a call waits.
- The pieces in which ids arrive do not change the joined result.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingress.readers.types import BLANKS, ToolReader, possible_start
from ingress.text.decoding import Decoder, TextStream
from ingress.types import IllFormed, Message, Piece, ReadCall, ToolCall, Words
from toolwright.reading.action_ends import Tags


class Completion:
    """Reads one completion while its ids arrive."""

    def __init__(
        self,
        decoder: Decoder,
        reader: ToolReader,
        *,
        stops: Sequence[str],
        turn_ends: Sequence[str],
        thought: Tags | None = None,
        thinking: bool = False,
    ) -> None:
        """stops: the client's texts that end the completion. turn_ends: texts that end a turn.
        thought: tags of the template's thoughts. thinking: the prompt opened a thought."""
        self._text = TextStream(decoder)
        self._turn_ends = tuple(turn_ends)
        self._stops = StopHold((*stops, *turn_ends))
        self._thoughts = ThoughtSplit(thought, thinking=thinking)
        self._reader = reader
        self.pieces: list[Piece] = []
        """All pieces so far."""

    def feed(self, token_ids: Sequence[int]) -> list[Piece]:
        """Takes the next ids; returns the pieces that are certain now."""
        return self._read(self._stops.feed(self._text.feed(token_ids)))

    def end(self, stop: str) -> list[Piece]:
        """Returns the rest. stop: the text that ended the completion, which is left out; "" = none
        did. The engine calls every end of a turn by the template's own."""
        stops = self._turn_ends if stop in self._turn_ends else (stop,)
        rest = self._read(self._stops.feed(self._text.end()) + self._stops.end(stops))
        more = [
            one
            for words in self._thoughts.end()
            for one in ([words] if words.reasoning else self._reader.feed(words.text))
        ]
        more += self._reader.end()
        self.pieces += more
        return rest + more

    def _read(self, text: str) -> list[Piece]:
        found: list[Piece] = []
        for words in self._thoughts.feed(text):
            found += [words] if words.reasoning else self._reader.feed(words.text)
        self.pieces += found
        return found


def message_of(pieces: Sequence[Piece], ids: Sequence[str]) -> Message:
    """The completion as the client sees it. ids: those of its calls, in order."""
    text = "".join(
        one.text for one in pieces if isinstance(one, IllFormed | Words) and not _reasons(one)
    )
    reasoning = "".join(one.text for one in pieces if isinstance(one, Words) and one.reasoning)
    calls = [one for one in pieces if isinstance(one, ReadCall)]
    return Message(
        role="assistant",
        text=text,
        reasoning=reasoning,
        calls=tuple(
            ToolCall(id=call_id, name=call.name, arguments=call.arguments)
            for call_id, call in zip(ids, calls, strict=True)
        ),
    )


def _reasons(piece: Piece) -> bool:
    return isinstance(piece, Words) and piece.reasoning


_AFTER_STOP = 64
"""Characters that the token of a stop's last character may have after the stop."""


class StopHold:
    """Holds text that may begin a stop until the completion goes on or ends."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(filter(None, stops))
        self._begun = frozenset(s[:size] for s in self._stops for size in range(1, len(s)))
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""

    def feed(self, text: str) -> str:
        text, self._held = self._held + text, ""
        last = max(0, len(text) - self._longest - _AFTER_STOP) if self._longest else len(text)
        places = [at for at in (text.find(stop, last) for stop in self._stops) if at >= 0]
        sizes = range(min(self._longest, len(text)), 0, -1)
        begun = next((size for size in sizes if text[-size:] in self._begun), 0)
        at = min([*places, len(text) - begun])
        self._held = text[at:]
        return text[:at]

    def end(self, stops: Sequence[str]) -> str:
        """The held text up to the last of the stops; all of it if it holds none of them."""
        at = max((self._held.rfind(stop) for stop in stops if stop), default=-1)
        return self._held[:at] if at >= 0 else self._held


class ThoughtSplit:
    """Separates a thought at the beginning of a completion from the rest.

    Blanks around the tags belong to the form. A thought without an end is reasoning.
    """

    def __init__(self, tags: Tags | None, *, thinking: bool = False) -> None:
        self._tags = tags
        self._thinking = thinking and tags is not None
        self._decided = tags is None or self._thinking
        self._trim = self._thinking
        """Blanks at the beginning of the next text are left out."""
        self._held = ""

    def feed(self, text: str) -> list[Words]:
        found: list[Words] = []
        text, self._held = self._held + text, ""
        if not self._decided and self._tags is not None:
            text = self._decide(text, self._tags)
        if self._tags is not None and self._thinking and text:
            text = self._thought(text, self._tags, found)
        if not self._thinking and self._decided:
            self._say(text, found, reasoning=False)
        return found

    def end(self) -> list[Words]:
        found: list[Words] = []
        rest, self._held = self._held, ""
        self._decided = True
        if self._thinking:
            rest = rest.rstrip(BLANKS)
        self._say(rest, found, reasoning=self._thinking)
        return found

    def _decide(self, text: str, tags: Tags) -> str:
        """Decides whether the completion begins with a thought; the text to go on with."""
        start = text.lstrip(BLANKS)
        if start.startswith(tags.open):
            self._decided = self._thinking = self._trim = True
            return start[len(tags.open) :]
        if tags.open.startswith(start):
            self._held = text
            return ""
        self._decided = True
        return text

    def _thought(self, text: str, tags: Tags, found: list[Words]) -> str:
        """Takes text of the thought; returns the text after it."""
        at = text.find(tags.close)
        if at >= 0:
            self._say(text[:at].rstrip(BLANKS), found, reasoning=True)
            self._thinking, self._trim = False, True
            return text[at + len(tags.close) :]
        certain = possible_start(text, tags.close)
        self._say(text[:certain], found, reasoning=True)
        self._held = text[certain:]
        return ""

    def _say(self, text: str, found: list[Words], *, reasoning: bool) -> None:
        if self._trim:
            text = text.lstrip(BLANKS)
        if text:
            self._trim = False
            found.append(Words(text=text, reasoning=reasoning))
