"""Frames of videos by PyAV.

Invariants
- A stream is decoded only after its header named a codec of CODECS and a size within the limit;
  libavcodec holds every later frame to the same size (`max_pixels`).
- Frames are numbered in the order of showing, from the packets' time stamps, without decoding.
- Nothing but the given file is read: container formats are recognised by their first bytes, so
  formats that name other files (playlists) are never tried.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import av
import av.logging
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from PIL import Image

from toolsvc.tools.image.boxes import evenly, fitted
from toolsvc.tools.image.decoding.pictures import encoded
from toolsvc.tools.image.types import ImageFault, ImageLimits, Picture, UnusableFile

CODECS = ("h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg")
PIXELS = 9_437_184
"""Maximum pixels of a frame: 4096 x 2304, the largest of H.264 up to level 5.2. A decoder holds
several frames."""
FRAMES = 500_000
"""More than four and a half hours at 30 a second; each costs a time stamp."""
SECONDS = 6 * 3600

_OPTIONS = {"max_pixels": str(PIXELS), "threads": "1"}

av.logging.set_level(av.logging.PANIC)


class _Index(NamedTuple):
    """Time stamps in the order of showing, in units of the stream: of all frames, and of those
    where decoding may begin."""

    all: list[int]
    keys: list[int]


def frames_of(numbers: Sequence[int], file: BinaryIO, limits: ImageLimits) -> list[Picture]:
    """The frames of these numbers, from 1, in the order of asking. Raises UnusableFile."""
    try:
        with av.open(
            file, "r", format=_container(file), options=_OPTIONS, buffer_size=1 << 20
        ) as container:
            stream = _stream(container)
            index = _index(container, stream)
            shown = [index.all[at] for at in _places(len(index.all), limits)]
            beyond = [number for number in numbers if number > len(shown)]
            if beyond:
                raise UnusableFile(
                    ImageFault.REQUEST, f"there is no frame {beyond[0]}: the video has {len(shown)}"
                )
            wanted = {shown[number - 1]: number for number in numbers}
            found = {}
            for stamp, frame in _decoded(container, stream, sorted(wanted), index.keys):
                seconds = (stamp - index.all[0]) * float(stream.time_base or 0)
                note = f"frame {wanted[stamp]}, at {seconds:.2f} s"
                found[wanted[stamp]] = _picture(frame, limits, note)
    except MemoryError:  # one of PyAV's is both
        raise
    except av.FFmpegError as error:
        raise UnusableFile(
            ImageFault.FILE, f"the video cannot be read: {error.strerror}"
        ) from error
    missing = [number for number in numbers if number not in found]
    if missing:
        raise UnusableFile(
            ImageFault.FILE, f"the video is broken: frame {missing[0]} cannot be decoded"
        )
    return [found[number] for number in numbers]


def rehearse(limits: ImageLimits) -> None:
    """As `pictures.rehearse`, with a video made here."""
    out = io.BytesIO()
    with av.open(out, "w", format="avi") as container:
        stream = container.add_stream("mpeg4", rate=1)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for frame in (VideoFrame(32, 32, "yuv420p"), None):
            container.mux(stream.encode(frame))
    frames_of([1], out, limits)


def _container(file: BinaryIO) -> str:
    """libavformat's name of the file's format."""
    file.seek(0)
    head = file.read(12)
    file.seek(0)
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip"):
        return "mov"
    if head[:4] == b"\x1a\x45\xdf\xa3":
        return "matroska"
    if head[:4] == b"RIFF" and head[8:] == b"AVI ":
        return "avi"
    raise UnusableFile(
        ImageFault.FILE, "the file is no video that can be read: MP4, MOV, Matroska, WebM, AVI"
    )


def _stream(container: InputContainer) -> VideoStream:
    """The first video of the file, seen to be within the limits."""
    if not container.streams.video:
        raise UnusableFile(ImageFault.FILE, "the file has no video stream")
    stream = container.streams.video[0]
    if stream.codec_context.codec.canonical_name not in CODECS:
        raise UnusableFile(
            ImageFault.FILE,
            f"the video's codec is {stream.codec_context.name}; only {', '.join(CODECS)} are read",
        )
    width, height = stream.codec_context.width, stream.codec_context.height
    if width * height > PIXELS:
        raise UnusableFile(
            ImageFault.LIMIT,
            f"the video's frames have {width} x {height} pixels; at most {PIXELS} together",
        )
    if stream.frames > FRAMES:
        raise UnusableFile(
            ImageFault.LIMIT, f"the video has {stream.frames} frames; at most {FRAMES}"
        )
    seconds = (container.duration or 0) / av.time_base
    if seconds > SECONDS:
        raise UnusableFile(ImageFault.LIMIT, f"the video lasts {seconds:.0f} s; at most {SECONDS}")
    return stream


def _index(container: InputContainer, stream: VideoStream) -> _Index:
    """Reads all packets and decodes none."""
    frames, keys = set(), set()
    for packet in container.demux(stream):
        stamp = packet.dts if packet.pts is None else packet.pts
        if stamp is None or packet.is_discard:
            continue
        frames.add(stamp)
        if packet.is_keyframe:
            keys.add(stamp)
        if len(frames) > FRAMES:
            raise UnusableFile(ImageFault.LIMIT, f"the video has more than {FRAMES} frames")
    if not frames:
        raise UnusableFile(ImageFault.FILE, "the video has no frames")
    return _Index(sorted(frames), sorted(keys))


def _places(total: int, limits: ImageLimits) -> Sequence[int]:
    """Places of the frames that are numbered."""
    sampled = limits.sampled_frames
    return range(total) if sampled is None else evenly(total, sampled)


def _decoded(
    container: InputContainer, stream: VideoStream, stamps: Sequence[int], keys: Sequence[int]
) -> Iterator[tuple[int, VideoFrame]]:
    """Each stamp with its frame, of those that can be decoded. `stamps` and `keys` rise. Seeks only
    where that spares decoding."""
    frames: Iterator[VideoFrame] = iter(())
    frame: VideoFrame | None = None
    at: int | None = None
    for stamp in stamps:
        begin = keys[max(0, bisect_right(keys, stamp) - 1)] if keys else stamps[0]
        if at is None or at < begin:
            container.seek(begin, stream=stream)
            frames = container.decode(stream)
            frame = at = None
        while at is None or at < stamp:
            frame = next(frames, None)
            if frame is None:
                return
            at = frame.dts if frame.pts is None else frame.pts
        if frame is not None:
            yield stamp, frame


def _picture(frame: VideoFrame, limits: ImageLimits, note: str) -> Picture:
    width, height = fitted((frame.width, frame.height), limits.long_side)
    image: Image.Image = frame.to_image(  # type: ignore[no-untyped-call]
        width=width, height=height
    )
    if frame.rotation:
        image = image.rotate(frame.rotation, expand=True)
    return encoded(image, "PNG" if limits.encoding == "png" else "JPEG", note)
