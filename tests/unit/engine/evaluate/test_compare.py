"""Two evaluations, pair by pair: what both were asked, and nothing else."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import stdev

import pytest

from engine.errors import StartupError
from engine.offline.evaluate.results.compare import compare, table
from tests.support.evaluated import evaluation, row
from toolwright.statistics import mcnemar


def test_0_1_scores_are_compared_by_mcnemar(tmp_path: Path) -> None:
    a = evaluation(tmp_path / "a", {"nq": [row(n, float(n < 4)) for n in range(20)]})
    b = evaluation(tmp_path / "b", {"nq": [row(n, float(n > 0 and n < 12)) for n in range(20)]})
    found = compare(a, b)
    (one,) = found["sets"]
    assert (one["n"], one["a"], one["b"]) == (20, 0.2, 0.55)
    assert (one["better"], one["worse"], one["test"]) == (8, 1, "McNemar, exact")
    assert one["difference"] == pytest.approx(0.35)
    assert one["standard_error"] == pytest.approx(
        stdev([1.0] * 8 + [-1.0] + [0.0] * 11) / math.sqrt(20)
    )
    assert one["p"] == pytest.approx(mcnemar(8, 1))
    assert found["all"] is None
    back = compare(b, a)["sets"][0]
    assert (back["difference"], back["p"]) == (-one["difference"], one["p"])


def test_other_scores_are_compared_by_drawing_signs_anew(tmp_path: Path) -> None:
    a = evaluation(tmp_path / "a", {"qa": [row(n, 0.1 * (n % 5)) for n in range(30)]})
    b = evaluation(tmp_path / "b", {"qa": [row(n, 0.1 * (n % 5) + 0.05) for n in range(30)]})
    (one,) = compare(a, b)["sets"]
    assert one["test"] == "paired permutation"
    assert one["p"] < 0.001
    assert compare(a, a)["sets"][0]["p"] == 1.0


def test_rates_are_compared_over_the_questions_of_both(tmp_path: Path) -> None:
    def asked(name: str, *pairs: list[int]) -> Path:
        rows = [row(n, rates={"malformed": pair}) for n, pair in enumerate(pairs)]
        return evaluation(tmp_path / name, {"nq": rows})

    a, b = asked("a", [1, 2], [1, 1], [0, 1]), asked("b", [0, 2], [0, 1], [1, 1], [5, 5])
    (one,) = compare(a, b)["rates"]
    assert (one["n"], one["a"], one["b"], one["difference"]) == (3, 0.5, 0.25, -0.25)
    # Of each question: (part - rate * whole) / 4 of B, less that of A.
    left = [(-0.5 - 0.0) / 4, (-0.25 - 0.5) / 4, (0.75 + 0.5) / 4]
    error = math.sqrt(sum(x * x for x in left) * 3 / 2)
    assert one["standard_error"] == pytest.approx(error)
    assert one["p"] == pytest.approx(math.erfc(0.25 / error / math.sqrt(2)))
    (line,) = (line for line in table(compare(a, b)) if line.startswith("rate: malformed"))
    assert line.split()[2:] == [
        "3", "0.500", "0.250", "-0.250", "±", "0.472", "-", "-", "0.60", "normal"
    ]  # fmt: skip
    nothing = compare(asked("c", [0, 0]), asked("d", [0, 0]))["rates"][0]
    assert (nothing["n"], nothing["difference"]) == (1, None)
    assert compare(a, evaluation(tmp_path / "e", {"nq": [row(0)]}))["rates"] == []


def test_it_says_where_the_two_did_not_score_the_same(tmp_path: Path) -> None:
    a = evaluation(tmp_path / "a", {"nq": [row(n) for n in range(4)], "only": [row(0)]}, n=5)
    rows = [row(2, errored="away"), row(3, 0.0), row(4, 0.0), row(5, 0.0)]
    b = evaluation(tmp_path / "b", {"nq": rows}, n=6)
    found = compare(a, b)
    (one,) = found["sets"]
    assert (one["n"], one["only_a"], one["only_b"], one["difference"]) == (1, 3, 2, -1.0)
    told = "\n".join(table(found))
    assert "nq: the two did not score the same questions: 3 only in A, 2 only in B" in told
    assert "only in A: only" in told
    assert "A is not complete" in told and "B is not complete" in told


def test_questions_are_told_by_their_id_and_not_by_their_place(tmp_path: Path) -> None:
    a = evaluation(tmp_path / "a", {"nq": [row(n, float(n == 0)) for n in range(3)]})
    turned = [row(n, float(n == 2), task_id=f"q{2 - n}") for n in range(3)]
    b = evaluation(tmp_path / "b", {"nq": turned})
    (one,) = compare(a, b)["sets"]
    assert (one["n"], one["better"], one["worse"]) == (3, 0, 0)


def test_a_question_without_a_score_does_not_shift_others_of_its_id(tmp_path: Path) -> None:
    def asked_again(place: int, reward: float, **fields: object) -> dict[str, object]:
        return row(place, reward, task_id="again", position=10 * place, **fields)

    a = evaluation(tmp_path / "a", {"nq": [asked_again(0, 0.0), asked_again(1, 1.0)]})
    lost = asked_again(0, 0.0, errored="away")
    b = evaluation(tmp_path / "b", {"nq": [lost, asked_again(1, 1.0)]})
    (one,) = compare(a, b)["sets"]
    assert (one["n"], one["a"], one["difference"], one["only_a"]) == (1, 1.0, 0.0, 1)
    other = compare(b, b)["sets"][0]
    assert (other["n"], other["difference"]) == (1, 0.0)


def test_a_data_source_that_one_has_not_scored_yet_hides_no_pairs(tmp_path: Path) -> None:
    rows = [row(n, 1.0, data_source="nq") for n in range(2)]
    a = evaluation(tmp_path / "a", {"qa": rows}, n=3)
    b = evaluation(tmp_path / "b", {"qa": [*rows, row(2, 0.0, data_source="popqa")]})
    found = compare(a, b)
    assert [(one["name"], one["n"]) for one in found["sets"]] == [("nq", 2)]
    assert (found["only_a"], found["only_b"]) == ([], ["popqa"])


def test_of_samples_their_mean_is_compared_and_sets_are_pooled(tmp_path: Path) -> None:
    def rows(source: str, first: int, *rewards: float) -> list[dict[str, object]]:
        return [
            row(first + n, r, task_id=f"q{(first + n) // 2}", data_source=source)
            for n, r in enumerate(rewards)
        ]

    none = rows("popqa", 2, 0, 0)
    a = evaluation(tmp_path / "a", {"qa": [*rows("nq", 0, 1, 0), *none]}, samples=2)
    b = evaluation(tmp_path / "b", {"qa": [*rows("nq", 0, 1, 1), *none]}, samples=2)
    found = compare(a, b)
    assert [(one["name"], one["difference"]) for one in found["sets"]] == [
        ("nq", 0.5), ("popqa", 0.0),
    ]  # fmt: skip
    assert (found["all"]["n"], found["all"]["difference"]) == (2, 0.25)


def test_nothing_in_common_and_no_such_part_are_sentences(tmp_path: Path) -> None:
    a = evaluation(tmp_path / "a", {"nq": [row(0)]})
    b = evaluation(tmp_path / "b", {"popqa": [row(0)]})
    with pytest.raises(StartupError, match=r"no question .*nq.*popqa"):
        compare(a, b)
    with pytest.raises(StartupError, match=r"--by f1: .* em, reward"):
        compare(a, a, by="f1")
    assert compare(a, a, by="em")["score"] == "em"
