"""The record in protobuf, both ways.

The only place where the record of `toolwright.types` and `toolwright.common.v1` meet.
`from_proto(to_proto(x)) == x` for every record whose log-probs are float32 values. Token ids and
log-probs travel as little-endian int32 and float32 bytes. `toolwright.json_data` converts JSON-like
data, and is exported here too.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from sys import byteorder
from typing import Any

from google.protobuf.duration_pb2 import Duration

from toolwright import types as t
from toolwright.common.v1 import media_pb2, sampling_pb2
from toolwright.common.v1 import trajectory_pb2 as pb
from toolwright.json_data import exact_json as exact_json
from toolwright.json_data import mapping as mapping
from toolwright.json_data import read_exact
from toolwright.json_data import struct as struct

# Fields of the same name and value on both sides.
_VERSION = ("lineage", "step")
_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "adapter",
    "max_new_tokens",
)  # fmt: skip
_BLOB = ("sha256", "media_type", "size")
_MEDIA = ("token_offset", "placeholder_tokens")
_TENSOR = ("name", "dtype", "data")
_CALL = ("call_id", "turn", "index", "tool", "action")
_OUTCOME = (
    "observation", "valid", "invalid_reason", "done", "session_lost", "truncated", "isolation",
    "token_budget",
)  # fmt: skip
_SERVICE_TIMES = ("queued_s", "run_s")
_STAMPS = ("stop_read_ns", "dispatched_ns", "result_ns")
_TASK = ("id", "data_source", "prompt", "name")
_TRAJECTORY = (
    "id", "group_id", "attempt", "index", "reward", "masked", "tokenizer_hash", "outside_baseline",
)  # fmt: skip
_TIMES = ("wall_s", "generate_s", "tool_s", "reward_s", "open_s", "clock_s")
_ACTION_STAMPS = ("turn", "asked_ns", "first_ns", "acted_ns")


def _same(source: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a message or of its twin, as keywords of the other one."""
    return {name: getattr(source, name) for name in names}


def pack(values: Iterable[float], code: str) -> bytes:
    """Little-endian bytes of `values`; code "i" = int32, "f" = float32."""
    if byteorder == "little" and isinstance(values, array) and values.typecode == code:
        return values.tobytes()
    out = array(code, values)
    if byteorder == "big":
        out.byteswap()
    return out.tobytes()


def unpack(data: bytes, code: str) -> array[Any]:
    """Inverse of `pack`."""
    out: array[Any] = array(code)
    out.frombytes(data)
    if byteorder == "big":
        out.byteswap()
    return out


def duration(seconds: float) -> Duration:
    """The protobuf duration of a number of seconds."""
    whole = int(seconds)
    return Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))


def seconds(duration: Duration) -> float:
    """Inverse of `duration`, for every duration that a message can hold."""
    return duration.seconds + duration.nanos * 1e-9


def version_to_proto(version: t.WeightVersion) -> pb.WeightVersion:
    return pb.WeightVersion(**_same(version, _VERSION))


def version_from_proto(version: pb.WeightVersion) -> t.WeightVersion:
    return t.WeightVersion(**_same(version, _VERSION))


def sampling_to_proto(params: t.SamplingParams) -> sampling_pb2.SamplingParams:
    given = _same(params, _SAMPLING)
    return sampling_pb2.SamplingParams(**{k: v for k, v in given.items() if v is not None})


def sampling_from_proto(params: sampling_pb2.SamplingParams) -> t.SamplingParams:
    given = tuple(name for name in _SAMPLING if params.HasField(name))  # type: ignore[arg-type]
    return t.SamplingParams(**_same(params, given))


def blob_to_proto(blob: t.BlobRef) -> media_pb2.BlobRef:
    return media_pb2.BlobRef(**_same(blob, _BLOB))


def blob_from_proto(blob: media_pb2.BlobRef) -> t.BlobRef:
    return t.BlobRef(**_same(blob, _BLOB))


def media_to_proto(media: t.MediaRef) -> media_pb2.MediaRef:
    return media_pb2.MediaRef(blob=blob_to_proto(media.blob), **_same(media, _MEDIA))


def media_from_proto(media: media_pb2.MediaRef) -> t.MediaRef:
    return t.MediaRef(blob=blob_from_proto(media.blob), **_same(media, _MEDIA))


def segment_to_proto(segment: t.Segment) -> pb.Segment:
    out = pb.Segment(
        author=int(segment.author),  # type: ignore[arg-type]
        token_ids=pack(segment.token_ids, "i"),
        token_count=len(segment.token_ids),
        turn=segment.turn,
        trainable=segment.trainable,
        media=[media_to_proto(m) for m in segment.media],
        tensors=[pb.TokenTensor(shape=x.shape, **_same(x, _TENSOR)) for x in segment.tensors],
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
            t.TokenTensor(shape=tuple(x.shape), **_same(x, _TENSOR)) for x in segment.tensors
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
    if sequence.weight != 1:
        out.weight = sequence.weight
    return out


def _sequence_from_proto(sequence: pb.Sequence) -> t.Sequence:
    return t.Sequence(
        id=sequence.id,
        segments=tuple(segment_from_proto(s) for s in sequence.segments),
        parent=sequence.parent or None,
        fork_offset=sequence.fork_offset if sequence.HasField("fork_offset") else None,
        agent=sequence.agent,
        weight=sequence.weight if sequence.HasField("weight") else 1.0,
    )


def _call_to_proto(call: t.CallRecord) -> pb.CallRecord:
    outcome = call.outcome
    out = pb.CallRecord(
        **_same(call, _CALL),
        **_same(outcome, _OUTCOME),
        error=int(outcome.error),  # type: ignore[arg-type]
        metrics=dict(outcome.metrics),
        author=int(outcome.author),  # type: ignore[arg-type]
        parts=[
            pb.CallPart(text=part)
            if isinstance(part, str)
            else pb.CallPart(blob=blob_to_proto(part))
            for part in outcome.parts
        ],
        timings=pb.CallTimings(**_same(call.timings, _STAMPS), **_same(outcome, _SERVICE_TIMES)),
    )
    if outcome.reward is not None:
        out.reward = outcome.reward
    return out


def _call_from_proto(call: pb.CallRecord) -> t.CallRecord:
    return t.CallRecord(
        **_same(call, _CALL),
        outcome=t.CallOutcome(
            **_same(call, _OUTCOME),
            **_same(call.timings, _SERVICE_TIMES),
            parts=tuple(
                part.text if part.WhichOneof("content") == "text" else blob_from_proto(part.blob)
                for part in call.parts
            ),
            error=t.ToolErrorKind(call.error),
            reward=call.reward if call.HasField("reward") else None,
            metrics=dict(call.metrics),
            tool=call.tool,
            author=t.Author(call.author or t.Author.TOOL),
        ),
        timings=t.CallTimings(**_same(call.timings, _STAMPS)),
    )


def task_to_proto(task: t.Task) -> pb.Task:
    out = pb.Task(
        **_same(task, _TASK),
        purpose=int(task.purpose),  # type: ignore[arg-type]
        metadata=struct(task.metadata),
        metadata_json=exact_json(task.metadata),
        messages_json=exact_json(task.messages),
        answers=task.answers,
        media=[media_to_proto(m) for m in task.media],
    )
    if task.messages:
        out.messages.extend([struct(message) for message in task.messages])
    if task.sampling is not None:
        out.sampling.CopyFrom(sampling_to_proto(task.sampling))
    return out


def task_from_proto(task: pb.Task) -> t.Task:
    return t.Task(
        **_same(task, _TASK),
        purpose=t.Purpose(task.purpose),
        messages=tuple(
            read_exact(task.messages_json)
            if task.messages_json
            else (mapping(message.struct_value) for message in task.messages.values)
        ),
        answers=tuple(task.answers),
        metadata=mapping(task.metadata, task.metadata_json),
        sampling=sampling_from_proto(task.sampling) if task.HasField("sampling") else None,
        media=tuple(media_from_proto(m) for m in task.media),
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
        **_same(trajectory, _TRAJECTORY),
        task=task_to_proto(trajectory.task),
        sequences=[_sequence_to_proto(s) for s in trajectory.sequences],
        calls=[_call_to_proto(c) for c in trajectory.calls],
        events=[_event_to_proto(event) for event in trajectory.events],
        reward_parts=[
            pb.RewardPart(name=p.name, value=p.value, turn=p.turn) for p in trajectory.reward_parts
        ],
        status=int(trajectory.status),  # type: ignore[arg-type]
        stop_reason=int(trajectory.stop_reason),  # type: ignore[arg-type]
        timings=pb.TrajectoryTimings(**_same(trajectory.timings, _TIMES)),
        action_timings=[
            pb.ActionTimings(**_same(one, _ACTION_STAMPS)) for one in trajectory.action_timings
        ],
        metadata=struct(trajectory.metadata),
        metadata_json=exact_json(trajectory.metadata),
        anchors=[
            pb.TurnAnchors(turn=turn, ids=ids) for turn, ids in sorted(trajectory.anchors.items())
        ],
    )


def trajectory_from_proto(trajectory: pb.Trajectory) -> t.Trajectory:
    """Raises ValueError if the message is not a complete trajectory."""
    return t.Trajectory(
        **_same(trajectory, _TRAJECTORY),
        task=task_from_proto(trajectory.task),
        sequences=tuple(_sequence_from_proto(s) for s in trajectory.sequences),
        calls=tuple(_call_from_proto(c) for c in trajectory.calls),
        events=tuple(
            t.Event(kind=e.kind, turn=e.turn, data=mapping(e.data, e.data_json))
            for e in trajectory.events
        ),
        reward_parts=tuple(
            t.RewardPart(name=p.name, value=p.value, turn=p.turn if p.HasField("turn") else None)
            for p in trajectory.reward_parts
        ),
        status=t.Status(trajectory.status),
        stop_reason=t.StopReason(trajectory.stop_reason),
        timings=t.TrajectoryTimings(**_same(trajectory.timings, _TIMES)),
        action_timings=tuple(
            t.ActionTimings(**_same(one, _ACTION_STAMPS)) for one in trajectory.action_timings
        ),
        metadata=mapping(trajectory.metadata, trajectory.metadata_json),
        anchors={entry.turn: tuple(entry.ids) for entry in trajectory.anchors},
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
