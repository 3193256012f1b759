"""The image tool: a real service over gRPC, real files, and bombs."""

import asyncio
import contextlib
import io
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from PIL import ExifTags, Image

from tests.integration.toolsvc.conftest import Service, start_service
from tests.integration.toolsvc.media import (
    BLUE,
    GREEN,
    RED,
    brightness,
    image_bombs,
    image_file,
    quarters,
    video_bombs,
    video_file,
)
from tests.support.trajectory import Trajectory
from toolsvc.built_in import make_built_in
from toolsvc.client import Client, Session
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.host import Host
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.tools.image.tool import ImageOptions, ImageTool
from toolsvc.tools.image.workers import Workers
from toolsvc.types import Media, Result, Text
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.channel import open_channel
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc
from toolwright.types import ToolErrorKind

MIB = 1 << 20
WORKER_MIB = 512

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:.*is not an async function:pytest.PytestWarning"),
]


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def near(image: Image.Image, at: tuple[int, int], colour: tuple[int, int, int]) -> bool:
    """But for what JPEG and video lose."""
    found = image.convert("RGB").getpixel(at)
    assert isinstance(found, tuple)
    return all(abs(one - other) <= 12 for one, other in zip(found, colour, strict=True))


# Over gRPC


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "quarters.png").write_bytes(image_file(quarters(), "PNG"))
    (folder / "grey.mp4").write_bytes(video_file("mp4", "libx264"))
    log = tmp_path_factory.mktemp("service") / "errors.log"
    options = (f"image.folder={folder}", "image.workers=1", f"image.memory_mib={WORKER_MIB}")
    running = start_service(log, "image", *(word for one in options for word in ("--set", one)))
    yield running
    running.process.terminate()
    assert running.process.wait(20) == 0, log.read_text()


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
    assert [part.text for part in result.observation if part.text] == [
        "Image 4 (frame 24, at 2.30 s): 320 x 240 pixels\n",
        "Image 5 (frame 1, at 0.00 s): 320 x 240 pixels\n",
        "Image 6 (frame 12, at 1.10 s): 320 x 240 pixels\n",
    ]
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


def proc(process: psutil.Process, file: str) -> str:
    """What the kernel says of it."""
    return Path(f"/proc/{process.pid}/{file}").read_text()


def peak(process: psutil.Process) -> int:
    """Bytes that it has held at most since it began."""
    (line,) = (line for line in proc(process, "status").splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


async def refuse(session: Session, action: str, reason: str) -> None:
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


@pytest.mark.parametrize(
    ("action", "says"),
    [
        (call("crop_image", bbox_2d=[0, 0, 401, 200]), "400 x 200 pixels"),
        (call("crop_image", bbox_2d=[0, 0, 300, 201]), "400 x 200 pixels"),
        (call("crop_image", bbox_2d=[10, 0, 10, 20]), "left < right"),
        (call("crop_image", bbox_2d=[30, 0, 10, 20]), "left < right"),
        (call("crop_image", bbox_2d=[-5, 0, 10, 20]), "greater than or equal to 0"),
        ('<tool_call>{"name": "zoom_in", "arguments": {"bbox_2d": [0, NaN, 9, 9]}}</tool_call>',
         "finite number"),
        (call("crop_image", bbox_2d=[0, 0, 9, 9], target_image=2), "there is no image 2"),
        (call("resize_image", width=20), "from 28 to 2048"),
        (call("select_frames", target_frames=[25]), "there is no frame 25: the video has 24"),
        (call("select_frames", target_frames=[1], target_video=2), "there is no video 2"),
        (call("blur_image"), "there is no function 'blur_image'"),
    ],
)  # fmt: skip
async def test_what_does_not_fit_is_an_invalid_action_and_adds_nothing(
    client: Client, action: str, says: str
) -> None:
    metadata = {"images": ["quarters.png"], "videos": ["grey.mp4"]}
    session = await client.open(("image",), metadata)
    result = await session.call("image", action)
    assert not result.valid
    assert says in result.observation[0].text
    result = await session.call("image", call("rotate_image", angle=0))
    assert result.observation[0].text == "Image 2: 400 x 200 pixels\n"
    await session.close()


# In the test's own process: every format, and what happens to decoding processes


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[Host]:
    options = ImageOptions(workers=1, long_side=512, memory_mib=WORKER_MIB)
    async with Host([ImageTool(options)]) as running:
        yield running


@pytest.fixture
def trajectory(host: Host) -> Callable[..., Trajectory]:
    """With these media as the task's."""

    def make(*media: Media) -> Trajectory:
        return Trajectory(host, "image", media=media)

    return make


def png(image: Image.Image) -> Media:
    return Media(media_type="image/png", data=image_file(image, "PNG"))


def shown(result: Result) -> list[Image.Image]:
    assert result.error is None, result
    media = [part for part in result.observation if isinstance(part, Media)]
    return [Image.open(io.BytesIO(part.data)) for part in media]


async def look(session: Trajectory, **arguments: Any) -> Image.Image:
    (image,) = shown(await session.act(call("zoom_in", bbox_2d=[0, 0, 1, 1], **arguments)))
    assert image.mode == "RGB"
    return image


@pytest.mark.parametrize(
    ("kind", "result"),
    [("PNG", "PNG"), ("GIF", "PNG"), ("BMP", "PNG"), ("JPEG", "JPEG"), ("WEBP", "JPEG")],
)
async def test_formats(trajectory: Callable[..., Trajectory], kind: str, result: str) -> None:
    media = Media(media_type="image/x", data=image_file(quarters(), kind))
    image = await look(trajectory(media))
    assert image.format == result
    assert near(image, (10, 10), RED)
    assert near(image, (390, 10), GREEN)
    assert near(image, (10, 190), BLUE)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16"])
async def test_modes(trajectory: Callable[..., Trajectory], mode: str) -> None:
    if mode == "I;16":
        made = Image.new("I;16", (100, 100), 0x8000)
        grey = 128
    else:
        made, grey = Image.new("RGB", (100, 100), "white").convert(mode), 255
    image = await look(trajectory(png(made)))
    assert near(image, (50, 50), (grey,) * 3)


async def test_a_jpeg_of_printers_colours(trajectory: Callable[..., Trajectory]) -> None:
    data = image_file(Image.new("CMYK", (60, 60), (0, 255, 255, 0)), "JPEG")
    image = await look(trajectory(Media(media_type="image/jpeg", data=data)))
    assert near(image, (30, 30), (254, 0, 0))


async def test_what_is_transparent_lies_on_white(trajectory: Callable[..., Trajectory]) -> None:
    made = Image.new("RGBA", (100, 100), (0, 0, 0, 0))
    made.paste((0, 0, 255, 255), (0, 0, 50, 100))
    image = await look(trajectory(png(made)))
    assert image.getpixel((75, 50)) == (255, 255, 255)
    assert image.getpixel((25, 50)) == (0, 0, 255)


async def test_boxes_are_of_the_image_as_it_is_shown(
    trajectory: Callable[..., Trajectory],
) -> None:
    """A photo that was taken upright: its file lies on its side."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    lying = quarters().rotate(90, expand=True)
    data = image_file(lying, "JPEG", exif=exif)
    session = trajectory(Media(media_type="image/jpeg", data=data))
    image = await look(session)
    assert image.size == (400, 200)
    assert near(image, (10, 10), RED)
    assert not image.getexif()
    assert shown(await session.act(call("crop_image", bbox_2d=[350, 0, 400, 50])))
    assert not (await session.act(call("crop_image", bbox_2d=[0, 0, 50, 201]))).valid


async def test_results_are_no_larger_than_the_limit_and_no_smaller_than_a_patch(
    trajectory: Callable[..., Trajectory],
) -> None:
    session = trajectory(png(quarters(2000, 1000)), png(quarters(10, 20)), png(quarters(4000, 4)))
    assert (await look(session)).size == (512, 256)
    assert (await look(session, target_image=2)).size == (28, 56)
    assert not (await session.act(call("rotate_image", angle=0, target_image=3))).valid
    (turned,) = shown(await session.act(call("rotate_image", angle=45)))
    assert max(turned.size) == 512
    assert turned.getpixel((1, 1)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("kind", "codec"),
    [
        ("mp4", "libx264"),
        ("mov", "mpeg4"),
        ("matroska", "libx265"),
        ("webm", "libvpx-vp9"),
        ("avi", "mjpeg"),
    ],
)
async def test_frames_are_those_that_were_asked_for(
    trajectory: Callable[..., Trajectory], kind: str, codec: str
) -> None:
    """Across key frames, in any order, one of them twice."""
    data = video_file(kind, codec, size=(160, 120))
    session = trajectory(Media(media_type="video/x", data=data))
    wanted = [24, 10, 11, 12, 1, 11]
    frames = shown(await session.act(call("select_frames", target_frames=wanted)))
    for number, frame in zip(wanted, frames, strict=True):
        found = frame.convert("L").getpixel((80, 60))
        assert isinstance(found, int)
        assert abs(found - brightness(number)) < 4


async def test_sampled_frames_are_numbered_evenly() -> None:
    media = Media(media_type="video/mp4", data=video_file("mp4", "libx264", size=(160, 120)))
    async with Host([ImageTool(ImageOptions(workers=1, sampled_frames=4))]) as host:
        session = Trajectory(host, "image", media=(media,))
        result = await session.act(call("select_frames", target_frames=[1, 2, 4]))
        notes = [part.text for part in result.observation if isinstance(part, Text)]
        assert [note.split(":")[0] for note in notes] == [
            "Image 1 (frame 1, at 0.00 s)",
            "Image 2 (frame 2, at 0.80 s)",
            "Image 3 (frame 4, at 2.30 s)",
        ]
        assert not (await session.act(call("select_frames", target_frames=[5]))).valid


async def test_a_task_whose_images_are_frames(trajectory: Callable[..., Trajectory]) -> None:
    session = trajectory(*(png(Image.new("RGB", (50, 50), (level,) * 3)) for level in (50, 150)))
    frames = shown(await session.act(call("select_frames", target_frames=[2, 1])))
    assert [frame.getpixel((5, 5)) for frame in frames] == [(150,) * 3, (50,) * 3]
    assert not (await session.act(call("select_frames", target_frames=[5]))).valid


async def test_equal_requests_have_equal_results(trajectory: Callable[..., Trajectory]) -> None:
    media = Media(media_type="video/mp4", data=video_file("mp4", "libx264", size=(160, 120)))
    action = call("select_frames", target_frames=[3, 17])
    one, other = [await trajectory(media).act(action) for _ in range(2)]
    assert len(shown(one)) == 2
    assert one.observation == other.observation


async def test_a_session_is_bounded() -> None:
    async with Host([ImageTool(ImageOptions(workers=1, images=3, session_mib=1))]) as host:
        session = Trajectory(host, "image", media=(png(quarters()),))
        frames = await session.act(call("select_frames", target_frames=[1, 1, 1]))
        assert frames.error is not None
        assert frames.error.kind is ToolErrorKind.LIMIT
        for _ in range(2):
            assert await look(session)
        full = await session.act(call("rotate_image", angle=0))
        assert full.error is not None
        assert full.error.kind is ToolErrorKind.LIMIT
        noise = Trajectory(host, "image", media=(png(Image.effect_noise((800, 800), 90)),))
        large = await noise.act(call("rotate_image", angle=0))
        assert large.error is not None
        assert "1048576 bytes" in large.error.message
    with pytest.raises(Refused):
        async with Host([ImageTool(ImageOptions(workers=1, images=1))]) as host:
            await Trajectory(host, "image", media=(png(quarters()), png(quarters(60, 60)))).open()


def decoder() -> psutil.Process:
    """The newest of this process's own."""
    mine = (one for one in psutil.Process().children() if "decoding.worker" in str(one.cmdline()))
    return max(mine, key=psutil.Process.create_time)


async def test_want_of_memory_is_told_and_mends_itself(host: Host) -> None:
    """An image within the limit of pixels, for a process that was given too little."""
    options = ImageOptions(workers=1, memory_mib=256, pixels=400_000_000)
    async with Host([ImageTool(options)]) as small:
        media = png(Image.new("RGB", (12_000, 12_000)))
        session = Trajectory(small, "image", media=(media, png(quarters())))
        for _ in range(2):
            result = await session.act(call("rotate_image", angle=0))
            assert result.error is not None
            assert result.error.kind is ToolErrorKind.OUT_OF_MEMORY
            assert not result.error.session_lost
        assert (await look(session, target_image=2)).size == (400, 200)


async def at_rest(host: Host, until: Callable[..., Any]) -> psutil.Process:
    """The decoding process, stopped, so that the next call is in it for as long as a test likes."""
    await look(Trajectory(host, "image", media=(png(quarters()),)))
    process = decoder()
    process.send_signal(signal.SIGSTOP)
    await until(lambda: process.status() == psutil.STATUS_STOPPED)
    return process


async def in_it(host: Host, until: Callable[..., Any]) -> None:
    await until(lambda: host._tools["image"].figures()["decoders_busy"] == 1)


async def test_the_run_limit_and_cancelling_end_a_process_and_nothing_else(
    host: Host, until: Callable[..., Any]
) -> None:
    session = Trajectory(host, "image", media=(png(quarters()),))
    process = await at_rest(host, until)
    result = await session.act(call("rotate_image", angle=0), run_limit=0.2)
    assert result.error is not None
    assert result.error.kind is ToolErrorKind.TIMEOUT
    assert not process.is_running()
    process = await at_rest(host, until)
    asked = asyncio.create_task(session.act(call("rotate_image", angle=0)))
    await in_it(host, until)
    assert session.cancel()
    result = await asked
    assert result.error is not None
    assert result.error.kind is ToolErrorKind.CANCELLED
    with contextlib.suppress(psutil.NoSuchProcess):
        # It lives where the call was cancelled before it had reached it.
        process.send_signal(signal.SIGCONT)
    result = await session.act(call("rotate_image", angle=0))
    assert result.observation[0] == Text(text="Image 2: 400 x 200 pixels\n")


async def test_a_crash_is_the_files_and_a_kill_is_nobodys(
    host: Host, until: Callable[..., Any]
) -> None:
    session = Trajectory(host, "image", media=(png(quarters()),))
    process = await at_rest(host, until)
    asked = asyncio.create_task(session.act(call("rotate_image", angle=0)))
    await in_it(host, until)
    process.send_signal(signal.SIGSEGV)
    process.send_signal(signal.SIGCONT)
    result = await asked
    assert result.error is not None
    assert (result.error.kind, result.error.session_lost) == (ToolErrorKind.CRASHED, False)
    process = await at_rest(host, until)
    asked = asyncio.create_task(session.act(call("rotate_image", angle=0)))
    await in_it(host, until)
    process.kill()
    with pytest.raises(Refused) as failure:
        await asked
    assert failure.value.reason is Reason.BACKEND_DOWN
    assert failure.value.retry_after
    result = await session.act(call("rotate_image", angle=0))
    assert result.observation[0] == Text(text="Image 2: 400 x 200 pixels\n")


async def test_a_call_that_finds_no_process_free_has_not_run(
    host: Host, until: Callable[..., Any]
) -> None:
    process = await at_rest(host, until)
    first, second = (Trajectory(host, "image", media=(png(quarters()),)) for _ in range(2))
    asked = asyncio.create_task(first.act(call("rotate_image", angle=0)))
    await in_it(host, until)
    with pytest.raises(Refused) as failure:
        await second.act(call("rotate_image", angle=0), run_limit=0.2)
    assert failure.value.reason is Reason.QUEUE_LIMIT
    process.send_signal(signal.SIGCONT)
    assert (await asked).error is None
    assert (await second.act(call("rotate_image", angle=0))).error is None


async def test_a_decoding_process_is_confined_and_ends_with_its_service() -> None:
    workers = Workers(1, 256 * MIB)
    await workers.start()
    process = decoder()
    status = proc(process, "status")
    assert "NoNewPrivs:\t1\n" in status
    assert "Seccomp:\t2\n" in status
    assert f"CapEff:\t{0:016x}\n" in status
    assert f"Max address space         {256 * MIB}" in proc(process, "limits")
    assert "TOKEN" not in proc(process, "environ")
    assert "HOME" not in proc(process, "environ")
    await workers.close()
    assert not process.is_running()


async def test_no_process_can_be_had_with_too_little_memory() -> None:
    with pytest.raises(StartError, match="memory_mib"):
        await Workers(1, 48 * MIB).start()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"folder": "/nowhere/at/all"}, "there is no such folder"),
        ({"pixels": 1}, "--set image.pixels"),
        ({"encoding": "gif"}, "--set image.encoding"),
        ({"colour": "red"}, "options of image"),
    ],
)
def test_options_that_make_no_sense_are_one_sentence(options: Any, says: str) -> None:
    with pytest.raises(StartError) as failure:
        make_built_in("image", options, SandboxConfig())
    assert says in str(failure.value)
    assert "\n" not in str(failure.value)
