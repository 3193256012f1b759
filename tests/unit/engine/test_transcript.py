"""The token record: append only, budgets kept, one segment a weight version."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.transcript import Transcript
from engine.types import Generated
from toolwright.types import Author, FinishKind, FinishReason, SamplingParams, WeightVersion

V1, V2 = WeightVersion(lineage="a", step=1), WeightVersion(lineage="a", step=2)
STOP = FinishReason(kind=FinishKind.STOP, matched_token=9)
HOT = SamplingParams(temperature=0.7)


def generated(*token_ids: int, versions: list[WeightVersion] | None = None) -> Generated:
    return Generated(
        token_ids=token_ids,
        logprobs=tuple(-i / 8 for i in token_ids),
        versions=tuple(versions or [V1] * len(token_ids)),
        finish=STOP,
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
