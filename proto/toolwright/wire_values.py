"""Small values in protobuf, both ways: tokens, durations, versions, sampling, blobs.

Token ids and log-probs travel as little-endian int32 / float32 bytes. `toolwright.wire` makes the
record of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from sys import byteorder
from typing import Any

from google.protobuf.duration_pb2 import Duration

from toolwright import types as t
from toolwright.common.v1 import media_pb2, sampling_pb2
from toolwright.common.v1 import trajectory_pb2 as pb


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
    return pb.WeightVersion(lineage=version.lineage, step=version.step)


def version_from_proto(version: pb.WeightVersion) -> t.WeightVersion:
    return t.WeightVersion(lineage=version.lineage, step=version.step)


_SAMPLING_FIELDS = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "adapter",
    "max_new_tokens",
)  # fmt: skip


def sampling_to_proto(params: t.SamplingParams) -> sampling_pb2.SamplingParams:
    given = {name: getattr(params, name) for name in _SAMPLING_FIELDS}
    return sampling_pb2.SamplingParams(**{k: v for k, v in given.items() if v is not None})


def sampling_from_proto(params: sampling_pb2.SamplingParams) -> t.SamplingParams:
    return t.SamplingParams(
        **{
            name: getattr(params, name)
            for name in _SAMPLING_FIELDS
            if params.HasField(name)  # type: ignore[arg-type]
        }
    )


def blob_to_proto(blob: t.BlobRef) -> media_pb2.BlobRef:
    return media_pb2.BlobRef(sha256=blob.sha256, media_type=blob.media_type, size=blob.size)


def blob_from_proto(blob: media_pb2.BlobRef) -> t.BlobRef:
    return t.BlobRef(sha256=blob.sha256, media_type=blob.media_type, size=blob.size)


def media_to_proto(media: t.MediaRef) -> media_pb2.MediaRef:
    return media_pb2.MediaRef(
        blob=blob_to_proto(media.blob),
        token_offset=media.token_offset,
        placeholder_tokens=media.placeholder_tokens,
    )


def media_from_proto(media: media_pb2.MediaRef) -> t.MediaRef:
    return t.MediaRef(
        blob=blob_from_proto(media.blob),
        token_offset=media.token_offset,
        placeholder_tokens=media.placeholder_tokens,
    )
