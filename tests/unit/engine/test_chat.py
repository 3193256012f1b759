"""Chat messages with function calls, through a template with Qwen's habits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.protocols.chat import Chat
from engine.core.text.codec import HuggingFaceCodec
from engine.types import Answer, Call, End, ToolSpec
from tests.support.codecs import END, ToyCodec
from tests.support.messages import assistant, call, tool, user
from tests.support.views import EMPTY, view_of
from toolwright.types import Task

TOY = ToyCodec()
ADD = ToolSpec(
    name="add", description="adds", json_call=True, open_tag="<tool_call>",
    close_tag="</tool_call>", stop_strings=("</tool_call>",),
    arguments_schema={"type": "object", "properties": {"a": {"type": "number"}}},
)  # fmt: skip
PYTHON = ToolSpec(name="python", stop_strings=("</python>",), close_tag="</python>")
TASK = Task(id="t", messages=(user("1+1?"),))
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def decide(text: str, stop: str = END, **options: Any) -> Any:
    return Chat(**options).decide(text, stop, view_of((ADD,)), TOY)


def the_call(text: str, stop: str) -> Call:
    (call,) = decide(text, stop).calls
    return call


def test_stops() -> None:
    assert Chat().stops((ADD, PYTHON), TOY) == ("</python>", "</tool_call>", END)


def test_the_prompt_shows_the_tools(qwen: HuggingFaceCodec) -> None:
    text = qwen.decode(Chat().prompt(TASK, (ADD,), qwen))
    system, _, rest = text.partition("<|im_end|>")
    shown = json.loads(system.splitlines()[2])
    assert shown["function"]["name"] == "add"
    assert shown["function"]["parameters"]["properties"] == {"a": {"type": "number"}}
    assert rest.endswith("<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n")
    assert "# Tools" not in qwen.decode(Chat().prompt(TASK, (), qwen))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "not JSON"),
        ("[]", 'needs {"name", "arguments"}'),
        ('{"name": 3}', 'needs {"name", "arguments"}'),
        ('{"name": "add", "arguments": []}', '"arguments" is not a JSON object'),
        ('{"name": "add", "arguments": {"a": NaN}}', "NaN is no JSON"),
        ('{"name": "add", "arguments": {"a": -Infinity}}', "is no JSON"),
        ('{"a":' * 100_000, "not JSON"),
    ],
)
def test_a_call_that_cannot_be_read_is_the_policy_s_to_see(body: str, reason: str) -> None:
    call = the_call(f"<tool_call>{body}</tool_call>", "</tool_call>")
    assert reason in call.invalid_reason


@given(st.text(max_size=40), st.sampled_from(["</tool_call>", END, None, "</python>"]))
def test_deciding_never_raises(text: str, stop: str | None) -> None:
    decide(text + (stop or ""), stop)
    decide(text + (stop or ""), stop, answer_open="<a>", answer_close="</a>")


MARKED = {"answer_open": "\\boxed{", "answer_close": "}"}


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (f" it is 2 {END}", {}, Answer(text="it is 2")),
        (f" {END}", {}, EMPTY),
        (f"\\boxed{{3}} no \\boxed{{4}}. {END}", MARKED, Answer(text="4")),
        (f"\\boxed{{4{END}", MARKED, End()),
        (f"it is 4{END}", MARKED, End()),
        (END, MARKED, EMPTY),
    ],
)
def test_an_end_without_a_call_is_the_answer(
    text: str, options: dict[str, str], expected: object
) -> None:
    assert decide(text, **options) == expected


def test_the_frame_is_what_the_template_writes_around_an_observation(
    qwen: HuggingFaceCodec,
) -> None:
    """After the call's stop the frame ends the assistant's turn; after the end it does not."""
    head, _ = Chat().frame(qwen.end_of_turn, qwen)
    assert qwen.decode(head) == "\n<|im_start|>user\n<tool_response>\n"
    head, tail = Chat(role="user").frame("</tool_call>", qwen)
    assert qwen.decode(head) == "<|im_end|>\n<|im_start|>user\n"
    assert qwen.decode(tail) == "<|im_end|>\n<|im_start|>assistant\n"


def test_a_demonstration_is_token_for_token_what_a_rollout_writes(qwen: HuggingFaceCodec) -> None:
    protocol = Chat()
    head, tail = protocol.frame("</tool_call>", qwen)
    rollout = [
        ("prompt", protocol.prompt(TASK, (), qwen)),
        ("model", qwen.encode(CALL)),
        ("tool", [*head, *protocol.observation(["2"], qwen), *tail]),
        ("model", qwen.encode("2<|im_end|>")),
    ]
    said = assistant("2")
    written = [*TASK.messages, assistant(CALL), tool("2"), said]
    structured = [*TASK.messages, assistant(None, call("add", {"a": 1})), tool("2"), said]
    assert protocol.demonstration(written, qwen) == rollout
    assert protocol.demonstration(structured, qwen) == rollout


def test_a_demonstration_whose_observation_follows_an_end_of_turn(qwen: HuggingFaceCodec) -> None:
    protocol = Chat(role="user")
    messages = [*TASK.messages, assistant("I look"), user("seen"), assistant("ok")]
    runs = protocol.demonstration(messages, qwen)
    assert [author for author, _ in runs] == ["prompt", "model", "tool", "model"]
    text = "".join(qwen.decode(ids) for _, ids in runs)
    assert text.count("<|im_end|>") == 4
    assert "I look<|im_end|>\n<|im_start|>user\nseen<|im_end|>\n<|im_start|>assistant\nok" in text


TWO = CALL + "\n" + CALL.replace('"a": 1', '"a": 2')


def test_with_parallel_calls_an_action_goes_on_after_a_call() -> None:
    chat = Chat(parallel=True)
    assert chat.stops((ADD,), TOY) == (END,)
    assert chat.marks((ADD,), TOY) == ("</tool_call>",)
    assert Chat().marks((ADD,), TOY) == ()


def test_calls_at_a_mark_are_the_first_of_those_at_the_stop() -> None:
    chat, view = Chat(parallel=True), view_of((ADD,))
    first = chat.decide(CALL, "</tool_call>", view, TOY)
    both = chat.decide(TWO + END, END, view, TOY)
    assert [call.arguments for call in both.calls] == [{"a": 1}, {"a": 2}]
    assert [call.action for call in both.calls][:1] == [call.action for call in first.calls]
    assert chat.decide("42" + END, END, view, TOY) == Answer(text="42")
