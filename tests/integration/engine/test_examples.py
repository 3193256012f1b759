"""The examples of docs/train/protocols-and-rewards.md, each in a run."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bench.scripted import ScriptRequest
from engine.core.text.codec import HuggingFaceCodec
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.dialogue import ANSWER, CALL, by_turn
from tests.support.docs import example
from tests.support.tools import PYTHON, ToolDouble
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Author, Trajectory

pytestmark = pytest.mark.quick

PAGE = "train/protocols-and-rewards.md"
END = "<|im_end|>"


async def group_of(here: World, **task: object) -> tuple[Trajectory, ...]:
    """The members of the first group that a recipe with these keys of [task] gives."""
    async with here.engine(task=task) as run:
        (group,) = await run.learner.lease()
        return group.members


def put(here: World, name: str, words: str) -> None:
    (here.folder / name).write_text(example(PAGE, words), encoding="utf-8")


async def test_a_protocol_that_corrects(world: MakeWorld, codec: HuggingFaceCodec) -> None:
    replies = [f"let me think{END}", ANSWER]
    here = await world(script=by_turn(codec, replies, mark="Write one <python> call"))
    put(here, "corrects.py", "corrects.py")
    member = (await group_of(here, protocol="./corrects.py:Corrects"))[0]
    authors = [s.author for s in member.sequences[0].segments]
    assert authors == [Author.PROMPT, Author.MODEL, Author.SYSTEM, Author.MODEL]
    said = member.sequences[0].segments[2]
    assert not said.trainable
    assert "Write one <python> call" in here.codec.decode(said.token_ids)
    assert member.stop_reason.name == "ANSWERED"


async def test_a_protocol_with_several_calls(world: MakeWorld, codec: HuggingFaceCodec) -> None:
    """The first call is on its way while the model still writes the second."""
    tool = pb.ToolDescriptor()
    tool.CopyFrom(PYTHON)
    tool.parallel_calls = True
    here = await world(
        tools=ToolDouble(tools=[tool]), script=by_turn(codec, [CALL + CALL + END, ANSWER])
    )
    put(here, "both.py", "both.py")
    member = (await group_of(here, protocol="./both.py:Both"))[0]
    assert [(call.turn, call.index) for call in member.calls] == [(0, 0), (0, 1)]
    first, second = (call.timings for call in member.calls)
    assert first.stop_read_ns < second.stop_read_ns
    assert first.dispatched_ns <= second.stop_read_ns
    assert first.result_ns and second.result_ns


async def test_a_reward_with_parts_for_turns(world: MakeWorld) -> None:
    here = await world()
    put(here, "turns.py", "turns.py")
    for member in await group_of(here, reward="./turns.py:score"):
        parts = {(part.name, part.turn): part.value for part in member.reward_parts}
        assert parts[("call", 0)] == 0.1
        assert member.reward == parts[("answer", None)]
        assert member.anchors == {0: ("python",)}
        assert not member.masked


async def test_figures_beside_the_reward(world: MakeWorld) -> None:
    here = await world()
    put(here, "lengths.py", "lengths.py")
    for member in await group_of(here, reward="./lengths.py:score"):
        (event,) = (event for event in member.events if event.kind == "measured")
        assert event.data == {"letters": float(len(ANSWER.removesuffix("<|im_end|>")))}
        assert [part.name for part in member.reward_parts] == ["answer"]


@pytest.mark.parametrize(("within", "reward"), [(None, 0.0), (1.5, 1.0)])
async def test_a_reward_with_options(
    world: MakeWorld, codec: HuggingFaceCodec, within: float | None, reward: float
) -> None:
    here = await world(script=by_turn(codec, [ANSWER]))
    put(here, "close.py", "close.py")
    options = {} if within is None else {"reward_options": {"within": within}}
    (first, *_) = await group_of(here, reward="./close.py:Close", **options)
    assert first.reward == reward


async def test_a_group_hook(world: MakeWorld, codec: HuggingFaceCodec) -> None:
    replies = iter([[ANSWER], [CALL, ANSWER], [ANSWER], [CALL, ANSWER]] * 100)
    seen: dict[str, list[str]] = {}

    def script(request: ScriptRequest) -> Iterable[int]:
        mine = seen.setdefault(request.conversation, next(replies))
        return by_turn(codec, mine)(request)

    here = await world(script=script)
    put(here, "share.py", "share.py")
    members = await group_of(here, group_hook="./share.py:share")
    for member in members:
        rare = [part.value for part in member.reward_parts if part.name == "rare"]
        assert rare == ([0.25] if member.calls else [])
    assert sum(bool(member.calls) for member in members) == 1
