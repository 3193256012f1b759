"""A policy that reads images: those of the task and of observations go to the sampler, in order and
for every later turn, and the learner can fetch what it was shown."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from bench.scripted import Break, Faults
from engine.core.text.codec import HuggingFaceCodec
from tests.integration.engine.conftest import MakeWorld
from tests.integration.toolsvc.conftest import Service, start_service
from tests.integration.toolsvc.media import video_file
from tests.support.dialogue import ANSWER, by_turn
from tests.support.recipes import ONE
from tests.support.shown_images import (
    LARGE,
    RUN,
    SMALL,
    add_tool,
    by_trajectory,
    check_record,
    sent_images,
)
from tests.support.waiting import until
from toolwright.types import StopReason

pytestmark = pytest.mark.quick


async def test_a_row_with_an_image_and_a_video(
    world: MakeWorld, vision: Path, rows: dict[str, Any], image_service: Service
) -> None:
    """The tool gets both, the policy sees the image and what the tool shows."""
    frames = (
        '<tool_call>{"name": "select_frames", "arguments": {"target_frames": [1, 3]}}</tool_call>'
    )
    here = await world(
        policy=vision,
        script=by_turn(HuggingFaceCodec(vision), [SMALL, frames, ANSWER]),
        run=ONE,
        task=rows,
    )
    (here.folder / "grey.mp4").write_bytes(video_file("mp4", "libx264"))
    row = {"id": "q", "prompt": "<image> What?", "images": ["noise.png"], "videos": ["grey.mp4"]}
    (here.folder / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    add_tool(here, image_service)
    (trajectory,) = (await here.group()).members
    cut, selected = (call.outcome for call in trajectory.calls)
    assert "Image 2: " in cut.observation
    assert re.search(r"Image 3 \(frame 1, at .*Image 4 \(frame 3, at ", selected.observation, re.S)
    assert [ref.blob.media_type for ref in trajectory.task.media] == ["image/png", "video/mp4"]
    assert [len(request.image_data) for request in here.sampler.requests] == [1, 2, 4]
    assert trajectory.task.metadata == {}, "a column of media is no metadata"


@pytest.mark.parametrize(
    ("protocol", "answered"),
    [("tagged:Tagged", "</result>"), ("chat:Chat", "<|im_start|>tool")],
)
async def test_prompt_and_observations(
    protocol: str,
    answered: str,
    world: MakeWorld,
    vision: Path,
    rows: dict[str, Any],
    noise: bytes,
    image_service: Service,
) -> None:
    here = await world(
        policy=vision,
        script=by_turn(HuggingFaceCodec(vision), [SMALL, LARGE, ANSWER], mark=answered),
        run=RUN,
        task={**rows, "protocol": f"engine.core.protocols.{protocol}"},
    )
    add_tool(here, image_service)
    assert here.codec.image_mark is not None
    placeholder = here.codec.image_mark.placeholder
    async with here.engine() as run:
        (group,) = await run.learner.lease()
        refs = {ref.blob.sha256: ref.blob for t in group.members for ref in t.shown_media}
        fetched = {name: await run.learner.blob(name) for name in refs}
    for name, data in fetched.items():
        assert hashlib.sha256(data).hexdigest() == name
    for requests in by_trajectory(here.sampler.requests):
        assert [len(request.image_data) for request in requests] == [1, 2, 3]
        for earlier, later in pairwise(requests):
            assert later.input_ids[: len(earlier.input_ids)] == earlier.input_ids
            assert later.image_data[: len(earlier.image_data)] == earlier.image_data
        for request in requests:
            assert request.input_ids.count(placeholder) == len(request.image_data)
            assert request.body["return_prompt_token_ids"] is True
        first, small, large = sent_images(requests[-1])
        assert first == noise
        assert Image.open(io.BytesIO(small)).size < Image.open(io.BytesIO(large)).size
        assert len(small) < 256 << 10 < len(large)  # this one came by GetBlob
    for trajectory in group.members:
        assert trajectory.stop_reason is StopReason.ANSWERED
        check_record(trajectory, placeholder, fetched)
        (sequence,) = trajectory.sequences
        assert [len(s.media) for s in sequence.segments] == [1, 0, 1, 0, 1, 0]
        assert sequence.segments[0].media[0].blob == trajectory.task.media[0].blob
        assert all(c.outcome.observation.count("[image/png]") == 1 for c in trajectory.calls)


async def test_a_sample_names_its_images(seeing: MakeWorld) -> None:
    """People read it: a picture is not a thousand placeholders there."""
    suite = {"name": "heldout", "source": "rows.jsonl", "n": 1}
    here = await seeing(engine={"evaluation": {"suites": [suite]}})
    async with here.engine() as run:
        samples = run.folder / "samples.jsonl"
        await until(lambda: samples.exists() and samples.read_bytes() != b"", "a sample")
    prompt, _ = json.loads(samples.read_text(encoding="utf-8"))["segments"]
    assert "Look: <|vision_start|>[image/png]<|vision_end|>\nwhat is" in prompt["text"]


async def test_later_turns_without_a_new_image_do_not_ask_for_the_prompt(seeing: MakeWorld) -> None:
    here = await seeing("<python> 1+1</python>", ANSWER)
    await here.group()
    ((first, second),) = by_trajectory(here.sampler.requests)
    assert first.body["return_prompt_token_ids"] is True
    assert "return_prompt_token_ids" not in second.body
    assert first.image_data == second.image_data


async def test_a_broken_stream_goes_on_with_its_images(seeing: MakeWorld, noise: bytes) -> None:
    faults = Faults(breaks={0: Break(chunks=4)})
    here = await seeing(faults=faults, sampler={"stream_interval": 1})
    assert here.codec.image_mark is not None
    trajectory = await here.trajectory()
    broken, again = here.sampler.requests
    assert again.image_data == broken.image_data
    assert again.input_ids[: len(broken.input_ids)] == broken.input_ids
    assert len(again.input_ids) > len(broken.input_ids)
    names = {hashlib.sha256(noise).hexdigest(): noise}
    check_record(trajectory, here.codec.image_mark.placeholder, names)
    assert trajectory.stop_reason is StopReason.ANSWERED


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
"""One opaque pixel: what is transparent would be written anew."""
FILE = """
import base64
import hashlib

from toolsvc import Tool


class Look(Tool):
    name = "look"
    media = True

    def open(self, session):
        return list(session.blobs.values())

    def call(self, state, call):
        return " ".join(
            f"{one.media_type}:{hashlib.sha256(one.data).hexdigest()[:8]}" for one in state
        )
"""


async def test_images_of_rows_are_blobs_of_sessions(world: MakeWorld, tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(FILE, encoding="utf-8")
    # More than one piece, and not the same as the small one.
    large = PNG + bytes(3 << 20)
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "b.png").write_bytes(large)
    row = {"id": "q", "prompt": "what is 0+1?", "images": ["b.png", "a.png"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    here = await world(
        run={"steps": 1, "groups_per_step": 1, "group_size": 2}, task={"source": "rows.jsonl"}
    )
    here.sampler._script = by_turn(here.codec, ["<look> </look>", ANSWER])
    service = start_service(tmp_path / "look.log", str(tmp_path / "look.py"))
    try:
        here.tables["tools"]["look"] = {"service": service.address}
        group = await here.group()
    finally:
        service.process.terminate()
        service.process.wait(30)
    hashes = [hashlib.sha256(data).hexdigest() for data in (large, PNG)]
    for trajectory in group.members:
        (call,) = trajectory.calls
        assert call.outcome.observation == " ".join(f"image/png:{one[:8]}" for one in hashes)
        assert [ref.blob.sha256 for ref in trajectory.task.media] == hashes
        assert [ref.blob.size for ref in trajectory.task.media] == [len(large), len(PNG)]
    assert not any(request.blobs for request in here.tools.opened)  # its tools take no media
