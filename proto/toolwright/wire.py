"""The record in protobuf, both ways.

The only place where the record of `toolwright.types` and `toolwright.common.v1` meet.
`from_proto(to_proto(x)) == x` for every record whose log-probs are float32 values. The parts of a
record are converted in `toolwright.wire_values` and `toolwright.json_data`, and exported here too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from toolwright import types as t
from toolwright.common.v1 import trajectory_pb2 as pb
from toolwright.json_data import exact_json, mapping, read_exact, struct
from toolwright.wire_values import (
    blob_from_proto,
    blob_to_proto,
    duration,
    media_from_proto,
    media_to_proto,
    pack,
    sampling_from_proto,
    sampling_to_proto,
    seconds,
    unpack,
    version_from_proto,
    version_to_proto,
)

__all__ = [
    "blob_from_proto",
    "blob_to_proto",
    "content_hash",
    "duration",
    "exact_json",
    "mapping",
    "pack",
    "sampling_from_proto",
    "sampling_to_proto",
    "seconds",
    "segment_from_proto",
    "segment_to_proto",
    "serialize",
    "struct",
    "task_from_proto",
    "task_to_proto",
    "trajectory_from_proto",
    "trajectory_to_proto",
    "unpack",
    "version_from_proto",
    "version_to_proto",
]


def segment_to_proto(segment: t.Segment) -> pb.Segment:
    out = pb.Segment(
        author=int(segment.author),  # type: ignore[arg-type]
        token_ids=pack(segment.token_ids, "i"),
        token_count=len(segment.token_ids),
        turn=segment.turn,
        trainable=segment.trainable,
        media=[media_to_proto(m) for m in segment.media],
        tensors=[
            pb.TokenTensor(name=x.name, dtype=x.dtype, shape=x.shape, data=x.data)
            for x in segment.tensors
        ],
    )
    if segment.logprobs is not None:
        out.logprobs = pack(segment.logprobs, "f")
    if segment.weight_version is not None:
        out.weight_version.CopyFrom(version_to_proto(segment.weight_version))
    if segment.sampling is not None:
        out.sampling.CopyFrom(sampling_to_proto(segment.sampling))
    if segment.finish is not None:
        out.finish.kind = int(segment.finish.kind)  # type: ignore[assignment]
        if segment.finish.matched_token is not None:
            out.finish.matched_token = segment.finish.matched_token
        if segment.finish.matched_text is not None:
            out.finish.matched_text = segment.finish.matched_text
    return out


def segment_from_proto(segment: pb.Segment) -> t.Segment:
    """Raises ValueError if the bytes do not hold `token_count` tokens."""
    token_ids = unpack(segment.token_ids, "i")
    if len(token_ids) != segment.token_count:
        raise ValueError(f"segment says {segment.token_count} tokens and holds {len(token_ids)}")
    finish = None
    if segment.HasField("finish"):
        f = segment.finish
        finish = t.FinishReason(
            kind=t.FinishKind(f.kind),
            matched_token=f.matched_token if f.HasField("matched_token") else None,
            matched_text=f.matched_text if f.HasField("matched_text") else None,
        )
    wrote = bool(segment.logprobs) or (not token_ids and int(segment.author) == t.Author.MODEL)
    return t.Segment(
        author=t.Author(segment.author),
        token_ids=token_ids,
        turn=segment.turn,
        logprobs=unpack(segment.logprobs, "f") if wrote else None,
        weight_version=(
            version_from_proto(segment.weight_version)
            if segment.HasField("weight_version")
            else None
        ),
        trainable=segment.trainable,
        sampling=sampling_from_proto(segment.sampling) if segment.HasField("sampling") else None,
        finish=finish,
        media=tuple(media_from_proto(m) for m in segment.media),
        tensors=tuple(
            t.TokenTensor(name=x.name, dtype=x.dtype, shape=tuple(x.shape), data=x.data)
            for x in segment.tensors
        ),
    )


def _sequence_to_proto(sequence: t.Sequence) -> pb.Sequence:
    out = pb.Sequence(
        id=sequence.id,
        parent=sequence.parent or "",
        agent=sequence.agent,
        segments=[segment_to_proto(s) for s in sequence.segments],
    )
    if sequence.fork_offset is not None:
        out.fork_offset = sequence.fork_offset
    return out


def _sequence_from_proto(sequence: pb.Sequence) -> t.Sequence:
    return t.Sequence(
        id=sequence.id,
        segments=tuple(segment_from_proto(s) for s in sequence.segments),
        parent=sequence.parent or None,
        fork_offset=sequence.fork_offset if sequence.HasField("fork_offset") else None,
        agent=sequence.agent,
    )


def _call_to_proto(call: t.CallRecord) -> pb.CallRecord:
    outcome, timings = call.outcome, call.timings
    out = pb.CallRecord(
        call_id=call.call_id,
        turn=call.turn,
        index=call.index,
        tool=call.tool,
        action=call.action,
        observation=outcome.observation,
        valid=outcome.valid,
        invalid_reason=outcome.invalid_reason,
        done=outcome.done,
        error=int(outcome.error),  # type: ignore[arg-type]
        metrics=dict(outcome.metrics),
        truncated=outcome.truncated,
        isolation=outcome.isolation,
        author=int(outcome.author),  # type: ignore[arg-type]
        token_budget=outcome.token_budget,
        session_lost=outcome.session_lost,
        parts=[
            pb.CallPart(text=part)
            if isinstance(part, str)
            else pb.CallPart(blob=blob_to_proto(part))
            for part in outcome.parts
        ],
        timings=pb.CallTimings(
            stop_read_ns=timings.stop_read_ns,
            dispatched_ns=timings.dispatched_ns,
            result_ns=timings.result_ns,
            queued_s=outcome.queued_s,
            run_s=outcome.run_s,
        ),
    )
    if outcome.reward is not None:
        out.reward = outcome.reward
    return out


def _call_from_proto(call: pb.CallRecord) -> t.CallRecord:
    return t.CallRecord(
        call_id=call.call_id,
        turn=call.turn,
        index=call.index,
        tool=call.tool,
        action=call.action,
        outcome=t.CallOutcome(
            observation=call.observation,
            valid=call.valid,
            parts=tuple(
                part.text if part.WhichOneof("content") == "text" else blob_from_proto(part.blob)
                for part in call.parts
            ),
            invalid_reason=call.invalid_reason,
            done=call.done,
            error=t.ToolErrorKind(call.error),
            session_lost=call.session_lost,
            reward=call.reward if call.HasField("reward") else None,
            metrics=dict(call.metrics),
            truncated=call.truncated,
            isolation=call.isolation,
            tool=call.tool,
            author=t.Author(call.author or t.Author.TOOL),
            token_budget=call.token_budget,
            queued_s=call.timings.queued_s,
            run_s=call.timings.run_s,
        ),
        timings=t.CallTimings(
            stop_read_ns=call.timings.stop_read_ns,
            dispatched_ns=call.timings.dispatched_ns,
            result_ns=call.timings.result_ns,
        ),
    )


def task_to_proto(task: t.Task) -> pb.Task:
    out = pb.Task(
        id=task.id,
        purpose=int(task.purpose),  # type: ignore[arg-type]
        data_source=task.data_source,
        metadata=struct(task.metadata),
        metadata_json=exact_json(task.metadata),
        messages_json=exact_json(task.messages),
        prompt=task.prompt,
        answers=task.answers,
        media=[media_to_proto(m) for m in task.media],
        name=task.name,
    )
    if task.messages:
        out.messages.extend([struct(message) for message in task.messages])
    if task.sampling is not None:
        out.sampling.CopyFrom(sampling_to_proto(task.sampling))
    return out


def task_from_proto(task: pb.Task) -> t.Task:
    return t.Task(
        id=task.id,
        purpose=t.Purpose(task.purpose),
        data_source=task.data_source,
        prompt=task.prompt,
        messages=tuple(
            read_exact(task.messages_json)
            if task.messages_json
            else (mapping(message.struct_value) for message in task.messages.values)
        ),
        answers=tuple(task.answers),
        metadata=mapping(task.metadata, task.metadata_json),
        sampling=sampling_from_proto(task.sampling) if task.HasField("sampling") else None,
        media=tuple(media_from_proto(m) for m in task.media),
        name=task.name,
    )


def _event_to_proto(event: t.Event) -> pb.Event:
    return pb.Event(
        kind=event.kind,
        turn=event.turn,
        data=struct(event.data),
        data_json=exact_json(event.data),
    )


def trajectory_to_proto(trajectory: t.Trajectory) -> pb.Trajectory:
    return pb.Trajectory(
        id=trajectory.id,
        group_id=trajectory.group_id,
        attempt=trajectory.attempt,
        index=trajectory.index,
        task=task_to_proto(trajectory.task),
        sequences=[_sequence_to_proto(s) for s in trajectory.sequences],
        calls=[_call_to_proto(c) for c in trajectory.calls],
        events=[_event_to_proto(event) for event in trajectory.events],
        reward=trajectory.reward,
        reward_parts=[
            pb.RewardPart(name=p.name, value=p.value, turn=p.turn) for p in trajectory.reward_parts
        ],
        status=int(trajectory.status),  # type: ignore[arg-type]
        stop_reason=int(trajectory.stop_reason),  # type: ignore[arg-type]
        timings=pb.TrajectoryTimings(
            wall_s=trajectory.timings.wall_s,
            generate_s=trajectory.timings.generate_s,
            tool_s=trajectory.timings.tool_s,
            reward_s=trajectory.timings.reward_s,
            open_s=trajectory.timings.open_s,
            clock_s=trajectory.timings.clock_s,
        ),
        action_timings=[
            pb.ActionTimings(
                turn=one.turn,
                asked_ns=one.asked_ns,
                first_ns=one.first_ns,
                acted_ns=one.acted_ns,
            )
            for one in trajectory.action_timings
        ],
        masked=trajectory.masked,
        tokenizer_hash=trajectory.tokenizer_hash,
        metadata=struct(trajectory.metadata),
        metadata_json=exact_json(trajectory.metadata),
        anchors=[
            pb.TurnAnchors(turn=turn, ids=ids) for turn, ids in sorted(trajectory.anchors.items())
        ],
        outside_baseline=trajectory.outside_baseline,
    )


def trajectory_from_proto(trajectory: pb.Trajectory) -> t.Trajectory:
    """Raises ValueError if the message is not a complete trajectory."""
    return t.Trajectory(
        id=trajectory.id,
        group_id=trajectory.group_id,
        attempt=trajectory.attempt,
        index=trajectory.index,
        task=task_from_proto(trajectory.task),
        sequences=tuple(_sequence_from_proto(s) for s in trajectory.sequences),
        calls=tuple(_call_from_proto(c) for c in trajectory.calls),
        events=tuple(
            t.Event(kind=e.kind, turn=e.turn, data=mapping(e.data, e.data_json))
            for e in trajectory.events
        ),
        reward=trajectory.reward,
        reward_parts=tuple(
            t.RewardPart(name=p.name, value=p.value, turn=p.turn if p.HasField("turn") else None)
            for p in trajectory.reward_parts
        ),
        status=t.Status(trajectory.status),
        stop_reason=t.StopReason(trajectory.stop_reason),
        timings=t.TrajectoryTimings(
            wall_s=trajectory.timings.wall_s,
            generate_s=trajectory.timings.generate_s,
            tool_s=trajectory.timings.tool_s,
            reward_s=trajectory.timings.reward_s,
            open_s=trajectory.timings.open_s,
            clock_s=trajectory.timings.clock_s,
        ),
        action_timings=tuple(
            t.ActionTimings(
                turn=one.turn,
                asked_ns=one.asked_ns,
                first_ns=one.first_ns,
                acted_ns=one.acted_ns,
            )
            for one in trajectory.action_timings
        ),
        masked=trajectory.masked,
        tokenizer_hash=trajectory.tokenizer_hash,
        metadata=mapping(trajectory.metadata, trajectory.metadata_json),
        anchors={entry.turn: tuple(entry.ids) for entry in trajectory.anchors},
        outside_baseline=trajectory.outside_baseline,
    )


def serialize(message: pb.Trajectory) -> bytes:
    """Deterministic bytes of one trajectory, the unit of `content_hash`."""
    return message.SerializeToString(deterministic=True)


def content_hash(members: Iterable[bytes]) -> str:
    """SHA-256 hex over the members' bytes in order, each led by its length."""
    digest = hashlib.sha256()
    for member in members:
        digest.update(len(member).to_bytes(8, "little"))
        digest.update(member)
    return digest.hexdigest()
