"""Whatever a policy writes: the methods neither raise nor take long, and a score is a number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.types import Answer, Calls
from tests.support.linear import WORST, assert_linear
from tests.support.recipes import Part
from tests.unit.prompting.conftest import CODEC, view
from toolwright.types import Sequence, Status, StopReason, Task, Trajectory

METHODS = ["Direct", "ChainOfThought", "NaiveRag", "Ircot", "SearchO1", "ReAct"]
PIECES = st.sampled_from(
    [
        "<search>", "</search>", "<answer>", "</answer>", "<notes>", "</notes>", "<information>",
        "Action:", "Action 1:", "Search[", "Finish[", "]", "\n", "Thought:", "Observation:",
        "<|im_end|>", " ", "x", "\r\n", "\u2028", "\x00", "İ", "{question}", "{text}",
    ]
)  # fmt: skip
WRITTEN = st.lists(PIECES, max_size=20).map("".join)


def scored(text: str, *answers: str) -> Trajectory:
    return Trajectory(
        id="t",
        group_id="g",
        task=Task(id="q", answers=answers),
        sequences=(Sequence(id="t.0", segments=()),),
        status=Status.COMPLETED,
        stop_reason=StopReason.ANSWERED,
        metadata={"final_text": text},
    )


@pytest.mark.parametrize("name", METHODS)
@given(text=WRITTEN, turn=st.integers(0, 8), calls=st.integers(0, 8), data=st.data())
def test_nothing_that_a_policy_writes_raises(
    part: Part, name: str, text: str, turn: int, calls: int, data: st.DataObject
) -> None:
    protocol = part(f"methods.{name}")()
    stop = data.draw(st.sampled_from(protocol.stops((), CODEC)))
    decided = protocol.decide(text + stop, stop, view(turn, calls), CODEC)
    if isinstance(decided, Calls):
        (call,) = decided.calls
        assert call.invalid_reason or call.arguments["query"]
        assert "\n" not in (call.arguments or {}).get("query", "")


@pytest.mark.parametrize("form", ["tags", "line", "finish"])
@given(text=WRITTEN)
def test_a_score_is_between_0_and_1(part: Part, form: str, text: str) -> None:
    total, parts = part("reward.PromptingReward")(form=form)(scored(text, "x", ""))
    assert total == parts["em"]
    assert all(0.0 <= value <= 1.0 for value in parts.values())


@pytest.mark.parametrize(
    ("name", "form"), [("Direct", "tags"), ("Ircot", "line"), ("ReAct", "finish")]
)
@given(text=WRITTEN, data=st.data())
def test_the_reward_reads_the_answer_that_ended_it(
    part: Part, name: str, form: str, text: str, data: st.DataObject
) -> None:
    protocol = part(f"methods.{name}")()
    stop = data.draw(st.sampled_from(protocol.stops((), CODEC)))
    whole = text.replace("<|im_end|>", "").replace("Observation:", "") + stop
    decided = protocol.decide(whole, stop, view(1), CODEC)
    if isinstance(decided, Answer):
        assert part("methods.answer_of")(whole, form) == decided.text


@pytest.mark.parametrize("name", METHODS)
def test_reading_is_linear(part: Part, name: str) -> None:
    protocol = part(f"methods.{name}")()
    pieces = (*WORST, "<answer>", "</answer>", "<notes>", "Action:", "Action:\n", "Search[", "]\n")
    for stop in protocol.stops((), CODEC):
        assert_linear(
            lambda text, stop=stop: protocol.decide(text, stop, view(1), CODEC),
            after=stop,
            texts=pieces,
        )


@pytest.mark.parametrize("form", ["tags", "line", "finish"])
def test_scoring_is_linear(part: Part, form: str) -> None:
    score = part("reward.PromptingReward")(form=form)
    pieces = ("<answer>", "</answer>", "<answer></answer>", "Action:", "Action:\n", "[", "a ", "\n")
    assert_linear(lambda text: score(scored(text, "x")), texts=pieces)
