"""A completion's ids become text, reasoning and calls, in whatever pieces they come."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingress.readers.registry import make_reader
from ingress.text.completion import Completion, message_of
from ingress.types import Message, Piece, ReadCall
from toolwright.chat.tokenizer import ChatTokenizer
from toolwright.reading.action_ends import Tags

pytestmark = pytest.mark.quick

THINK = Tags("<think>", "</think>")
END = "<|im_end|>"
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.fixture(scope="module")
def tokenizer(policy_folder: Path) -> ChatTokenizer:
    return ChatTokenizer(policy_folder)


def read(
    tokenizer: ChatTokenizer,
    text: str,
    stop: str = "",
    *,
    sizes: Sequence[int] = (),
    thinking: bool = False,
) -> Message:
    completion = Completion(
        tokenizer,
        make_reader("hermes", (TOOL,)),
        stops=("STOP",),
        turn_ends=(END, "<|endoftext|>"),
        thought=THINK,
        thinking=thinking,
    )
    ids, at = tokenizer.encode(text), 0
    out: list[Piece] = []
    for size in [*sizes, len(ids)]:
        out += completion.feed(ids[at : at + size])
        at += size
    out += completion.end(stop)
    assert out == completion.pieces
    count = sum(isinstance(one, ReadCall) for one in out)
    return message_of(out, [f"id{number}" for number in range(count)])


@pytest.mark.parametrize(
    ("text", "stop", "said", "reasoning"),
    [
        ("Hello", "", "Hello", ""),
        (f"Hello{END}", END, "Hello", ""),
        ("Hello<|endoftext|>", END, "Hello", ""),
        ("Hello STOP", "STOP", "Hello ", ""),
        ("Hello STOPx", "STOP", "Hello ", ""),
        ("Hello ST", "", "Hello ST", ""),
        (f"<think>\nhm\n</think>\n\nYes{END}", END, "Yes", "hm"),
        ("<think>\nhm", "", "", "hm"),
        ("<thin", "", "<thin", ""),
        ("a <think>b</think>", "", "a <think>b</think>", ""),
        ("é\N{GRINNING FACE} ü", "", "é\N{GRINNING FACE} ü", ""),
        ("\N{GRINNING FACE}" * 20, "", "\N{GRINNING FACE}" * 20, ""),
    ],
)
def test_text_and_reasoning(
    tokenizer: ChatTokenizer, text: str, stop: str, said: str, reasoning: str
) -> None:
    for sizes in ((), (1,) * 90, (3,) * 30, (5,) * 20):
        message = read(tokenizer, text, stop, sizes=sizes)
        assert (message.text, message.reasoning) == (said, reasoning)


def test_a_prompt_that_opened_a_thought(tokenizer: ChatTokenizer) -> None:
    message = read(tokenizer, f"\nhm\n</think>\n\nYes\n{CALL}{END}", END, thinking=True)
    assert (message.reasoning, message.text) == ("hm", "Yes")
    assert [(call.id, call.name, call.arguments) for call in message.calls] == [("id0", "f", "{}")]


PARTS = st.sampled_from(
    ["<think>", "</think>", CALL, "<tool_call>", "ST", "STO", "é", "\N{GRINNING FACE}", "\n", " x"]
)


@given(parts=st.lists(PARTS, max_size=6), sizes=st.lists(st.integers(1, 5), max_size=20))
def test_the_pieces_change_nothing(
    tokenizer: ChatTokenizer, parts: list[str], sizes: list[int]
) -> None:
    text = "".join(parts)
    assert read(tokenizer, text, sizes=sizes) == read(tokenizer, text)
