"""The tables of the papers: what they print agrees with itself, or is known not to."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from toolwright.reference.comparing import competition_ranks
from toolwright.reference.papers import (
    Paper,
    PaperTable,
    ReferenceFault,
    find,
    paper,
    papers,
    read_paper,
)

ALL = [(name, table) for name in papers() for table in paper(name).tables]


@pytest.fixture(params=ALL, ids=lambda one: ":".join(one))
def found(request: pytest.FixtureRequest) -> tuple[Paper, PaperTable]:
    name, table = request.param
    return find(f"{name}:{table}")


def test_four_papers_are_there() -> None:
    assert papers() == ("mtr", "se_search", "searl", "verltool")


def test_a_table_is_whole(found: tuple[Paper, PaperTable]) -> None:
    _, table = found
    assert table.title
    assert table.source.startswith("arXiv:")
    assert table.rows
    assert table.unit in ("share", "percent", "number")
    assert table.complete != bool(table.missing)
    for average in table.averages.values():
        assert set(average.sets) <= set(table.sets)
    for row in table.rows:
        assert row.cells or row.averages, row
        assert set(row.cells) <= set(table.sets), row
        assert set(row.averages) <= set(table.averages), row
        for value in row.cells.values():
            assert 0 <= value <= table.scale or table.unit == "number", row
            assert value == round(value, table.decimals), row
    names = [(row.system, row.model) for row in table.rows]
    assert len(names) == len(set(names))


def test_what_is_not_complete_says_so(found: tuple[Paper, PaperTable]) -> None:
    whole, table = found
    assert whole.complete != bool(whole.missing)
    assert table.complete or not whole.complete
    assert all(one.where in whole.tables and one.what for one in whole.contradictions)


def test_a_source_names_a_place_in_the_paper_and_no_history_of_the_file(
    found: tuple[Paper, PaperTable],
) -> None:
    _, table = found
    for words in ("compared", " also at ", "seen", "again"):
        assert words not in table.source
        assert words not in table.notes


def test_the_first_row_of_se_searchs_ablation_has_no_name_of_ours() -> None:
    _, table = find("se_search:ablation")
    assert (table.rows[0].system, table.rows[0].cells) == ("base", {"average EM": 0.344})
    assert "base" in table.missing


def test_printed_averages_are_those_of_their_cells(found: tuple[Paper, PaperTable]) -> None:
    """But for those that the file lists as contradictions, which have to be wrong indeed."""
    whole, table = found
    listed = {(one.row, one.average) for one in whole.contradictions if one.where == table.id}
    for row in table.rows:
        for name, average in table.averages.items():
            cells = [row.cells.get(one) for one in average.sets]
            if average.of != "mean" or name not in row.averages or None in cells:
                continue
            mean = math.fsum(filter(None, cells)) / len(cells)
            half = 0.5 * 10**-average.decimals + 1e-9
            agrees = abs(mean - row.averages[name]) <= half
            assert agrees != (((row.system, row.model), name) in listed), (row.system, mean)


def test_searls_average_ranks_are_competition_ranks() -> None:
    _, table = find("searl:T1")
    ranks = [competition_ranks([row.cells[name] for row in table.rows]) for name in table.sets]
    means = [math.fsum(place) / len(ranks) for place in zip(*ranks, strict=True)]
    printed = [row.averages["average rank"] for row in table.rows]
    assert [round(mean, 2) for mean in means] == printed
    assert sorted(printed) == [1.43, 2.43, 3.00, 3.57, 4.57, 5.29]


def test_with_shared_places_averaged_searl_would_have_another_rank() -> None:
    whole, table = find("searl:T1")
    places = []
    for name in table.sets:
        values = [row.cells[name] for row in table.rows]
        best = competition_ranks(values)[-1]
        places.append(best + (values.count(values[-1]) - 1) / 2)
    assert round(math.fsum(places) / len(places), 2) == 1.64
    assert any("1.64" in one.what for one in whole.contradictions)


def test_searls_cells_are_whole_numbers_of_right_answers() -> None:
    _, table = find("searl:T1")
    for row in table.rows:
        for name, value in row.cells.items():
            n = table.sets[name]
            assert n is not None
            assert round(round(value * n) / n, 4) == value, (row.system, name)


def test_the_gain_that_se_search_claims_is_not_that_of_its_table() -> None:
    whole, table = find("se_search:T1")
    baseline, own = (row.averages["average"] for row in table.rows)
    assert round(100 * (own / baseline - 1), 1) == 34.6
    assert any("33.8" in one.what and one.where == "T1" for one in whole.contradictions)
    assert sum(n or 0 for n in table.sets.values()) == 51_713


def test_mtrs_contradictions_stand_in_its_tables() -> None:
    _, table = find("mtr:stages")
    base = {row.system: row.averages["average"] for row in table.rows if row.model == "Base"}
    assert base["GRPO without SFT"] > base["SFT only"]


@pytest.mark.parametrize("name", ["se_search:T1", "SE-Search:t1", " sesearch : T1 "])
def test_names_are_read_generously(name: str) -> None:
    assert find(name)[1].id == "T1"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "no paper ''.*mtr, se_search"),
        ("gpt:T1", "no paper 'gpt'"),
        ("../searl:T1", "no paper"),
        ("searl", "no table ''.*searl:T1"),
        ("searl:T9", "no table 'T9'"),
        ("verltool:T6", "verltool:T6-sql"),
    ],
)
def test_what_is_not_there_is_named(name: str, words: str) -> None:
    with pytest.raises(ReferenceFault, match=words):
        find(name)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    for text, error in (("[]", TypeError), ("{}", KeyError), ("nonsense", ValueError)):
        file.write_text(text)
        with pytest.raises(error):
            read_paper(file)
