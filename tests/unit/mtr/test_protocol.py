"""How AutoAgent is understood: thoughts, one call or an answer, and what refused calls come to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.trajectory.state import State
from engine.offline.collect.messages import conversation_of, tools_of
from engine.types import Answer, Calls, End, ToolSpec, View
from tests.support.codecs import END, ToyCodec
from tests.support.linear import assert_linear
from tests.support.recipes import Part
from tests.unit.mtr.conftest import FAILED, OK, REFUSED, answer, call, ran
from toolwright.types import CallOutcome, StopReason, Task

CODEC = ToyCodec("<think>", "</think>")
CALL_END, ANSWER_END = "</tool_call>", "</answer>"
SCHEMA = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
MAYOR = ToolSpec(name="find_mayor", description="mayor of a town", arguments_schema=SCHEMA)
TOOLS = (MAYOR, ToolSpec(name="river_of", description="river of a town"))


def view(outcomes: Sequence[CallOutcome] = (), **metadata: Any) -> View:
    before = ran(*[call()] * len(outcomes), outcomes=outcomes).calls
    task = Task(id="t", metadata=metadata)
    return View(task=task, turn=len(before), actions=(), calls=before, events=(), tools=TOOLS)


def asked(**metadata: Any) -> Task:
    messages = ({"role": "user", "content": "Who governs Norwick?"},)
    return Task(id="t", messages=messages, metadata=metadata)


def error_of(decided: Any) -> Any:
    assert isinstance(decided, Calls)
    told = json.loads(decided.calls[0].invalid_reason)
    assert told["status"] == "error"
    return told["error"]


def test_a_call_goes_to_its_tool(part: Part) -> None:
    protocol = part("protocol.AutoAgent")()
    text = call(town="Norwick")
    decided = protocol.decide(text, CALL_END, view(), CODEC)
    assert isinstance(decided, Calls)
    (made,) = decided.calls
    assert (made.tool, made.arguments, made.action) == ("find_mayor", {"town": "Norwick"}, text)
    assert not made.invalid_reason


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (answer("Alda"), "Alda"),
        ("<answer> Alda\r\n</answer>", "Alda"),
        ("<answer></answer>", ""),
        (f"<think>so <answer>Alda</answer>{END}", "Alda"),
        ("<answer>a<answer>b</answer>", "b"),
    ],
)
def test_an_answer_ends_it(part: Part, text: str, found: str) -> None:
    protocol = part("protocol.AutoAgent")()
    stop = END if text.endswith(END) else ANSWER_END
    assert protocol.decide(text, stop, view([OK] * 9), CODEC) == Answer(text=found)


NORWICK = '{"town": "Norwick"}'
FORMS = {
    "the tag does not close": f'<tool_call>{{"name": "find_mayor", "arguments": {NORWICK}}}',
    "a fence": f'I call it:\n```json\n{{"name": "find_mayor", "arguments": {NORWICK}}}\n```',
    "JSON alone": f'</think>{{"name": "find_mayor", "arguments": {NORWICK}}}',
    "other keys": f'{{"tool": "find_mayor", "parameters": {NORWICK}}}',
    "arguments beside the name": '{"name": "find_mayor", "town": "Norwick"}',
    "arguments as text": json.dumps({"name": "find_mayor", "arguments": NORWICK}),
    "as an API answers": json.dumps(
        {"type": "function", "function": {"name": "find_mayor", "arguments": NORWICK}}
    ),
    "ReAct": f'Action: {{"action": "find_mayor", "action_input": {NORWICK}}}',
    "Python": 'I use the tool.\n`find_mayor(town="Norwick")`',
    "the last of several": f'{{"name": "river_of"}} {{"name": "find_mayor", "args": {NORWICK}}}',
}
"""What small instruction models write in place of a call between tags."""


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_a_lenient_agent_reads_the_forms_that_small_models_write(part: Part, text: str) -> None:
    protocol = part("protocol.AutoAgent")(lenient=True)
    decided = protocol.decide(text + END, END, view(), CODEC)
    assert isinstance(decided, Calls)
    (made,) = decided.calls
    assert (made.tool, made.arguments) == ("find_mayor", {"town": "Norwick"})
    assert not made.invalid_reason
    said = json.dumps({"name": "find_mayor", "arguments": {"town": "Norwick"}})
    assert made.action == f"<tool_call>{said}</tool_call>"
    assert isinstance(part("protocol.AutoAgent")().decide(text + END, END, view(), CODEC), End)


def test_a_lenient_agent_reads_other_keys_between_the_tags_too(part: Part) -> None:
    text = (
        f'<think>so</think><tool_call>{{"name": "find_mayor", "parameters": {NORWICK}}}{CALL_END}'
    )
    decided = part("protocol.AutoAgent")(lenient=True).decide(text, CALL_END, view(), CODEC)
    assert isinstance(decided, Calls)
    assert decided.calls[0].arguments == {"town": "Norwick"}
    assert error_of(part("protocol.AutoAgent")().decide(text, CALL_END, view(), CODEC))


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "other_tool", "arguments": {}}',
        '{"name": 3}',
        "find_mayor(Norwick)",
        "find_mayor(town=open())",
        f'<think>{{"name": "find_mayor", "arguments": {NORWICK}}}</think>I give up',
        "The mayor is Alda.",
        "find_mayor(" + "(" * 900 + ")",
    ],
)
def test_what_means_no_call_is_none(part: Part, text: str) -> None:
    protocol = part("protocol.AutoAgent")(lenient=True)
    assert isinstance(protocol.decide(text + END, END, view(), CODEC), End)


def test_an_answer_beside_json_is_the_answer(part: Part) -> None:
    text = f'{{"name": "find_mayor", "arguments": {NORWICK}}}<answer>Alda</answer>'
    protocol = part("protocol.AutoAgent")(lenient=True)
    assert protocol.decide(text, ANSWER_END, view(), CODEC) == Answer(text="Alda")


@pytest.mark.parametrize("text", ["", "I give up", "Alda</answer>", "<answer>Alda", "<tool_call>{"])
def test_what_is_neither_ends_it_too(part: Part, text: str) -> None:
    decided = part("protocol.AutoAgent")().decide(text + END, END, view(), CODEC)
    assert isinstance(decided, End)
    empty = StopReason.NO_ACTION_IN_OUTPUT if text else StopReason.EMPTY_OUTPUT
    assert decided.reason is empty


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", '{"name": 7}', '{"name": "find_mayor", "arguments": 7}', "NaN", '"a"',
     '{"name": "find_mayor", "arguments": {"town": NaN}}', "[" * 5000, '{"name": "\\ud800"}',
     '{"name": "find_mayor", "arguments": {"n": ' + "9" * 5000 + "}}"],
)  # fmt: skip
def test_a_call_that_cannot_be_read_is_told_so(part: Part, body: str) -> None:
    text = f"<tool_call>{body}</tool_call>"
    error = error_of(part("protocol.AutoAgent")().decide(text, CALL_END, view(), CODEC))
    assert error["type"] == "parse_error"
    assert error["message"]
    assert len(error["message"]) < 300


def test_a_tool_that_is_none_is_told_those_that_are(part: Part) -> None:
    decided = part("protocol.AutoAgent")().decide(call("x" * 900), CALL_END, view(), CODEC)
    assert error_of(decided) == {
        "type": "unknown_tool",
        "tool": "x" * 64,
        "tools": ["find_mayor", "river_of"],
    }


@pytest.mark.parametrize(
    ("outcomes", "ends"),
    [
        ([], False),
        ([REFUSED] * 2, False),
        ([REFUSED] * 3, True),
        ([REFUSED] * 4, True),
        ([REFUSED, REFUSED, OK, REFUSED], False),
        ([OK, REFUSED, REFUSED, REFUSED], True),
        ([REFUSED, REFUSED, FAILED], False),
    ],
)
def test_three_refused_calls_in_a_row_end_it(
    part: Part, outcomes: list[CallOutcome], ends: bool
) -> None:
    protocol = part("protocol.AutoAgent")()
    ended = End(reason=StopReason.TOOL_EXCEPTION)
    for text, stop in ((call(), CALL_END), (answer("Alda"), ANSWER_END)):
        assert (protocol.decide(text, stop, view(outcomes), CODEC) == ended) is ends
    patient = part("protocol.AutoAgent")(invalid_in_a_row=9)
    assert patient.decide(call(), CALL_END, view(outcomes), CODEC) != ended
    with pytest.raises(ValueError, match="invalid_in_a_row"):
        part("protocol.AutoAgent")(invalid_in_a_row=0)


def test_the_prompt_shows_the_tools_of_the_session(part: Part) -> None:
    protocol = part("protocol.AutoAgent")(prompt="{tools}")
    first, second = protocol.opening(asked(), TOOLS)
    assert first["content"] == (
        "find_mayor(town: string): mayor of a town\nriver_of(): river of a town\n"
    )
    assert second["content"] == "Who governs Norwick?"
    assert protocol.shown(asked(), TOOLS) == []
    templated = part("protocol.AutoAgent")()
    assert [one["function"]["name"] for one in templated.shown(asked(), TOOLS)] == [
        "find_mayor",
        "river_of",
    ]
    assert "<tool_call>" in templated.opening(asked(), TOOLS)[0]["content"]


def test_with_the_tools_off_none_is_named_and_none_is_called(part: Part) -> None:
    for protocol, task in (
        (part("protocol.AutoAgent")(tools=False), asked()),
        (part("protocol.AutoAgent")(), asked(tools="off")),
        (part("protocol.AutoAgent")(prompt="{tools}"), asked(tools="off")),
    ):
        shown = CODEC.decode(protocol.prompt(task, TOOLS, CODEC))
        assert "mayor" not in shown and "tool" not in shown
        assert not protocol.shown(task, TOOLS) and not protocol.offered(task, TOOLS)
        here = view(**task.metadata)
        error = error_of(protocol.decide(call(town="Norwick"), CALL_END, here, CODEC))
        assert (error["type"], error["tools"]) == ("unknown_tool", [])
        assert protocol.decide(answer("x"), ANSWER_END, here, CODEC) == Answer(text="x")
    silent = part("protocol.AutoAgent")(tools=False, closed_prompt="")
    assert silent.opening(asked(), TOOLS) == list(asked().messages)


def test_an_exported_conversation_names_the_tools_that_the_policy_was_told_of(part: Part) -> None:
    state = State(tools=TOOLS)
    for options, task, told, in_row in (
        ({}, asked(), 2, True),
        ({"prompt": "{tools}"}, asked(), 2, False),
        ({}, asked(tools="off"), 0, False),
        ({"tools": False}, asked(), 0, False),
    ):
        protocol = part("protocol.AutoAgent")(**options)
        assert len(tools_of(state, task, protocol)) == told
        assert ("tools" in conversation_of(state, task, protocol, CODEC)) is in_row


def test_a_demonstration_is_what_a_rollout_has(part: Part) -> None:
    """Prompt, actions and frames, whether it brings its prompt or is given the tools."""
    protocol = part("protocol.AutoAgent")(prompt="<think>\n{tools}")
    said = [
        {"role": "assistant", "content": call(town="Norwick")},
        {"role": "tool", "content": '{"mayor": "<think>"}'},
        {"role": "assistant", "content": answer("Alda", "Alda")},
    ]
    prompt = protocol.prompt(asked(), TOOLS, CODEC)
    head, tail = protocol.frame(CALL_END, CODEC)
    observed = [*head, *CODEC.encode_plain('{"mayor": "<think>"}'), *tail]
    whole = [
        ("prompt", prompt),
        ("model", CODEC.encode(call(town="Norwick"))),
        ("tool", observed),
        ("model", CODEC.encode(answer("Alda", "Alda"))),
    ]
    assert protocol.demonstration([*asked().messages, *said], CODEC, TOOLS) == whole
    recorded = protocol.opening(asked(), TOOLS)
    assert protocol.demonstration([*recorded, *said], CODEC) == whole
    other = [{"role": "system", "content": "another"}, *asked().messages, *said]
    assert CODEC.decode(protocol.demonstration(other, CODEC)[0][1]).count("another") == 1
    with pytest.raises(ValueError, match="a conversation needs"):
        protocol.demonstration([], CODEC)


@pytest.mark.parametrize("tools", ["on", "off"])
def test_a_recorded_prompt_has_its_tools_where_a_rollout_has_them(part: Part, tools: str) -> None:
    """Where the prompt leaves them to the chat template, and where they were off."""
    protocol = part("protocol.AutoAgent")()
    task = asked(tools=tools)
    prompt = protocol.prompt(task, TOOLS, CODEC)
    assert ("find_mayor" in CODEC.decode(prompt)) is (tools == "on")
    recorded = [*protocol.opening(task, TOOLS), {"role": "assistant", "content": answer("Alda")}]
    assert protocol.demonstration(recorded, CODEC, TOOLS)[0] == ("prompt", prompt)


@given(st.text(max_size=300))
def test_nothing_that_a_policy_writes_raises(part: Part, text: str) -> None:
    protocol = part("protocol.AutoAgent")()
    for stop in (CALL_END, ANSWER_END, END):
        protocol.decide(text + stop, stop, view(), CODEC)


def test_reading_is_linear(part: Part) -> None:
    protocol = part("protocol.AutoAgent")()
    here = view()
    for stop in (CALL_END, ANSWER_END, END):
        assert_linear(lambda text, end=stop: protocol.decide(text + end, end, here, CODEC))
