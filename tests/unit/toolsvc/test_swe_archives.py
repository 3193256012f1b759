"""Archives of submissions: what makes a tree, and how little of an answer is believed."""

import contextlib
import io
import stat
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsvc.tools.files import Entry
from toolsvc.tools.swe.verifying.archives import as_tree
from toolsvc.tools.swe.verifying.parser import BadTree, answer_of, work
from toolsvc.tools.swe.verifying.tree import check_places

MOST = 1 << 20


def archive(*members: tuple[str, bytes, bytes]) -> bytes:
    """Of (name, type, content or target)."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as made:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            linked = kind in (tarfile.SYMTYPE, tarfile.LNKTYPE)
            member.linkname = content.decode() if linked else ""
            member.size = len(content) if kind == tarfile.REGTYPE else 0
            made.addfile(member, io.BytesIO(content))
    return target.getvalue()


def read(data: bytes, most: int = MOST) -> dict[str, Entry]:
    return as_tree(work(str(most), io.BytesIO(data)))


def test_a_tree_is_what_lies_below() -> None:
    tree = read(
        archive(
            ("./a.py", tarfile.REGTYPE, b"x"),
            ("./link", tarfile.SYMTYPE, b"/etc/passwd"),
            ("./pipe", tarfile.FIFOTYPE, b""),
            ("./.git/config", tarfile.REGTYPE, b""),
            ("./pkg/__pycache__/a.cpython-311.pyc", tarfile.REGTYPE, b""),
            ("./b.pyc", tarfile.REGTYPE, b""),
        )
    )
    assert set(tree) == {"a.py", "link"}
    assert stat.S_ISLNK(tree["link"].mode)
    assert tree["link"].content == b"/etc/passwd"


def test_names_that_are_no_text_survive() -> None:
    (entry,) = read(archive(("a\udcff b\n", tarfile.REGTYPE, b"x"))).values()
    assert entry == Entry("a\udcff b\n", stat.S_IFREG | 0o644, b"x")


def test_a_hard_link_shares_its_content() -> None:
    """Each of them held a copy of its own: a MiB became 78."""
    links = [(f"link{n}", tarfile.LNKTYPE, b"./big") for n in range(300)]
    tree = read(archive(("./big", tarfile.REGTYPE, b"x" * 1000), *links))
    assert len(tree) == 301
    assert all(entry.content is tree["big"].content for entry in tree.values())


def pax(**headers: str) -> bytes:
    """A file of one byte with these pax headers."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as made:
        member = tarfile.TarInfo("a")
        member.size = 1
        member.pax_headers = headers
        made.addfile(member, io.BytesIO(b"x"))
    return target.getvalue()


SPARSE = {
    "0.0": pax(**{"GNU.sparse.offset": "0", "GNU.sparse.size": "200000000"}),
    "0.1": pax(**{"GNU.sparse.map": "0,1", "GNU.sparse.size": "200000000"}),
    "1.0": pax(
        **{
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.realsize": "200000000",
        }
    ),
    "old": archive(("a", tarfile.GNUTYPE_SPARSE, b"")),
}


@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_files_are_refused(kind: str) -> None:
    """A header of 10 KiB became 200 MiB."""
    with pytest.raises(BadTree):
        read(SPARSE[kind] + bytes(10_240))


BIG = ("big", tarfile.REGTYPE, b"x" * 600)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no archive"),
        (b"no archive at all" * 100, "no archive"),
        (archive(("../a", tarfile.REGTYPE, b"")), "not below"),
        (archive(("/a", tarfile.REGTYPE, b"")), "not below"),
        (archive(("a", tarfile.REGTYPE, b"x" * 900))[:1024], "no archive|ends early"),
        (archive(BIG, ("b", tarfile.REGTYPE, b"x" * 600)), "more than 1000 bytes"),
        (archive(BIG, ("b", tarfile.LNKTYPE, b"big")), "more than 1000 bytes"),
        (archive(("b", tarfile.LNKTYPE, b"big"), BIG), "no file before it"),
        (archive(("b", tarfile.SYMTYPE, b"c"), ("d", tarfile.LNKTYPE, b"b")), "no file before"),
        (pax(path="x" * 5000), "no path"),
        (pax(path="a\0b"), "no path|no archive"),
        (pax(size="-1"), "no archive|no size"),
        (pax(size="9" * 4000), "more than|no archive"),
    ],
)
def test_what_is_no_tree(data: bytes, says: str) -> None:
    with pytest.raises(BadTree, match=says):
        read(data, 1000)


NAMES = st.text(st.characters(blacklist_characters="\0/"), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..") and not any("\ud800" <= one <= "\udfff" for one in name)
)


@given(files=st.dictionaries(NAMES, st.binary(max_size=50), max_size=5))
def test_an_answer_survives_its_way(files: dict[str, bytes]) -> None:
    rows, content = {}, b""
    for name, data in files.items():
        rows[name] = (stat.S_IFREG | 0o644, len(content), len(data))
        content += data
    tree = as_tree(answer_of(rows, content))
    assert {name: entry.content for name, entry in tree.items()} == files


@pytest.mark.parametrize(
    "row",
    [
        (stat.S_IFREG | 0o4755, 0, 5),
        (stat.S_IFCHR | 0o644, 0, 5),
        (stat.S_IFREG | 0o644, 0, 6),
        (stat.S_IFREG | 0o644, -1, 5),
        (stat.S_IFREG | 0o644, 5, -1),
    ],
)
def test_no_answer_is_believed_beyond_its_bounds(row: tuple[int, int, int]) -> None:
    good = (stat.S_IFREG | 0o644, 0, 5)
    assert as_tree(answer_of({"a": good, "b": good}, b"12345"))
    for rows in ({"a": row}, {"../a": good}, {"/a": good}, {"a": good, "b": (good[0], 1, 4)}):
        with pytest.raises(BadTree):
            as_tree(answer_of(rows, b"12345"))


@given(data=st.binary(max_size=100) | st.binary(max_size=100).map(lambda data: b"T" + data))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(BadTree):
        as_tree(data)


def test_no_file_of_a_tree_lies_below_a_link() -> None:
    up = ("up", tarfile.SYMTYPE, b"..")
    check_places(read(archive(up, ("upper/a", tarfile.REGTYPE, b""))))
    for below in ("up/.local/x", "up/a"):
        with pytest.raises(BadTree, match="lies below 'up'"):
            check_places(read(archive((below, tarfile.REGTYPE, b""), up)))
