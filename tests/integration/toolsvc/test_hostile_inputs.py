"""Every parser of foreign bytes against files that were made to hurt it.

Whatever the bytes are, a parser answers or the input fails: never PoolDown, for which a caller
would try again, never more than its time, and the next input is read as if nothing had been.
"""

import gzip
import io
import struct
import tarfile
import zlib
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.toolsvc.media import image_file, quarters, video_file
from toolsvc.confined.errors import InputFailed, InputFault
from toolsvc.confined.pool import ConfinedPool, file_of
from toolsvc.sandbox.config import MIB
from toolsvc.tools.image.arguments import Function, ImageArguments
from toolsvc.tools.image.types import ImageLimits
from toolsvc.tools.image.wire import ImageRequest, most_answered, read_answer
from toolsvc.tools.swe.verifying.archives import as_tree
from toolsvc.tools.swe.verifying.parser import BadTree
from toolsvc.tools.web_search import extract
from toolsvc.tools.web_search.extract import Extractor
from toolsvc.tools.web_search.fetch import Fetched
from toolsvc.tools.web_search.types import PageUnreadable

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]
LIMITS = ImageLimits(
    pixels=1_000_000,
    file_bytes=1 << 20,
    long_side=256,
    padding=0.1,
    sampled_frames=None,
    encoding="auto",
)
LOOK = ImageArguments(function=Function.ROTATE_IMAGE, angle=0)
FRAMES = ImageArguments(function=Function.SELECT_FRAMES, target_frames=[1, 2])
TREE_BYTES = MIB


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def images() -> AsyncIterator[ConfinedPool]:
    pool = ConfinedPool("toolsvc.tools.image.decoding.parser", count=1, memory_bytes=384 * MIB)
    await pool.start()
    yield pool
    await pool.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def archives() -> AsyncIterator[ConfinedPool]:
    pool = ConfinedPool("toolsvc.tools.swe.verifying.parser", count=1, memory_bytes=128 * MIB)
    await pool.start()
    yield pool
    await pool.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pages() -> AsyncIterator[Extractor]:
    extractor = Extractor(1)
    await extractor.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extract, "EXTRACT_SECONDS", 2.0)
        yield extractor
    await extractor.close()


async def look(pool: ConfinedPool, data: bytes, arguments: ImageArguments = LOOK) -> str:
    """ "shown", or why not."""
    request = ImageRequest(arguments=arguments, limits=LIMITS).model_dump_json()
    async with pool.place("a", 60) as jobs:
        with file_of(data) as file:
            try:
                answer = await jobs.run(request, file, seconds=30, most=most_answered(LIMITS, 8))
            except InputFailed as failed:
                return str(failed.fault)
    found = read_answer(answer, LIMITS.long_side)
    return "shown" if found.unusable is None else str(found.unusable.fault)


async def unpack(pool: ConfinedPool, data: bytes, seconds: float = 30) -> str:
    """ "read", or why not."""
    async with pool.place("a", 60) as jobs:
        with file_of(data) as file:
            try:
                answer = await jobs.run(str(TREE_BYTES), file, seconds=seconds, most=8 * MIB)
                as_tree(answer)
            except InputFailed as failed:
                return str(failed.fault)
            except BadTree:
                return "bad"
    return "read"


async def visit(extractor: Extractor, body: bytes, charset: str | None = None) -> str:
    """ "read", or why not."""
    page = Fetched(url="https://example.org/", body=body, charset=charset, markup=charset is None)
    try:
        return f"read: {(await extractor.extract(page, 'a')).text}"
    except PageUnreadable as unreadable:
        return str(unreadable)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *chunks: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IEND", b"")


ZEROS = zlib.compress(bytes(50 << 20))
PICTURE = image_file(quarters(40, 40), "PNG")
NASTY_IMAGES = {
    "nothing": b"",
    "one byte": b"\x89",
    "a page": b"<html></html>",
    "more pixels than a machine has": png(2**31 - 1, 2**31 - 1, chunk(b"IDAT", ZEROS)),
    "pixels that do not come": png(1000, 1000),
    "pixels that do not end": png(10, 10, chunk(b"IDAT", ZEROS)),
    "a text of 50 MiB": png(10, 10, chunk(b"zTXt", b"k\0\0" + ZEROS), chunk(b"IDAT", ZEROS[:99])),
    "a profile of 50 MiB": png(10, 10, chunk(b"iCCP", b"k\0\0" + ZEROS)),
    "a chunk as long as can be": PICTURE[:33] + b"\xff\xff\xff\xffIDAT" + PICTURE[41:],
    "a postscript file": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "a directory that names itself": b"II*\0\x08\0\0\0" + b"\0" * 8 + b"\x08\0\0\0",
    "a photo whose orientation names itself": image_file(quarters(40, 40), "JPEG")[:2]
    + b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x69\x87\x04\0\x01\0\0\0\x08\0\0\0\x08\0\0\0"
    + image_file(quarters(40, 40), "JPEG")[2:],
    "a GIF of many screens": b"GIF89a\xff\xff\xff\xff\0\0\0"
    + b",\0\0\0\0\xff\xff\xff\xff\0\x08" * 99,
    "a BMP of no height": b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 9, -(2**31), 1, 24, 0),
}


@pytest.mark.parametrize("name", NASTY_IMAGES)
async def test_nasty_images(images: ConfinedPool, name: str) -> None:
    assert await look(images, NASTY_IMAGES[name]) in ("shown", "file", "limit", "memory")
    assert await look(images, PICTURE) == "shown"


FILES = {
    **{kind: image_file(quarters(40, 40), kind) for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP")},
    "mp4": video_file("mp4", "libx264", size=(64, 48)),
    "webm": video_file("webm", "libvpx-vp9", size=(64, 48)),
    "avi": video_file("avi", "mjpeg", size=(64, 48)),
}


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """The file with some bytes changed, some left out, some twice."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        piece = draw(st.binary(min_size=1, max_size=8))
        how = draw(st.sampled_from(("over", "into", "out", "again")))
        if how == "over":
            data[at : at + len(piece)] = piece
        elif how == "into":
            data[at:at] = piece
        elif how == "out":
            del data[at : at + draw(st.integers(1, 64))]
        else:
            data[at:at] = data[at : at + draw(st.integers(1, 2000))]
    return bytes(data)


@settings(max_examples=8)
@pytest.mark.parametrize("kind", FILES)
@given(data=st.data())
async def test_damaged_images_and_videos(
    images: ConfinedPool, kind: str, data: st.DataObject
) -> None:
    arguments = LOOK if kind.isupper() else FRAMES
    await look(images, data.draw(damaged(FILES[kind])), arguments)


def tar(make: Callable[[tarfile.TarFile], None]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        make(archive)
    return out.getvalue()


def add(archive: tarfile.TarFile, name: str, data: bytes = b"", **more: object) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for key, value in more.items():
        setattr(member, key, value)
    archive.addfile(member, io.BytesIO(data))


def link(archive: tarfile.TarFile, name: str, target: str) -> None:
    add(archive, name, type=tarfile.LNKTYPE, linkname=target)


def _links(archive: tarfile.TarFile) -> None:
    add(archive, "big", bytes(MIB // 2))
    for number in range(78):
        link(archive, f"l{number}", "big")


def _many_links(archive: tarfile.TarFile) -> None:
    for number in range(2500):
        add(archive, f"f{number}")
    for number in range(2500):
        link(archive, f"l{number}", f"f{number}")


def _two(archive: tarfile.TarFile) -> None:
    add(archive, "é" * 60, b"1")
    link(archive, "b", "é" * 60)


def _negative(archive: tarfile.TarFile) -> None:
    add(archive, "a", b"x", pax_headers={"size": "-1024"})


def _sparse(archive: tarfile.TarFile) -> None:
    sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1000000"}
    add(archive, "a", b"9" * 511 + b"\n", pax_headers=sparse)


def header_without_end(kind: bytes) -> bytes:
    """Headers of headers, each of which is read before the one that it stands before."""
    member = tarfile.TarInfo("a")
    member.type = kind
    return member.tobuf(tarfile.PAX_FORMAT) * 3000


GOOD_TAR = tar(lambda archive: add(archive, "a.py", b"print()"))
NASTY_ARCHIVES = {
    "nothing": (b"", "bad"),
    "gzip": (gzip.compress(GOOD_TAR), "bad"),
    "links that multiply": (tar(_links), "bad"),
    "many links": (tar(_many_links), "read"),
    "sizes below nothing": (tar(_negative), "bad"),
    "a sparse map without end": (tar(_sparse)[:2048], "bad"),
    "a sparse map": (tar(_sparse), "bad"),
    "headers of headers": (header_without_end(tarfile.XHDTYPE), "broken"),
    "long names of long names": (header_without_end(tarfile.GNUTYPE_LONGNAME), "broken"),
    "a link to itself": (tar(lambda archive: link(archive, "a", "a")), "bad"),
}


@pytest.mark.parametrize("name", NASTY_ARCHIVES)
async def test_nasty_archives(archives: ConfinedPool, name: str) -> None:
    data, wanted = NASTY_ARCHIVES[name]
    found = await unpack(archives, data, seconds=10)
    assert found in (wanted, "time" if wanted == "bad" else wanted)
    assert await unpack(archives, GOOD_TAR) == "read"


@settings(max_examples=25)
@given(data=st.data())
async def test_damaged_archives(archives: ConfinedPool, data: st.DataObject) -> None:
    await unpack(archives, data.draw(damaged(tar(_two))))


GOOD_PAGE = b"<html><body><p>A good page with some words on it.</p></body></html>"
NASTY_PAGES = {
    "folders in folders": b"<div>" * 100_000 + b"deep",
    "tables in tables": b"<table><tr><td>" * 10_000,
    "formatting that is never closed": b"<b><i><a href=x>" * 20_000 + b"text",
    "attributes": b"<p " + b" ".join(b"a%d=1" % number for number in range(20_000)) + b">text</p>",
    "an attribute": b'<p title="' + b"x" * (2 << 20),
    "entities of entities": b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 10))
    + b"]><x>&a9;</x>",
    "another file": b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><p>&e; some text</p>',
    "a comment that is never closed": b"<!--" + b"-" * 500_000,
    "data that are never closed": b"<![CDATA[" * 50_000,
    "JSON in JSON": b'<script type="application/ld+json">' + b"[" * 100_000 + b"</script>text",
    "nothing but zeros": bytes(500_000),
    "two encodings": b"<?xml version='1.0' encoding='utf-16'?><meta charset=utf-7><p>text</p>",
    "half a text": "<p>text</p>".encode("utf-16")[:-1],
}


@pytest.mark.parametrize("name", NASTY_PAGES)
async def test_nasty_pages(pages: Extractor, name: str) -> None:
    assert "root:" not in await visit(pages, NASTY_PAGES[name])
    assert await visit(pages, GOOD_PAGE) == "read: A good page with some words on it."


@settings(max_examples=20)
@given(
    body=st.lists(
        st.sampled_from(("<p>", "</p>", "<div a='", "'>", "<table>", "<td>", "<!--", "-->", "&#x",
                         "<script>", "<svg>", "</", "<title>", "<meta charset=", "\0"))
        | st.text(max_size=20),
        max_size=30,
    )
)  # fmt: skip
async def test_pages_of_shreds(pages: Extractor, body: list[str]) -> None:
    await visit(pages, "".join(body).encode("utf-8", "replace"))


@pytest.mark.parametrize(
    "charset",
    ["shift_jis", "euc-kr", "gb18030", "big5", "koi8-r", "windows-1252", "utf-16", "iso2022_jp"],
)
async def test_text_in_every_encoding_is_read(pages: Extractor, charset: str) -> None:
    """Codecs are loaded when they are first needed, and a confined process can load nothing."""
    text = {"koi8-r": "Привет, мир", "windows-1252": "Blåbær"}.get(charset, "日本")
    text = "한국어" if charset == "euc-kr" else text
    assert await visit(pages, text.encode(charset), charset) == f"read: {text}"
    page = f"<html><head><meta charset='{charset}'></head><body><p>{text * 9}</p></body></html>"
    assert text in await visit(pages, page.encode(charset))


@pytest.mark.parametrize(
    "charset", ["no-such-charset", "hex", "undefined", "unicode_escape", "idna"]
)
async def test_a_charset_that_is_none_harms_nobody(pages: Extractor, charset: str) -> None:
    said = await visit(pages, b"\\ud800 plain text", charset)
    assert "plain text" in said or "cannot be read" in said or "too strange" in said


async def test_an_image_that_fills_the_memory_costs_its_own_process(images: ConfinedPool) -> None:
    big = png(9000, 9000, chunk(b"IDAT", ZEROS))
    limits = LIMITS.model_copy(update={"pixels": 100_000_000})
    request = ImageRequest(arguments=LOOK, limits=limits).model_dump_json()
    async with images.place("a", 60) as jobs:
        with file_of(big) as file:
            with pytest.raises(InputFailed) as failed:
                await jobs.run(request, file, seconds=30, most=MIB)
            assert failed.value.fault is InputFault.MEMORY
    assert await look(images, PICTURE) == "shown"
