"""Events of an attempt, their fold, and the record as a view of it, for any log that can be."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from engine.core.trajectory.chain import CONTINUED, Chain
from engine.core.trajectory.events import (
    Acted,
    AnyEvent,
    Appended,
    Called,
    Ended,
    Noted,
    Rewritten,
    Scored,
    Streamed,
    decode,
    encode,
)
from engine.core.trajectory.record import record
from engine.core.trajectory.state import EMPTY, LogError, apply, fold
from tests.support.journaled import identity_of
from tests.support.logs import PLACEHOLDER, V0, ends, example, logs, scores
from toolwright.types import (
    Author,
    BlobRef,
    Event,
    FinishKind,
    FinishReason,
    StopReason,
    Task,
    WeightVersion,
    floats,
    ids,
)
from toolwright.wire import serialize, trajectory_to_proto

IDENTITY = identity_of(
    "g0000001-0", task=Task(id="t", prompt="6*7"), tokenizer_hash="hash", placeholder=PLACEHOLDER
)


@settings(max_examples=40, deadline=None)
@given(st.data(), logs())
def test_a_fold_of_any_prefix_continued_equals_the_whole(data: Any, log: list[AnyEvent]) -> None:
    cut = data.draw(st.integers(0, len(log)))
    assert fold(log[cut:], fold(log[:cut])) == fold(log)


@settings(max_examples=40, deadline=None)
@given(logs())
def test_ids_of_a_turn_begin_with_all_ids_of_the_turn_before(log: list[AnyEvent]) -> None:
    state = EMPTY
    for event in log:
        after = apply(state, event)
        assert len(after.token_ids) == sum(len(one.token_ids) for one in after.segments)
        if isinstance(event, Rewritten):
            assert after.token_ids == state.token_ids[: event.shared] + event.token_ids
            assert not any(one.trainable for one in after.segments)
        else:
            assert after.token_ids[: len(state.token_ids)] == state.token_ids
        if not after.rewrites:
            assert len(after.token_ids) - after.response_ids == (
                len(after.segments[0].token_ids) if after.opened else 0
            )
        state = after


@settings(max_examples=40, deadline=None)
@given(logs(ended=True))
def test_each_token_of_the_policy_is_trainable_in_one_sequence(log: list[AnyEvent]) -> None:
    """Rewrites or not: what the record trains are all tokens that the policy wrote, in order."""
    state = fold(log)
    told = record(state, IDENTITY)
    wrote = [token for event in log if isinstance(event, Acted) for token in event.token_ids]
    if told.sequences:
        trained = [s for q in told.sequences for s in q.segments if s.trainable]
        assert [token for s in trained for token in s.token_ids] == wrote
        assert [s.token_ids for s in told.written] == [s.token_ids for s in trained]
        assert len(told.sequences) == 1 + sum(isinstance(event, Rewritten) for event in log)
        for before, after in pairwise(told.sequences):
            shared = after.fork_offset or 0
            assert after.parent == before.id
            assert not any(after.loss_mask[:shared])
            # An image that the earlier sequence never sent has one token there.
            copy, whole = (
                [token for token in one if token != PLACEHOLDER]
                for one in (after.token_ids[:shared], before.token_ids)
            )
            assert copy == whole[: len(copy)]


@settings(max_examples=30, deadline=None)
@given(logs(ended=True), ends, scores)
def test_no_event_after_the_end_but_scored_and_the_last_one_counts(
    log: list[AnyEvent], end: Ended, score: Scored
) -> None:
    state = fold(log)
    for event in (*example()[:-1], end, Noted(note=Event(kind="n", turn=0))):
        with pytest.raises(LogError):
            apply(state, event)
    assert apply(state, score).score == score


@settings(max_examples=40, deadline=None)
@given(logs())
def test_events_come_back_as_they_were_byte_for_byte(log: list[AnyEvent]) -> None:
    data = encode(log)
    again = decode(data)
    assert again == log
    assert encode(again) == data


@settings(max_examples=60, deadline=None)
@given(logs(), st.data())
def test_a_log_with_changed_bytes_is_read_and_folded_or_a_value_error(
    log: list[AnyEvent], data: Any
) -> None:
    changed = bytearray(encode(log))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(changed)))
    for garbage in (bytes(changed), bytes(changed[:cut])):
        with contextlib.suppress(ValueError):
            state = fold(decode(garbage))
            if state.ended is not None:
                record(state, IDENTITY)


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1x", b"\xdd\xff\xff\xff\xff", b"\xc9"])
def test_what_is_nested_without_end_is_a_value_error(opening: bytes) -> None:
    with pytest.raises(ValueError, match="no events"):
        decode(opening * 100_000)


@settings(max_examples=40, deadline=None)
@given(logs(ended=True))
def test_the_record_is_the_same_after_the_journal(log: list[AnyEvent]) -> None:
    before = record(fold(log), IDENTITY)
    after = record(fold(decode(encode(log))), IDENTITY)
    assert after == before
    assert serialize(trajectory_to_proto(after)) == serialize(trajectory_to_proto(before))


@settings(max_examples=40, deadline=None)
@given(logs(ended=True))
def test_images_of_the_record_stand_where_their_tokens_are(log: list[AnyEvent]) -> None:
    state = fold(log)
    told = record(state, IDENTITY)
    if told.sequences:
        shown = [ref.blob for segment in told.sequences[-1].segments for ref in segment.media]
        assert shown == [slot.blob for slot in state.images]
        for segment in (one for sequence in told.sequences for one in sequence.segments):
            for ref in segment.media:
                run = segment.token_ids[ref.token_offset :][: ref.placeholder_tokens]
                assert list(run) == [PLACEHOLDER] * ref.placeholder_tokens


def test_a_placeholder_without_an_image_is_a_value_error() -> None:
    (opened, *_), blob = example(), BlobRef(sha256="a", media_type="image/png", size=1)
    opened = structs.replace(opened, prompt=ids([PLACEHOLDER, 1, PLACEHOLDER]), images=(blob,))
    with pytest.raises(ValueError, match="more placeholders than images"):
        record(fold([opened, Ended(reason=StopReason.ANSWERED)]), IDENTITY)


def test_a_record_before_the_end_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="has not ended"):
        record(fold(example()[:5]), IDENTITY)


def test_runs_are_joined_under_one_version_alone() -> None:
    """Two lineages have versions of one step: what each wrote stays its own."""
    fork = WeightVersion(lineage="b", step=V0.step)
    log: list[AnyEvent] = [example()[0]]
    for token, version in enumerate((V0, V0, fork)):
        streamed = Streamed(
            token_ids=ids([token]), logprobs=floats([0.0]), versions=((version, 1),)
        )
        log.append(streamed)
    partial = fold(log).partial
    assert partial is not None
    assert partial.versions == ((V0, 2), (fork, 1))


def acted(tokens: int, logprobs: int, told: int) -> Acted:
    return Acted(
        token_ids=ids(range(tokens)),
        logprobs=floats([0.0] * logprobs),
        versions=((V0, told),),
        finish=FinishReason(kind=FinishKind.STOP),
        text="",
    )


@pytest.mark.parametrize(
    "wrong",
    [
        [*example()[:1], *example()[:1]],
        [Noted(note=Event(kind="n", turn=0))],
        [example()[0], example()[3]],
        [example()[0], example()[4]],
        [*example()[:3], example()[4]],
        [*example()[:4], example()[3]],
        [*example()[:2], example()[1]],
        [example()[0], Called(call_id="1/0", turn=1, index=0, action="")],
        [example()[0], Called(call_id="0/1", turn=0, index=1, action="")],
        [*example()[:2], Streamed(token_ids=ids([1]), logprobs=floats([0.0]), versions=((V0, 1),))],
        [example()[0], acted(3, 3, 2)],
        [example()[0], acted(3, 3, 4)],
        [example()[0], acted(3, 2, 3)],
        [example()[8]],
        [Appended(token_ids=ids([1]), author=Author.TOOL)],
    ],
    ids=lambda log: " ".join(type(event).__name__ for event in log),
)
def test_an_order_that_no_attempt_has_is_refused(wrong: list[AnyEvent]) -> None:
    with pytest.raises(ValueError):
        fold(wrong)


def test_an_attempt_that_could_not_open_has_a_record() -> None:
    state = fold([Ended(reason=StopReason.SESSION_LOST, error="no service")])
    told = record(state, IDENTITY)
    assert (told.masked, told.outside_baseline, told.sequences) == (True, True, ())
    assert told.events[-1].data == {"error": "no service"}


OLD, NEW = (WeightVersion(lineage="a", step=step) for step in (1, 2))
STOP = FinishReason(kind=FinishKind.STOP)
PICTURE = BlobRef(sha256="0" * 64, media_type="image/png", size=3)


def acting(chain: Chain, versions: list[tuple[WeightVersion, int]], **more: object) -> Chain:
    return chain.acted(
        ids([7, 8, 9]), floats([0.0] * 3), versions, turn=0, sampling=None, finish=STOP,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_ids_only_grow_and_each_writer_has_its_segments() -> None:
    begun = Chain.begun(ids([1, 2]))
    grown = acting(begun, [(OLD, 1), (NEW, 2)]).appended(ids([5]), Author.TOOL, turn=0)
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


def test_a_sampler_counts_the_images_that_it_was_sent() -> None:
    begun = Chain.begun(ids([1]), [PICTURE])
    counted = acting(begun, [(OLD, 3)], image_tokens=(64,))
    assert counted.images == (replace(begun.images[0], tokens=64),)
    later = counted.appended(ids([5]), Author.TOOL, turn=0, images=[PICTURE])
    assert [(slot.in_response, slot.tokens) for slot in later.images] == [(False, 64), (True, None)]
    with pytest.raises(ValueError, match="zip"):
        acting(later, [(OLD, 3)], image_tokens=(64,))
