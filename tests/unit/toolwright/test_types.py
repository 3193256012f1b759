"""What is derived from the record: masks, spans, versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import records
from toolwright.types import Author, Segment, Sequence, WeightVersion, floats, ids

V1, V2 = WeightVersion(lineage="a", step=1), WeightVersion(lineage="a", step=2)


def model(*token_ids: int, turn: int, version: WeightVersion = V1) -> Segment:
    return Segment(
        author=Author.MODEL,
        token_ids=ids(token_ids),
        logprobs=floats(-float(i) for i in token_ids),
        weight_version=version,
        turn=turn,
        trainable=True,
    )


SEQUENCE = Sequence(
    id="s",
    segments=(
        Segment(author=Author.PROMPT, token_ids=ids([1, 2])),
        model(3, turn=0),
        model(4, 5, turn=0, version=V2),
        Segment(author=Author.TOOL, token_ids=ids([6]), turn=0),
        model(7, turn=1, version=V2),
    ),
)


def test_views_of_a_sequence() -> None:
    assert list(SEQUENCE.token_ids) == [1, 2, 3, 4, 5, 6, 7]
    assert list(SEQUENCE.loss_mask) == [False, False, True, True, True, False, True]
    assert list(SEQUENCE.logprobs) == [0.0, 0.0, -3.0, -4.0, -5.0, 0.0, -7.0]
    assert SEQUENCE.action_spans == ((0, 2, 5), (1, 6, 7))
    assert SEQUENCE.weight_versions == (V1, V2)


@given(records.sequences)
def test_views_are_aligned(sequence: Sequence) -> None:
    length = len(sequence.token_ids)
    assert len(sequence.loss_mask) == len(sequence.logprobs) == length
    covered = [i for _, start, end in sequence.action_spans for i in range(start, end)]
    by_model = [
        i
        for i, author in enumerate(s.author for s in sequence.segments for _ in s.token_ids)
        if author is Author.MODEL
    ]
    assert covered == by_model


def test_a_segment_has_a_log_prob_for_every_token() -> None:
    with pytest.raises(ValueError, match="2 tokens has 1 log-probs"):
        Segment(author=Author.MODEL, token_ids=ids([1, 2]), logprobs=floats([0.0]))


@given(st.from_regex(r"[a-z0-9.\-]+", fullmatch=True), st.integers(0, 2**63))
def test_a_weight_version_survives_its_text(lineage: str, step: int) -> None:
    version = WeightVersion(lineage=lineage, step=step)
    assert WeightVersion.parse(str(version)) == version


@pytest.mark.parametrize("text", ["default", "", ".3", "a.b", "a."])
def test_other_texts_are_no_versions(text: str) -> None:
    with pytest.raises(ValueError):
        WeightVersion.parse(text)
