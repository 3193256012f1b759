"""Which trajectories of one task stay, and which of them made the same calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.protocols.chat import Chat
from engine.core.trajectory.state import Action, State
from engine.offline.collect.calls import canonical_calls, mark_of_calls
from engine.offline.collect.selection import (
    Candidate,
    mark_of,
    select,
)
from engine.offline.collect.selection import SelectionOutcome as Outcome
from engine.types import ToolSpec
from tests.support.codecs import ToyCodec
from toolwright.types import CallOutcome, CallRecord, FinishKind, FinishReason, Task, ids


def candidate(mark: str = "a", **fields: Any) -> Candidate:
    return Candidate(**{"errored": False, "masked": False, "mark": mark, **fields})


def test_each_reason_in_its_order() -> None:
    candidates = [
        candidate("a", errored=True, masked=True),
        candidate("a", reward_failed=True, masked=True),
        candidate("a", masked=True, refused_by=("right",)),
        candidate("a", refused_by=("right", "short")),
        candidate("a"),
        candidate("a"),
        candidate("old"),
        candidate("b"),
        candidate("c"),
    ]
    assert select(candidates, {"old"}, 2) == [
        Outcome.ERRORED, Outcome.REWARD_FAILED, Outcome.MASKED, Outcome.FILTERED, Outcome.KEPT,
        Outcome.DUPLICATE, Outcome.DUPLICATE, Outcome.KEPT, Outcome.OVER_CAP,
    ]  # fmt: skip


CANDIDATES = st.builds(
    Candidate,
    errored=st.booleans(),
    masked=st.booleans(),
    refused_by=st.sampled_from([(), ("right",), ("right", "short"), ("clean", "short")]),
    mark=st.sampled_from("abcd"),
)


@given(st.lists(CANDIDATES), st.sets(st.sampled_from("abcd")), st.none() | st.integers(1, 3))
def test_what_stays_is_new_distinct_wanted_and_within_the_cap(
    candidates: list[Candidate], seen: set[str], most: int | None
) -> None:
    verdicts = select(candidates, seen, most)
    kept = [c for c, v in zip(candidates, verdicts, strict=True) if v is Outcome.KEPT]
    assert all(not c.refused_by and not c.errored and not c.masked for c in kept)
    assert len({c.mark for c in kept}) == len(kept)
    assert not seen & {c.mark for c in kept}
    assert most is None or len(kept) <= most


def test_marks_tell_prompts_and_actions_apart() -> None:
    prompt = ids([1, 2])
    same = mark_of(prompt, ["a", "b"])
    assert mark_of(ids([1, 2]), ["a", "b"]) == same
    others = [
        mark_of(prompt, ["ab"]), mark_of(prompt, ["a", "b", ""]), mark_of(prompt, ["b", "a"]),
        mark_of(ids([1, 3]), ["a", "b"]), mark_of(prompt, []),
    ]  # fmt: skip
    assert len({same, *others}) == 6


def test_half_a_surrogate_pair_has_a_mark() -> None:
    assert mark_of(ids([1]), ["\ud800"])


TASK = Task(id="t", prompt="who?")
TOOLS = (ToolSpec(name="add", json_call=True, close_tag="</tool_call>"),)
CLOSE = "</tool_call>"


def call(body: str) -> str:
    return f"<tool_call>{body}{CLOSE}"


def recorded(turn: int, index: int, text: str) -> CallRecord:
    return CallRecord(
        call_id=f"a/{turn}/{index}", turn=turn, index=index, tool="add", action=text,
        outcome=CallOutcome(observation="", valid=False),
    )  # fmt: skip


def state(*actions: str, made: tuple[int, ...] | None = None) -> State:
    """Actions that end at a call, but for the last where `made` says so: calls of each."""
    counts = made or (1,) * len(actions)
    stop = FinishReason(kind=FinishKind.STOP)
    turns = list(enumerate(actions))
    return State(
        tools=TOOLS,
        actions=tuple(Action(text=text, stop=CLOSE, finish=stop, tokens=1) for text in actions),
        calls=tuple(recorded(t, index, text) for t, text in turns for index in range(counts[t])),
    )


def canonical(*actions: str, made: tuple[int, ...] | None = None, **options: Any) -> list[Any]:
    return canonical_calls(state(*actions, made=made), TASK, Chat(**options), ToyCodec())


def test_neither_the_order_of_keys_nor_what_was_thought_makes_another_call() -> None:
    one = canonical("Hm." + call('{"name": "add", "arguments": {"b": 2, "a": [1, "é"]}}'))
    other = canonical(call(' {"arguments": {"a": [1, "é"], "b": 2}, "name": "add"}\n'))
    assert one == other == [("add", '{"a": [1, "é"], "b": 2}')]


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "add", "arguments": {"a": 2}}',
        '{"name": "add", "arguments": {"a": "1"}}',
        '{"name": "sub", "arguments": {"a": 1}}',
        '{"name": "add"}',
        "no JSON",
    ],
)
def test_another_name_or_argument_is_another_call(body: str) -> None:
    assert canonical(call(body)) != canonical(call('{"name": "add", "arguments": {"a": 1}}'))


def test_several_calls_of_one_action_come_in_their_order_and_only_those_that_were_made() -> None:
    two = call('{"name": "add", "arguments": {"a": 1}}') + call('{"name": "add", "arguments": {}}')
    assert canonical(two, made=(2,), parallel=True) == [("add", '{"a": 1}'), ("add", "{}")]
    assert canonical(two, made=(1,), parallel=True) == [("add", '{"a": 1}')]


def test_a_mark_tells_questions_and_calls_apart() -> None:
    calls = [("add", "{}"), ("add", '{"a": 1}')]
    same = mark_of_calls(TASK, calls)
    assert mark_of_calls(Task(id="another", prompt="who?"), calls) == same
    others = [
        mark_of_calls(Task(id="t", prompt="what?"), calls),
        mark_of_calls(Task(id="t", messages=({"role": "user", "content": "who?"},)), calls),
        mark_of_calls(TASK, calls[::-1]),
        mark_of_calls(TASK, calls[:1]),
        mark_of_calls(TASK, [("add", "{}add"), ("", '{"a": 1}')]),
        mark_of_calls(TASK, []),
    ]
    assert len({same, *others}) == 7
