"""Tails and readers against `renderers` (PyPI), where it has the family and bridges the turn.

The readers also read what `renderers` writes: random calls, for each family with a form that a
reader knows. Both must find the calls that were written.
"""

from __future__ import annotations

import importlib
import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingress.readers.registry import ReaderName, make_reader
from ingress.text.completion import Completion, message_of
from ingress.text.rendering import template_messages
from ingress.text.tails import Tails
from ingress.types import ReadCall
from tests.support.agents import END, TEN, TOOLS, call_text
from tests.support.families import write_family
from tests.support.policy import VISION
from tests.unit.engine.text.test_families import renderer_of
from tests.unit.ingress.test_tails import NEW, OPENING, TOOL
from toolwright.chat.tokenizer import ChatTokenizer

pytestmark = pytest.mark.slow

BRIDGED = {
    "qwen3": ("tool", "two tools"),  # a user's message strips thinking there
    "llama_3": tuple(NEW),
    "deepseek_v3": tuple(NEW),
}
DIFFER = (2, 6)
"""Completions of TEN that it reads otherwise: a closing tag inside a string ends its call, and a
call without "arguments" is whole for it."""
MORE = [
    f"<think>\na\n</think>\n\nHi.\n{call_text('a')}\n{call_text('b')}{END}",
    f"<think>\n\n</think>\n\nHi.{END}",
    "<tool_call>\n{]\n</tool_call>" + END,
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("families")
    for family in BRIDGED:
        write_family(folder / family, family)
    return folder


@pytest.mark.parametrize("ended", [True, False], ids=["turn ended", "cut off"])
@pytest.mark.parametrize(
    ("family", "kind"), [(family, kind) for family, kinds in BRIDGED.items() for kind in kinds]
)
def test_a_tail_has_the_ids_of_its_bridge(root: Path, family: str, kind: str, ended: bool) -> None:
    tokenizer = ChatTokenizer(root / family)
    tails, new = Tails(tokenizer), NEW[kind]
    prompt = tails.fresh(OPENING, (TOOL,)).token_ids
    said = tokenizer.encode("Hello." + (tokenizer.end_of_turn if ended else ""))
    tail = tails.tail(new, (TOOL,), turn_ended=ended)
    judge = renderer_of(family, root / family, thinking=True)
    bridge = judge.bridge_to_next_turn(prompt, said, template_messages(new), tools=[TOOL])
    assert tail is not None
    assert [*prompt, *said, *tail.token_ids] == list(bridge.token_ids)


def count_calls(completion: Completion) -> int:
    return sum(isinstance(one, ReadCall) for one in completion.pieces)


@pytest.mark.parametrize(
    "text", [text for number, text in enumerate(TEN) if number not in DIFFER] + MORE
)
def test_a_completion_is_read_alike(root: Path, text: str) -> None:
    tokenizer = ChatTokenizer(root / "qwen3")
    token_ids = tokenizer.encode(text)
    completion = Completion(
        tokenizer,
        make_reader("hermes", TOOLS),
        stops=(),
        turn_ends=tokenizer.turn_ends,
        thought=tokenizer.thought,
    )
    completion.feed(token_ids)
    completion.end(END)
    ours = message_of(completion.pieces, [""] * count_calls(completion))
    theirs = renderer_of("qwen3", root / "qwen3", thinking=True).parse_response(
        token_ids, tools=TOOLS
    )
    whole = [call for call in theirs.tool_calls if call.status.value == "ok"]
    assert [(call.name, json.loads(call.arguments)) for call in ours.calls] == [
        (call.name, call.arguments) for call in whole
    ]
    assert ours.reasoning == (theirs.reasoning_content or "")
    if len(whole) == len(theirs.tool_calls):  # we give an ill-formed call back as text
        assert ours.text == theirs.content


WRITERS = {
    "qwen3.Qwen3Renderer": ("qwen3", "hermes"),
    "qwen3_vl.Qwen3VLRenderer": ("qwen3", "hermes"),
    "prime_qwen3.PrimeQwen3Renderer": ("qwen3", "qwen3_xml"),
    "qwen35.Qwen35Renderer": ("qwen3", "qwen3_xml"),
    "qwen36.Qwen36Renderer": ("qwen3", "qwen3_xml"),
    "qwen38.Qwen38Renderer": ("qwen3", "qwen3_xml"),
    "nemotron3.Nemotron3Renderer": ("qwen3", "qwen3_xml"),
    "llama_3.Llama3Renderer": ("llama_3", "llama_json"),
}
"""Renderers by module and class: (family of the tokenizer, our reader)."""
HEADERS = {
    "qwen3": "<|im_start|>assistant\n",
    "llama_3": "<|start_header_id|>assistant<|end_header_id|>\n\n",
}
MAYBE = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
"""An optional number, as pydantic writes its schema."""
TYPES = ("string", "integer", "number", "boolean", "array", "object")
MADE = {
    "type": "function",
    "function": {
        "name": "make",
        "description": "makes",
        "parameters": {
            "type": "object",
            "properties": {**{kind: {"type": kind} for kind in TYPES}, "maybe": MAYBE},
        },
    },
}
INNER = st.text(string.ascii_letters + "\n\"'\\{}[]:,\u00e4\N{GRINNING FACE} ", max_size=9)
TEXT = INNER.map(lambda text: f"a{text}z")
"""Not blank at an end: `renderers` drops blanks there. No tags: a closing tag ends a value."""
WHOLE = st.integers(-(2**53), 2**53)
CALLED = st.fixed_dictionaries(
    {},
    optional={
        "string": TEXT,
        "integer": WHOLE,
        "number": st.floats(allow_nan=False, allow_infinity=False),
        "boolean": st.booleans(),
        "array": st.lists(WHOLE | TEXT | st.none(), max_size=3),
        "object": st.dictionaries(TEXT, st.lists(TEXT, max_size=2), max_size=2),
        "maybe": WHOLE | st.none(),
    },
)
Judged = tuple[str, list[Any]]
Writer = Callable[[str, list[dict[str, Any]]], Judged]
"""Gives the text of a reply, and the calls that `renderers` reads in it without a doubt."""


@pytest.fixture(scope="module", params=WRITERS)
def writer(request: pytest.FixtureRequest, root: Path) -> tuple[ReaderName, ChatTokenizer, Writer]:
    from transformers import AutoTokenizer

    family, reader = WRITERS[request.param]
    module, _, name = request.param.partition(".")
    tokenizer = AutoTokenizer.from_pretrained(root / family)
    if family == "qwen3":
        tokenizer.add_special_tokens({"additional_special_tokens": list(VISION)})
    renderer = getattr(importlib.import_module(f"renderers.{module}"), name)(tokenizer)
    user = {"role": "user", "content": "q"}

    def write(content: str, arguments: list[dict[str, Any]]) -> Judged:
        calls = [
            {"type": "function", "function": {"name": "make", "arguments": one}}
            for one in arguments
        ]
        reply = {"role": "assistant", "content": content, "tool_calls": calls}
        ids = renderer.render_ids([user, reply], tools=[MADE], add_generation_prompt=False)
        begun = renderer.render_ids([user], tools=[MADE], add_generation_prompt=False)
        _, header, text = tokenizer.decode(list(ids)[len(begun) :]).partition(HEADERS[family])
        assert header
        read = renderer.parse_response(
            tokenizer.encode(text, add_special_tokens=False), tools=[MADE]
        )
        sure = [one for one in read.tool_calls if one.status.value == "ok"]
        return text, [one.arguments for one in sure]

    return reader, ChatTokenizer(root / family), write


@given(content=TEXT, arguments=st.lists(CALLED, min_size=1, max_size=3))
@settings(max_examples=15)
def test_the_calls_that_it_writes_are_read(
    writer: tuple[ReaderName, ChatTokenizer, Writer], content: str, arguments: list[dict[str, Any]]
) -> None:
    reader, tokenizer, write = writer
    if reader == "llama_json":
        content, arguments = "", arguments[:1]
    text, theirs = write(content, arguments)
    completion = Completion(
        tokenizer,
        make_reader(reader, [MADE]),
        stops=(),
        turn_ends=tokenizer.turn_ends,
        thought=tokenizer.thought,
    )
    (end,) = (one for one in tokenizer.turn_ends if one in text)
    completion.feed(tokenizer.encode(text.partition(end)[0] + end))
    completion.end(end)
    ours = message_of(completion.pieces, [""] * count_calls(completion))
    assert [json.loads(call.arguments) for call in ours.calls] == arguments
    assert ours.text == content
    if reader == "qwen3_xml":
        assert all(call in arguments for call in theirs)  # it doubts Python's values
    else:
        assert theirs == arguments
