"""What a search agent's trajectory is worth, with every switch."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

import pytest

from engine.core.rewards.reading import read_score
from engine.serving.evaluation.rates import rates_of
from tests.support.linear import assert_linear
from tests.support.recipes import Part
from tests.unit.se_search.conftest import ran, valued
from toolwright.types import Purpose, Trajectory

ASKS = "<think>a</think><search>capital of France</search>"
KNOWS = "<memory>It is Paris, France.</memory>"
RIGHT, WRONG = "<answer>Paris</answer>", "<answer>Rome</answer>"
ALONE = {"memory_weight": 0.0, "query_weight": 0.0, "format_weight": 0.0}


def scored(part: Part, trajectory: Trajectory, **options: Any) -> dict[str, float]:
    score = read_score(part("score.SearchReward")(**options)(trajectory), trajectory)
    parts = {one.name: one.value for one in score.parts}
    if trajectory.task.purpose is Purpose.TRAIN:
        assert score.total == pytest.approx(math.fsum(parts.values()))
        assert list(parts) == ["answer", "memory", "query", "format"]
    return parts


def total(part: Part, trajectory: Trajectory, **options: Any) -> float:
    return math.fsum(scored(part, trajectory, **options).values())


def measured(part: Part, trajectory: Trajectory, **options: Any) -> dict[str, Any]:
    (event,) = part("score.SearchReward")(**options)(trajectory).events
    assert event.kind == "measured"
    return dict(event.data)


def test_a_right_course(part: Part) -> None:
    assert scored(part, ran(ASKS, KNOWS + RIGHT)) == {
        "answer": 1.0,
        "memory": 0.1,
        "query": pytest.approx(-0.01),
        "format": 0.0,
    }


def test_the_query_part_turns_with_correctness_and_fades(part: Part) -> None:
    others = ["who directed Jaws", "tallest mountain in Peru"]
    texts = [ASKS, *(f"{KNOWS}<search>{other}</search>" for other in others)]

    def query(answer: str, step: int) -> float:
        options = {"threshold_semantics": "min_distance"}
        return scored(part, ran(*texts, KNOWS + answer, step=step), **options)["query"]

    assert query(RIGHT, 0) == pytest.approx(-0.03)
    assert query(WRONG, 0) == pytest.approx(0.03)
    assert query(RIGHT, 75) == pytest.approx(-0.015)
    assert query(RIGHT, 150) == query(WRONG, 10**6) == 0.0
    assert not math.copysign(1, query(RIGHT, 150)) < 0
    constant = ran(*texts, KNOWS + WRONG, step=10**6)
    options = {"threshold_semantics": "min_distance", "decay_steps": 0}
    assert scored(part, constant, **options)["query"] == pytest.approx(0.03)


def test_the_newest_weights_say_the_step(part: Part) -> None:
    """A trajectory over a publish is trained at the later step; one without weights is at 0."""
    early, late = ran(ASKS, KNOWS + WRONG), ran(ASKS, KNOWS + WRONG, step=150)
    sequence = replace(
        early.sequences[0],
        segments=(*early.sequences[0].segments[:4], *late.sequences[0].segments[4:]),
    )
    assert scored(part, replace(early, sequences=(sequence,)))["query"] == 0.0
    assert scored(part, replace(early, sequences=()))["query"] == pytest.approx(0.01)


def test_right_without_a_search_gets_what_one_search_gets(part: Part) -> None:
    assert scored(part, ran(RIGHT))["query"] == pytest.approx(-0.01)
    assert scored(part, ran(WRONG))["query"] == 0.0


def test_only_searches_that_were_made_are_queries(part: Part) -> None:
    late = ran(ASKS, KNOWS + "<search>another question asked</search>")
    assert measured(part, late)["searches"] == 1
    refused = ran(ASKS, KNOWS + WRONG, made=())
    assert measured(part, refused)["searches"] == 0
    empty = ran("<search> </search>", WRONG, corrected=(0,))
    assert measured(part, empty)["searches"] == 0


def test_the_memory(part: Part) -> None:
    assert scored(part, ran(ASKS, RIGHT))["memory"] == 0.0
    again = ran(ASKS, KNOWS + ASKS, "<memory>nothing new</memory>" + WRONG)
    assert scored(part, again)["memory"] == 0.1
    assert scored(part, again, memory_scope="last")["memory"] == 0.0
    # What the documents say, or the policy in their place, is not what it noted.
    quoted = ran(ASKS, "<documents>Paris</documents><memory>m</memory>" + WRONG, documents="Paris")
    assert scored(part, quoted)["memory"] == 0.0
    yes = ran(ASKS, "<memory>yes, no</memory><answer>no</answer>", gold="Yes")
    assert scored(part, yes)["memory"] == 0.0
    assert scored(part, yes, skip_yes_no=False)["memory"] == 0.1
    article = ran(ASKS, KNOWS + RIGHT, gold=["the", ""])
    assert scored(part, article)["memory"] == 0.0


def test_the_answer(part: Part) -> None:
    near = ran("<answer>Paris in France</answer>")
    assert scored(part, near)["answer"] == pytest.approx(0.5)
    assert scored(part, near, answer="em")["answer"] == 0.0
    twice = ran("<answer>new new york</answer>", gold="new york")
    assert scored(part, twice)["answer"] == pytest.approx(0.8)
    assert scored(part, twice, set_f1=True)["answer"] == 1.0
    for text in ("Paris", "<answer>Paris", "<think>a</think>", ""):
        assert scored(part, ran(text))["answer"] == 0.0
        assert scored(part, ran(text), answer="em", wrong=-1.0)["answer"] == -1.0
    assert scored(part, ran())["answer"] == 0.0


def test_the_last_answer_counts(part: Part) -> None:
    assert scored(part, ran(WRONG + RIGHT))["answer"] == 1.0
    assert scored(part, ran(RIGHT + WRONG))["answer"] == 0.0


def test_correct_may_be_a_share_of_words(part: Part) -> None:
    near = ran("<answer>Paris in France</answer>")
    assert scored(part, near)["query"] == 0.0
    assert scored(part, near, f1_threshold=0.5)["query"] == pytest.approx(-0.01)


def test_verltool_and_search_r1(part: Part) -> None:
    verltool = {"style": "verltool", "answer": "em", "wrong": -1.0, **ALONE}
    assert total(part, ran(ASKS, RIGHT), **verltool) == 1.0
    assert total(part, ran(ASKS, WRONG), **verltool) == -1.0
    r1 = {"style": "search_r1", "answer": "em", **ALONE}
    assert total(part, ran(ASKS, WRONG), **r1) == 0.0
    guesses = ran(WRONG * 10 + RIGHT)
    assert total(part, guesses, **r1) == 1.0
    assert total(part, guesses, released=True, **r1) == 0.25
    assert total(part, ran(WRONG * 9 + RIGHT), released=True, **r1) == 1.0


def test_auto_refine_pays_for_notes_where_the_answer_is_worth_nothing(part: Part) -> None:
    options = {"style": "auto_refine", "refined": 0.1, **ALONE}
    notes = "<refine>Paris is the capital.</refine>"
    assert total(part, ran(ASKS, notes + WRONG), **options) == 0.1
    assert total(part, ran(ASKS, notes + "<answer>Paris it is</answer>"), **options) == 0.5
    assert total(part, ran(ASKS, KNOWS + WRONG), **options) == 0.0  # another system's tag
    seen = ran(ASKS, WRONG, documents="Doc 1(Title: Paris) a city")
    assert total(part, seen, **options) == 0.0
    assert total(part, seen, refined_in="documents", **options) == 0.1
    assert total(part, seen, refined_in="either", **options) == 0.1


def test_an_evaluation_is_exact_match_whatever_is_trained(part: Part) -> None:
    near = ran(ASKS, KNOWS + "<answer>Paris in France</answer>", purpose=Purpose.EVAL, step=3)
    score = part("score.SearchReward")()(near)
    assert score.total == 0.0
    parts = {one.name: one.value for one in score.parts}
    assert parts == {"answer": 0, "f1": 0.5, "remembered": 1, "searches": 1, "atomic": 1,
                     "violations": 0}  # fmt: skip
    right = ran(ASKS, KNOWS + RIGHT, purpose=Purpose.EVAL)
    assert part("score.SearchReward")(answer="em", wrong=-1.0)(right).total == 1.0
    assert part("score.SearchReward")(answer="em", wrong=-1.0)(near).total == 0.0


def test_what_is_watched(part: Part) -> None:
    asks = f"{KNOWS}<search>capital of Spain</search>"
    assert measured(part, ran(ASKS, asks, KNOWS + RIGHT)) == {
        "searches": 2.0,
        "searches_if_right": 2.0,
        "atomic_queries": 1.0,
        "remembered": 1.0,
        "right": 1.0,
        "query_length": [17, 16],
        "query_likeness": part("queries.ratio")("capital of Spain", "capital of France"),
    }  # fmt: skip
    assert measured(part, ran(WRONG)) == {
        "searches": 0.0,
        "atomic_queries": 0.0,
        "remembered": 0.0,
        "right": 0.0,
    }


def test_an_evaluation_counts_queries_and_pairs_of_them(part: Part) -> None:
    asks = f"{KNOWS}<search>capital of Spain</search>"
    score = part("score.SearchReward")()
    alike = part("queries.ratio")("capital of Spain", "capital of France")
    found = rates_of(score(ran(ASKS, asks, KNOWS + RIGHT, purpose=Purpose.EVAL)).events)
    assert found == {"query_length": [33.0, 2.0], "query_likeness": [alike, 1.0]}
    found = rates_of(score(ran(WRONG, purpose=Purpose.EVAL)).events)
    assert found == {"query_length": [0.0, 0.0], "query_likeness": [0.0, 0.0]}


def test_groups_that_only_form_decides(part: Part) -> None:
    def said(*members: dict[str, float]) -> list[float | None]:
        group = [replace(ran(RIGHT, **valued(**one)), id=f"g-{k}") for k, one in enumerate(members)]
        group.append(replace(ran(RIGHT), id="errored", outside_baseline=True))
        scores = asyncio.run(part("figures.Decided")()(group))
        assert scores[-1] is None
        assert all(one.total == 0.0 for one in scores[:-1])
        return [one.events[0].data["decided_by_form"] for one in scores[:-1]]

    same = {"answer": 1.0, "query": -0.01}
    assert said(same, same) == [0.0, 0.0]
    assert said(same, {"answer": 1.0, "query": -0.02}) == [1.0, 1.0]
    assert said(same, {"answer": 0.0, "query": 0.01}) == [0.0, 0.0]
    assert said() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"answer": "EM"}, "answer"),
        ({"memory_scope": "first"}, "memory_scope"),
        ({"count_mode": "all"}, "count_mode"),
        ({"refined_in": "notes"}, "refined_in"),
        ({"memory_weight": math.nan}, "memory_weight"),
        ({"query_weight": "0.1"}, "query_weight"),
        ({"decay_steps": -1}, "decay_steps"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    part: Part, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        part("score.SearchReward")(**options)


@pytest.mark.parametrize(
    "text",
    ["<answer>" * 99 + "x", "</answer>" * 99, "<memory><memory>" + RIGHT,
     "\ud800<answer>\ud800</answer>", "<answer>\x00</answer>",
     "<answer>" + "é" * 50_000 + "</answer>"],
)  # fmt: skip
def test_hostile_texts_have_a_score(part: Part, text: str) -> None:
    assert math.isfinite(total(part, ran(ASKS, text)))


def test_scoring_is_linear(part: Part) -> None:
    score = part("score.SearchReward")()
    hostile = ("<search>", "<answer>", "<answer></answer>", "<memory></memory>", "<memory>a", "<")
    assert_linear(lambda text: score(ran(text)), texts=hostile)
    assert_linear(
        lambda text: score(ran(ASKS, text)), before="<memory>", after="</memory>", texts=hostile
    )
