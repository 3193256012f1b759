"""The tables of the papers: what they print agrees with itself, or is known not to."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from engine.offline.reference.comparing import competition_ranks
from engine.offline.reference.papers import (
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


def test_se_searchs_ablation_begins_with_search_r1() -> None:
    _, table = find("se_search:T2")
    assert (table.rows[0].system, table.rows[0].averages) == ("Search-R1", {"average": 0.344})
    assert [row.averages["average"] for row in table.rows] == [0.344, 0.363, 0.394, 0.410]


def test_every_printed_cell_is_here() -> None:
    """Rows and values of each table, counted by hand in the papers."""
    counted = {
        name: (len(table.rows), sum(len(row.cells) + len(row.averages) for row in table.rows))
        for paper_name in papers()
        for name, table in (
            (f"{paper_name}:{table.id}", table) for table in paper(paper_name).tables.values()
        )
    }
    assert counted == {
        "mtr:main": (11, 55),
        "mtr:stages": (7, 34),
        "mtr:checks": (4, 8),
        "mtr:check-faults": (4, 8),
        "mtr:domains": (6, 18),
        "se_search:T1": (19, 17 * 10 + 2 * 5),
        "se_search:T2": (4, 32),
        "se_search:T3-em": (3, 24),
        "se_search:T3-f1": (3, 24),
        "searl:T1": (6, 48),
        "verltool:T2": (2, 6),
        "verltool:T4": (6, 42),
        "verltool:T5": (10, 80),
        "verltool:T6-sql": (7, 10),
        "verltool:T6-swe": (6, 6),
        "verltool:T7-visual": (9, 9),
        "verltool:T7-search": (9, 18),
        "verltool:T9": (8, 24),
        "verltool:T10": (4, 12),
        "verltool:T10-throughput": (4, 4),
        "verltool:T12": (4, 4),
        "verltool:T15": (4, 12),
        "verltool:T17": (4, 28),
    }
    assert sum(values for _, values in counted.values()) == 686


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
            printed = str(row.averages[name]).partition(".")[2]
            half = 0.5 * 10 ** -min(average.decimals, len(printed)) + 1e-9
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
    averages = {row.system: row.averages.get("average") for row in table.rows}
    base, own = averages["Search-R1-Base"], averages["SE-Search"]
    assert base is not None and own is not None
    assert round(100 * (own / base - 1), 1) == 34.6
    assert any("33.8" in one.what and one.where == "T1" for one in whole.contradictions)
    assert sum(n or 0 for n in table.sets.values()) == 51_713


def test_mtrs_contradictions_stand_in_its_tables() -> None:
    _, table = find("mtr:stages")
    base = {row.system: row.averages.get("average", 0) for row in table.rows if row.model == "Base"}
    assert base["GRPO without SFT"] > base["SFT only"] > 0


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
        file.write_text(text, encoding="utf-8")
        with pytest.raises(error):
            read_paper(file)
