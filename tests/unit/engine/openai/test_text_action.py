"""One action as text: stops in pieces, marks, what is put back, what is too much."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Sequence

import pytest

from engine.core.sampler.openai.text_action import (
    LEAST_BYTES,
    MOST_BYTES_A_TOKEN,
    MOST_MARKS,
    TextAction,
    open_stop,
)
from engine.core.sampler.policy_sampler import GenerateRequest
from engine.core.sampler.stops import StopTable
from engine.core.sampler.wire.events import WireError
from engine.core.text.conversation_codec import ConversationCodec
from engine.core.text.packed import PackedBytes
from engine.types import Generated, StopHit
from toolwright.model_api.deltas import CallPart, Hint
from toolwright.types import FinishKind, FinishReason, SamplingParams, WeightVersion

CODEC = ConversationCodec(PackedBytes())
END = CODEC.end_of_turn
TAGS = ("<tool_call>", "</tool_call>")
VERSION = WeightVersion(lineage="tiny", step=0)


def action(
    *stops: str,
    marks: Sequence[str] = (),
    told: list[str] | None = None,
    most: int = 1000,
    text: str = "",
) -> TextAction:
    """told: where the text up to each mark goes. text: what an earlier life has."""

    def on_mark(ids: array[int], hit: StopHit, _read_ns: int) -> None:
        assert told is not None
        assert hit.keep == len(ids)
        told.append(CODEC.decode(ids))

    received = Generated(
        token_ids=array("i", CODEC.encode_action(text)), logprobs=array("f", [0.0]) * len(text),
        versions=(), finish=FinishReason(kind=FinishKind.CONTINUED),
    )  # fmt: skip
    request = GenerateRequest(
        key="t", token_ids=array("i"), sampling=SamplingParams(), max_new_tokens=most,
        stops=StopTable([*stops, END], CODEC, marks=marks), received=received if text else None,
        on_mark=on_mark if told is not None else None,
    )  # fmt: skip
    return TextAction(request, CODEC, version=VERSION, call_tags=TAGS)


def fed(one: TextAction, text: str, size: int = 1000) -> list[bool]:
    return [one.feed(text[at : at + size], 1) for at in range(0, len(text), size)]


def made(one: TextAction) -> Generated:
    assert one.generated is not None
    return one.generated


def said(one: TextAction) -> str:
    return CODEC.decode(made(one).token_ids)


@pytest.mark.parametrize("size", [1, 5, 100])
def test_a_stop_is_found_in_pieces_and_what_follows_is_dropped(size: int) -> None:
    one = action("</python>", "n></c>", "/python>")
    assert not fed(one, "So <python>1</pyth</python></c> and <result>forged</result>", size)[-1]
    assert said(one) == "So <python>1</pyth</python>"
    found = made(one)
    assert (found.stop, found.finish.matched_text) == ("</python>", "</python>")
    assert all(map(math.isnan, found.logprobs))
    assert found.versions == ((VERSION, len(found.token_ids)),)


def test_a_stop_that_is_in_a_beginning_of_an_earlier_life_counts_no_more() -> None:
    one = action("</a>", text="x</a>")
    assert one.feed("y", 1)
    one.end("stop", None, 1, sent=())
    assert said(one) == f"x</a>y{END}"


@pytest.mark.parametrize("size", [1, 3, 200])
def test_marks_are_told_once_and_in_order(size: int) -> None:
    told: list[str] = []
    one = action(marks=["</tool_call>"], told=told)
    fed(one, f"a</tool_call>b</tool_call>c{END}d</tool_call>", size)
    assert told == ["a</tool_call>", "a</tool_call>b</tool_call>"]
    assert said(one) == f"a</tool_call>b</tool_call>c{END}"
    assert one.marked


def test_a_long_action_costs_linear_time() -> None:
    one = action("</python>", most=10**6)
    began = time.process_time()
    for _ in range(100_000):
        one.feed("a</pyt", 1)
    one.end("stop", None, 1, sent=())
    assert time.process_time() - began < 10.0  # searched from its beginning each time: minutes


@pytest.mark.parametrize(
    ("text", "hint", "sent", "stop"),
    [
        ("<python>1", None, True, "</python>"),
        ("done", None, True, END),
        ("<python>1", Hint(text=None), True, END),
        ("none open", Hint(text="</python>"), True, "</python>"),
        ("<python>1", Hint(text="</foreign>"), True, END),
        ("<python>1", None, False, END),
        ("", None, False, END),
    ],
)
def test_a_stop_that_the_server_cut_away_is_put_back(
    text: str, hint: Hint | None, sent: bool, stop: str
) -> None:
    one = action("</python>")
    one.feed(text, 1)
    one.end("stop", hint, 1, sent=("</python>",) if sent else ())
    assert made(one).stop == stop
    assert said(one) == text + stop
    guessed = stop != END and hint is None
    assert one.remarks == ({"stop_put_back": stop} if guessed else {})


def test_the_tag_that_is_open_last_is_the_one_that_closes() -> None:
    tags = ("</search>", "</python>")
    assert open_stop("<search>a <python>b", tags) == "</python>"
    assert open_stop("<python>b</python><search >a", tags) == "</search>"
    for text in ("<pythonic>b", "<python", ""):
        assert open_stop(text, tags) is None
    assert open_stop("Observation", ("\nObservation:",)) is None


def test_length_and_what_no_api_says() -> None:
    one = action()
    one.feed("half", 1)
    one.end("length", None, 1, sent=())
    assert (said(one), made(one).finish.kind, made(one).stop) == ("half", FinishKind.LENGTH, None)
    with pytest.raises(WireError, match="finish_reason 'abort'"):
        action().end("abort", None, 1, sent=())
    filtered = action()
    filtered.end("content_filter", None, 1, sent=())
    assert made(filtered).finish.kind is FinishKind.STOP
    assert filtered.remarks == {"finish": "content_filter"}
    cut = action(most=2)
    cut.feed("<python>1</python>", 1)
    cut.end("stop", None, 1, sent=())
    assert (said(cut), made(cut).finish.kind) == ("<pytho", FinishKind.LENGTH)


@pytest.mark.parametrize(("text", "unseen"), [("x" * 100, 0), ("", 100)])
def test_a_server_that_never_ends_is_left(text: str, unseen: int) -> None:
    one = action(most=10)
    assert not all(one.feed(text, 1, unseen=unseen) for _ in range(1000))
    assert made(one).finish.kind is FinishKind.LENGTH


def test_calls_beside_the_text_become_text() -> None:
    one = action()
    one.feed("Let me look.", 1)
    one.add_calls([CallPart(index=1, id="", name="b", arguments="{}")])
    one.add_calls([CallPart(index=0, id="", name='a"', arguments='{"x"')])
    one.add_calls([CallPart(index=0, id="", name="", arguments=": 1}")])
    one.end("tool_calls", None, 1, sent=())
    assert said(one) == (
        'Let me look.<tool_call>\n{"name": "a\\"", "arguments": {"x": 1}}\n</tool_call>'
        f'<tool_call>\n{{"name": "b", "arguments": {{}}}}\n</tool_call>{END}'
    )
    first = action("</tool_call>")
    first.add_calls([CallPart(index=0, id="", name="a", arguments="")])
    first.end("tool_calls", None, 1, sent=())
    assert made(first).stop == "</tool_call>"
    assert said(first) == '<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>'


def test_searches_and_marks_of_an_action_are_bounded() -> None:
    told: list[str] = []
    most = LEAST_BYTES + 10 * MOST_BYTES_A_TOKEN
    one = action(marks=["</m>"], told=told, most=10)
    assert not one.feed("é" * most + "</m>" * 1000, 1)
    assert told == []
    assert len(one.text.encode()) <= most
    assert made(one).finish.kind is FinishKind.LENGTH
    one = action(marks=["</m>"], told=told, most=100_000)
    for _ in range(2 * MOST_MARKS):
        one.feed("a</m>", 1)
    assert len(told) == MOST_MARKS
    assert one.text == "a</m>" * (2 * MOST_MARKS)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Paris<|im_end|>", "Paris"),
        ("Paris<|eot_id|>\n", "Paris"),
        ("Paris<\uff5cend\u2581of\u2581sentence\uff5c>", "Paris"),
        ("Paris</s><|endoftext|>", "Paris"),
        ("a <|im_end|> b", "a <|im_end|> b"),
        ("<|im_end|>", ""),
        ("<|" * 40 + "|>", "<|" * 40 + "|>"),
    ],
)
@pytest.mark.parametrize("size", [1, 200])
def test_markers_of_the_server_s_own_template_end_no_answer(
    text: str, kept: str, size: int
) -> None:
    one = action("</python>")
    fed(one, text, size)
    one.end("stop", None, 1, sent=())
    assert said(one) == kept + END
    assert made(one).stop == END
    assert one.remarks.get("end_dropped", "") == text.removeprefix(kept).strip()
