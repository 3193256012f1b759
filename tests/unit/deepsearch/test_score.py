"""What a deep search is worth: equation 12, its two readings, and who says what is right."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.rewards import Score
from tasks.errors import JudgeDown
from tests.support.chat_endpoint import ChatEndpoint, chat_endpoint, fault
from tests.support.recipes import Part
from tests.unit.deepsearch.conftest import ran
from toolwright.types import Purpose, StopReason, Trajectory

RIGHT, WRONG = "so <answer>\\boxed{42}</answer>", "<answer>\\boxed{41}</answer>"


def values(score: Score) -> dict[str, float]:
    return {one.name: one.value for one in score.parts}


@pytest.mark.parametrize(
    ("trajectory", "worth", "signed"),
    [
        (ran(RIGHT, "search", "python"), 1.1, 1.1),
        (ran(RIGHT), 1.0, 1.0),
        (ran(WRONG, "python"), 0.1, -0.9),
        (ran(WRONG), 0.0, -1.0),
        (ran(WRONG, unread=("python", "search")), 0.0, -1.0),
        (ran("", stop=StopReason.EMPTY_OUTPUT), 0.0, -1.0),
    ],
)
async def test_equation_12(part: Part, trajectory: Trajectory, worth: float, signed: float) -> None:
    assert (await part("score.DeepSearchReward")()(trajectory)).total == pytest.approx(worth)
    assert (await part("score.DeepSearchReward")(wrong=-1.0)(trajectory)).total == pytest.approx(
        signed
    )


@pytest.mark.parametrize(
    ("last", "answer"),
    [
        ("<answer>\\boxed{42}</answer><|im_end|>", "42"),
        ("<answer> 42 </answer>", "42"),
        ("<answer>1</answer><answer>\\boxed{2} or \\boxed{3}</answer>", "3"),
        ("\\boxed{42}", None),
        ("<answer>\\boxed{42}", None),
        ("<answer>\\boxed{42</answer>", "\\boxed{42"),
        ("<answer></answer>", ""),
        ("</answer>" * 3, None),
        ("<answer>" * 20_000 + "</answer>", ""),
        ("<answer>\\boxed{" + "{" * 20_000 + "</answer>", "\\boxed{" + "{" * 20_000),
        ("<answer>\x00\ud800</answer>", "\x00\ud800"),
    ],
)
def test_the_answer_is_in_the_last_block(part: Part, last: str, answer: str | None) -> None:
    assert part("score.final_answer")(ran(last)) == answer


def test_an_answer_counts_where_the_trajectory_ended_with_it(part: Part) -> None:
    found = part("score.final_answer")
    assert found(ran(RIGHT, stop=StopReason.MAX_TURNS)) is None
    earlier = ran("no more", stop=StopReason.ANSWERED)
    earlier.metadata["texts"].insert(0, RIGHT)
    assert found(earlier) is None
    earlier.metadata.clear()
    assert found(earlier) is None


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [("1,658", "1658", 1.0), ("15", "1.5", 0.0), ("The Netherlands.", "netherlands", 1.0)],
)
async def test_numbers_are_compared_as_numbers(
    part: Part, answer: str, gold: str, right: float
) -> None:
    score = await part("score.DeepSearchReward")()(ran(f"<answer>{answer}</answer>", gold=gold))
    assert values(score)["answer"] == right


async def test_what_it_did_is_an_event(part: Part) -> None:
    score = await part("score.DeepSearchReward")()(ran(RIGHT, "web_search", "python", "python"))
    (event,) = score.events
    assert event.data == {"right": 1.0, "searches": 1.0, "programs": 2.0, "both_tools": 1.0}
    assert values(score) == {"answer": 1.0, "tool": 0.1}


async def test_an_evaluation_is_plain_accuracy(part: Part) -> None:
    trajectory = ran(
        "<answer>the lake of Chad</answer>", "search", gold="Lake Chad", purpose=Purpose.EVAL
    )
    score = await part("score.DeepSearchReward")(wrong=-1.0)(trajectory)
    assert score.total == 0.0
    assert values(score) == {
        "answer": 0.0,
        "em": 0.0,
        "f1": pytest.approx(0.8),
        "searches": 1.0,
        "programs": 0.0,
    }


def asked_by(endpoint: ChatEndpoint, **more: Any) -> dict[str, Any]:
    return {"endpoint": endpoint.url, "model": "judge", "tries": 1, **more}


@pytest.mark.parametrize(
    ("reply", "worth", "unparsable"), [("1", 1.0, 0.0), ("0", 0.0, 0.0), ("both", 0.0, 1.0)]
)
async def test_a_judge_decides_evaluations_alone(
    part: Part, reply: str, worth: float, unparsable: float
) -> None:
    asked = ({"role": "user", "content": "How large?"},)
    async with chat_endpoint(lambda _: reply) as endpoint:
        score = part("score.DeepSearchReward")(judge=asked_by(endpoint))
        trained = await score(ran(WRONG, "python"))
        assert (trained.total, endpoint.requests) == (0.1, [])
        found = await score(ran(WRONG, purpose=Purpose.EVAL, messages=asked))
    assert found.total == worth
    assert values(found) == {
        "answer": worth,
        "em": 0.0,
        "f1": 0.0,
        "searches": 0.0,
        "programs": 0.0,
        "unparsable": unparsable,
    }
    (request,) = endpoint.requests
    prompt = request["messages"][0]["content"]
    assert "How large?" in prompt and "- 42" in prompt and "41" in prompt
    assert "boxed" not in prompt


async def test_no_answer_is_wrong_and_nobody_is_asked(part: Part) -> None:
    async with chat_endpoint(lambda _: "1") as endpoint:
        score = part("score.DeepSearchReward")(judge=asked_by(endpoint))
        found = await score(ran("none", stop=StopReason.MAX_TURNS, purpose=Purpose.EVAL))
    assert (found.total, endpoint.requests) == (0.0, [])


async def test_a_judge_that_is_away_is_no_verdict(part: Part) -> None:
    async with chat_endpoint(lambda _: "1") as endpoint:
        endpoint.faults = [fault(503)]
        with pytest.raises(JudgeDown):
            await part("score.DeepSearchReward")(judge=asked_by(endpoint))(
                ran(RIGHT, purpose=Purpose.EVAL)
            )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"wrong": float("nan")}, "wrong"),
        ({"wrong": 1.0}, "wrong"),
        ({"wrong": True}, "wrong"),
        ({"bonus": -0.1}, "bonus"),
        ({"bonus": "0.1"}, "bonus"),
        (
            {"judge": {"endpoint": "http://127.0.0.1:9", "model": "j", "key_variable": "NONE_"}},
            "NONE_",
        ),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    part: Part, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        part("score.DeepSearchReward")(**options)


def test_a_judge_needs_its_model(part: Part) -> None:
    with pytest.raises(TypeError, match="model"):
        part("score.DeepSearchReward")(judge={"endpoint": "http://127.0.0.1:9"})
