"""`learner run` on trajectories with images, whose log-probs transformers computed."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from learner import run as loop
from learner.errors import EngineError
from learner.training.batch import rows_of
from learner.vision.pixels import Pixels
from tests.integration.learner.fake_engine import FakeEngine
from tests.integration.learner.seeing import (
    END,
    PAD,
    SIZES,
    START,
    WORDS,
    load_seeing,
    picture,
    seeing_log_probs,
    write_seeing_model,
)
from tests.integration.learner.test_run import metrics, recipe_for
from toolwright import types as t

pytestmark = pytest.mark.slow

PICTURES = [picture(*size, seed=seed) for seed, size in enumerate(SIZES)]
BLOBS = {hashlib.sha256(data).hexdigest(): data for data in PICTURES}


class Sampler:
    """Groups whose policy was shown images; transformers says how likely its tokens were."""

    def __init__(self, pixels: Pixels) -> None:
        self.pixels = pixels
        self._loaded: tuple[Path, Any] = (Path(), None)

    def __call__(self, number: int, version: t.WeightVersion, folder: Path) -> list[t.Trajectory]:
        draw = random.Random(f"{number}-{version}")
        group = []
        for index in range(4):
            segments = [
                self._seen(t.Author.PROMPT, draw, PICTURES[number % 3]),
                self._acted(draw, version, 0),
                self._seen(t.Author.TOOL, draw, PICTURES[index % 3]),
                self._acted(draw, version, 1),
            ]
            group.append(self._trajectory(number, index, segments))
        return [self._scored(one, folder) for one in group]

    def _seen(self, author: t.Author, draw: random.Random, data: bytes) -> t.Segment:
        name = hashlib.sha256(data).hexdigest()
        count = self.pixels.image(name, data).tokens
        words = [draw.randrange(WORDS) for _ in range(draw.randint(1, 4))]
        ref = t.MediaRef(
            blob=t.BlobRef(sha256=name, media_type="image/png", size=len(data)),
            token_offset=len(words) + 1,
            placeholder_tokens=count,
        )
        return t.Segment(
            author=author, token_ids=[*words, START, *[PAD] * count, END], media=(ref,)
        )

    def _acted(self, draw: random.Random, version: t.WeightVersion, turn: int) -> t.Segment:
        ids = [draw.randrange(WORDS) for _ in range(draw.randint(8, 12))]
        return t.Segment(
            author=t.Author.MODEL,
            token_ids=ids,
            turn=turn,
            logprobs=[0.0] * len(ids),
            weight_version=version,
            trainable=True,
            sampling=t.SamplingParams(temperature=1.0),
        )

    def _trajectory(self, number: int, index: int, segments: list[t.Segment]) -> t.Trajectory:
        return t.Trajectory(
            id=f"g{number}/{index}",
            group_id=f"g{number}",
            index=index,
            task=t.Task(id=f"g{number}"),
            sequences=(t.Sequence(id="0", segments=tuple(segments)),),
            status=t.Status.COMPLETED,
            stop_reason=t.StopReason.ANSWERED,
            reward=float(index % 2),
        )

    def _scored(self, trajectory: t.Trajectory, folder: Path) -> t.Trajectory:
        if self._loaded[0] != folder:
            self._loaded = (folder, load_seeing(folder))
        images = {name: self.pixels.image(name, data) for name, data in BLOBS.items()}
        (row,) = rows_of(trajectory, temperature=1.0, images=images)
        with torch.no_grad():
            found = [0.0, *seeing_log_probs(self._loaded[1], row, pixels=self.pixels).tolist()]
        segments, at = [], 0
        for segment in trajectory.sequences[0].segments:
            end = at + len(segment.token_ids)
            if segment.author is t.Author.MODEL:
                segment = replace(segment, logprobs=t.floats(found[at:end]))
            segments.append(segment)
            at = end
        # What no sampler saw: one token, and bytes that nobody asks for.
        ref = t.MediaRef(
            blob=t.BlobRef(sha256="f" * 64, media_type="image/png", size=7),
            token_offset=1,
            placeholder_tokens=1,
        )
        segments.append(t.Segment(author=t.Author.TOOL, token_ids=[START, PAD, END], media=(ref,)))
        sequence = replace(trajectory.sequences[0], segments=tuple(segments))
        return replace(trajectory, sequences=(sequence,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeing_model(tmp_path_factory.mktemp("seeing") / "model")


def test_every_step_agrees_with_the_sampler(
    tmp_path: Path, folder: Path, engine: FakeEngine
) -> None:
    """Over publishes of a policy whose tower is trained; each image is fetched once a step, and
    the first one in two pieces, since the connection broke."""
    engine.write, engine.blobs = Sampler(Pixels(folder)), dict(BLOBS)
    changes = {"run.steps": 2, "learner.vision": '"trained"', "learner.kl.coefficient": 0.1}
    final = loop.run(recipe_for(tmp_path, folder, engine, **changes))
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == [1, 2]
    assert all(line["gap_tokens"] >= 128 for line in lines)
    assert all(line["gap_max"] < 1e-5 for line in lines), [line["gap_max"] for line in lines]
    assert engine.asked[1] == (engine.asked[0][0], 1000)
    assert sorted(name for name, at in engine.asked if at == 0) == sorted([*BLOBS, *BLOBS])
    before, after = load_seeing(folder).state_dict(), load_seeing(final).state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert any(name.startswith("model.visual.") for name in moved)
    assert any(name.startswith("model.language_model.") for name in moved)


def test_bytes_that_are_not_the_image_are_refused(
    tmp_path: Path, folder: Path, engine: FakeEngine
) -> None:
    engine.write = Sampler(Pixels(folder))
    engine.blobs = {name: data[:-1] + b"x" for name, data in BLOBS.items()}
    with pytest.raises(EngineError, match="another hash: its journal is damaged"):
        loop.run(recipe_for(tmp_path, folder, engine))
