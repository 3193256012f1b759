"""Images and videos made here, sound ones and bombs: files that claim, or become, far more than
they are."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import av
from PIL import Image

RED, GREEN, BLUE = (220, 30, 30), (30, 200, 30), (30, 30, 220)


def quarters(width: int = 400, height: int = 200) -> Image.Image:
    """Red and green above blue and white."""
    image = Image.new("RGB", (width, height), "white")
    image.paste(RED, (0, 0, width // 2, height // 2))
    image.paste(GREEN, (width // 2, 0, width, height // 2))
    image.paste(BLUE, (0, height // 2, width // 2, height))
    return image


def image_file(image: Image.Image, kind: str, **how: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def brightness(number: int) -> int:
    """Of frame `number`, from 1, of a `video_file`."""
    return 20 + number * 8


def video_file(
    kind: str, codec: str, *, frames: int = 24, size: tuple[int, int] = (320, 240), keys: int = 10
) -> bytes:
    """Ten frames a second, each a little brighter than the one before; every tenth a key frame."""
    out = io.BytesIO()
    with av.open(out, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height = size
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.gop_size = keys
        for number in range(1, frames + 1):
            grey = Image.new("RGB", size, (brightness(number),) * 3)
            container.mux(stream.encode(av.VideoFrame.from_image(grey)))
        container.mux(stream.encode(None))
    return out.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    """Of a PNG."""
    body = name + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def zeros(count: int) -> bytes:
    """`count` zero bytes, deflated a MiB at a time."""
    packer = zlib.compressobj(1)
    pieces = [packer.compress(bytes(1 << 20)) for _ in range(count >> 20)]
    return b"".join([*pieces, packer.compress(bytes(count & 0xFFFFF)), packer.flush()])


def png(width: int, height: int, *, more: bytes = b"", pixels: bytes | None = None) -> bytes:
    """Black and white. `more`: chunks before the pixels; `pixels` deflated, None = all of them,
    black."""
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zeros(height * (1 + (width + 7) // 8)) if pixels is None else pixels
    chunks = [chunk(b"IHDR", head), more, chunk(b"IDAT", rows), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def patched(data: bytes, mark: bytes, offset: int, value: bytes) -> bytes:
    """With `value` at `offset` after the first `mark`."""
    at = data.index(mark) + offset
    return data[:at] + value + data[at + len(value) :]


def claiming_video(width: int, height: int) -> bytes:
    """A Matroska header with these sides, and a packet that says nothing else."""
    out = io.BytesIO()
    with av.open(out, "w", format="matroska") as container:
        stream = container.add_mux_stream("vp8", rate=1, width=width, height=height)
        packet = av.Packet(b"\xff" * 1000)
        packet.stream, packet.pts, packet.dts, packet.is_keyframe = stream, 0, 0, True
        container.mux(packet)
    return out.getvalue()


def image_bombs() -> Iterator[tuple[str, bytes, str]]:
    """Name, file, and what is said of it."""
    large = "more than 50000000 pixels"
    jpeg, gif, bmp = (image_file(quarters(), kind) for kind in ("JPEG", "GIF", "BMP"))
    yield "png-50000", png(50_000, 50_000), large
    yield "png-claims", png(100_000, 100_000, pixels=zeros(1000)), large
    yield "jpeg-claims", patched(jpeg, b"\xff\xc0", 5, struct.pack(">HH", 65_500, 65_500)), large
    yield "gif-claims", patched(gif, b"GIF8", 6, struct.pack("<HH", 65_535, 65_535)), large
    yield "bmp-claims", patched(bmp, b"BM", 18, struct.pack("<ii", 100_000, 100_000)), large
    text = chunk(b"zTXt", b"note\0\0" + zeros(256 << 20))
    yield "png-text", png(64, 64, more=text), "broken"
    colours = chunk(b"iCCP", b"name\0\0" + zeros(256 << 20))
    yield "png-profile", png(64, 64, more=colours), "broken"
    # A bomb in a bomb, in the way of zip files; the outer one is no image.
    yield "deflated-png", zlib.compress(png(50_000, 50_000)), "no image that can be read"
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP"):
        whole = image_file(Image.effect_noise((400, 300), 60), kind)
        yield f"cut-{kind}", whole[: len(whole) // 2], "broken"
    yield "text", b"not an image at all", "no image that can be read"
    yield "empty", b"", "no image that can be read"
    yield "svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no image that can be read"
    yield "tiff", image_file(quarters(), "TIFF"), "no image that can be read"


def video_bombs() -> Iterator[tuple[str, bytes, str]]:
    """As `image_bombs`."""
    mp4, avi = video_file("mp4", "libx264"), video_file("avi", "mpeg4")
    motion_jpeg = video_file("avi", "mjpeg")
    yield "claims", claiming_video(100_000, 100_000), "the video cannot be read"
    yield "claims-less", claiming_video(5_000, 2_000), "the video cannot be read"
    yield (
        "jpeg-in-avi",
        patched(motion_jpeg, b"\xff\xc0", 5, struct.pack(">HH", 65_500, 65_500)),
        "video",
    )
    frames = struct.pack("<I", 2_000_000_000)
    yield "avi-frames", patched(avi, b"strh", 40, frames), "the video has 2000000000 frames"
    yield "cut-mp4", mp4[: len(mp4) // 2], "video"
    yield "text", b"not a video at all", "no video that can be read"
    yield "empty", b"", "no video that can be read"
    playlist = b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"
    yield "playlist", playlist, "no video that can be read"
    yield "image", image_file(quarters(), "PNG"), "no video that can be read"
    yield "concat", b"ffconcat version 1.0\nfile /etc/passwd\n", "no video that can be read"
