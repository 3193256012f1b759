"""Figures come from the rows on disk, each once; table and page show them whatever they hold."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from engine.errors import StartupError
from engine.offline.evaluate.folder import read_settings
from engine.offline.evaluate.results.figures import ResultOptions, results, write_results
from engine.offline.evaluate.results.paper_tables import PaperTables
from engine.offline.evaluate.results.scores import MOST_SOURCES
from engine.offline.evaluate.results.table import table
from engine.offline.prices import Prices
from engine.serving.evaluation.results import rows_file
from tests.support.evaluated import VERSION, evaluation, row
from tests.support.stills import words_of

HOSTILE = "<script>\x1b[2J</script>"


def figures(folder: Path, **reading: Any) -> dict[str, Any]:
    return results(folder, ResultOptions(**reading))


def test_a_0_1_score_has_the_error_of_a_share(tmp_path: Path) -> None:
    found = figures(evaluation(tmp_path, {"nq": [row(n, float(n < 2)) for n in range(5)]}))
    (one,) = found["sets"]
    assert (one["name"], one["score"], one["n"]) == ("nq", 0.4, 5)
    assert one["standard_error"] == pytest.approx(math.sqrt(0.4 * 0.6 / 5))
    assert one["parts"]["em"] == {"mean": 0.4, "standard_error": one["standard_error"]}
    assert (one["calls"], one["input_tokens"], one["output_tokens"]) == (1.0, 100.0, 10.0)
    assert (one["seconds"], one["stops"], one["cost"]) == (2.0, {"answered": 5}, None)
    assert (found["complete"], found["average"], found["without_a_score"]) == (True, None, [])


def test_a_set_each_data_source_and_their_average_is_unweighted(tmp_path: Path) -> None:
    rows = [row(n, 1.0, data_source="nq") for n in range(3)]
    rows += [row(3, 0.0, data_source="popqa"), row(4, 0.0, data_source="popqa")]
    found = figures(evaluation(tmp_path, {"qa": rows[::-1], "math": [row(0, 0.5), row(1, 1.0)]}))
    assert [(one["name"], one["suite"], one["score"]) for one in found["sets"]] == [
        ("nq", "qa", 1.0), ("popqa", "qa", 0.0), ("math", "math", 0.75),
    ]  # fmt: skip
    error = stdev([0.5, 1.0]) / math.sqrt(2)
    assert found["average"] == {
        "score": pytest.approx(1.75 / 3, abs=1e-8),
        "standard_error": pytest.approx(error / 3, abs=1e-8),
        "sets": 3,
    }
    assert [(one["name"], one["score"]) for one in found["suites"]] == [
        ("qa", 0.6), ("math", 0.75),
    ]  # fmt: skip


def test_each_row_counts_once_whatever_a_kill_left(tmp_path: Path) -> None:
    """An errored line is taken back by a measured one; a second measurement counts for nothing."""
    lost = row(1, 0.0, errored="sampler away")
    away, bad = row(2, 0.0, errored="away"), {"index": 3, "bad": "?"}
    rows = [row(0), lost, row(1), row(0, 0.0), away, bad]
    found = figures(evaluation(tmp_path, {"nq": rows}, n=6))
    (one,) = found["sets"]
    assert (one["n"], one["score"]) == (2, 1.0)
    (suite,) = found["suites"]
    assert (suite["errored"], suite["bad_rows"], suite["open"]) == (1, 1, 2)
    assert not found["complete"]
    assert [(o["index"], o["reason"]) for o in found["without_a_score"]] == [(2, "away"), (3, "?")]


def test_lines_of_other_settings_of_no_row_or_cut_are_passed_over(tmp_path: Path) -> None:
    rows = [row(0), row(1, settings="other"), row(9), row(-1), {"index": "1"}]
    folder = evaluation(tmp_path, {"nq": rows}, n=2)
    with rows_file(folder, "nq", VERSION).open("ab") as file:
        file.write(b'{"index": 1, "rewa')
    assert figures(folder)["sets"][0]["n"] == 1


@pytest.mark.parametrize(
    "fields",
    [{"reward": None}, {"reward": "nan"}, {"parts": [1]}, {"calls": "many"}, {"rates": {"a": [1]}}],
)
def test_a_line_that_is_no_row_is_one_sentence(tmp_path: Path, fields: dict[str, Any]) -> None:
    folder = evaluation(tmp_path, {"nq": []}, n=2)
    line = json.dumps({**row(0), **fields, "settings": read_settings(folder).digest})
    rows_file(folder, "nq", VERSION).write_text(line + "\n", encoding="utf-8")
    with pytest.raises(StartupError, match="the line of row 0 is not what `engine eval` wrote"):
        figures(folder)


def test_nothing_measured_is_no_score_and_no_average(tmp_path: Path) -> None:
    found = figures(evaluation(tmp_path, {"a": [row(0)], "b": []}))
    assert [one["score"] for one in found["sets"]] == [1.0, None]
    assert found["average"] is None
    assert any("b" in line and "-" in line for line in table(found))


def test_the_score_may_be_a_part_and_a_row_without_it_counts_0(tmp_path: Path) -> None:
    rows = [row(0, 0.3, parts={"em": 1.0}), row(1, 0.1, parts={"format": 0.1})]
    folder = evaluation(tmp_path, {"nq": rows})
    (one,) = figures(folder, by="em")["sets"]
    assert (one["score"], one["parts"]["reward"]["mean"]) == (0.5, 0.2)
    with pytest.raises(StartupError, match=r"--by f1: .* reward, em"):
        figures(folder, by="f1")


def test_samples_of_a_question_are_one_question(tmp_path: Path) -> None:
    """Two questions of four samples: one always right, one right once."""
    rewards = [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0]
    folder = evaluation(tmp_path, {"aime": [row(n, r) for n, r in enumerate(rewards)]}, samples=4)
    found = figures(folder)
    (one,) = found["sets"]
    assert (one["score"], one["n"], one["measured_rows"]) == (0.625, 2, 8)
    assert one["standard_error"] == pytest.approx(stdev([1.0, 0.25]) / math.sqrt(2), abs=1e-8)
    assert {k: p["mean"] for k, p in one["pass_at"].items()} == {"1": 0.625, "2": 0.75, "4": 1.0}
    assert any("pass@4 1.000" in line for line in table(found))


def test_what_strangers_wrote_steers_neither_terminal_nor_page(tmp_path: Path) -> None:
    rows = [
        row(0, data_source=HOSTILE, parts={HOSTILE: 1.0}, stop_reason=HOSTILE, task_id=HOSTILE),
        row(1, data_source="b", errored=""),
        row(2, errored=HOSTILE, task_id=HOSTILE),
    ]
    folder = evaluation(tmp_path, {"qa": rows})
    samples = [
        {"suite": "qa", "lineage": "default", "step": 0, "index": 0, "task_id": HOSTILE,
         "answers": [HOSTILE], "reward": 1.0, "stop_reason": HOSTILE,
         "segments": [{"author": HOSTILE, "text": HOSTILE * 1000}, 3]},
        {"suite": "qa", "lineage": "default", "step": 0, "index": 1, "segments": None},
        {"suite": "qa", "lineage": "default", "step": 0, "index": None},
    ]  # fmt: skip
    (folder / "samples.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in samples), encoding="utf-8"
    )
    found = write_results(folder, ResultOptions())
    assert "\x1b" not in "\n".join(table(found))
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "\x1b" not in page and HOSTILE not in page
    assert HOSTILE in words_of(page)
    assert json.loads((folder / "results.json").read_text(encoding="utf-8")) == found


def test_it_stands_beside_a_papers_table_by_the_names_of_sets(tmp_path: Path) -> None:
    rows = [row(n, float(n < 2), data_source=("nq", "hotpotqa")[n % 2]) for n in range(8)]
    folder = evaluation(tmp_path, {"qa": rows, "own": [row(0)]})
    beside = PaperTables.parse(["se_search:T1"], ["own=PopQA"])
    found = write_results(folder, ResultOptions(papers=beside))
    told = "\n".join(beside.lines(found))
    assert "se_search:T1" in told and "ours minus theirs" in told
    assert re.search(r"ours +0\.250±0\.217", told)
    assert "se_search:T1" in words_of((folder / "page.html").read_text(encoding="utf-8"))


def test_sets_of_no_table_are_told_and_cost_nothing(tmp_path: Path) -> None:
    folder = evaluation(tmp_path, {"qa": [row(0)], "empty": []})
    beside = PaperTables.parse(["se_search:T1"], [])
    found = write_results(folder, ResultOptions(papers=beside))
    assert "not beside se_search:T1: no suite is a set of" in "\n".join(beside.lines(found))
    nothing = figures(evaluation(tmp_path / "new", {"nq": []}, n=1))
    assert "no set has a score yet" in "\n".join(beside.lines(nothing))
    with pytest.raises(StartupError, match="--against: se_search has no table 'T9'"):
        PaperTables.parse(["se_search:T9"], [])
    with pytest.raises(StartupError, match="--against: 'own': write SUITE=SET"):
        PaperTables.parse([], ["own"])


@pytest.mark.parametrize(
    ("rows", "warns"),
    [
        ([row(n, 0.0) for n in range(2)], True),
        ([row(0, 0.0)], False),
        ([row(0, 0.0), row(1, 0.0, stop_reason="max_turns")], False),
        ([row(0, 0.5), row(1, -0.5, stop_reason="empty_output")], False),
    ],
)
def test_answers_that_are_all_worth_0_are_doubted(
    tmp_path: Path, rows: list[dict[str, Any]], warns: bool
) -> None:
    folder = evaluation(tmp_path, {"qa": rows})
    found = write_results(folder, ResultOptions())
    said = f"all {len(rows)} rows answered and every score is 0"
    assert any(f"warning: qa: {said}" in line for line in table(found)) == warns
    assert (said in words_of((folder / "page.html").read_text(encoding="utf-8"))) == warns


def test_rates_have_their_own_denominators(tmp_path: Path) -> None:
    pairs = [[1, 4], [0, 0], [1, 1]]
    also = {"shares": ["malformed"]}
    rows = [row(n, 1.0, rates={"malformed": pair}, **also) for n, pair in enumerate(pairs)]
    folder = evaluation(tmp_path, {"nq": rows})
    found = write_results(folder, ResultOptions())
    (one,) = found["sets"]
    # Two questions have a whole: (1 - 0.4 * 4)^2 + (1 - 0.4)^2 = 0.72; sqrt(0.72 * 2 / 1) / 5.
    error = pytest.approx(0.24)
    assert one["rates"] == {
        "malformed": {"rate": 0.4, "of": 5.0, "standard_error": error, "share": True}
    }
    assert found["total"]["rates"] == one["rates"]
    assert "nq, rates: malformed 40.0% ± 24.0% of 5" in "\n".join(table(found))
    assert "40.0% ± 24.0% of 5" in words_of((folder / "page.html").read_text(encoding="utf-8"))


def test_a_mean_below_1_is_no_percentage(tmp_path: Path) -> None:
    rows = [row(n, rates={"likeness": [0.5, 1]}) for n in range(2)]
    found = results(evaluation(tmp_path, {"nq": rows}), ResultOptions())
    assert "nq, rates: likeness 0.5 ± 0 of 2" in table(found)


def test_sets_are_pooled(tmp_path: Path) -> None:
    suites = {
        name: [row(n, rates={"query_length": [length, 1]}) for n, length in enumerate(lengths)]
        for name, lengths in (("nq", (40, 60)), ("hotpotqa", (90, 110)))
    }
    found = results(evaluation(tmp_path, suites), ResultOptions())
    assert "nq, rates: query_length 50 ± 10 of 2" in table(found)
    # The deviation of 40, 60, 90 and 110 over the root of 4.
    error = pytest.approx(stdev([40, 60, 90, 110]) / 2)
    pooled = {"rate": 75.0, "of": 4.0, "standard_error": error}
    assert found["total"]["rates"] == {"query_length": pooled}


def test_samples_of_a_question_are_one_cluster_of_a_rate(tmp_path: Path) -> None:
    pairs = [[2, 2], [0, 1], [0, 1], [1, 4]]  # two samples a question: 2 of 3, and 1 of 5
    rows = [row(n, rates={"malformed": pair}) for n, pair in enumerate(pairs)]
    (one,) = figures(evaluation(tmp_path, {"nq": rows}, samples=2))["sets"]
    rate = 3 / 8
    error = math.sqrt(((2 - rate * 3) ** 2 + (1 - rate * 5) ** 2) * 2) / 8
    assert one["rates"]["malformed"]["standard_error"] == pytest.approx(error)


def faults(n: int) -> dict[str, list[int]]:
    return {"malformed": [n == 0, 4], "disagreement": [0, 1]}


def test_rates_stand_beside_the_faults_of_mtr(tmp_path: Path) -> None:
    rows = [row(n, rates=faults(n), shares=["malformed"]) for n in range(25)]
    found = results(evaluation(tmp_path, {"heldout": rows}), ResultOptions())
    lines = PaperTables(tables=["mtr:check-faults"]).lines(found)
    ours = next(line.split() for line in lines if line.startswith("ours "))
    assert ours[1:5] == ["1.0±1.0", "(1)", "0.0±0.0", "(1)"]
    assert not any("no set of this table: malformed" in line for line in lines)
    assert "not beside se_search:T1" in PaperTables(tables=["se_search:T1"]).lines(found)[1]


def test_a_page_of_nothing_and_of_one_row_is_a_page(tmp_path: Path) -> None:
    for number, rows in enumerate(([], [row(0)])):
        folder = evaluation(tmp_path / str(number), {"nq": rows}, n=1)
        write_results(folder, ResultOptions(prices=Prices(read=1.0, written=2.0)))
        assert (folder / "page.html").read_text(encoding="utf-8").endswith("</html>\n")


def test_a_source_a_row_makes_no_set_a_row(tmp_path: Path) -> None:
    rows = [row(n, data_source=f"s{n}") for n in range(MOST_SOURCES + 5)]
    (one,) = figures(evaluation(tmp_path, {"qa": rows}))["sets"]
    assert (one["name"], one["n"]) == ("qa", MOST_SOURCES + 5)
