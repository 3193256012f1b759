"""Trajectories with images: what a sampler was sent, what is recorded, a tool with one picture."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.scripted import SeenRequest
from bench.scripted.images import image_tokens
from engine.core.text.codec import HuggingFaceCodec
from tests.support.dialogue import by_turn
from tests.support.tools import ToolDouble
from toolwright.common.v1 import media_pb2
from toolwright.rpc.errors import ServiceError, abort
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Trajectory

if TYPE_CHECKING:
    from tests.integration.engine.conftest import World
    from tests.integration.toolsvc.conftest import Service

RUN = {"steps": 1, "groups_per_step": 1, "group_size": 2}
LIMITS = {"image_tokens": 10}
SIDE = 400


def crop(*box: int) -> str:
    call = {"name": "crop_image", "arguments": {"bbox_2d": box, "target_image": 1}}
    return f"<tool_call>{json.dumps(call)}</tool_call>"


SMALL, LARGE = crop(10, 10, 60, 50), crop(0, 0, SIDE, SIDE)
"""Inside the answer, and, of noise, too large for it."""


def replying(folder: Path, *replies: str) -> Any:
    return by_turn(HuggingFaceCodec(folder), replies)


def add_tool(here: World, service: Service) -> None:
    here.tables["tools"]["image"] = {"service": service.address}


def by_trajectory(requests: Sequence[SeenRequest]) -> list[list[SeenRequest]]:
    found: dict[object, list[SeenRequest]] = {}
    for request in requests:
        found.setdefault(request.body["routing_key"], []).append(request)
    return list(found.values())


def sent_images(request: SeenRequest) -> list[bytes]:
    return [base64.b64decode(str(one).partition(",")[2]) for one in request.image_data]


def check_record(trajectory: Trajectory, placeholder: int, images: Mapping[str, bytes]) -> None:
    """Each image stands at its place, as many tokens long as the sampler made it."""
    (sequence,) = trajectory.sequences
    for segment in sequence.segments:
        runs = [(ref.token_offset, ref.placeholder_tokens) for ref in segment.media]
        places = [at for at, token in enumerate(segment.token_ids) if token == placeholder]
        assert places == [at for start, count in runs for at in range(start, start + count)]
        for ref in segment.media:
            data = images[ref.blob.sha256]
            assert ref.placeholder_tokens == image_tokens(data)
            assert ref.blob.size == len(data)


class Camera(ToolDouble):
    """Shows one picture that has to be fetched; `faults` come first."""

    def __init__(self, data: bytes, *faults: ServiceError | bytes) -> None:
        super().__init__(self._show)
        self._data = data
        self._faults = list(faults)

    def _show(self, request: pb.CallToolRequest) -> pb.CallResult:
        name = hashlib.sha256(self._data).hexdigest()
        blob = media_pb2.BlobRef(sha256=name, media_type="image/png", size=len(self._data))
        part = pb.ObservationPart(blob=blob)
        return pb.CallResult(observation=[part], valid=True, tool="python")

    async def GetBlob(
        self, request: pb.GetBlobRequest, context: Any
    ) -> AsyncIterator[pb.GetBlobResponse]:
        fault = self._faults.pop(0) if self._faults else self._data
        if isinstance(fault, ServiceError):
            await abort(context, fault)
        else:
            yield pb.GetBlobResponse(data=fault)
