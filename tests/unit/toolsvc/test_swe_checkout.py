"""Checkouts: which session waits for which, and which archives are unpacked."""

from __future__ import annotations

import asyncio
import os
import tarfile
from pathlib import Path

import pytest

from tests.support.hosts import refused
from toolsvc.errors import Reason, Refused
from toolsvc.tools.files import Entry
from toolsvc.tools.swe import checkout
from toolsvc.tools.swe.checkout import Checkouts, unpack


class Slow(Checkouts):
    """Makes nothing before it may."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, 1 << 20)
        self.asked: list[str] = []
        self.begins = asyncio.Event()
        self.may: dict[str, asyncio.Event] = {}

    async def _make(self, source: Path, name: str, commit: str) -> list[Entry]:
        self.asked.append(source.name)
        self.begins.set()
        await self.may.setdefault(source.name, asyncio.Event()).wait()
        if name == "broken":
            raise Refused(Reason.INVALID_REQUEST, "no repository")
        return []


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    for name in ("a", "b", "broken"):
        (tmp_path / name).mkdir()
    return Slow(tmp_path)


def released(slow: Slow, *names: str) -> None:
    for name in names:
        slow.may.setdefault(name, asyncio.Event()).set()


async def test_a_checkout_waits_for_no_other_repository(slow: Slow) -> None:
    hangs = asyncio.create_task(slow.get("a", ""))
    await slow.begins.wait()
    released(slow, "b")
    async with asyncio.timeout(5):
        assert await slow.get("b", "") == []
    assert not hangs.done()
    released(slow, "a")
    await hangs
    assert sorted(slow.asked) == ["a", "b"]


async def test_a_group_s_sessions_share_one_checkout(slow: Slow) -> None:
    group = [asyncio.create_task(slow.get("a", "")) for _ in range(8)]
    await asyncio.sleep(0)
    group[0].cancel()
    released(slow, "a")
    made = await asyncio.gather(*group[1:])
    assert all(one is made[0] for one in made)
    assert await slow.get("a", "") is made[0]
    assert slow.asked == ["a"]


async def test_one_that_fails_is_told_to_all_and_made_anew_for_the_next(slow: Slow) -> None:
    released(slow, "broken")
    for _ in range(2):
        with refused(Reason.INVALID_REQUEST):
            await slow.get("broken", "")
    assert slow.asked == ["broken", "broken"]


async def test_only_so_many_are_made_at_once(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "AT_ONCE", 1)
    one = Slow(slow._root)
    both = [asyncio.create_task(one.get(name, "")) for name in "ab"]
    await one.begins.wait()
    assert one.asked == ["a"]
    released(one, "a", "b")
    await asyncio.gather(*both)
    assert one.asked == ["a", "b"]


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.uid = kind, link, 12345
    return made


@pytest.mark.parametrize(
    "bad",
    [
        [member("../out")],
        [member("/etc/out")],
        [member("link", tarfile.SYMTYPE, "/etc")],
        [member("a/link", tarfile.SYMTYPE, "../../etc")],
        [member("link", tarfile.LNKTYPE, "../out")],
        [member("a", tarfile.SYMTYPE, "."), member("a/b", tarfile.SYMTYPE, "../..")],
        [member("device", tarfile.CHRTYPE)],
        [member("pipe", tarfile.FIFOTYPE)],
    ],
    ids=lambda bad: bad[-1].name,
)
def test_an_archive_that_leads_out_is_refused(tmp_path: Path, bad: list[tarfile.TarInfo]) -> None:
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as file:
        for one in (member("tree/file"), *bad):
            file.addfile(one)
    with pytest.raises(tarfile.TarError, match="leads out"):
        unpack(archive, tmp_path / "unpacked")
    assert not (tmp_path / "out").exists()


def test_an_archive_is_ours_once_it_is_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as file:
        file.addfile(member("tree/file"))
        file.addfile(member("tree/link", tarfile.SYMTYPE, "file"))
    tree = unpack(archive, tmp_path / "unpacked")
    assert tree == tmp_path / "unpacked/tree"
    assert (tree / "file").stat().st_uid == os.getuid()
    assert (tree / "link").readlink() == Path("file")
