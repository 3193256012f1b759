"""Hypothesis strategies for whole records, as the producers of this project may write them."""

from __future__ import annotations

import struct as bits
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from toolwright import types as t

INT32 = st.integers(0, 2**31 - 1)
UINT32 = st.integers(0, 2**32 - 1)
FLOAT = st.floats(allow_nan=False)
FLOAT32 = st.floats(width=32, allow_nan=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAME = TEXT.filter(bool)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOAT | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=4)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def tuples(strategy: st.SearchStrategy[Any], size: int = 3) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=size).map(tuple)


versions = st.builds(t.WeightVersion, lineage=NAME, step=st.integers(0, 2**63))
sampling = st.builds(
    t.SamplingParams,
    temperature=optional(FLOAT),
    top_p=optional(FLOAT),
    top_k=optional(st.integers(-1, 2**31 - 1)),
    min_p=optional(FLOAT),
    repetition_penalty=optional(FLOAT),
    seed=optional(st.integers(0, 2**64 - 1)),
    adapter=optional(TEXT),
    max_new_tokens=optional(UINT32),
)
finishes = st.builds(
    t.FinishReason,
    kind=st.sampled_from(t.FinishKind),
    matched_token=optional(INT32),
    matched_text=optional(TEXT),
)
blobs = st.builds(t.BlobRef, sha256=TEXT, media_type=TEXT, size=st.integers(0, 2**63))
media = st.builds(
    t.MediaRef,
    blob=blobs,
    token_offset=UINT32,
    placeholder_tokens=UINT32,
)
tensors = st.builds(
    t.TokenTensor,
    name=NAME,
    dtype=st.sampled_from(["float32", "int16"]),
    shape=tuples(UINT32),
    data=st.binary(max_size=16),
)


@st.composite
def segments(draw: st.DrawFn) -> t.Segment:
    author = draw(st.sampled_from(t.Author))
    token_ids = draw(st.lists(INT32, min_size=1, max_size=8))
    wrote = author is t.Author.MODEL and draw(st.booleans())
    logprobs = st.lists(FLOAT32, min_size=len(token_ids), max_size=len(token_ids))
    return t.Segment(
        author=author,
        token_ids=t.ids(token_ids),
        turn=draw(UINT32),
        logprobs=t.floats(draw(logprobs)) if wrote else None,
        weight_version=draw(optional(versions)),
        trainable=draw(st.booleans()),
        sampling=draw(optional(sampling)),
        finish=draw(optional(finishes)),
        media=draw(tuples(media, 1)),
        tensors=draw(tuples(tensors, 1)),
    )


sequences = st.builds(
    t.Sequence,
    id=TEXT,
    segments=tuples(segments()),
    parent=optional(NAME),
    fork_offset=optional(UINT32),
    agent=TEXT,
    weight=st.just(1.0) | st.floats(0, allow_nan=False, allow_infinity=False),
)


def outcomes(
    text: st.SearchStrategy[str],
    blobs: st.SearchStrategy[t.BlobRef],
    *,
    seconds: st.SearchStrategy[float] = FLOAT,
    count: st.SearchStrategy[int] = UINT32,
    **more: st.SearchStrategy[Any],
) -> st.SearchStrategy[t.CallOutcome]:
    return st.builds(
        t.CallOutcome,
        observation=text,
        valid=st.booleans(),
        parts=tuples(text | blobs, 2),
        invalid_reason=text,
        done=st.booleans(),
        error=st.sampled_from(t.ToolErrorKind),
        session_lost=st.booleans(),
        reward=optional(FLOAT),
        metrics=st.dictionaries(text, FLOAT, max_size=2),
        truncated=st.booleans(),
        isolation=text,
        author=st.sampled_from(t.Author),
        token_budget=count,
        queued_s=seconds,
        run_s=seconds,
        **more,
    )


@st.composite
def calls(draw: st.DrawFn) -> t.CallRecord:
    """The record has one name for the tool that was asked and the one that answered."""
    tool = draw(TEXT)
    return t.CallRecord(
        call_id=draw(TEXT),
        turn=draw(UINT32),
        index=draw(UINT32),
        tool=tool,
        action=draw(TEXT),
        outcome=replace(draw(outcomes(TEXT, blobs)), tool=tool),
        timings=draw(stamps),
    )


stamps = st.builds(
    t.CallTimings,
    stop_read_ns=st.integers(0, 2**63),
    dispatched_ns=st.integers(0, 2**63),
    result_ns=st.integers(0, 2**63),
)
tasks = st.builds(
    t.Task,
    id=TEXT,
    purpose=st.sampled_from(t.Purpose),
    data_source=TEXT,
    prompt=TEXT,
    messages=tuples(OBJECT),
    answers=tuples(TEXT),
    metadata=OBJECT,
    sampling=optional(sampling),
    media=tuples(media, 1),
)
trajectories = st.builds(
    t.Trajectory,
    id=TEXT,
    group_id=TEXT,
    task=tasks,
    sequences=tuples(sequences, 2),
    status=st.sampled_from(t.Status),
    stop_reason=st.sampled_from(t.StopReason),
    index=UINT32,
    attempt=UINT32,
    calls=tuples(calls(), 2),
    events=tuples(st.builds(t.Event, kind=TEXT, turn=UINT32, data=OBJECT), 2),
    reward=FLOAT,
    reward_parts=tuples(st.builds(t.RewardPart, name=TEXT, value=FLOAT, turn=optional(UINT32)), 2),
    timings=st.builds(
        t.TrajectoryTimings,
        wall_s=FLOAT,
        generate_s=FLOAT,
        tool_s=FLOAT,
        reward_s=FLOAT,
        open_s=FLOAT,
        clock_s=FLOAT,
    ),
    action_timings=tuples(
        st.builds(
            t.ActionTimings,
            turn=UINT32,
            asked_ns=st.integers(0, 2**63),
            acted_ns=st.integers(0, 2**63),
            first_ns=st.integers(0, 2**63),
        ),
        2,
    ),
    masked=st.booleans(),
    tokenizer_hash=TEXT,
    metadata=OBJECT,
    anchors=st.dictionaries(UINT32, tuples(TEXT), max_size=2),
    outside_baseline=st.booleans(),
)


def float32(value: float) -> float:
    """The nearest float32, as the wire keeps log-probs."""
    rounded: float = bits.unpack("<f", bits.pack("<f", value))[0]
    return rounded
