"""A chain of tokens: what is sent next, and who wrote what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.core.trajectory.chain import CONTINUED, Chain
from toolwright.types import Author, BlobRef, FinishKind, FinishReason, WeightVersion, floats, ids

pytestmark = pytest.mark.quick

OLD, NEW = (WeightVersion(lineage="a", step=step) for step in (1, 2))
STOP = FinishReason(kind=FinishKind.STOP)
PICTURE = BlobRef(sha256="0" * 64, media_type="image/png", size=3)


def acted(chain: Chain, versions: list[tuple[WeightVersion, int]], **more: object) -> Chain:
    return chain.acted(
        ids([7, 8, 9]), floats([0.0] * 3), versions, turn=0, sampling=None, finish=STOP,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_ids_only_grow_and_each_writer_has_its_segments() -> None:
    begun = Chain.begun(ids([1, 2]))
    grown = acted(begun, [(OLD, 1), (NEW, 2)]).appended(ids([5]), Author.TOOL, turn=0)
    assert list(grown.token_ids) == [1, 2, 7, 8, 9, 5]
    assert grown.response_ids == 4
    assert [(s.author, list(s.token_ids), s.weight_version) for s in grown.segments] == [
        (Author.PROMPT, [1, 2], None),
        (Author.MODEL, [7], OLD),
        (Author.MODEL, [8, 9], NEW),
        (Author.TOOL, [5], None),
    ]
    assert [s.finish for s in grown.segments[1:3]] == [CONTINUED, STOP]
    assert [s.trainable for s in grown.segments] == [False, True, True, False]
    assert list(begun.token_ids) == [1, 2], "the chain before is as it was"
    assert list(grown.before_action(0)) == [1, 2]
    assert grown.before_action(1) == grown.token_ids


def test_an_observation_without_tokens_has_no_segment() -> None:
    begun = Chain.begun(ids([1]))
    assert begun.appended(ids(), Author.TOOL, turn=0) == begun


@pytest.mark.parametrize("versions", [[(OLD, 2)], [(OLD, 2), (NEW, 2)], []])
def test_versions_must_cover_the_tokens(versions: list[tuple[WeightVersion, int]]) -> None:
    with pytest.raises(ValueError, match=r"versions of \d tokens for 3"):
        acted(Chain.begun(ids([1])), versions)


def test_a_sampler_counts_the_images_that_it_was_sent() -> None:
    begun = Chain.begun(ids([1]), [PICTURE])
    counted = acted(begun, [(OLD, 3)], image_tokens=(64,))
    assert counted.images == (replace(begun.images[0], tokens=64),)
    later = counted.appended(ids([5]), Author.TOOL, turn=0, images=[PICTURE])
    assert [(slot.in_response, slot.tokens) for slot in later.images] == [(False, 64), (True, None)]
    with pytest.raises(ValueError, match="zip"):
        acted(later, [(OLD, 3)], image_tokens=(64,))
