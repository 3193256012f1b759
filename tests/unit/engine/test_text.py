"""Stops and truncation as pure functions."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from engine.core.text.cut import Keep, stop_cut, truncate_observation

LETTERS = st.text("ab<", max_size=12)
STOPS = st.lists(st.text("ab<", min_size=1, max_size=3), max_size=3)


@given(LETTERS, STOPS)
def test_stop_cut_is_the_first_end_and_at_an_equal_end_the_longest(
    text: str, stops: list[str]
) -> None:
    kept, stop, rest = stop_cut(text, stops)
    assert kept + rest == text
    ends = [(n, -len(s), s) for n in range(len(text) + 1) for s in stops if text[:n].endswith(s)]
    if stop is None:
        assert not ends
    else:
        assert (len(kept), -len(stop), stop) == min(ends)


@given(
    st.lists(st.integers(0, 99), max_size=20),
    st.integers(0, 20),
    st.lists(st.integers(100, 109), max_size=4),
    st.sampled_from(["head", "middle", "tail"]),
)
def test_a_truncated_observation_fits_and_is_made_of_its_ends(
    tokens: list[int], limit: int, marker: list[int], keep: str
) -> None:
    out = truncate_observation(tokens, limit=limit, marker=marker, keep=cast("Keep", keep))
    if len(tokens) <= limit:
        assert out == tokens
        return
    assert len(out) == limit  # marker included
    if len(marker) > limit:
        assert out == (tokens[len(tokens) - limit :] if keep == "tail" else tokens[:limit])
        return
    room = limit - len(marker)
    front = {"head": room, "tail": 0, "middle": -(-room // 2)}[keep]
    back = room - front
    assert out == [*tokens[:front], *marker, *tokens[len(tokens) - back :]]
