"""Curves of several runs in one page: the right values, whatever the files hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from typer.testing import CliRunner

from console.cli import app
from console.compare.comparison import comparison
from console.compare.runs import read_runs, steps
from console.errors import RecordBroken
from console.record.run import MOST_RUNS, RunFiles
from tests.support.stills import data_of, plots_of


def write_run(folder: Path, steps: int = 4, *, recipe: Any = None, **more: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        {"step": s, "reward": s / 10, "step_s": 36.0, "lineage": "ab", "skipped_update": False}
        for s in range(1, steps + 1)
    ]
    text = "".join(json.dumps({**line, **more}) + "\n" for line in lines)
    (folder / "learner.jsonl").write_text(text, encoding="utf-8")
    if recipe is not None:
        (folder / "learner.resolved.json").write_text(json.dumps(recipe), encoding="utf-8")
    return folder


def rewards(run: RunFiles) -> list[tuple[float, float]]:
    return [(one.step, one.values["reward"]) for one in steps(run)]


def compare(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    return result.exit_code, result.stderr


def test_one_page_has_the_curves_of_all_runs_and_what_their_recipes_differ_in(
    tmp_path: Path,
) -> None:
    recipe = {"shared": {"run": {"seed": 1, "steps": 4}}, "learner": {"kl": {"coefficient": 0.0}}}
    other = {"shared": {"run": {"seed": 2, "steps": 4}}, "learner": {"lora": {"rank": 8}}}
    runs = [
        write_run(tmp_path / "a", recipe=recipe),
        write_run(tmp_path / "b", 3, recipe=other, entropy=2.0),
    ]
    output = tmp_path / "page.html"
    assert compare(*runs, "--smooth", 2, "-o", output) == (0, "")
    told = data_of(output.read_text(encoding="utf-8"))
    assert told["kind"] == "comparison"
    a, b = told["data"]["runs"]
    assert (a["name"], a["clock"]) == (
        "a", {"steps": [1, 2, 3, 4], "hours": [0.01, 0.02, 0.03, 0.04]}
    )  # fmt: skip
    reward = next(plot for plot in plots_of(a) if plot["key"] == "reward")["lines"][0]
    assert (reward["y"], reward["mean"]) == ([0.1, 0.2, 0.3, 0.4], [0.1, 0.15, 0.25, 0.35])
    assert {plot["key"] for plot in plots_of(b)} - {plot["key"] for plot in plots_of(a)} == {
        "entropy"
    }
    assert told["data"]["differences"] == [
        ["learner.kl.coefficient", "0.0", ""],
        ["learner.lora.rank", "", "8"],
        ["run.seed", "1", "2"],
    ]


def test_the_more_runs_the_fewer_points_a_line_has(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(number), 400) for number in range(MOST_RUNS)]

    def longest(count: int) -> int:
        found = comparison(read_runs(runs[:count]), window=5)["runs"]
        return max(len(line["x"]) for run in found for plot in plots_of(run)
                   for line in plot["lines"])  # fmt: skip

    assert [longest(count) for count in (4, 8, MOST_RUNS)] == [300, 150, 50]


def evaluation(suite: str, at: int, reward: float, **more: Any) -> str:
    line = {"suite": suite, "lineage": "ab", "step": at, "n": 32, "reward": reward, "stderr": 0.05}
    return json.dumps({**line, "temperature": 1.0, "parts": {"correct": reward}, **more}) + "\n"


def test_evaluations_are_a_table_and_curves_with_their_intervals(tmp_path: Path) -> None:
    a, b, c = (write_run(tmp_path / name, recipe={}) for name in "abc")
    (a / "evaluations.jsonl").write_text(
        evaluation("unseen", 0, 0.344)
        + evaluation("unseen", 2, 0.9)
        + evaluation("unseen", 2, 0.594, lineage="cd", n=30)  # again, after a kill
        + evaluation("greedy", 4, 0.5, temperature=0.0, stderr=None)
        + '{"suite": "unseen", "st',
        encoding="utf-8",
    )
    (b / "evaluations.jsonl").write_text(evaluation("unseen", 4, 1.0, stderr=0.0), encoding="utf-8")
    code, said = compare(a, b, c, "-o", tmp_path / "page.html")
    assert code == 0
    assert f"{a}/evaluations.jsonl: 1 line is no evaluation, the first is line 5" in said
    told = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))["data"]["suites"]
    assert [(one["name"], one["sampling"]) for one in told] == [
        ("unseen", "temperature 1"), ("greedy", "greedy")
    ]  # fmt: skip
    score = {"mean": 0.344, "stderr": 0.05}
    after = score | {"mean": 0.594}
    assert told[0]["changes"] == [
        {"n": 30, "before": score, "after": after, "steps": [0, 2]},
        {"n": 32, "before": {"mean": 1.0, "stderr": ANY}, "after": None, "steps": [4, 4]},
        None,
    ]
    assert told[0]["changes"][1]["before"]["stderr"] > 0, "all rewards are equal: Laplace's rule"


EVALUATIONS_THAT_ARE_NONE = [
    {"suite": "s" * 300}, {"step": -1}, {"reward": float("nan")}, {"n": 0}, {"stderr": -1},
]  # fmt: skip


@pytest.mark.parametrize("more", EVALUATIONS_THAT_ARE_NONE, ids=str)
def test_a_broken_evaluation_costs_itself(tmp_path: Path, more: dict[str, Any]) -> None:
    run = write_run(tmp_path / "a", recipe={})
    line = json.loads(evaluation("s", 1, 0.5))
    text = json.dumps({**line, **more}) + "\n" + evaluation(HOSTILE[:150], 3, 0.25)
    (run / "evaluations.jsonl").write_text(text, encoding="utf-8")
    (found,) = read_runs([run])
    assert [(m.step, m.reward) for m in found.record.evaluations] == [(3, 0.25)]
    assert "1 line is no evaluation, the first is line 1" in found.remarks[0]


HOSTILE = "</title><script>alert(1)</script>\" onload='x' &amp; \x1b[31m \udcff ]]>"


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE.replace("/", "-")
    write_run(folder, recipe={"learner": {HOSTILE: "<b>" + "x" * 10000}}, **{HOSTILE: 1.0})
    plain = write_run(tmp_path / "plain", recipe={"learner": {}})
    output = tmp_path / "page.html"
    assert compare(folder, plain, "-o", output) == (0, "")
    text = output.read_text(encoding="utf-8")
    assert f"learner.{HOSTILE}" in [key for key, *_ in data_of(text)["data"]["differences"]]
    assert "<script>alert" not in text and len(text) < 200_000


def test_a_run_that_goes_on_or_was_killed_is_read(tmp_path: Path) -> None:
    """Steps after the checkpoint are written again; the last line may be half."""
    run = write_run(tmp_path / "a", 5)
    with (run / "learner.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": 4, "reward": 9.0}) + '\n{"step": 5, "rew')
    (found,) = read_runs([run])
    assert rewards(found) == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 9.0), (5, 0.5)]
    assert found.remarks[0].endswith("1 line is no metrics, the first is line 7")


BROKEN = [
    *(b"not json", b"[]", b'{"reward": 1}', b'{"step": true}', b'{"step": -1}', b"\xff\xfe"),
    b"[" * 100_000,
    b'{"step": 1, "x": "' + b"y" * (3 << 20) + b'"}',
]


@pytest.mark.parametrize("line", BROKEN, ids=lambda line: repr(line[:20]))
def test_a_broken_line_costs_itself(tmp_path: Path, line: bytes) -> None:
    run = write_run(tmp_path / "a", 2)
    before = (run / "learner.jsonl").read_bytes()
    (run / "learner.jsonl").write_bytes(line + b"\n\n" + before)
    (found,) = read_runs([run])
    assert rewards(found) == [(1, 0.1), (2, 0.2)]
    assert len(found.remarks) == 1 and "the first is line 1" in found.remarks[0]


def test_what_is_missing_is_a_sentence(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    output = tmp_path / "page.html"
    for bad in ("empty", "none"):
        code, said = compare(tmp_path / "a", tmp_path / bad, "-o", output)
        assert (code, said.count("\n")) == (1, 1)
        assert f"{tmp_path / bad} has neither learner.jsonl nor sft/sft.jsonl" in said
    (tmp_path / "empty" / "learner.jsonl").write_text("\n", encoding="utf-8")
    assert "has no line with the metrics" in compare(tmp_path / "empty", "-o", output)[1]
    code, said = compare(tmp_path / "a", "-o", tmp_path / "none" / "page.html")
    assert code == 1 and "No such file" in said
    assert not output.exists()
    with pytest.raises(RecordBroken, match="at most"):
        read_runs([tmp_path / "a"] * (MOST_RUNS + 1))
