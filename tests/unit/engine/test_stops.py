"""Stops are found the moment they are complete, however the stream is cut."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.sampler.stops import StopDetector, StopTable
from engine.text.cut import stop_cut
from engine.types import StopHit
from tests.support.codecs import END, ToyCodec

CODEC = ToyCodec("</python>", ">x", "/run", "n>", "</", "é", "🙂", "x<")


def detect(chunks: Sequence[Sequence[int]], *stops: str, codec: ToyCodec = CODEC) -> StopHit | None:
    """The first hit of a stream that arrives in `chunks`."""
    detector = StopDetector(StopTable(stops, codec), codec.decode)
    for chunk in chunks:
        hit = detector.feed(chunk)
        if hit is not None:
            return hit
    return None


def one_by_one(text: str) -> list[list[int]]:
    return [[token] for token in CODEC.encode(text)]


def kept(text: str, hit: StopHit | None) -> str:
    assert hit is not None
    return CODEC.decode(CODEC.encode(text)[: hit.keep])


def test_by_id() -> None:
    hit = detect(one_by_one("a</python>b"), "</python>", END)
    assert hit == StopHit(
        keep=2, matched_token=CODEC.token_id("</python>"), matched_text="</python>"
    )


def test_the_table_knows_which_stops_are_one_token() -> None:
    table = StopTable(["</python>", "</run>", END], CODEC)
    assert set(table.by_token.values()) == {"</python>", END}
    assert table.longer == ("</run>",)
    assert table.window == len(END)


def test_a_stop_that_is_one_token_is_found_in_other_spellings() -> None:
    spelled = [[i] for i in b"a</python>b"]
    hit = detect(spelled, "</python>")
    assert hit is not None
    assert (hit.keep, hit.matched_token, hit.matched_text) == (10, None, "</python>")


def test_by_text_over_several_tokens() -> None:
    assert kept("a</run>b", detect(one_by_one("a</run>b"), "</run>")) == "a</run>"


def test_the_token_with_the_stop_s_last_character_stays_whole() -> None:
    tokens = [i for piece in ("a</ru", "n", ">x", "yz") for i in CODEC.encode(piece)]
    hit = detect([[token] for token in tokens], "</run>")
    assert hit is not None
    assert CODEC.decode(tokens[: hit.keep]) == "a</run>x"
    assert hit.matched_text == "</run>"


@pytest.mark.parametrize("stop", ["é", "</é>", "🙂", "ü🙂ü", "Ende 🙂"])
def test_characters_of_several_bytes(stop: str) -> None:
    """Bytes arrive one by one; a character that is half there is no match."""
    text = f"äb{stop}🙂"
    tokens = [[i] for i in text.encode()]
    hit = detect(tokens, stop)
    assert hit is not None
    assert hit.keep == len(f"äb{stop}".encode())


def test_a_half_character_before_the_window_does_no_harm() -> None:
    text = "🙂" * 40 + "</run>"
    hit = detect([[i] for i in text.encode()], "</run>")
    assert hit is not None
    assert hit.keep == len(text.encode())


def test_nothing_after_the_first_hit_matters() -> None:
    hit = detect([CODEC.encode("a</run>b</python>")], "</python>", "</run>")
    assert hit is not None
    assert hit.matched_text == "</run>"
    hit = detect([CODEC.encode("a</python>b</run>")], "</python>", "</run>")
    assert hit is not None
    assert hit.matched_text == "</python>"


def test_no_stops_no_hits() -> None:
    assert detect(one_by_one("a</run>")) is None


PIECES = st.lists(
    st.sampled_from(["a", "<", "/", "</", "run", "/run", "n>", ">", ">x", "x<", "é", "🙂", END]),
    max_size=14,
)


def cut(tokens: list[int], cuts: list[int]) -> list[list[int]]:
    borders = [0, *sorted(c % (len(tokens) + 1) for c in cuts), len(tokens)]
    return [tokens[a:b] for a, b in itertools.pairwise(borders)]


@given(PIECES, st.lists(st.integers(0, 40), max_size=6))
@example(["</", "run", ">x"], [1])
def test_the_cuts_of_the_stream_change_nothing(pieces: list[str], cuts: list[int]) -> None:
    tokens = [token for piece in pieces for token in CODEC.encode(piece)]
    stops = ("</run>", ">", "é🙂", END)
    single = detect([[token] for token in tokens], *stops)
    assert detect(cut(tokens, cuts), *stops) == single
    assert detect([tokens], *stops) == single


@given(PIECES)
def test_the_hit_is_where_the_text_says(pieces: list[str]) -> None:
    """The shortest prefix of tokens whose text holds a stop; any stop that ends there is fine."""
    tokens = [token for piece in pieces for token in CODEC.encode(piece)]
    stops = ("</run>", "é🙂", END)
    hit = detect([[token] for token in tokens], *stops)
    ends = [n for n in range(len(tokens) + 1) if stop_cut(CODEC.decode(tokens[:n]), stops)[1]]
    assert (hit.keep if hit else None) == (ends[0] if ends else None)
    if hit is not None:
        assert hit.matched_text == stop_cut(CODEC.decode(tokens[: hit.keep]), stops)[1]


def test_work_a_chunk_does_not_grow_with_the_action() -> None:
    """The detector decodes a window, whatever came before."""
    longest = 0

    def decode(tokens: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(tokens))
        return CODEC.decode(tokens)

    detector = StopDetector(StopTable(["</run>"], CODEC), decode)
    for token in CODEC.encode("a" * 2000):
        assert detector.feed([token]) is None
    assert longest <= len("</run>") + 1
