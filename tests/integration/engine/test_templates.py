"""Rollouts with templates of other families: how tool text is written, and what ends a turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.text.codec import HuggingFaceCodec
from tests.integration.engine.conftest import MakeWorld
from tests.support.dialogue import by_turn
from tests.support.families import write_family
from tests.support.recipes import ONE
from tests.support.tools import ToolDouble, text
from toolwright.types import Author, StopReason

pytestmark = pytest.mark.quick

CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "1"}}\n</tool_call>'
LIMITS = {"response": 1000, "model": 4000}
SAID = 'line1\nsays "hi"'


async def test_tool_text_is_escaped_where_the_template_writes_json(
    world: MakeWorld, tmp_path: Path
) -> None:
    policy = write_family(tmp_path / "llama", "llama_3")
    codec = HuggingFaceCodec(policy)
    here = await world(
        policy=policy,
        script=by_turn(codec, [CALL, "It is <answer> 2</answer><|eot_id|>"], mark="ipython<|"),
        tools=ToolDouble(run=lambda _call: text(SAID)),
        run=ONE,
        task={"protocol": "engine.api:Chat", "limits": LIMITS},
    )
    async with here.engine() as run:
        version = await run.learner.version()
        ((trajectory,),) = [group.members for group in await run.learner.lease(version)]
    (observed,) = [s for s in trajectory.sequences[0].segments if s.author is Author.TOOL]
    written = codec.decode(observed.token_ids)
    assert '"line1\\nsays \\"hi\\""<|eot_id|>' in written
    assert trajectory.metadata["final_text"] == "It is <answer> 2</answer>"
    assert trajectory.reward == 1.0


@pytest.mark.parametrize("end", ["<|im_end|>", "<|endoftext|>"])
async def test_a_turn_ends_by_the_template_s_token_and_by_eos(
    world: MakeWorld, tmp_path: Path, end: str
) -> None:
    policy = write_family(tmp_path / "qwen", "qwen2_5", eos="<|endoftext|>")
    here = await world(
        policy=policy,
        script=by_turn(HuggingFaceCodec(policy), [f"<answer> 2</answer>{end} and on"]),
        run=ONE,
        task={"limits": LIMITS},
    )
    async with here.engine() as run:
        version = await run.learner.version()
        ((trajectory,),) = [group.members for group in await run.learner.lease(version)]
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.metadata["final_text"] == "<answer> 2</answer>"
    (action,) = [s for s in trajectory.sequences[0].segments if s.author is Author.MODEL]
    assert here.codec.decode(action.token_ids) == f"<answer> 2</answer>{end}"
