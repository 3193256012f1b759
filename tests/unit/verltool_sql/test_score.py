"""What an SQL agent's trajectory is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.core.rewards import Score
from engine.core.rewards.reading import read_score
from tasks.judging.gold_rows import Gold
from tests.golden.tasks_adapters import TASKS_ADAPTERS
from tests.support.recipes import Part
from tests.unit.verltool_sql.conftest import GOLD, SHOWN, gave, query, ran, solution
from toolwright.types import CallOutcome, Purpose, ToolErrorKind, Trajectory


def scored(part: Part, trajectory: Trajectory, **options: bool) -> Score:
    return read_score(part("score.SqlReward")(**options)(trajectory), trajectory)


def worth(part: Part, trajectory: Trajectory, **options: bool) -> float:
    return scored(part, trajectory, **options).total


def test_the_right_rows_are_worth_one(part: Part) -> None:
    score = scored(part, ran(query(), query(), solution()))
    assert [(one.name, one.value) for one in score.parts] == [("execution", 1.0)]
    (event,) = score.events
    assert (event.kind, event.data) == ("measured", {"right": 1.0, "form": 1.0, "queries": 2.0})


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("form", [True, False])
def test_it_is_the_published_reward(part: Part, right: bool, form: bool) -> None:
    text = solution() if form else "<solution>SELECT name, n FROM t</solution>"
    found = worth(part, ran(text, outcomes=[gave(GOLD.rows if right else [["a", 1]])]))
    assert found == TASKS_ADAPTERS["verltool.reward_sql"](right, form)


@pytest.mark.parametrize(
    ("rows", "value"),
    [
        ([["b", 2], ["a", 1]], 1.0),
        ([[1, "a"], [2, "b"]], 1.0),
        ([["a", 1.0], ["b", 2.0]], 1.0),
        ([["a", 2], ["b", 1]], -1.0),
        ([["a", "1"], ["b", "2"]], -1.0),
        ([["a", 1], ["b", 2], ["b", 2]], -1.0),
        ([["a", 1, 0], ["b", 2, 0]], -1.0),
        ([["a"], ["b"]], -1.0),
        ([], -1.0),
    ],
)
def test_rows_are_compared_as_multisets_with_columns_in_any_order(
    part: Part, rows: list[list[object]], value: float
) -> None:
    assert worth(part, ran(solution(), outcomes=[gave(rows)])) == value


def test_order_counts_where_the_gold_query_asks_for_it(part: Part) -> None:
    gold = replace(GOLD, sql=f"{GOLD.sql} ORDER BY n", ordered=True)
    other_way = gave([["b", 2], ["a", 1]])
    assert worth(part, ran(solution(), gold=gold)) == 1.0
    assert worth(part, ran(solution(), gold=gold, outcomes=[other_way])) == -1.0


def test_no_rows_are_right_only_where_the_gold_query_gives_none(part: Part) -> None:
    nothing = Gold(sql="SELECT 1 WHERE 0", rows=[], ordered=False)
    assert worth(part, ran(solution(), gold=nothing)) == 1.0
    for said in ("Done.", "", "Error: x"):
        outcome = CallOutcome(observation=said, valid=True, done=True)
        assert worth(part, ran(solution(), gold=nothing, outcomes=[outcome])) == -1.0


@pytest.mark.parametrize(
    "kind", [ToolErrorKind.TIMEOUT, ToolErrorKind.EXCEPTION, ToolErrorKind.OUT_OF_MEMORY]
)
def test_a_solution_that_fails_is_worth_minus_one(part: Part, kind: ToolErrorKind) -> None:
    assert worth(part, ran(solution(), outcomes=[gave(GOLD.rows, error=kind)])) == -1.0


def test_what_the_tool_cut_is_another_table(part: Part) -> None:
    nothing = Gold(sql="SELECT 1 WHERE 0", rows=[], ordered=False)
    cut = gave([], truncated=True)
    assert worth(part, ran(solution(), gold=nothing, outcomes=[cut])) == -1.0


def test_rows_of_a_query_are_no_solution(part: Part) -> None:
    as_if = gave(GOLD.rows, done=False)
    assert worth(part, ran(query(), outcomes=[as_if])) == -1.0
    assert worth(part, ran(query(), solution(), outcomes=[as_if])) == -1.0
    assert worth(part, ran("", outcomes=[])) == -1.0
    invalid = gave(GOLD.rows, valid=False)
    assert worth(part, ran(solution(), outcomes=[invalid])) == -1.0


def test_an_evaluation_is_plain_accuracy(part: Part) -> None:
    bare = "<solution>SELECT name, n FROM t</solution>"
    score = scored(part, ran(query(), bare, purpose=Purpose.EVAL))
    assert score.reward == 1.0
    assert {one.name: one.value for one in score.parts} == {
        "right": 1.0,
        "form": 0.0,
        "queries": 1.0,
    }
    wrong = ran(solution(), outcomes=[gave([])], purpose=Purpose.EVAL)
    assert scored(part, wrong).reward == 0.0


def test_thoughts_are_asked_for_as_the_recipe_says(part: Part) -> None:
    bare = ran("<solution>SELECT name, n FROM t</solution>")
    assert worth(part, bare) == -1.0
    assert worth(part, bare, think=False) == 1.0


def test_queries_that_no_tool_understood_do_not_count(part: Part) -> None:
    refused = replace(SHOWN, valid=False, error=ToolErrorKind.INVALID_ACTION)
    trajectory = ran(query(), query(), solution(), outcomes=[SHOWN, refused, gave(GOLD.rows)])
    assert part("score.queries")(trajectory) == 1.0


def test_a_task_without_right_rows_is_told(part: Part) -> None:
    trajectory = ran(solution())
    task = replace(trajectory.task, answers=("SELECT 1",))
    with pytest.raises(ValueError, match=r"Gold\.answer"):
        part("score.SqlReward")()(replace(trajectory, task=task))
