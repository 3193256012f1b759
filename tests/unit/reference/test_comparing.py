"""Our results beside a paper's table: differences, standard errors, ranks, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.offline.reference import ReferenceFault, Result, against, find, read_results
from engine.offline.reference.comparing import ComparedRow, competition_ranks, standard_error
from engine.offline.reference.fragment import blocks
from engine.offline.reference.names import assignments, matched
from engine.offline.reference.showing import shown
from toolwright.page.document import document

SEVEN = ["nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle"]


def results(**scores: float) -> list[Result]:
    return [Result(name=name, score=score, n=100) for name, score in scores.items()]


def line(
    name: str, system: str, ours: list[Result] | None = None, *, model: str = ""
) -> ComparedRow:
    (found,) = (
        one
        for one in against(name, ours or []).lines
        if one.system == system and model in ("", one.model)
    )
    return found


def test_without_results_the_papers_rows_are_ranked() -> None:
    lines = against("searl:T1").lines
    assert [round(one.average_rank or 0, 2) for one in lines] == [
        5.29,
        2.43,
        3.00,
        4.57,
        3.57,
        1.43,
    ]
    assert not any(one.own for one in lines)


def test_a_cell_has_both_sides_and_both_errors() -> None:
    cell = line("se_search:T1", "SE-Search", results(HotpotQA=0.5)).cells["HotpotQA"]
    assert cell.paper is not None
    assert cell.ours is not None
    assert cell.difference is not None
    assert cell.paper.error == pytest.approx(math.sqrt(0.45 * 0.55 / 7405))
    assert cell.ours.error == pytest.approx(0.05)
    assert cell.difference.value == pytest.approx(0.05)
    assert cell.difference.error == pytest.approx(math.hypot(cell.paper.error, 0.05))
    assert cell.apart is False


def test_percentages_are_compared_as_percentages() -> None:
    ours = [Result(name="NQ", score=0.6, n=3610, standard_error=0.01)]
    cell = line("verltool:T5", "Direct inference", ours, model="Qwen2.5-7B").cells["NQ"]
    assert cell.ours is not None
    assert cell.difference is not None
    assert (cell.ours.value, cell.ours.error) == (60.0, 1.0)
    assert cell.difference.value == pytest.approx(46.6)
    assert cell.apart is True


def test_what_is_lower_is_better_where_the_table_says_so() -> None:
    ours = [Result(name="math", score=50.0, n=1)]
    comparison = against("verltool:T2", ours)
    assert [one.cells["Math"].rank for one in comparison.lines] == [3, 2, 1]
    assert comparison.lines[-1].cells["Math"].ours is not None
    assert comparison.lines[-1].cells["Math"].ours.error is None


def test_ranks_are_of_the_sets_that_ours_has() -> None:
    comparison = against("searl:T1", results(hotpotqa=0.335, aime24=0.0))
    assert comparison.ranked == ("AIME24", "HotpotQA")
    ours = comparison.lines[-1]
    assert ours.own
    assert (ours.cells["HotpotQA"].rank, ours.cells["AIME24"].rank) == (1, 6)
    assert ours.average_rank == 3.5
    assert comparison.lines[0].cells["GSM8K"].rank is None


def test_ranks_compare_what_a_paper_would_print() -> None:
    comparison = against("searl:T1", results(hotpotqa=0.33501))
    assert [one.cells["HotpotQA"].rank for one in comparison.lines] == [4, 5, 1, 7, 6, 1, 1]


def test_a_row_without_a_ranked_set_has_no_average_rank() -> None:
    assert line("se_search:T1", "CriticSearch").average_rank is None
    assert line("verltool:T6-sql", "GPT-4o").average_rank is None


def test_an_average_of_ours_needs_all_of_its_sets() -> None:
    ours = [Result(name=name, score=0.4, n=100) for name in SEVEN]
    averages = line("se_search:T1", "SE-Search", ours).averages
    assert averages["average"].ours is not None
    assert averages["average"].ours.value == pytest.approx(0.4)
    assert averages["average"].ours.error == pytest.approx(math.sqrt(0.24 / 100 / 7))
    some = line("se_search:T1", "SE-Search", ours[:3]).averages
    assert some["single-hop"].ours is not None
    assert some["average"].ours is None
    baseline = line("se_search:T1", "Search-R1-Base", ours).averages["average"]
    assert baseline.difference is not None
    assert baseline.difference.value == pytest.approx(0.088)
    assert baseline.apart is True


def test_a_few_answers_that_are_all_wrong_prove_no_difference() -> None:
    """The printed error is 0; the one of the difference is that of Laplace's rule."""
    one = Result(name="nq", score=0.0, n=2, standard_error=0.0)
    found = line("se_search:T1", "SE-Search", [one]).cells["NQ"]
    assert found.ours is not None and found.ours.error == 0
    assert found.difference is not None and found.difference.error is not None
    assert found.difference.error > math.sqrt(0.25 * 0.75 / 2)
    assert found.apart is False
    many = Result(name="nq", score=1.0, n=1000, standard_error=0.0)
    assert line("se_search:T1", "SE-Search", [many]).cells["NQ"].apart is True
    single = Result(name="nq", score=1.0, n=1)
    assert line("se_search:T1", "SE-Search", [single]).cells["NQ"].apart is False


def test_no_error_where_nobody_says_how_many_were_asked() -> None:
    cells = [one.cells for one in against("mtr:main").lines if one.cells["HotpotQA"].paper]
    assert len(cells) == 11
    for one in cells:
        hotpot, bamboogle = one["HotpotQA"].paper, one["Bamboogle"].paper
        assert hotpot is not None and hotpot.error is None
        assert bamboogle is not None and bamboogle.error is not None


def test_suites_are_matched_by_name_and_by_what_is_said() -> None:
    _, table = find("se_search:T1")
    found, others = matched(["Natural-Questions", "2WikiMultihopQA", "mine", "dev"], table)
    assert found == {"Natural-Questions": "NQ", "2WikiMultihopQA": "2Wiki"}
    assert others == ("mine", "dev")
    found, others = matched(["mine", "nq"], table, {"mine": "hotpot", "nq": "popqa"})
    assert found == {"mine": "HotpotQA", "nq": "PopQA"}
    assert others == ()
    assert matched(["V*"], find("verltool:T7-visual")[1])[0] == {"V*": "V*"}
    assert matched(["vstar"], find("verltool:T7-visual")[1])[0] == {"vstar": "V*"}


@pytest.mark.parametrize(
    ("suites", "said", "words"),
    [
        (["nq"], {"no": "NQ"}, "no suite 'no': there are nq"),
        (["nq"], {"nq": "GSM8K"}, "no set 'GSM8K'.*TriviaQA"),
        (["nq", "NQ"], {}, "suites 'nq' and 'NQ' are both NQ"),
        (["nq", "x"], {"x": "nq"}, "are both NQ"),
        ([], {"": ""}, "no suite"),
    ],
)
def test_names_that_do_not_fit_are_refused(
    suites: list[str], said: Mapping[str, str], words: str
) -> None:
    with pytest.raises(ReferenceFault, match=words):
        matched(suites, find("se_search:T1")[1], said)


def test_no_suite_of_the_table_is_a_fault_and_some_are_not() -> None:
    with pytest.raises(ReferenceFault, match=r"no suite is a set.*--as SUITE=SET"):
        against("se_search:T1", results(heldout=0.5))
    assert against("se_search:T1", results(heldout=0.5, nq=0.5)).not_compared == ("heldout",)
    assert against("se_search:T1", results(heldout=0.5), {"heldout": "nq"}).not_compared == ()


@pytest.mark.parametrize("score", [1.5, -0.1, 47.5])
def test_a_score_that_is_no_share_is_refused(score: float) -> None:
    with pytest.raises(ReferenceFault, match="no share between 0 and 1"):
        against("se_search:T1", results(nq=score))


def test_the_command_lines_assignments() -> None:
    assert assignments(["a=NQ", " b = x=y "]) == {"a": "NQ", "b": "x=y"}
    for wrong in ("a", "=NQ", "a=", ""):
        with pytest.raises(ReferenceFault, match="SUITE=SET"):
            assignments([wrong])
    with pytest.raises(ReferenceFault, match="two sets"):
        assignments(["a=NQ", "a=PopQA"])


def test_results_are_read_as_an_evaluation_writes_them() -> None:
    suite = {"name": "nq", "score": 0.5, "n": 10, "standard_error": None, "more": 1}
    assert read_results([suite]) == [Result(name="nq", score=0.5, n=10)]
    assert read_results([]) == []


@pytest.mark.parametrize(
    "suite",
    [
        {},
        [],
        None,
        {"name": "nq", "score": "high", "n": 1},
        {"name": "nq", "score": math.nan, "n": 1},
        {"name": "nq", "score": 0.5, "n": math.inf},
        {"name": "nq", "score": 0.5, "n": 1, "standard_error": math.inf},
        {"name": "nq", "score": 0.5, "n": 1, "standard_error": []},
    ],
)
def test_what_is_no_result_is_refused(suite: Any) -> None:
    with pytest.raises(ReferenceFault):
        read_results([suite])


def test_two_suites_of_one_name_are_refused() -> None:
    suite = {"name": "nq", "score": 0.5, "n": 10}
    with pytest.raises(ReferenceFault, match="two suites are named 'nq'"):
        against("se_search:T1", read_results([suite, suite]))


@given(st.lists(st.integers(0, 5), max_size=12), st.booleans())
def test_a_rank_counts_those_who_are_better(values: list[int], lower: bool) -> None:
    ranks = competition_ranks(values, lower_is_better=lower)
    sign = -1 if lower else 1
    assert ranks == [1 + sum(sign * other > sign * one for other in values) for one in values]


def test_an_error_is_of_shares_alone() -> None:
    _, table = find("se_search:T1")
    assert standard_error(0.5, 100, table) == pytest.approx(0.05)
    assert standard_error(0.5, 0, table) is None
    assert standard_error(0.5, None, table) is None
    assert standard_error(1.5, 100, table) is None
    assert standard_error(87, 100, find("verltool:T2")[1]) is None


def test_the_text_has_both_tables_and_their_source() -> None:
    text = shown(against("se_search:T1", results(nq=0.6)))
    assert "ours" in text
    assert "+0.125±0.050*" in text
    assert "arXiv:2603.03293" in text
    assert "34.6 %" in text
    assert "ours minus" not in shown(against("se_search:T1"))


def test_a_strangers_suite_steers_neither_terminal_nor_page() -> None:
    name = "<script>\x1b[2J\n</script>"
    comparison = against("se_search:T1", [*results(nq=0.6), Result(name=name, score=0, n=1)])
    assert "\x1b" not in shown(comparison)
    page = document("eval", blocks(comparison))
    assert "<script>\\u001b" not in page
    assert "\\u003cscript>" in page
    assert "\x1b" not in page
    assert sum(one is not None and one["kind"] == "table" for one in blocks(comparison)) == 2
