"""Stops are found the moment they are complete, however the stream is cut."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.core.sampler.stops import _KNOWN, MOST_TABLES, StopDetector, StopTable
from engine.core.text.codec import HuggingFaceCodec
from engine.core.text.cut import stop_cut
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


def test_what_is_kept_of_stops_that_requests_choose_is_bounded() -> None:
    codec = ToyCodec()
    own = StopTable([END], codec)
    for number in range(2 * MOST_TABLES):
        StopTable([chr(0x4E00 + number)], codec)
        assert StopTable([END], codec).may_end is own.may_end
    assert len(_KNOWN[codec]) == MOST_TABLES


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


def test_tokens_that_cannot_end_a_stop_are_not_decoded() -> None:
    """What a token holds is looked up once for all sessions; only then is nothing decoded."""
    codec = ToyCodec("</run>", "many words")
    StopDetector(StopTable(["</search>"], codec), codec.decode).feed(
        codec.encode("many words, abc")
    )
    decoded: list[Sequence[int]] = []

    def decode(tokens: Sequence[int]) -> str:
        decoded.append(tokens)
        return codec.decode(tokens)

    detector = StopDetector(StopTable(["</search>"], codec), decode)
    for token in codec.encode("many words, many words, abc" * 20):
        assert detector.feed([token]) is None
    assert decoded == []
    assert detector.feed(codec.encode("</search>")) is not None


def found(
    tokens: Sequence[int], stops: Sequence[str], marks: Sequence[str], decode: Any
) -> tuple[list[tuple[int, str]], tuple[int, str] | None]:
    """Marks and the stop by the plain definition: all text before a token, and all after it."""
    told: list[tuple[int, str]] = []
    for keep in range(1, len(tokens) + 1):
        old = len(decode(tokens[: keep - 1]).rstrip("\ufffd"))
        text = decode(tokens[:keep])
        ends = sorted(
            (start + len(one), -len(one), one)
            for one in (*stops, *marks)
            for start in range(len(text))
            if text.startswith(one, start) and start + len(one) > old
        )
        seen = 0
        stop = next((end for end in ends if end[2] in stops), None)
        for end, _, one in ends:
            if one in marks and end > seen and (stop is None or end <= stop[0]):
                told.append((keep, one))
                seen = end
        if stop is not None:
            return told, (keep, stop[2])
    return told, None


def streamed(
    chunks: Sequence[Sequence[int]], table: StopTable, decode: Any
) -> tuple[list[tuple[int, str]], tuple[int, str] | None]:
    told: list[tuple[int, str]] = []
    detector = StopDetector(
        table, decode, on_mark=lambda hit: told.append((hit.keep, hit.matched_text or ""))
    )
    for chunk in chunks:
        hit = detector.feed(chunk)
        if hit is not None:
            return told, (hit.keep, hit.matched_text or "")
    return told, None


ALPHABET = ["a", "<", "/", ">", "</", "a>", "aa", "é", "🙂", "ü", " ", "\n"]
TEXTS = st.lists(st.sampled_from(ALPHABET), min_size=1, max_size=4).map("".join)


@given(
    st.lists(TEXTS, max_size=3),
    st.lists(TEXTS, max_size=3),
    st.lists(TEXTS, max_size=2),
    st.lists(st.sampled_from([*ALPHABET, END]), max_size=16),
    st.booleans(),
    st.lists(st.integers(0, 60), max_size=6),
)
@example(["</a>"], ["a>"], [], ["</", "a>"], False, [])
@example(["🙂"], ["é🙂"], [], ["é", "🙂"], True, [1, 3])
@example(["aa"], ["a"], ["aaa"], ["a", "aa", "a"], False, [])
@example([], ["aa"], [], ["a", "aa", "aa"], False, [])
@example([], ["aa", "a"], [], ["b", "a", "a"], False, [])
@example(["a "], [" "], [], ["a", " ", "a", " "], False, [2])
def test_any_stops_and_marks_are_found_where_the_plain_search_finds_them(
    stops: list[str],
    marks: list[str],
    words: list[str],
    pieces: list[str],
    split: bool,
    cuts: list[int],
) -> None:
    """Characters split over tokens, tokens that hold several, overlaps, any cut of the stream.
    Stops that are one token are found by id, so that none of the words is one."""
    stops = list(dict.fromkeys(stops))
    codec = ToyCodec(*(word for word in words if word not in stops and len(word.encode()) > 1))
    stops = [stop for stop in stops if codec.token_id(stop) is None]
    marks = [mark for mark in dict.fromkeys(marks) if mark not in stops]
    text = "".join(pieces)
    tokens = list(text.encode()) if split else codec.encode(text)
    table = StopTable(stops, codec, marks)
    expected = found(tokens, table.texts, table.marks, codec.decode)
    assert streamed([[token] for token in tokens], table, codec.decode) == expected
    assert streamed(cut(tokens, cuts), table, codec.decode) == expected
    assert streamed([tokens], table, codec.decode) == expected


@given(
    st.text(alphabet="a</>é🙂 run\n", max_size=30),
    st.lists(st.integers(0, 60), max_size=5),
)
def test_a_real_byte_level_tokenizer_is_searched_alike(
    codec: HuggingFaceCodec, text: str, cuts: list[int]
) -> None:
    tokens = codec.encode(text)
    table = StopTable(["</run>", "🙂é", "\n\n"], codec, ["n>", "é "])
    expected = found(tokens, table.texts, table.marks, codec.decode)
    assert streamed(cut(tokens, cuts), table, codec.decode) == expected


class Stripping(ToyCodec):
    """Drops a blank at the beginning of a text, as some decoders do."""

    def decode(self, token_ids: Sequence[int]) -> str:
        return super().decode(token_ids).removeprefix(" ")


def test_a_stop_that_ends_in_a_blank_is_found_in_a_token_that_hides_it() -> None:
    codec = Stripping(" b")
    hit = detect([[token] for token in codec.encode("xa b")], "a ", codec=codec)
    assert hit is not None
    assert hit.keep == 3


def test_a_text_that_is_stop_and_mark_is_a_stop() -> None:
    table = StopTable(["</run>", ""], CODEC, ["</run>", "", "x"])
    assert (table.texts, table.marks) == (("</run>",), ("x",))
