"""Observations are brought into bounds by the host, whatever the tool."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsvc.host.observation import MARKER, clean, tidy
from toolsvc.plugin.results import failure, invalid
from toolsvc.types import Media, Result, Text
from toolwright.text.truncation import Keep, cut
from toolwright.types import ToolErrorKind

KEEPS: tuple[Keep, ...] = ("head", "middle", "tail")
IMAGE = Media(media_type="image/png", data=b"x")


def said(result: Result) -> str:
    return "".join(part.text for part in result.observation if isinstance(part, Text))


def of(*texts: str) -> Result:
    return Result(observation=tuple(Text(text=text) for text in texts))


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        ("head", "a" * 21 + MARKER),
        ("middle", "a" * 11 + MARKER + "b" * 10),
        ("tail", MARKER + "b" * 21),
    ],
)
def test_what_stays(keep: Keep, says: str) -> None:
    short = tidy(of("a" * 30 + "b" * 30), 21 + len(MARKER), keep)
    assert said(short) == says
    assert short.truncated


@given(
    texts=st.lists(st.text(alphabet="abc", max_size=30), max_size=4),
    limit=st.integers(0, 60),
    keep=st.sampled_from(KEEPS),
)
def test_texts_are_cut_as_if_they_were_one(texts: list[str], limit: int, keep: Keep) -> None:
    joined = "".join(texts)
    short = tidy(of(*texts), limit, keep)
    found = cut(len(joined), limit=limit, marker=len(MARKER), keep=keep)
    if found is None:
        assert said(short) == joined
        assert not short.truncated
    else:
        marker = MARKER if found.marked else ""
        assert said(short) == joined[: found.front] + marker + joined[len(joined) - found.back :]
        assert len(said(short)) == limit
        assert short.truncated


def test_media_stay_where_they_are() -> None:
    result = Result(observation=(Text(text="a" * 50), IMAGE, Text(text="b" * 50)))
    short = tidy(result, 26 + len(MARKER), "middle")
    assert short.observation == (Text(text="a" * 13 + MARKER), IMAGE, Text(text="b" * 13))


def test_the_marker_stands_where_something_is_left_out() -> None:
    """A text that ends at the cut is whole: the marker is behind the image that follows it."""
    result = Result(observation=(Text(text="a" * 13), IMAGE, Text(text="b" * 50)))
    short = tidy(result, 13 + len(MARKER), "head")
    assert short.observation == (Text(text="a" * 13), IMAGE, Text(text=MARKER))


def test_what_a_tool_cut_itself_stays_marked() -> None:
    assert tidy(Result(observation=(Text(text="a"),), truncated=True), 10, "head").truncated


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("a\x00b\x07c\x7fd\x85e", "abcde"),
        ("line\r\nnext", "line\nnext"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("lone \ud800", "lone ?"),
        ("ümläut \N{GRINNING FACE}", "ümläut \N{GRINNING FACE}"),
    ],
)
def test_control_characters_are_removed(text: str, becomes: str) -> None:
    assert clean(text) == becomes


def test_messages_are_bounded_and_clean_too() -> None:
    long = "x\x00" * 100
    broken = tidy(failure(ToolErrorKind.EXCEPTION, long), 40, "head")
    assert broken.error is not None
    for text in (
        said(broken),
        broken.error.message,
        tidy(invalid(long), 40, "head").invalid_reason,
    ):
        assert "\x00" not in text
        assert len(text) <= 40
