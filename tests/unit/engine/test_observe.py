"""What the environment says: call order, authors, budgets, cuts, room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.images.media import Media
from engine.core.protocols.tagged import Tagged
from engine.core.rollout.assignment import Assignment
from engine.core.rollout.decide import Rules
from engine.core.rollout.observe import Observer
from engine.core.rollout.view import fit_prefix
from engine.core.text.cut import Keep, stop_cut, truncate_observation
from engine.core.trajectory.log import AttemptLog
from engine.types import ImageMark, Say
from tests.support.codecs import ToyCodec
from tests.support.written_logs import act, answer, call, opened
from toolwright.recipe import Limits
from toolwright.types import Author, SamplingParams, Task

CODEC = ToyCodec("<result>", "</result>")
IMAGE = 50


def observer(
    log: AttemptLog,
    *,
    withhold: bool = False,
    protocol: Any = None,
    keeps: Mapping[str, str] | None = None,
    **limits: int,
) -> Observer:
    rules = Rules(
        protocol=protocol or Tagged(observation="[{text}]"),
        codec=CODEC,
        limits=Limits(**{"response": 1000, "model": 2000, **limits}),  # type: ignore[arg-type]
        observation_keep="head",
    )
    assignment = Assignment(
        trajectory_id="g0-0", group_id="g0", index=0, task=Task(id="t"),
        sampling=SamplingParams(), withhold_observations=withhold,
    )  # fmt: skip
    media: dict[str, Media] = {}
    environment = SimpleNamespace(keep_of=lambda tool: (keeps or {}).get(tool, ""))
    return Observer(rules, assignment, log, media, cast("Any", environment))


def answered(*outcomes: dict[str, Any], tools: Sequence[str] = ()) -> AttemptLog:
    """A turn whose calls were answered in the reverse order of the calls."""
    log = opened()
    act(log, "act", "</python>")
    names = tools or ["python"] * len(outcomes)
    ids = [call(log, index, tool=name) for index, name in enumerate(names)]
    for call_id, outcome in reversed(list(zip(ids, outcomes, strict=True))):
        answer(log, call_id, **outcome)
    return log


def said(log: AttemptLog) -> list[tuple[Author, str]]:
    return [(s.author, CODEC.decode(s.token_ids)) for s in log.state.segments[2:]]


async def test_observations_stand_in_call_order_whoever_answered_first() -> None:
    log = answered({"observation": "one"}, {"observation": "two"})
    assert await observer(log).observe(0.5) is None
    assert said(log) == [(Author.TOOL, "[one\ntwo]")]
    assert (log.state.turn, log.state.acted, log.state.tool_s) == (1, False, 0.5)


async def test_each_author_has_a_segment_and_the_frame_is_around_all() -> None:
    log = answered(
        {"observation": "one"},
        {"observation": "plan", "author": Author.MEMORY},
        {"observation": "two", "author": Author.MEMORY},
        {"observation": "do", "author": Author.SYSTEM},
    )
    await observer(log).observe(0.0)
    assert said(log) == [
        (Author.TOOL, "[one"),
        (Author.MEMORY, "\nplan\ntwo"),
        (Author.SYSTEM, "\ndo]"),
    ]
    assert not any(s.trainable for s in log.state.segments[2:])
    assert log.state.turn == 1


async def test_an_observation_is_cut_to_the_recipes_limit_or_to_a_budget_of_its_own() -> None:
    long = "x" * 100
    log = answered({"observation": long})
    await observer(log, observation=20).observe(0.0)
    assert len(log.state.segments[2].token_ids) == 20 + 2
    assert [note.kind for note in log.state.events] == ["observation_truncated"]
    own = answered({"observation": long, "token_budget": 60})
    await observer(own, observation=20).observe(0.0)
    assert len(own.state.segments[2].token_ids) == 60 + 2
    whole = answered({"observation": long, "token_budget": 4000})
    await observer(whole, observation=20).observe(0.0)
    assert len(whole.state.segments[2].token_ids) == 100 + 2
    both = answered({"observation": long, "token_budget": 60}, {"observation": long})
    await observer(both, observation=20).observe(0.0)
    assert len(both.state.segments[2].token_ids) == 60 + 20 + 2, "budgets add up"


async def test_nothing_is_appended_beyond_the_room() -> None:
    log = answered({"observation": "abcdef"})
    await observer(log, response=6).observe(0.0)
    assert said(log) == [(Author.TOOL, "[abc")]
    assert not log.state.fitted
    context = answered({"observation": "abcdef"})
    await observer(context, model=6).observe(0.0)
    assert said(context) == [(Author.TOOL, "[a")]
    assert not context.state.fitted
    two = answered({"observation": "abc"}, {"observation": "d", "author": Author.MEMORY})
    await observer(two, response=4).observe(0.0)
    assert said(two) == [(Author.TOOL, "[a")]
    assert (two.state.turn, two.state.fitted) == (1, False)


async def test_withheld_answers_leave_the_frame_alone() -> None:
    log = answered({"observation": "secret"})
    await observer(log, withhold=True).observe(0.0)
    assert said(log) == [(Author.TOOL, "[]")]


def test_what_a_protocol_says_has_its_author_and_its_budget() -> None:
    log = opened()
    act(log, "act", "</python>")
    observer(log, observation=2).say(Say(text="again, please", budget=9))
    ((author, text),) = said(log)
    assert (author, text) == (Author.SYSTEM, "[agai ... ]")
    assert log.state.turn == 1
    assert log.state.calls == ()


@pytest.mark.parametrize(("room", "kept"), [(6, [2]), (7, [2]), (8, [2, 40, IMAGE, 41])])
def test_an_images_mark_is_never_cut(room: int, kept: list[int]) -> None:
    """Neither between the placeholder and what stands before it, nor before what ends it."""
    mark = ImageMark(text="([i])", token_ids=(40, IMAGE, 41), placeholder=IMAGE, reserved=())
    assert fit_prefix([2, 40, IMAGE, 41, 3], room, mark, 5) == kept
    assert fit_prefix([2, 40, IMAGE, 41, 3], 9, mark, 5) == [2, 40, IMAGE, 41, 3]


@pytest.mark.parametrize(
    ("keeps", "tools", "words"),
    [
        ({}, ("python",), "[abcd ... ]"),
        ({"python": "tail"}, ("python",), "[ ... ghij]"),
        ({"python": "tail", "search": "tail"}, ("python", "search"), "[ ... ghij]"),
        ({"python": "tail", "search": "middle"}, ("python", "search"), "[abcd ... ]"),
        ({"python": "tail"}, ("python", "search"), "[abcd ... ]"),
    ],
)
async def test_a_tool_says_which_part_of_its_observation_stays(
    keeps: Mapping[str, str], tools: tuple[str, ...], words: str
) -> None:
    texts = ["abcdefghij"] if len(tools) == 1 else ["abcde", "efghij"]
    log = answered(*({"observation": one} for one in texts), tools=tools)
    await observer(log, keeps=keeps, observation=9).observe(0.0)
    assert said(log) == [(Author.TOOL, words)]


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
