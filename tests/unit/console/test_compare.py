"""Curves of several runs in one page: the right values, whatever the files hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from console.cli import app
from console.compare.curves import MOST_POINTS, curves
from console.compare.page import page
from console.compare.runs import differences, read_metrics, read_runs
from console.errors import RecordBroken
from console.record.run import MOST_RUNS

XHTML = "{http://www.w3.org/1999/xhtml}"


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
    assert compare(*runs, "-o", output) == (0, "")
    root = ElementTree.parse(output).getroot()
    titles = [found.text for found in root.iter(f"{XHTML}h3")]
    assert titles.count("reward") == titles.count("entropy") == 2  # by step and by hours
    said = [found.text or "" for found in root.iter(f"{XHTML}title")]
    assert any(line.startswith("a, step 4: 0.4") for line in said)
    assert any(line.startswith("b, hours 0.03: 0.3") for line in said)
    rows = [[cell.text for cell in row] for row in root.iter(f"{XHTML}tr")]
    assert rows == [
        ["key", "a", "b"],
        ["learner.kl.coefficient", "0.0", None],
        ["learner.lora.rank", None, "8"],
        ["run.seed", "1", "2"],
    ]
    assert "<script" not in output.read_text(encoding="utf-8")
    assert "http" not in output.read_text(encoding="utf-8").replace(
        "http://www.w3.org/1999/xhtml", ""
    )


def evaluation(suite: str, at: int, reward: float, **more: Any) -> str:
    line = {"suite": suite, "lineage": "ab", "step": at, "n": 32, "reward": reward, "stderr": 0.05}
    return json.dumps({**line, "temperature": 1.0, "parts": {"correct": reward}, **more}) + "\n"


def shown(output: Path) -> tuple[list[list[str | None]], list[str], str]:
    """(rows of all tables, titles of all charts, the page's text)."""
    root = ElementTree.parse(output).getroot()
    rows = [[cell.text for cell in row] for row in root.iter(f"{XHTML}tr")]
    return rows, [h.text or "" for h in root.iter(f"{XHTML}h3")], "".join(root.itertext())


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
    assert (
        said == f"toolwright: {a}/evaluations.jsonl: 1 line is no evaluation, the first is line 5\n"
    )
    rows, titles, text = shown(tmp_path / "page.html")
    assert rows == [
        ["suite", "sampling", "a", "b", "c"],
        ["unseen", "temperature 1", "0.344 ± 0.098 at 0, 0.594 ± 0.098 at 2, n = 30", ONE, "none"],
        ["greedy", "greedy", "0.5 at 4, n = 32", "none", "none"],
    ]
    assert titles[:2] == ["unseen", "unseen"] and titles.count("greedy") == 2
    assert "Without evaluations: c." in text
    assert "a, step 2: 0.594" in text and "a, hours 0.02: 0.594" in text
    root = ElementTree.parse(tmp_path / "page.html").getroot()
    bars = [line for line in root.iter(f"{XHTML}line") if line.get("class") == "error r0"]
    assert len(bars) == 4  # two points, by step and by hours
    marks = [dot for dot in root.iter(f"{XHTML}circle") if dot.get("class") == "dot r1"]
    assert len(marks) == 2  # the only point of a run is seen
    assert all(float(bar.get("y2", 0)) < float(bar.get("y1", 0)) for bar in bars)


ONE = "1 ± 0.059 at 4, n = 32"
"""All rewards are equal: the error is that of the rule of succession."""


def test_suites_of_recipes_differ_by_their_keys_and_not_as_json(tmp_path: Path) -> None:
    def recipe(**suite: Any) -> Any:
        suites = [{"name": "unseen", "n": 32, **suite}, {"name": "other", "n": 1}]
        return {"engine": {"evaluation": {"suites": suites}}, "learner": {"x": [{"name": 1}]}}

    runs = [
        write_run(tmp_path / "a", recipe=recipe()),
        write_run(tmp_path / "b", recipe=recipe(n=64)),
    ]
    assert differences(read_runs(runs)) == [("engine.evaluation.suites.unseen.n", ["32", "64"])]
    twins = {"learner": {"suites": [{"name": "s", "n": 1}, {"name": "s", "n": 2}]}}
    (twin, *_) = read_runs([write_run(tmp_path / "c", recipe=twins)])
    assert list(twin.recipe) == ["learner.suites"]


EVALUATIONS_THAT_ARE_NONE = [
    {"suite": 1},
    {"suite": "s" * 300},
    {"step": -1},
    {"step": None},
    {"reward": None},
    {"reward": float("nan")},
    {"n": 0},
    {"n": "many"},
    {"stderr": -1},
]


@pytest.mark.parametrize("more", EVALUATIONS_THAT_ARE_NONE, ids=str)
def test_a_broken_evaluation_costs_itself(tmp_path: Path, more: dict[str, Any]) -> None:
    run = write_run(tmp_path / "a", recipe={})
    line = json.loads(evaluation("s", 1, 0.5))
    text = json.dumps({**line, **more}) + "\n" + evaluation(HOSTILE[:150], 3, 0.25)
    (run / "evaluations.jsonl").write_text(text, encoding="utf-8")
    (found,) = read_runs([run])
    assert [(m.step, m.reward) for own in found.evaluations.values() for m in own] == [(3, 0.25)]
    assert "1 line is no evaluation, the first is line 1" in found.remarks[0]
    ElementTree.fromstring(page([found], window=1).encode())


HOSTILE = "</title><script>alert(1)</script>\" onload='x' &amp; \x1b[31m \udcff ]]>"


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE.replace("/", "-")
    write_run(folder, recipe={"learner": {HOSTILE: "<b>" + "x" * 10000}}, **{HOSTILE: 1.0})
    plain = write_run(tmp_path / "plain", recipe={"learner": {}})
    text = page(read_runs([folder, plain]), window=1)
    root = ElementTree.fromstring(text.encode())  # strict: no byte is left that XML refuses
    tags = {element.tag.removeprefix(XHTML) for element in root.iter()}
    assert {"script", "b"}.isdisjoint(tags)
    assert not any("onload" in element.attrib for element in root.iter())
    assert len(text) < 100_000


def test_a_run_that_goes_on_or_was_killed_is_read(tmp_path: Path) -> None:
    """Steps after the checkpoint are written again; the last line may be half."""
    run = write_run(tmp_path / "a", 5)
    with (run / "learner.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": 4, "reward": 9.0}) + '\n{"step": 5, "rew')
    (found,) = read_runs([run])
    assert found.curve("reward") == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 9.0), (5, 0.5)]
    assert found.remarks[0].endswith("1 line is no metrics, the first is line 7")


BROKEN = [
    b"not json",
    b"[]",
    b"7",
    b'{"reward": 1}',
    b'{"step": "1"}',
    b'{"step": true}',
    b'{"step": -1}',
    b'{"step": 1.5}',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"step": 1, "x": "' + b"y" * (3 << 20) + b'"}',
]


@pytest.mark.parametrize("line", BROKEN, ids=lambda line: repr(line[:20]))
def test_a_broken_line_costs_itself(tmp_path: Path, line: bytes) -> None:
    run = write_run(tmp_path / "a", 2)
    before = (run / "learner.jsonl").read_bytes()
    (run / "learner.jsonl").write_bytes(line + b"\n\n" + before)
    metrics, remarks = read_metrics(run / "learner.jsonl")
    assert [metrics[step]["reward"] for step in metrics] == [0.1, 0.2]
    assert len(remarks) == 1 and "the first is line 1" in remarks[0]


def test_values_that_are_no_numbers_are_no_points(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    huge = "1" + "0" * 400
    file.write_text(
        f'{{"step": 1, "a": null, "b": NaN, "c": -Infinity, "d": {huge}, "e": true, "f": 2e300}}',
        encoding="utf-8",
    )
    assert read_metrics(file) == ({1: {"e": 1.0}}, [])


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


def test_a_recipe_that_cannot_be_read_costs_the_table_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    other = write_run(tmp_path / "b")
    (run / "engine.resolved.json").write_text("{", encoding="utf-8")
    code, said = compare(run, other, "-o", tmp_path / "page.html")
    assert code == 0
    assert "engine.resolved.json cannot be read" in said
    assert f"{other} has none of engine.resolved.json" in said
    (run / "engine.resolved.json").write_text('{"a":' * 900 + "1" + "}" * 900, encoding="utf-8")
    assert compare(run, other, "-o", tmp_path / "page.html")[0] == 0


def test_imitation_is_compared_by_its_own_metrics(tmp_path: Path) -> None:
    (tmp_path / "a" / "sft").mkdir(parents=True)
    line = {"step": 0, "heldout_loss": 2.0, "heldout_s": 3600.0}
    (tmp_path / "a" / "sft" / "sft.jsonl").write_text(json.dumps(line), encoding="utf-8")
    (run,) = read_runs([tmp_path / "a"])
    assert run.curve("heldout_loss") == [(0, 2.0)]
    assert run.hours() == {0: 1.0}


def test_hours_leave_out_the_time_between_two_lives(tmp_path: Path) -> None:
    (run,) = read_runs([write_run(tmp_path / "a", 100)])
    assert run.hours()[100] == pytest.approx(1.0)
    (curve,) = curves([run], "reward", window=1, hours=True)
    last = curve.points[-1]
    assert (last.x, last.y) == (pytest.approx(1.0), 10.0)
    assert curves([run], "entropy", window=1) == []


def test_long_curves_are_thinned_and_keep_their_ends_and_their_spike(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", 12345)
    lines = (run / "learner.jsonl").read_text(encoding="utf-8").splitlines()
    lines[7776] = json.dumps({"step": 7777, "reward": -99.0, "step_s": 36.0})
    (run / "learner.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for window in (1, 5):
        found = curves(read_runs([run]), "reward", window=window)[0].points
        assert len(found) <= MOST_POINTS
        assert (found[0].x, found[-1].x) == (1.0, 12345.0)
        assert min((point.y, point.x) for point in found) == (-99.0, 7777.0)
