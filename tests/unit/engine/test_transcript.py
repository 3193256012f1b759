"""The token record: append only, budgets kept, one segment a weight version."""

from __future__ import annotations

from array import array
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.images.media import media_of
from engine.images.places import ExpansionMismatch
from engine.rollout.transcript import Transcript
from engine.types import Generated, ImageMark
from toolwright.types import (
    Author,
    FinishKind,
    FinishReason,
    MediaRef,
    SamplingParams,
    WeightVersion,
)

V1, V2 = WeightVersion(lineage="a", step=1), WeightVersion(lineage="a", step=2)
STOP = FinishReason(kind=FinishKind.STOP, matched_token=9)
HOT = SamplingParams(temperature=0.7)


IMAGE = 50
MARK = ImageMark(text="[i]", token_ids=(IMAGE,), placeholder=IMAGE, reserved=())
RED, BLUE = media_of(b"red", "image/png"), media_of(b"blue!", "image/png")


def generated(
    *token_ids: int,
    versions: list[WeightVersion] | None = None,
    prompt: tuple[int, ...] = (),
    prompt_tokens: int = 0,
) -> Generated:
    return Generated(
        token_ids=array("i", token_ids),
        logprobs=array("f", [-i / 8 for i in token_ids]),
        versions=tuple(
            (v, len(list(run))) for v, run in groupby(versions or [V1] * len(token_ids))
        ),
        finish=STOP,
        prompt_tokens=prompt_tokens or len(prompt),
        prompt_ids=prompt,
    )


def with_an_image() -> Transcript:
    """Of a red image, for which 5 tokens are set aside."""
    return Transcript(
        [1, IMAGE, 2],
        response=20,
        model=40,
        images=[RED],
        mark=MARK,
        image_tokens=5,
    )


def test_a_turn_and_its_observation() -> None:
    transcript = Transcript([1, 2], response=10, model=100)
    transcript.append_action(generated(3, 4), turn=0, sampling=HOT)
    assert transcript.append_observation([5], turn=0)
    transcript.append_action(generated(6), turn=1, sampling=HOT)
    sequence = transcript.sequence("s")
    assert sequence.token_ids == (1, 2, 3, 4, 5, 6)
    assert [s.author for s in sequence.segments] == [
        Author.PROMPT, Author.MODEL, Author.TOOL, Author.MODEL,
    ]  # fmt: skip
    assert [s.turn for s in sequence.segments] == [0, 0, 0, 1]
    action = sequence.segments[1]
    assert (action.logprobs, action.weight_version) == ((-3 / 8, -4 / 8), V1)
    assert (action.sampling, action.finish, action.trainable) == (HOT, STOP, True)
    observation = sequence.segments[2]
    assert (observation.logprobs, observation.trainable, observation.finish) == (None, False, None)
    assert (transcript.used, transcript.response_room, transcript.model_room) == (4, 6, 94)


def test_one_segment_a_weight_version() -> None:
    transcript = Transcript([1], response=10, model=100)
    transcript.append_action(generated(3, 4, 5, versions=[V1, V1, V2]), turn=0)
    _, first, second = transcript.sequence("s").segments
    assert (first.token_ids, first.weight_version) == ((3, 4), V1)
    assert first.finish == FinishReason(kind=FinishKind.CONTINUED)
    assert (second.token_ids, second.weight_version, second.finish) == ((5,), V2, STOP)
    assert second.logprobs == (-5 / 8,)


def test_an_action_without_tokens_is_no_segment() -> None:
    transcript = Transcript([1], response=10, model=100)
    transcript.append_action(generated(), turn=0)
    assert len(transcript.sequence("s").segments) == 1


def test_an_observation_is_cut_to_the_room_left() -> None:
    transcript = Transcript([1], response=3, model=100)
    assert not transcript.append_observation([2, 3, 4, 5], turn=0)
    assert transcript.token_ids == [1, 2, 3, 4]
    assert not transcript.append_observation([6], turn=0)
    assert transcript.token_ids == [1, 2, 3, 4]
    transcript = Transcript([1], response=100, model=3)
    assert not transcript.append_observation([2, 3, 4], turn=0)
    assert transcript.token_ids == [1, 2, 3]
    assert Transcript([1, 2, 3], response=5, model=2).append_observation([], turn=0)


def test_the_prompt_that_was_given_is_not_shared() -> None:
    prompt = [1]
    transcript = Transcript(prompt, response=3, model=100)
    transcript.append_observation([2], turn=0)
    assert prompt == [1]


def test_an_image_is_sent_as_one_token_and_recorded_as_many() -> None:
    transcript = with_an_image()
    assert transcript.has_unseen_images
    assert (transcript.model_room, transcript.image_bytes) == (40 - 2 - 5, 3)
    reply = generated(3, 4, prompt=(1, IMAGE, IMAGE, IMAGE, 2))
    transcript.learn(reply)
    transcript.append_action(reply, turn=0)
    assert not transcript.has_unseen_images
    assert (transcript.model_room, transcript.used) == (40 - 5 - 2, 2)
    assert transcript.append_observation([7, IMAGE, 8], turn=0, images=[BLUE])
    assert transcript.token_ids == [1, IMAGE, 2, 3, 4, 7, IMAGE, 8]
    assert transcript.images == [RED, BLUE]
    assert transcript.used == 2 + 2 + 5
    reply = generated(6, prompt=(1, IMAGE, IMAGE, IMAGE, 2, 3, 4, 7, IMAGE, IMAGE, 8))
    transcript.learn(reply)
    transcript.append_action(reply, turn=1)
    prompt, _, observation, _ = transcript.sequence("s").segments
    assert prompt.token_ids == (1, IMAGE, IMAGE, IMAGE, 2)
    assert prompt.media == (MediaRef(blob=RED.blob, token_offset=1, placeholder_tokens=3),)
    assert observation.token_ids == (7, IMAGE, IMAGE, 8)
    assert observation.media == (MediaRef(blob=BLUE.blob, token_offset=1, placeholder_tokens=2),)
    assert transcript.used == 2 + 4 + 1


def test_an_image_that_no_sampler_saw_stays_one_token() -> None:
    transcript = with_an_image()
    (prompt,) = transcript.sequence("s").segments
    assert prompt.token_ids == (1, IMAGE, 2)
    assert prompt.media[0].placeholder_tokens == 1


def test_what_the_policy_wrote_is_no_image() -> None:
    transcript = with_an_image()
    reply = generated(IMAGE, prompt=(1, IMAGE, 2))
    transcript.learn(reply)
    transcript.append_action(reply, turn=0)
    _, action = transcript.sequence("s").segments
    assert (action.token_ids, action.media) == ((IMAGE,), ())


def test_the_same_image_takes_the_same_tokens() -> None:
    transcript = with_an_image()
    transcript.learn(generated(prompt=(1, IMAGE, IMAGE, 2)))
    with pytest.raises(ExpansionMismatch, match="has 4 tokens, the sampler counted 5"):
        transcript.learn(generated(prompt_tokens=5))
    transcript.append_observation([IMAGE], turn=0, images=[BLUE])
    with pytest.raises(ExpansionMismatch, match="image 0 took 2 tokens before and 3 now"):
        transcript.learn(generated(prompt=(1, IMAGE, IMAGE, IMAGE, 2, IMAGE)))


def test_a_sampler_that_does_not_tell_is_noticed() -> None:
    with pytest.raises(ExpansionMismatch):
        with_an_image().learn(generated(prompt_tokens=5))


def test_an_observation_is_cut_before_an_image_that_does_not_fit() -> None:
    transcript = Transcript([1], response=9, model=100, mark=MARK, image_tokens=5)
    body = [2, IMAGE, 3, IMAGE, 4]
    assert not transcript.append_observation(body, turn=0, images=[RED, BLUE])
    assert transcript.token_ids == [1, 2, IMAGE, 3]
    assert transcript.images == [RED]
    assert transcript.used == 7


@pytest.mark.parametrize(("response", "kept"), [(7, [2]), (8, [2, 40, IMAGE, 41])])
def test_an_image_s_mark_is_never_cut(response: int, kept: list[int]) -> None:
    """Neither between the placeholder and what stands before it, nor before what ends it."""
    mark = ImageMark(text="([i])", token_ids=(40, IMAGE, 41), placeholder=IMAGE, reserved=())
    transcript = Transcript([1], response=response, model=100, mark=mark, image_tokens=5)
    assert not transcript.append_observation([2, 40, IMAGE, 41, 3], turn=0, images=[RED])
    assert transcript.token_ids == [1, *kept]
    assert transcript.images == [RED] * kept.count(IMAGE)


STEP = st.tuples(st.booleans(), st.lists(st.integers(0, 99), max_size=6), st.booleans())


@given(st.lists(STEP, max_size=12), st.integers(1, 20), st.integers(2, 30))
def test_it_only_grows_and_stays_in_its_budgets(
    steps: list[tuple[bool, list[int], bool]], response: int, model: int
) -> None:
    transcript = Transcript([7], response=response, model=model)
    before = list(transcript.token_ids)
    for turn, (is_action, ids, switch) in enumerate(steps):
        if is_action:  # the sampler is asked for no more than the room
            ids = ids[: max(0, min(transcript.response_room, transcript.model_room))]
            half = len(ids) // 2 if switch else 0
            versions = [V1] * half + [V2] * (len(ids) - half)
            transcript.append_action(generated(*ids, versions=versions), turn=turn)
        else:
            transcript.append_observation(ids, turn=turn)
        assert transcript.token_ids[: len(before)] == before
        before = list(transcript.token_ids)
        assert transcript.used == len(before) - 1 <= response
        assert len(before) <= model
        sequence = transcript.sequence("s")
        assert list(sequence.token_ids) == before
        for segment in sequence.segments[1:]:
            assert segment.token_ids
