"""The image tool of a real service: real files over gRPC, and bombs."""

import io
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from PIL import Image

from tests.integration.toolsvc.conftest import Service, running_service
from tests.integration.toolsvc.media import (
    BLUE,
    RED,
    brightness,
    image_bombs,
    image_file,
    quarters,
    video_bombs,
    video_file,
)
from tests.support.checking import OF_CALLS, keeps_the_contract
from tests.support.pictures import call, near
from toolsvc.edge.client import Client, OpenedSession
from toolsvc.types import Media
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.channel import open_channel
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

MIB = 1 << 20
PROBES = f"""
[image]
metadata = {{ images = ["quarters.png", "broken.png"] }}
media = {json.dumps(call("rotate_image", angle=0))}
fail = {json.dumps(call("rotate_image", angle=0, target_image=2))}
"""
WORKER_MIB = 512
pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "quarters.png").write_bytes(image_file(quarters(), "PNG"))
    (folder / "broken.png").write_bytes(b"no picture")
    (folder / "grey.mp4").write_bytes(video_file("mp4", "libx264"))
    log = tmp_path_factory.mktemp("service") / "errors.log"
    options = (f"image.folder={folder}", "image.workers=1", f"image.memory_mib={WORKER_MIB}")
    with running_service(log, "image", *(f"--set={one}" for one in options)) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(service: Service) -> AsyncIterator[Client]:
    async with Client(service.address) as connected:
        yield connected


async def pictures_of(address: str, result: pb.CallResult) -> list[Image.Image]:
    """Those of an observation, fetched where they travel as blobs."""
    assert result.valid, result
    assert not result.HasField("error"), result
    found = []
    async with open_channel(address) as channel:
        stub = tool_pb2_grpc.ToolServiceStub(channel)
        for part in result.observation:
            data = part.media.data
            if part.HasField("blob"):
                request = pb.GetBlobRequest(sha256=part.blob.sha256)
                data = b"".join([piece.data async for piece in stub.GetBlob(request)])
            if data:
                found.append(Image.open(io.BytesIO(data)))
    return found


async def test_an_example_trajectory(service: Service, client: Client) -> None:
    """Images and a video of the task, from the folder; results get the next numbers."""
    metadata = {"images": ["quarters.png"], "videos": ["grey.mp4"]}
    session = await client.open(("image",), metadata)
    assert session.tools["image"].stop_strings == ["</tool_call>"]
    assert session.tools["image"].capabilities.media
    result = await session.call(
        "image",
        "I look at the left half. " + call("crop_image", bbox_2d=[0, 0, 160, 200], target_image=1),
    )
    assert result.observation[0].text == "Image 2: 200 x 200 pixels\n"
    (left,) = await pictures_of(service.address, result)
    assert left.size == (200, 200)
    assert near(left, (10, 10), RED)
    assert near(left, (10, 190), BLUE)
    # The result can be looked at in its turn.
    result = await session.call("image", call("rotate_image", angle=90, target_image=2))
    assert result.observation[0].text == "Image 3: 200 x 200 pixels\n"
    (turned,) = await pictures_of(service.address, result)
    assert near(turned, (190, 10), RED)
    assert near(turned, (10, 10), BLUE)
    result = await session.call("image", call("select_frames", target_frames=[24, 1, 12]))
    notes = [part.text for part in result.observation if part.text]
    assert notes[0] == "Image 4 (frame 24, at 2.30 s): 320 x 240 pixels\n"
    assert len(notes) == 3
    frames = await pictures_of(service.address, result)
    for number, frame in zip((24, 1, 12), frames, strict=True):
        assert near(frame, (100, 100), (brightness(number),) * 3)
    result = await session.call("image", call("resize_image", target_image=6, width=64))
    assert result.observation[0].text == "Image 7: 64 x 48 pixels\n"
    await session.close()


async def test_media_of_the_session_and_a_result_that_travels_as_a_blob(
    service: Service, client: Client
) -> None:
    noise = Image.effect_noise((900, 700), 80)
    media = [
        Media(media_type="image/png", data=image_file(noise, "PNG")),
        Media(media_type="video/webm", data=video_file("webm", "libvpx")),
    ]
    session = await client.open(("image",), {}, media=media)
    result = await session.call("image", call("zoom_in", bbox_2d=[0, 0, 1, 1]))
    assert result.observation[1].blob.size > 256 << 10
    (whole,) = await pictures_of(service.address, result)
    assert whole.tobytes() == noise.convert("RGB").tobytes()
    result = await session.call("image", call("select_frames", target_frames=[11]))
    (frame,) = await pictures_of(service.address, result)
    assert near(frame, (100, 100), (brightness(11),) * 3)
    await session.close()


def family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def peak(process: psutil.Process) -> int:
    """Bytes that it has held at most since it began."""
    (line,) = (
        line
        for line in Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) << 10


async def refuse(session: OpenedSession, action: str, reason: str) -> None:
    result = await session.call("image", action)
    assert reason in result.observation[0].text
    assert len(result.observation) == 1
    if result.valid:
        assert result.error.kind in (
            reasons.TOOL_ERROR_KIND_EXCEPTION,
            reasons.TOOL_ERROR_KIND_LIMIT,
        )
    assert not result.error.session_lost


async def test_bombs_and_broken_files_are_refused_and_cost_no_memory(
    service: Service, client: Client
) -> None:
    """No bomb grows the service or ends its decoding process, so its peak is that of all."""
    process = psutil.Process(service.process.pid)
    before = family(process)
    for _, data, reason in image_bombs():
        media = Media(media_type="image/png", data=data or b"\n")
        session = await client.open(("image",), {}, media=[media])
        await refuse(session, call("rotate_image", angle=0), reason)
        await session.close()
    for _, data, reason in video_bombs():
        media = Media(media_type="video/mp4", data=data or b"\n")
        session = await client.open(("image",), {}, media=[media])
        await refuse(session, call("select_frames", target_frames=[1]), reason)
        await session.close()
    after = family(process)
    assert [one.pid for one in after] == [one.pid for one in before]
    held, *decoders = map(peak, after)
    assert len(decoders) == 1
    assert held < 256 * MIB
    assert sum(decoders) < 160 * MIB


def test_the_contract_is_kept(service: Service, tmp_path: Path) -> None:
    keeps_the_contract(service.address, *OF_CALLS, folder=tmp_path, least=25, probes=PROBES)
