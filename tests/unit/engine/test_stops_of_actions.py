"""The stop that a stream finds is the end of the action that the parser finds."""

from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from engine.core.sampler.openai.text_action import TextAction
from engine.core.sampler.policy_sampler import GenerateRequest
from engine.core.sampler.stops import StopDetector, StopTable
from engine.core.sampler.token_action import TokenAction
from engine.core.sampler.wire.events import Chunk
from engine.types import Generated, StopHit
from tests.support.codecs import END, ToyCodec
from toolwright.reading.action_ends import Tags, counted, spoken
from toolwright.reading.actions import calls_in
from toolwright.types import FinishKind, FinishReason, SamplingParams, WeightVersion

pytestmark = pytest.mark.quick

CALL = Tags("<tool_call>", "</tool_call>")
THOUGHT = Tags("<think>", "</think>")
V = WeightVersion(lineage="a", step=1)
PIECES = [
    "<tool_call>", "</tool_call>", "</python>", "<think>", "</think>", '{"a": "', '{"a": ', '"}',
    '"', '<tool_call>{"a": "', '<tool_call>{"a": "x</tool_call>',
    "}", ",", "\\", "\\u00", "\n", "\n</tool_call>", "x", "é", "🙂", "[1, ", "]", "true", END, "-",
    '<tool_call>{"a": "</tool_call>"}', "<tool_", "call>", "</tool", '", "b": "',
]  # fmt: skip


class Thinking(ToyCodec):
    thought = THOUGHT


CODECS = {
    "bytes": Thinking(),
    "special": Thinking(*CALL, *THOUGHT, "</python>"),
    "merged": Thinking("</", "tool", '"}', "}</", 'l>{"', '">', "call>\n", "é", '": "', "n>x"),
}


def cut(tokens: Sequence[int], chance: random.Random) -> list[Sequence[int]]:
    places = sorted(chance.randint(0, len(tokens)) for _ in range(chance.randint(0, 4)))
    return [tokens[a:b] for a, b in itertools.pairwise([0, *places, len(tokens)])]


def streamed(
    chunks: Sequence[Sequence[int]], table: StopTable, codec: ToyCodec
) -> tuple[list[StopHit], StopHit | None]:
    told: list[StopHit] = []
    detector = StopDetector(table, codec.decode, told.append)
    for chunk in chunks:
        if (hit := detector.feed(chunk)) is not None:
            return told, hit
    return told, None


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("thinking", [False, True])
def test_the_stop_in_the_stream_is_the_end_that_the_parser_finds(
    name: str, parallel: bool, thinking: bool
) -> None:
    """Whatever is written, however tokens spell it, and however the stream is cut."""
    codec, chance = CODECS[name], random.Random(11)
    marks = [CALL.close] if parallel else []
    stops = ["</python>", *([] if parallel else [CALL.close]), END]
    table = StopTable(stops, codec, marks, [CALL])
    table = table.inside_thought() if thinking else table
    waited = shielded = 0
    for _ in range(800):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 14))) + END
        tokens = codec.encode(text)
        told, hit = streamed(cut(tokens, chance), table, codec)
        assert streamed([[token] for token in tokens], table, codec) == (told, hit), text
        ends = counted(text, table.grammar, thinking=thinking).ends
        stop = next(place for place in ends if place.tag in stops)
        assert hit is not None, text
        assert (hit.matched_text, _end(codec, tokens, hit)) == (stop.tag, stop.end), text
        wanted = [place.end for place in ends if place.tag in marks and place.end < stop.end]
        assert [_end(codec, tokens, one) for one in told] == wanted, text
        shielded += stop.end > min(text.find(one) + len(one) for one in stops if one in text)
        waited += stop.tag != END and _waits(text[: stop.end], table, thinking)
    assert shielded + waited > 5


def _waits(text: str, table: StopTable, thinking: bool) -> bool:
    """Whether the stop at the end of the text counts only because of what follows."""
    more = counted(f'{text}"}}', table.grammar, thinking=thinking).ends
    return not any(place.end == len(text) for place in more)


def _end(codec: ToyCodec, tokens: Sequence[int], hit: StopHit) -> int:
    """Where the hit's text ends in the text."""
    text, tag = codec.decode(tokens[: hit.keep]), hit.matched_text or ""
    last = len(codec.decode(tokens[hit.keep - 1 : hit.keep]))
    return text.find(tag, max(0, len(text) - last - len(tag) + 1)) + len(tag)


def test_a_text_stream_ends_where_a_token_stream_ends() -> None:
    codec, chance = CODECS["bytes"], random.Random(5)
    for parallel in (False, True):
        marks = [CALL.close] if parallel else []
        table = StopTable(
            ["</python>", *([] if parallel else [CALL.close]), END], codec, marks, [CALL]
        )
        for _ in range(3000):
            text = "".join(chance.choices(PIECES, k=chance.randint(1, 14))) + END
            told: list[str] = []
            request = GenerateRequest(
                key="t", token_ids=array("i"), sampling=SamplingParams(), stops=table,
                max_new_tokens=5000,
                on_mark=lambda ids, *_, told=told: told.append(codec.decode(ids)),
            )  # fmt: skip
            action = TextAction(request, codec, version=V, call_tags=CALL)
            for piece in cut(text, chance):  # type: ignore[arg-type]
                if not action.feed(str(piece), 1):
                    break
            ends = counted(text, table.grammar).ends
            stop = next(place for place in ends if place.tag not in marks)
            assert action.generated is not None, text
            assert action.generated.stop == stop.tag, text
            assert action.text == text[: stop.end]
            wanted = [place.end for place in ends if place.tag in marks and place.end < stop.end]
            assert told == [text[:end] for end in wanted], text


NOTE = '<tool_call>{"name": "note", "arguments": {"text": "see </tool_call> there"}}</tool_call>'
BROKEN = '<tool_call>{"name": "note", "arguments": {"text": "no mark}}</tool_call>'


class Heard:
    """An action, and what it told."""

    def __init__(self, codec: ToyCodec, received: Generated | None = None) -> None:
        self.codec = codec
        self.progress: list[int] = []
        self.acted: list[Generated] = []
        request = GenerateRequest(
            key="t",
            token_ids=array("i"),
            sampling=SamplingParams(),
            stops=StopTable([CALL.close, END], codec, json_calls=[CALL]),
            max_new_tokens=100,
            on_action=self.acted.append,
            on_progress=lambda part: self.progress.extend(part.token_ids),
            received=received,
        )
        self.action = TokenAction(request, codec=codec, known={str(V): V})
        self.action.begin(1)

    def take(self, text: str, finish: FinishReason | None = None, read_ns: int = 1) -> bool:
        tokens = self.codec.encode(text)
        chunk = Chunk(
            token_ids=array("i", tokens), logprobs=array("f", [-0.5] * len(tokens)),
            weight_version=str(V), finish=finish,
        )  # fmt: skip
        return self.action.on_chunk(chunk, read_ns)


def test_tokens_behind_a_stop_that_waited_are_dropped() -> None:
    heard = Heard(CODECS["special"])
    assert heard.take(BROKEN, read_ns=10**10)
    assert heard.take("and", read_ns=2 * 10**10)
    assert heard.codec.decode(heard.progress) == BROKEN
    assert not heard.take("\nmore words")
    (acted,) = heard.acted
    assert heard.codec.decode(acted.token_ids) == BROKEN
    assert (acted.stop, acted.cut) == (CALL.close, True)
    assert len(acted.logprobs) == len(acted.token_ids) == sum(n for _, n in acted.versions)


def test_a_server_that_stops_inside_a_string_is_asked_to_go_on() -> None:
    heard = Heard(CODECS["special"])
    before, _, rest = NOTE.partition("</tool_call>")
    token = heard.codec.token_id(CALL.close)
    finish = FinishReason(kind=FinishKind.STOP, matched_token=token)
    assert heard.take(before + CALL.close, finish)
    assert heard.action.goes_on(finish)
    heard.action.begin(2)
    assert not heard.take(rest)
    (acted,) = heard.acted
    assert heard.codec.decode(acted.token_ids) == NOTE
    assert not heard.action.goes_on(finish)


def test_a_later_life_goes_on_inside_the_string() -> None:
    codec = CODECS["special"]
    before, _, rest = NOTE.partition(" there")
    heard = Heard(codec)
    heard.take(before)
    received: Any = heard.action.whole(FinishReason(kind=FinishKind.CONTINUED))
    later = Heard(codec, received)
    assert not later.take(" there" + rest)
    assert codec.decode(later.acted[0].token_ids) == NOTE


def test_a_megabyte_of_opening_tags_in_a_stream_is_linear() -> None:
    codec = CODECS["special"]
    table = StopTable([CALL.close, END], codec, json_calls=[CALL])
    decoded = 0

    def decode(tokens: Sequence[int]) -> str:
        nonlocal decoded
        decoded += len(tokens)
        return codec.decode(tokens)

    for text in ("<tool_call>", '<tool_call>{"', '<tool_call>{"a": "</tool_call>', "<tool_call>{"):
        decoded = 0
        tokens = codec.encode(text * 2000)
        detector = StopDetector(table, decode)
        for token in tokens:
            if detector.feed([token]) is not None:
                break
        assert decoded < 60 * len(tokens)


def test_what_is_spoken_holds_the_calls_that_count() -> None:
    chance = random.Random(2)
    table = StopTable([CALL.close, END], CODECS["bytes"], json_calls=[CALL])
    for _ in range(1000):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 10)))
        said = spoken(text, table.grammar)
        ends = [one for one in counted(text, table.grammar).ends if one.tag == CALL.close]
        assert len(calls_in(said.replace(END, ""), CALL)) <= len(ends) + said.count(END), text
