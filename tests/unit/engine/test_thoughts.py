"""A call that the policy drafts in a thought of the chat template does not run."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest

from engine.core.protocols.chat import Chat
from engine.core.protocols.tagged import Tagged
from engine.core.rollout.decide import Rules, next_step
from engine.core.text.thoughts import begins_inside
from engine.core.trajectory.chain import Chain
from engine.core.trajectory.state import Action, State
from engine.offline.collect.calls import canonical_calls, decision_of
from engine.offline.collect.messages import conversation_of
from engine.types import Answer, Calls, ToolSpec
from tests.support.codecs import END, ToyCodec
from toolwright.reading.action_ends import Tags
from toolwright.reading.thoughts import thought_of
from toolwright.recipe import Limits
from toolwright.types import Author, FinishKind, FinishReason, Segment, Task, WeightVersion, ids

pytestmark = pytest.mark.quick

CLOSE = "</tool_call>"
PICK = ToolSpec(
    name="pick", json_call=True, open_tag="<tool_call>", close_tag=CLOSE, stop_strings=(CLOSE,)
)
PYTHON = ToolSpec(
    name="python", open_tag="<python>", close_tag="</python>", stop_strings=("</python>",),
    argument="code",
)  # fmt: skip
TASK = Task(id="t", prompt="which?")
STOPPED = FinishReason(kind=FinishKind.STOP)


class Thinking(ToyCodec):
    """A template with thoughts; `opens`: its generation prompt begins one."""

    thought = Tags("<think>", "</think>")

    def __init__(self, *, opens: bool = False) -> None:
        super().__init__("<tool_call>", CLOSE, "<think>", "</think>")
        self._opens = opens

    def chat(self, *arguments: Any, **options: Any) -> str:
        text = super().chat(*arguments, **options)
        return f"{text}<think>\n" if self._opens and text.endswith("assistant\n") else text


def call(number: int) -> str:
    body = json.dumps({"name": "pick", "arguments": {"n": number}})
    return f"<tool_call>\n{body}\n{CLOSE}"


def acted(text: str, stop: str, codec: ToyCodec, tools: tuple[ToolSpec, ...] = (PICK,)) -> State:
    """A trajectory that has written its first action."""
    prompt = ids(codec.chat_ids([{"role": "user", "content": "which?"}]))
    written = ids(codec.encode(text))
    action = Segment(
        author=Author.MODEL, token_ids=written, logprobs=array("f", [0.0] * len(written)),
        weight_version=WeightVersion(lineage="a", step=0), finish=STOPPED, trainable=True,
    )  # fmt: skip
    segments = (Segment(author=Author.PROMPT, token_ids=prompt), action)
    done = Action(text=text, stop=stop, finish=STOPPED, tokens=len(written))
    chain = Chain(token_ids=prompt + written, segments=segments)
    return State(chain=chain, tools=tools, actions=(done,))


def numbers(state: State, protocol: Any, codec: ToyCodec) -> list[object]:
    decision = decision_of(state, 0, TASK, protocol, codec)
    assert isinstance(decision, Calls)
    return [one.arguments and one.arguments.get("n") for one in decision.calls]


@pytest.mark.parametrize(
    ("opens", "text", "wanted"),
    [
        (False, f"<think>A draft: {call(1)} no.</think>\n\n{call(2)}", [2]),
        (True, f"A draft: {call(1)} no.</think>\n\n{call(2)}", [2]),
        (False, f"{call(1)}<think>or {call(2)}?</think>{call(3)}", [1, 3]),
        (True, f"{call(1)}</think><think>{call(2)}</think>{call(3)}", [3]),
    ],
)
def test_calls_in_a_thought_do_not_run(opens: bool, text: str, wanted: list[int]) -> None:
    codec, chat = Thinking(opens=opens), Chat(parallel=True)
    state = acted(text + END, END, codec)
    assert numbers(state, chat, codec) == wanted
    rules = Rules(protocol=chat, codec=codec, limits=Limits(), observation_keep="middle")
    step: Any = next_step(state, rules, TASK)
    assert step.calls[0].arguments == {"n": wanted[0]}
    exported = conversation_of(state, TASK, chat, codec) if wanted != [1, 3] else None
    if exported is not None:
        (made,) = exported["messages"][-1]["tool_calls"]
        assert json.loads(made["function"]["arguments"]) == {"n": wanted[0]}
        assert call(1) in exported["messages"][-1]["content"]


def test_tags_in_a_thought_are_not_read_either() -> None:
    codec = Thinking()
    text = "<think><python>1</python> or <answer>3</answer></think>"
    state = acted(f"{text}<python>2</python>", "</python>", codec, (PYTHON,))
    decision: Any = decision_of(state, 0, TASK, Tagged(), codec)
    assert decision.calls[0].arguments == {"code": "2"}
    state = acted(f"{text}<answer>4</answer>{END}", END, codec, (PYTHON,))
    assert decision_of(state, 0, TASK, Tagged(), codec) == Answer(text="4")


def test_without_thoughts_in_the_template_the_words_are_the_recipes() -> None:
    codec = ToyCodec()
    text = f"<think>{call(1)}</think>{call(2)}{END}"
    state = acted(text, END, codec)
    assert numbers(state, Chat(parallel=True), codec) == [1, 2]
    assert len(canonical_calls(state, TASK, Chat(parallel=True), codec)) == 0


def test_a_thought_that_never_ends_calls_nothing() -> None:
    codec = Thinking(opens=True)
    state = acted(f"{call(1)} hm{END}", END, codec)
    assert not isinstance(decision_of(state, 0, TASK, Chat(parallel=True), codec), Calls)


@pytest.mark.parametrize(
    ("template", "tags"),
    [
        ("{{ m.content.split('</think>')[-1] }}", Tags("<think>", "</think>")),
        ("{{ '<think>\\n' }}", None),
        ("{{ '[THINK]' + m.thinking + '[/THINK]' }}", Tags("[THINK]", "[/THINK]")),
        ("{{ m.content }}", None),
    ],
)
def test_a_template_has_thoughts_if_it_names_their_end(template: str, tags: Tags | None) -> None:
    assert thought_of(template) == tags


@pytest.mark.parametrize(
    ("before", "inside"),
    [("assistant\n<think>\n", True), ("<think>\n\n</think>\n\n", False), ("<think> x", False)],
)
def test_an_action_begins_inside_a_thought_that_the_prompt_opened(
    before: str, inside: bool
) -> None:
    codec = Thinking()
    assert begins_inside(codec, codec.encode(before)) is inside
    assert not begins_inside(ToyCodec(), codec.encode(before))
