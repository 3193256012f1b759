"""The demonstration's pictures through the engine and the real image tool; a scripted policy."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.core.text.codec import HuggingFaceCodec
from tests.integration.engine.conftest import MakeWorld
from tests.integration.toolsvc.conftest import Service
from tests.support.dialogue import in_turn
from tests.support.recipes import Part, part_of
from tests.support.shown_images import add_tool, by_trajectory, sent_images
from toolwright.recipe import load_recipe
from toolwright.types import Author, StopReason, Trajectory

pytestmark = pytest.mark.slow

RECIPE = Path(__file__).parents[3] / "recipes/verltool/visual"
END = "<|im_end|>"
LIMITS = {
    "turns": 3,
    "action": 256,
    "observation": 256,
    "response": 1500,
    "model": 2000,
    "image_tokens": 10,
}


@pytest.fixture(scope="module")
def part() -> Part:
    return part_of(RECIPE)


@pytest.fixture(scope="module")
def policy(part: Part, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("policy") / "untrained"
    part("world/policy.write_words")(folder)
    return folder


def look(*box: float) -> str:
    arguments = {"bbox_2d": box, "target_image": 1}
    return call("crop_image_normalized", arguments)


def call(name: str, arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A group in the order of its ways, the codec, and what the sampler was sent for each."""

    members: list[Trajectory]
    codec: HuggingFaceCodec
    images: list[list[bytes]]


async def rolled_out(
    part: Part,
    world: MakeWorld,
    policy: Path,
    service: Service,
    question: Any,
    ways: list[list[str]],
) -> Seen:
    codec = HuggingFaceCodec(policy)
    here = await world(
        policy=policy, script=in_turn(codec, ways, lambda text: text.index(question.text))
    )
    (here.folder / "training").mkdir()
    (here.folder / "training/0.png").write_bytes(part("world/pictures.draw")(question.scene))
    row = part("world/task.row")(question, "training-0", "training/0.png")
    (here.folder / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    here.tables["tools"] = {}
    add_tool(here, service)
    task = {
        "source": "rows.jsonl",
        "protocol": str(RECIPE / "protocol.py:Visual"),
        "protocol_options": {"image_prompt": "", "functions": False},
        "reward": str(RECIPE / "score.py:VisualReward"),
        "group_hook": str(RECIPE / "curiosity.py:Curiosity"),
        "limits": LIMITS,
    }
    one = {"steps": 1, "groups_per_step": 1, "group_size": len(ways)}
    async with here.engine(run=one, engine={"max_concurrent": 1}, task=task) as run:
        (group,) = await run.learner.lease(await run.learner.version(), count=1, wait=60)
    wrote = [[text for who, text in here.texts(one) if who == "model"] for one in group.members]
    sent = [sent_images(requests[-1]) for requests in by_trajectory(here.sampler.requests)]
    return Seen(members=[group.members[wrote.index(way)] for way in ways], codec=codec, images=sent)


def parts(trajectory: Trajectory) -> dict[str, float]:
    return {one.name: round(one.value, 6) for one in trajectory.reward_parts}


async def test_one_of_four_looks_and_reads_the_number(
    part: Part, world: MakeWorld, policy: Path, image_service: Service
) -> None:
    """The others guess, or write calls that the tool refuses in words that they read."""
    (question,) = islice(part("world/task.questions")("training", 5), 1)
    number, field = int(question.answer), question.field
    right, wrong = map(part("world/demonstrations.answer"), (number, 109 - number))
    aimed = part("world/demonstrations.look")(question.scene, field)
    nine = call("select_frames", {"target_frames": list(range(1, 10))})
    ways = [
        [aimed, right + END],
        [wrong + END],
        [look(0.3, 0.2, 0.2, 0.3), look(0.2, 0.2, 1.2, 0.3), nine, right + END],
        [call("crop_image", {"bbox_2d": [10, 10, 401, 20]}), wrong + END],
    ]
    seen = await rolled_out(part, world, policy, image_service, question, ways)
    looked, guessed, refused, outside = seen.members

    assert parts(looked) == {"answer": 1, "curiosity": 0.025, "looking": 0}
    assert looked.reward == pytest.approx(1.025)
    assert parts(guessed) == {"answer": 0, "curiosity": 0, "looking": 0}
    assert parts(refused) == {"answer": 1, "curiosity": 0, "looking": 0}
    assert [one.stop_reason for one in seen.members] == [StopReason.ANSWERED] * 4

    said = [one.outcome.observation for one in (*refused.calls, *outside.calls)]
    assert "left < right" in said[0]
    assert "from 0 to 1" in said[1]
    assert "8" in said[2]
    assert "not inside the image, which is 400 x 400 pixels" in said[3]

    rates = [e.data["rapr"] for e in looked.events if e.kind == "measured" and "rapr" in e.data]
    assert rates == [0.25]

    # What the policy was shown is what a demonstration shows, pixel by pixel.
    (shown,) = (images for images in seen.images if len(images) == 2)
    whole = part("world/pictures.draw")(question.scene)
    cut = part("world/demonstrations.cut")(whole, field)
    for sent, meant in zip(shown, (whole, cut), strict=True):
        assert pixels(sent) == pixels(meant)


async def test_a_demonstration_is_what_a_rollout_would_be(
    part: Part, world: MakeWorld, policy: Path, image_service: Service
) -> None:
    """Token by token: what the policy imitates, and which of it is its own."""
    (question,) = islice(part("world/task.questions")("training", 6), 1)
    shown = part("world/demonstrations.conversation")(question, [question.field])
    action, answer = (turn["content"] for turn in shown.turns if turn["role"] == "assistant")
    ways = [[action, answer + END]] * 2
    seen = await rolled_out(part, world, policy, image_service, question, ways)
    assert seen.codec.image_mark is not None
    place = seen.codec.image_mark.placeholder
    ids, labels = part("world/demonstrations.labelled")(shown, seen.codec, place, 1)

    (sequence,) = seen.members[0].sequences
    found: list[int] = []
    own: list[bool] = []
    for segment in sequence.segments:
        tokens = list(segment.token_ids)
        for ref in segment.media:  # one at most
            del tokens[ref.token_offset + 1 : ref.token_offset + ref.placeholder_tokens]
        found += tokens
        own += [segment.author is Author.MODEL] * len(tokens)
    assert found == ids
    assert own == [label >= 0 for label in labels]


def test_what_a_demonstration_says_fits_the_recipes_limits(part: Part, policy: Path) -> None:
    """And what the policy chooses, the thing, its place and the box, is a token each."""
    codec = HuggingFaceCodec(policy)
    limits = load_recipe(RECIPE / "recipe.toml").shared.task.limits
    for one in islice(part("world/lessons.lessons")(3, 50), 300):
        for turn in one.turns:
            most = limits.action if turn["role"] == "assistant" else limits.observation
            assert len(codec.encode(turn["content"])) < most
    call = part("world/demonstrations.call")
    words = [" red", " red top left", " blue bottom right", *(call(field) for field in range(4))]
    assert [len(codec.encode(word)) for word in words] == [1, 1, 1, 5, 5, 5, 5]


def pixels(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB").tobytes()
