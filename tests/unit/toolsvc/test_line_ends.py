"""File edits keep a file's own line ends; a program's output reads as on a terminal."""

import time

import pytest

from toolsvc.sandbox.jailed.drivers.terminal import Output, as_shown, compacted
from toolsvc.sandbox.jailed.drivers.texts import EditFailed, inserted, replaced, shown

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("text", "old", "new", "changed"),
    [
        ("a = 1\r\nb = 2\r\nc = 3\r\n", "a = 1\nb = 2", "a = 1\nb = 20", None),
        ("x\r\ny\r\n", "x\r\ny\r\n", "x\nz\n", "x\r\nz\r\n"),
        ("x\r\ny", "y", "y\nz", "x\r\ny\r\nz"),
        ("x\ry\rz", "x\ny", "x\nw", "x\rw\rz"),
        ("x\ny\n", "x\r\ny", "x\r\nw", "x\nw\n"),
        ("unix\nx\r\ny\r\nunix\n", "x\ny", "x\nw", "unix\nx\r\nw\r\nunix\n"),
        ("dos\r\nx\ny\ndos\r\n", "x\ny", "x\nw", "dos\r\nx\nw\ndos\r\n"),
        ("bar = 'a\rb'\nx\n", "a\rb", "a\rc", "bar = 'a\rc'\nx\n"),
        ("x\r\n\r\ny\r\n", "x\n\ny", "x\ny", "x\r\ny\r\n"),
    ],
)
def test_replacing_matches_and_writes_the_files_line_ends(
    text: str, old: str, new: str, changed: str | None
) -> None:
    done, around = replaced(text, "f", old, new)
    assert done == (changed or "a = 1\r\nb = 20\r\nc = 3\r\n")
    assert "\r\n" not in around


@pytest.mark.parametrize(
    ("text", "line", "new", "changed"),
    [
        ("a\r\nb\r\n", 1, "x\ny", "a\r\nx\r\ny\r\nb\r\n"),
        ("a\r\nb", 2, "x\n", "a\r\nb\r\nx"),
        ("a\nb", 0, "x", "x\na\nb"),
        ("", 0, "x", "x\n"),
        ("a\r\nb\r\n", 2, "x", "a\r\nb\r\nx\r\n"),
        ("a\rb\r", 1, "x", "a\rx\rb\r"),
    ],
)
def test_inserting_writes_the_files_line_ends(text: str, line: int, new: str, changed: str) -> None:
    assert inserted(text, line, new)[0] == changed


def test_lines_are_counted_by_the_files_line_ends() -> None:
    assert shown("a\rb\r", [2, 2]) == "     2\tb"
    assert shown("a\r\nb\r\n", None) == "     1\ta\n     2\tb"
    with pytest.raises(EditFailed, match="lines 1, 2"):
        replaced("x\r\nx\n", "f", "x\n", "y\n")


@pytest.mark.parametrize(
    ("printed", "reads"),
    [
        (" 10%|#    |\r 50%|###  |\r100%|#####|\ndone\n", "100%|#####|\ndone\n"),
        ("Downloading 10 %\r\x1b[KDone\n", "Done\n"),
        ("longer line\rshort\n", "shortr line\n"),
        ("progress\r        \rend", "end"),
        ("|\b/\b-\b\\\b \bok", "ok"),
        ("dos\r\nlines\r\n", "dos\nlines\n"),
        ("\x1b[2K10%\r\x1b[2K20%", "20%"),
        ("no steps  \n", "no steps  \n"),
        ("\r\r\r", ""),
    ],
)
def test_a_progress_bar_reads_as_on_a_terminal(printed: str, reads: str) -> None:
    assert as_shown(printed) == reads
    for at in range(len(printed) + 1):
        if "\x1b" not in printed[:at]:  # an escape sequence may be cut in two
            assert as_shown(compacted(printed[:at]) + printed[at:]) == reads


def test_what_follows_a_long_progress_bar_is_kept() -> None:
    output = Output(1000)
    output.add(b"begin\n")
    for step in range(10_000):
        output.add(f"\r{step / 100:6.2f} % \u2588".encode())
    output.add(b"\nend\n")
    assert as_shown(output.kept.decode()) == "begin\n 99.99 % \u2588\nend\n"
    assert output.dropped == 0


def test_a_long_line_ends_nothing_while_there_is_room() -> None:
    output = Output(20_000)
    output.add(b"50%\r" * 3000 + b"done\n")
    output.add(b"x" * 8000)
    output.add(b"\nend\n")
    assert (bytes(output.kept), output.dropped) == (b"done\n" + b"x" * 8000 + b"\nend\n", 0)


def test_output_beyond_the_room_is_counted() -> None:
    output = Output(10)
    output.add(b"0123456789")
    output.add(b"abc")
    output.add(b"d\rx")
    assert (bytes(output.kept), output.dropped) == (b"0123456789", 6)
    raw = Output(10, raw=True)
    for piece in (b"01234\r56", b"7\r8", b"9"):
        raw.add(piece)
    assert (bytes(raw.kept), raw.dropped) == (b"01234\r567\r", 2)


@pytest.mark.parametrize(
    "printed", ["\r" * 10**6, "x\b" * 500_000, "\r\x1b[Kab" * 200_000, "ab\r" * 300_000]
)
def test_a_terminals_work_is_bounded(printed: str) -> None:
    began = time.process_time()
    as_shown(printed)
    assert time.process_time() - began < 1
