"""Tails and readers against `renderers` (PyPI), where it has the family and bridges the turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingress.readers.registry import make_reader
from ingress.text.completion import Completion, message_of
from ingress.text.rendering import template_messages
from ingress.text.tails import Tails
from ingress.types import ReadCall
from tests.support.agents import END, TEN, TOOLS, call_text
from tests.support.families import write_family
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
    count = sum(isinstance(one, ReadCall) for one in completion.pieces)
    ours = message_of(completion.pieces, [""] * count)
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
