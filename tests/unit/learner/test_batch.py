"""Trajectories to rows to micro-batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from learner.errors import DataError
from learner.training.batch import Row, check_vocabulary, collate, rows_of
from learner.vision.placed import Image
from toolwright.types import (
    Author,
    BlobRef,
    MediaRef,
    SamplingParams,
    Segment,
    Sequence,
    Status,
    StopReason,
    Task,
    Trajectory,
    WeightVersion,
)

V3, V4 = WeightVersion(lineage="a", step=3), WeightVersion(lineage="a", step=4)


def model(
    ids: tuple[int, ...],
    *,
    version: WeightVersion = V4,
    temperature: float | None = 0.7,
    on: bool = True,
) -> Segment:
    return Segment(
        author=Author.MODEL,
        token_ids=ids,
        logprobs=tuple(-0.1 * i for i in ids),
        weight_version=version,
        trainable=on,
        sampling=None if temperature is None else SamplingParams(temperature=temperature),
    )


def trajectory(*segments: Segment, masked: bool = False) -> Trajectory:
    return Trajectory(
        id="t",
        group_id="g",
        task=Task(id="g"),
        sequences=(Sequence(id="0", segments=segments),),
        status=Status.COMPLETED,
        stop_reason=StopReason.ANSWERED,
        masked=masked,
    )


PROMPT = Segment(author=Author.PROMPT, token_ids=(1, 2))
TOOL = Segment(author=Author.TOOL, token_ids=(7, 7, 7))


def row(length: int, targets: int = 1) -> Row:
    target = np.zeros(length + 1, dtype=bool)
    target[-targets:] = True
    blank = np.zeros(length + 1, dtype=np.float32)
    return Row(
        trajectory=str(length),
        tokens=np.arange(length + 1),
        target=target,
        behaviour=blank,
        advantage=blank,
        temperature=blank + 1,
        fresh=target,
    )


def test_a_row_knows_which_tokens_the_policy_wrote_and_under_what() -> None:
    (row,) = rows_of(
        trajectory(PROMPT, model((3, 4), version=V3), TOOL, model((5,), temperature=None), TOOL),
        temperature=1.3,
        version=V4,
    )
    assert row.tokens.tolist() == [1, 2, 3, 4, 7, 7, 7, 5]  # the last observation is cut off
    assert np.flatnonzero(row.target).tolist() == [2, 3, 7]
    assert row.temperature[row.target] == pytest.approx([0.7, 0.7, 1.3])
    assert row.behaviour[row.target] == pytest.approx([-0.3, -0.4, -0.5])
    assert row.fresh[row.target].tolist() == [False, False, True]


def test_forced_tokens_masked_trajectories_and_first_tokens_carry_no_loss() -> None:
    assert rows_of(trajectory(PROMPT, model((3,), on=False)), temperature=1.0) == []
    assert rows_of(trajectory(PROMPT, model((3,)), masked=True), temperature=1.0) == []
    assert rows_of(trajectory(model((3,))), temperature=1.0) == []
    (kept,) = rows_of(trajectory(model((3, 4))), temperature=1.0)
    assert kept.target.tolist() == [False, True]


def test_a_segment_beyond_the_staleness_bound_is_input_and_carries_no_loss() -> None:
    """The engine sends it with `trainable = false`; later turns are trained on."""
    old = model((3, 4), version=V3, on=False)
    (row,) = rows_of(trajectory(PROMPT, old, TOOL, model((5, 6))), temperature=1.0, version=V4)
    assert row.tokens.tolist() == [1, 2, 3, 4, 7, 7, 7, 5, 6]
    assert np.flatnonzero(row.target).tolist() == [7, 8]
    assert row.fresh[row.target].all()
    advantage = np.arange(9, dtype=np.float32)
    batch = collate([replace(row, weight=0.5, advantage=advantage)], [0])
    assert batch.advantage.tolist() == [7, 8]
    assert batch.targets.tolist() == [5, 6]
    assert batch.weight.tolist() == [0.5, 0.5]
    # After the last token that carries loss nothing is forwarded.
    (cut,) = rows_of(trajectory(PROMPT, model((5,)), TOOL, old), temperature=1.0, version=V4)
    assert cut.tokens.tolist() == [1, 2, 5]


def test_greedy_segments_are_scored_undivided() -> None:
    (row,) = rows_of(trajectory(PROMPT, model((3,), temperature=0.0)), temperature=0.5)
    assert row.temperature[row.target].tolist() == [1.0]


def test_rows_lie_one_after_the_other_and_the_index_points_before_each_target() -> None:
    rows = [row(5, targets=1), row(3, targets=2)]
    batch = collate(rows, [0, 1])
    assert batch.tokens.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2]]
    assert batch.lengths == (5, 3)
    assert batch.index.tolist() == [4, 5 + 1, 5 + 2]
    assert batch.targets.tolist() == [5, 2, 3]
    assert batch.row.tolist() == [0, 1, 1]


def test_a_micro_batch_is_filled_up_with_tokens_that_nobody_reads() -> None:
    batch = collate([row(5)], [0], multiple=4)
    assert batch.tokens.tolist() == [[0, 1, 2, 3, 4, 0, 0, 0]]
    assert batch.lengths == (5, 3)
    assert batch.index.tolist() == [4]


def test_every_row_is_filled_up_where_ranks_share_it() -> None:
    rows = [row(5, targets=2), row(3, targets=2)]
    batch = collate(rows, [0, 1], multiple=8, each=4)
    assert batch.tokens.tolist() == [[0, 1, 2, 3, 4, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0]]
    assert batch.positions.tolist() == [[*range(8), *range(4), *range(4)]]
    assert batch.lengths == (8, 4, 4)
    assert batch.index.tolist() == [3, 4, 8 + 1, 8 + 2]
    assert batch.targets.tolist() == [4, 5, 2, 3]


def test_an_empty_micro_batch_is_legal() -> None:
    batch = collate([], [])
    assert batch.tokens.shape == (1, 1)
    assert batch.targets.numel() == 0
    assert collate([], [], multiple=2).lengths == (2,)


def test_an_id_outside_of_the_vocabulary_is_named() -> None:
    with pytest.raises(DataError, match="token id 5"):
        check_vocabulary([row(5)], 5)


def picture(rows: int, columns: int, name: str = "ab") -> Image:
    return Image(sha256=name, data=b"", grid=(rows, columns))


def seen(count: int, offset: int = 1, name: str = "ab") -> Segment:
    """An observation with an image of `count` tokens after `offset` others."""
    ref = MediaRef(
        blob=BlobRef(sha256=name, media_type="image/png", size=0),
        token_offset=offset,
        placeholder_tokens=count,
    )
    return Segment(author=Author.TOOL, token_ids=(*[7] * offset, *[9] * count, 8), media=(ref,))


def test_images_are_refused_and_not_trained_as_text() -> None:
    held = trajectory(seen(2), model((3,)))
    with pytest.raises(DataError, match=r"t: its policy was shown images.*a text policy"):
        rows_of(held, temperature=1.0)
    assert rows_of(trajectory(seen(2), model((3,)), masked=True), temperature=1.0) == []


def test_a_row_knows_where_its_images_stand() -> None:
    """One that nothing was written after is cut off with its observation, whatever its size."""
    images = {"ab": picture(2, 3), "cd": picture(1, 2, "cd")}
    segments = (seen(6), model((3,)), seen(2, offset=0, name="cd"), model((3,)), seen(1))
    (found,) = rows_of(trajectory(*segments), temperature=1.0, images=images)
    assert [(one.start, one.end, one.image.sha256) for one in found.shown] == [
        (1, 7, "ab"),
        (9, 11, "cd"),
    ]
    for one in found.shown:
        assert set(found.tokens[one.start : one.end]) == {9}
    assert found.shown[-1].end <= found.length


def test_an_image_of_another_size_than_the_samplers_is_named() -> None:
    held = trajectory(seen(4), model((3,)))
    with pytest.raises(DataError, match=r"image ab takes 6 tokens here and took 4 in the sampler"):
        rows_of(held, temperature=1.0, images={"ab": picture(2, 3)})


def test_images_are_packed_with_text_and_positions_begin_again() -> None:
    images = {"ab": picture(1, 2)}
    (sees,) = rows_of(trajectory(seen(2), model((3, 4))), temperature=1.0, images=images)
    rows = [row(3), sees, row(1)]
    batch = collate(rows, [0, 1, 2], multiple=4)
    assert batch.lengths == (3, 5, 1, 3)
    assert [(one.start, one.end) for one in batch.shown] == [(4, 6)]
    assert batch.tokens[0, 4:6].tolist() == [9, 9]
    time, height, width = batch.positions.tolist()
    assert time == [0, 1, 2, 0, 1, 1, 3, 4, 0, 0, 1, 2]
    assert height == time
    assert width == [0, 1, 2, 0, 1, 2, 3, 4, 0, 0, 1, 2]
    assert collate(rows, [0, 2]).positions.tolist() == [[0, 1, 2, 0]]
