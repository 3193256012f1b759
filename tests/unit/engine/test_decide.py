"""The turn loop as a pure function: what comes next, given what happened."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.core.protocols.chat import Chat
from engine.core.protocols.tagged import Tagged
from engine.core.rollout.decide import (
    Await,
    DecisionCache,
    Dispatch,
    Finish,
    Generate,
    Observe,
    Rules,
    calls_at,
    next_step,
)
from engine.core.trajectory.events import Ended, Noted
from engine.core.trajectory.log import AttemptLog
from engine.types import Codec, Decision, Say, ToolSpec, View
from tests.support.codecs import END, ToyCodec
from tests.support.written_logs import LENGTH, STOP, act, answer, append, call, opened
from toolwright.recipe import Limits
from toolwright.types import Event, StopReason, Task

CODEC = ToyCodec("<python>", "</python>", "<result>", "</result>", "<answer>", "</answer>")
TASK = Task(id="t")
CALL = "<python>1+1</python>"
PYTHON = ToolSpec(
    name="python", stop_strings=("</python>",), open_tag="<python>", close_tag="</python>",
    argument="code",
)  # fmt: skip


def rules(protocol: object = None, **limits: int) -> Rules:
    return Rules(
        protocol=protocol or Tagged(),  # type: ignore[arg-type]
        codec=CODEC,
        limits=Limits(**{"response": 100, "model": 200, **limits}),  # type: ignore[arg-type]
        observation_keep="middle",
    )


def after_a_call(log: AttemptLog, **outcome: object) -> AttemptLog:
    act(log, CALL, "</python>")
    answer(log, call(log), **outcome)
    append(log)
    return log


def dispatched(step: object) -> tuple[int, list[object]]:
    """(number of the first call, arguments of each) of a Dispatch."""
    assert isinstance(step, Dispatch)
    return step.first, [one.arguments for one in step.calls]


def ends(log: AttemptLog, **limits: int) -> StopReason | None:
    step = next_step(log.state, rules(**limits), TASK)
    return step.reason if isinstance(step, Finish) else None


def test_a_turn_step_by_step() -> None:
    log, told = opened(tools=[PYTHON]), rules()
    assert next_step(log.state, told, TASK) == Generate(room=100)
    act(log, CALL, "</python>")
    step = next_step(log.state, told, TASK)
    assert isinstance(step, Dispatch)
    assert (step.first, [one.tool for one in step.calls]) == (0, ["python"])
    call_id = call(log)
    assert next_step(log.state, told, TASK) == Await()
    answer(log, call_id)
    assert next_step(log.state, told, TASK) == Observe()
    append(log, (5, 6))
    assert next_step(log.state, told, TASK) == Generate(room=100 - 4)
    act(log, f"<answer>2</answer>{END}", END)
    assert next_step(log.state, told, TASK) == Finish(reason=StopReason.ANSWERED, answer="2")
    log.append(Ended(reason=StopReason.ANSWERED))
    assert next_step(log.state, told, TASK) is None


@pytest.mark.parametrize(
    ("limits", "room"),
    [({}, 100), ({"action": 7}, 7), ({"response": 5}, 5), ({"model": 10}, 8)],
)
def test_the_smallest_budget_counts(limits: dict[str, int], room: int) -> None:
    assert next_step(opened().state, rules(**limits), TASK) == Generate(room=room)


def test_the_call_of_the_turn_after_the_last_is_not_made() -> None:
    log = after_a_call(opened(tools=[PYTHON]))
    act(log, CALL, "</python>")
    assert ends(log, turns=1) is StopReason.MAX_TURNS
    assert ends(log, turns=2) is None


@pytest.mark.parametrize(
    ("text", "stop", "finish", "tokens", "reason"),
    [
        (f"hm{END}", END, STOP, (3,), StopReason.NO_ACTION_IN_OUTPUT),
        (END, END, STOP, (3,), StopReason.EMPTY_OUTPUT),
        ("", None, LENGTH, (), StopReason.EMPTY_OUTPUT),
        ("hm", None, STOP, (3,), StopReason.NO_ACTION_IN_OUTPUT),
        ("hm", None, LENGTH, (3,) * 4, StopReason.MAX_ACTION_LENGTH),
        ("hm", None, LENGTH, (3,) * 100, StopReason.MAX_RESPONSE_LENGTH),
        ("hm", None, LENGTH, (3,) * 197, StopReason.MAX_MODEL_LENGTH),
    ],
)
def test_an_action_that_calls_nothing_ends_it(
    text: str, stop: str | None, finish: object, tokens: Sequence[int], reason: StopReason
) -> None:
    log = opened(tools=[PYTHON])
    act(log, text, stop, finish=finish, token_ids=tokens)  # type: ignore[arg-type]
    response = 400 if reason is StopReason.MAX_MODEL_LENGTH else 100
    assert ends(log, response=response) is reason


def test_what_an_observation_ends() -> None:
    assert ends(after_a_call(opened(), done=True)) is StopReason.TOOL_SIGNALED_DONE
    assert ends(after_a_call(opened(), session_lost=True)) is StopReason.SESSION_LOST
    both = after_a_call(opened(), done=True, session_lost=True)
    assert ends(both) is StopReason.SESSION_LOST
    cut = opened(tools=[PYTHON])
    act(cut, CALL, "</python>")
    answer(cut, call(cut))
    append(cut, (5,), fitted=False)
    assert ends(cut, response=3) is StopReason.MAX_RESPONSE_LENGTH
    assert ends(cut, model=5) is StopReason.MAX_MODEL_LENGTH
    assert ends(after_a_call(opened()), response=3) is StopReason.MAX_RESPONSE_LENGTH
    assert ends(after_a_call(opened()), model=6) is StopReason.MAX_MODEL_LENGTH


def chat_call(number: int, tool: str = "add") -> str:
    return f'<tool_call>{{"name": "{tool}", "arguments": {{"a": {number}}}}}</tool_call>'


def add(*, parallel: bool) -> ToolSpec:
    return ToolSpec(
        name="add", json_call=True, open_tag="<tool_call>", close_tag="</tool_call>",
        stop_strings=("</tool_call>",), parallel_calls=parallel,
    )  # fmt: skip


def test_parallel_calls_go_out_together_and_others_one_by_one() -> None:
    text = chat_call(1) + chat_call(2) + END
    told = rules(Chat(parallel=True))
    log = opened(tools=[add(parallel=True)])
    act(log, text, END)
    assert dispatched(next_step(log.state, told, TASK)) == (0, [{"a": 1}, {"a": 2}])
    alone = opened(tools=[add(parallel=False)])
    act(alone, text, END)
    assert dispatched(next_step(alone.state, told, TASK)) == (0, [{"a": 1}])
    first = call(alone, 0, tool="add")
    assert next_step(alone.state, told, TASK) == Await()
    answer(alone, first)
    assert dispatched(next_step(alone.state, told, TASK)) == (1, [{"a": 2}])


def test_the_first_call_goes_out_while_the_second_is_being_written() -> None:
    told = rules(Chat(parallel=True))
    log = opened(tools=[add(parallel=True)])
    step = calls_at(chat_call(1), "</tool_call>", log.state, told, TASK)
    assert dispatched(step) == (0, [{"a": 1}])
    call(log, 0, tool="add")
    step = calls_at(chat_call(1) + chat_call(2), "</tool_call>", log.state, told, TASK)
    assert dispatched(step) == (1, [{"a": 2}])
    assert calls_at(chat_call(1), "</tool_call>", log.state, told, TASK) is None
    no_turn = rules(Chat(parallel=True), turns=0)
    assert calls_at(chat_call(1), "</tool_call>", opened().state, no_turn, TASK) is None


def test_an_action_has_no_more_calls_than_the_limit() -> None:
    log = opened(tools=[add(parallel=True)])
    act(log, "".join(chat_call(n) for n in range(1000)) + END, END)
    step = next_step(log.state, rules(Chat(parallel=True), calls=3), TASK)
    assert isinstance(step, Dispatch)
    assert [one.arguments for one in step.calls[:3]] == [{"a": 0}, {"a": 1}, {"a": 2}]
    assert [bool(one.invalid_reason) for one in step.calls] == [False, False, False, True]
    assert "at most 3 calls" in step.calls[3].invalid_reason


class Corrects(Tagged):
    """Says once what is wrong, then ends."""

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        if not view.actions:
            return Say(text="again, please")
        return super().decide(text, stop, view, codec)


def test_the_environment_may_speak_without_a_tool_and_it_takes_a_turn() -> None:
    log = opened()
    act(log, f"hm{END}", END)
    assert next_step(log.state, rules(Corrects()), TASK) == Say(text="again, please")
    step = next_step(log.state, rules(Corrects(), turns=0), TASK)
    assert step == Finish(reason=StopReason.MAX_TURNS)
    append(log)
    act(log, f"hm{END}", END)
    step = next_step(log.state, rules(Corrects()), TASK)
    assert step == Finish(reason=StopReason.NO_ACTION_IN_OUTPUT)


def test_a_protocol_is_asked_once_a_turn_and_again_where_it_would_see_more() -> None:
    asked: list[str] = []

    class Counts(Tagged):
        def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
            asked.append(text)
            return super().decide(text, stop, view, codec)

    log, told, decided = opened(tools=[PYTHON]), rules(Counts()), DecisionCache()
    act(log, CALL, "</python>")
    assert isinstance(next_step(log.state, told, TASK, decided), Dispatch)
    call_id = call(log)
    assert next_step(log.state, told, TASK, decided) == Await()
    assert len(asked) == 1
    log.append(Noted(note=Event(kind="seen", turn=0)))
    assert next_step(log.state, told, TASK, decided) == Await()
    assert len(asked) == 2
    answer(log, call_id)
    assert next_step(log.state, told, TASK, decided) == Observe()
    append(log)
    act(log, CALL, "</python>")
    assert isinstance(next_step(log.state, told, TASK, decided), Dispatch)
    assert len(asked) == 3


def test_a_budget_of_the_policy_does_not_count_observations() -> None:
    log = after_a_call(opened(tools=[PYTHON]))
    assert next_step(log.state, rules(policy=10, response=3), TASK) == Generate(room=8)
    act(log, CALL, "</python>", token_ids=(3,) * 7)
    answer(log, call(log))
    append(log, (5,) * 50)
    assert next_step(log.state, rules(policy=10, response=3), TASK) == Generate(room=1)
    assert ends(log, policy=9) is StopReason.MAX_RESPONSE_LENGTH
    assert ends(log, policy=10, model=20) is StopReason.MAX_MODEL_LENGTH
    assert ends(log, response=12) is StopReason.MAX_RESPONSE_LENGTH


def test_an_action_without_a_stop_names_the_budget_that_it_used_up() -> None:
    log = opened()
    act(log, "hm", None, finish=LENGTH, token_ids=(3,) * 10)
    assert ends(log, policy=10) is StopReason.MAX_RESPONSE_LENGTH
    assert ends(log, policy=11) is StopReason.MAX_ACTION_LENGTH
