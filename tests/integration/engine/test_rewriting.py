"""A protocol that rewrites its context, through the whole engine: record, requests, later life."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from bench.scripted import ScriptRequest
from engine.core.rewards.rewards import Rewards
from engine.core.text.codec import HuggingFaceCodec
from engine.offline.inspect.replay import replay
from engine.offline.inspect.state import trajectory_state
from learner.training.batch import rows_of
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.docs import example
from tests.support.recipes import ONE
from tests.support.tools import ToolDouble, add_up
from tests.support.waiting import until
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import StopReason, Trajectory

pytestmark = pytest.mark.quick

REPLIES = (
    "I add. <python> 1+1</python>",
    "And on. <python> 2+2</python>",
    "<python> 3+3</python>",
    "Sum: 6<|im_end|>",
    "<answer> 6</answer><|im_end|>",
)
"""Turn 1 fills the context; turn 3 is a summary."""


class Holding(ToolDouble):
    """Adds up. A third call waits while `held`."""

    held = True

    def __init__(self) -> None:
        super().__init__(self._third_waits)

    async def _third_waits(self, request: pb.CallToolRequest) -> pb.CallResult:
        if len(self.asked) >= 3:
            await until(lambda: not self.held, "the next life")
        return add_up(request)

    async def GetSession(
        self, request: pb.GetSessionRequest, context: object
    ) -> pb.GetSessionResponse:
        return pb.GetSessionResponse(tools=self.tools, call_ids=self.ran)


def talk(here: World, log: list[tuple[int, ...]]) -> None:
    """The policy says REPLIES one after the other, whatever its context holds."""

    def script(request: ScriptRequest) -> Sequence[int]:
        if not log or log[-1] != request.input_ids:
            log.append(request.input_ids)
        return here.codec.encode(REPLIES[len(log) - 1])

    here.sampler._script = script


async def forgetful(world: MakeWorld, tools: ToolDouble | None = None, **more: Path) -> World:
    limits = {"turns": 6, "action": 60, "observation": 40, "response": 90, "model": 80}
    here = await world(
        tools=tools,
        run=ONE,
        task={
            "protocol": "./forgets.py:Forgets",
            "protocol_options": {"most": 62},
            "limits": limits,
        },
        engine={"history": "all"},
        **more,
    )
    text = example("train/protocols-and-rewards.md", "# forgets.py")
    (here.folder / "forgets.py").write_text(text, encoding="utf-8")
    return here


def assert_rewritten(here: World, asked: Sequence[tuple[int, ...]], found: Trajectory) -> None:
    """Three sequences, each what the sampler was sent, and each completion trained once."""
    assert (found.stop_reason, found.turns) == (StopReason.ANSWERED, 5)
    assert [q.id for q in found.sequences] == [f"{found.id}.{number}" for number in range(3)]
    assert [q.parent for q in found.sequences] == [None, *(q.id for q in found.sequences[:-1])]
    starts = [[start for _, start, _ in q.action_spans] for q in found.sequences]
    assert [len(own) for own in starts] == [2, 2, 1]
    sent = [
        tuple(q.token_ids[:start])
        for q, own in zip(found.sequences, starts, strict=True)
        for start in own
    ]
    assert sent == list(asked), "a request is the beginning of its sequence"
    for before, after in zip(found.sequences, found.sequences[1:], strict=False):
        shared = after.fork_offset or 0
        assert 0 < shared < len(before.token_ids)
        assert after.token_ids[:shared] == before.token_ids[:shared]
        assert after.token_ids[shared] != before.token_ids[shared], "the longest common prefix"
    rows = rows_of(found, temperature=1.0)
    assert [here.codec.decode(row.tokens[row.target]) for row in rows] == [
        REPLIES[0] + REPLIES[1],
        REPLIES[2] + REPLIES[3],
        REPLIES[4],
    ]
    notes = [event for event in found.events if event.kind == "sequence_forked"]
    assert [(note.turn, note.data["cause"]) for note in notes] == [(2, "full"), (4, "summary")]
    for q, note in zip(found.sequences[1:], notes, strict=True):
        assert note.data["shared"] == q.fork_offset


async def test_a_rewritten_context_is_a_new_sequence(world: MakeWorld) -> None:
    here = await forgetful(world)
    asked: list[tuple[int, ...]] = []
    talk(here, asked)
    found = await here.trajectory()
    assert_rewritten(here, asked, found)
    second = here.codec.decode(asked[2])
    assert "<result> 4</result>" in second, "the last observation is in the new context"
    assert REPLIES[1] not in second
    assert here.codec.decode(asked[4]).count("Sum: 6") == 1
    # The whole trajectory would not have fitted: limits count what is in the context now.
    assert sum(len(segment.token_ids) for segment in found.segments) > 80

    rewards = Rewards("./my_reward.py:score", here.folder, per_group=False, seconds=20)
    done = await replay(here.folder / "run", {"": rewards}, here.folder)
    assert (done.trajectories, done.differences) == (1, [])
    shown = trajectory_state(here.folder / "run", found.id)["timeline"]
    wrote = [one["tokens"] for one in shown if one.get("author") == "MODEL"]
    assert sum(wrote) == found.response_tokens
    assert sum(one.get("event") == "sequence_forked" for one in shown) == 2


async def test_a_later_life_goes_on_in_the_new_context(world: MakeWorld) -> None:
    """The engine is stopped in a call after the first rewrite; the next life samples nothing
    again."""
    double = Holding()
    here = await forgetful(world, double)
    asked: list[tuple[int, ...]] = []
    talk(here, asked)
    async with here.engine("engine.drain_s=0") as first:
        await until(lambda: len(double.asked) == 3, "the call after the rewrite")
        first.engine.stop()
    double.held = False
    assert_rewritten(here, asked, await here.trajectory())
    assert len(double.opened) == 1


async def test_images_of_the_task_stay(world: MakeWorld, vision: Path) -> None:
    codec = HuggingFaceCodec(vision)
    here = await forgetful(world, policy=vision)
    row = {"id": "q", "prompt": "<image> What is 1+1?", "images": ["grey.png"]}
    Image.new("L", (56, 56)).save(here.folder / "grey.png")
    (here.folder / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    here.tables["task"] |= {"source": "rows.jsonl", "protocol_options": {"most": 1000}}
    here.tables["task"]["limits"] |= {"image_tokens": 10, "model": 2000}
    replies = [REPLIES[0], "Sum: 2<|im_end|>", REPLIES[-1]]

    def script(request: ScriptRequest) -> Sequence[int]:
        text = codec.decode(request.input_ids)
        return codec.encode(replies[2 if "Sum: 2" in text else "</result>" in text])

    here.sampler._script = script
    found = await here.trajectory()
    assert found.stop_reason is StopReason.ANSWERED
    first, second = found.sequences
    (image,) = {ref.blob.sha256 for ref in found.shown_media}
    assert image == found.task.media[0].blob.sha256
    assert [len(request.image_data) for request in here.sampler.requests] == [1, 1, 1]
    shared = second.fork_offset or 0
    assert second.token_ids[:shared] == first.token_ids[:shared]
    assert shared > sum(ref.placeholder_tokens for ref in found.shown_media) / 2


async def test_messages_that_the_protocol_does_not_take_end_the_trajectory(
    world: MakeWorld,
) -> None:
    here = await forgetful(world)
    picky = """
class Picky(Forgets):
    def prompt(self, task, tools, codec):
        if "Sum: 6" in task.messages[0]["content"]:
            raise ValueError("that sum is wrong")
        return super().prompt(task, tools, codec)
"""
    file = here.folder / "forgets.py"
    file.write_text(file.read_text(encoding="utf-8") + picky, encoding="utf-8")
    here.tables["task"]["protocol"] = "./forgets.py:Picky"
    talk(here, [])
    found = await here.trajectory()
    assert (found.stop_reason, found.masked) == (StopReason.NO_ACTION_IN_OUTPUT, False)
    note = found.events[-1]
    assert (note.kind, note.data) == ("rewrite_refused", {"error": "that sum is wrong"})
    assert len(found.sequences) == 2
