"""Mathematics compared as expressions, in processes that hostile ones may kill."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tasks.errors import TaskFault
from tasks.judging import symbols
from tasks.judging.symbols import LONGEST, MathJudge
from toolwright.imports import load_object


@pytest.fixture(scope="module")
def judge() -> Iterator[MathJudge]:
    with MathJudge(seconds=3.0, workers=1) as made:
        assert made.symbolic
        yield made


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("1/2", r"\frac{1}{2}", True),
        ("0.5", r"\dfrac12", True),
        ("1+x", "x+1", True),
        (r"(x-1)(x+1)", "x^2-1", True),
        (r"\sqrt{8}", r"2\sqrt{2}", True),
        (r"$\frac{\pi}{4}$", r"\pi/4", True),
        ("1,000", "1000", True),
        ("{2, 1}", r"\{1,2\}", True),
        ("5.", "5", True),
        (r"12\,345\,678", "12345678", True),
        (r"120\degree", "120", True),
        ("90\u00b0", "90", True),
        ("1.5e-3", "0.0015", True),
        ("2.5E4", "25000", True),
        (r"\emptyset", r"\varnothing", True),
        ("\u221a2/2", r"\frac{1}{\sqrt{2}}", True),
        (r"3.5\text{ kg}", "3.5", True),
        ("12.50 dollars", r"\$12.5", True),
        ("2 1/2", "2.5", True),
        ("50%", "0.5", True),
        ("0.333333", r"\frac13", True),
        ("1001_{two}", "1001_2", True),
        (r"\text{Paris}", "Paris", True),
        ("10^{-20}", "10^{-21}", False),
        (r"\frac{1}{2004!}", r"\frac{1}{2006!}", False),
        ("x+10^{-20}", "x+10^{-21}", False),
        ("(10^{-20}, 1)", "(10^{-21}, 1)", False),
        ("0.0000001", "0.0000002", False),
        ("0", "10^{-30}", False),
        (r"\sqrt{10^{-30}}", r"\sqrt{10^{-32}}", False),
        (r"10^{-20}\sqrt{2}", r"\sqrt{2}\cdot 10^{-20}", True),
        ("1001_2", "1001", False),
        ("1001_2", "9", False),
        ("7_8 + 1", "7 + 1", False),
        ("A3_{16}", "163", False),
        (r"\frac12 \text{ m}", r"\frac12 \text{ km}", False),
        ("1/2", "12", False),
        ("(-1,2)", "(1,2)", False),
        (r"-\frac{1}{2}", r"\frac{1}{2}", False),
        ("x+2", "x+1", False),
        (r"\sqrt{2", r"\sqrt{2}", False),
        ("hello", "5", False),
        ("\x00", "5", False),
        ("}}}{{{", "5", False),
    ],
)
def test_equal_expressions_are_one(judge: MathJudge, answer: str, gold: str, right: bool) -> None:
    assert judge.right(answer, ["17", gold]) is right


def test_what_needs_no_process(judge: MathJudge) -> None:
    before = judge.counts["asked"]
    assert judge.right(" 204 ", ["204"])
    assert judge.right("+007", ["7"])
    assert judge.right(r"12\,345 \text{ km}", ["12,345"])
    assert not judge.right("1001_2", ["1001"])
    assert not judge.right("205", ["204", "203"])
    assert not judge.right(None, ["204"])
    assert not judge.right("", [""])
    assert not judge.right("x" * (LONGEST + 1), ["x+1"])
    assert not judge.right("1/2", [])
    assert judge.counts["asked"] == before


def test_an_expression_without_end_is_wrong_and_nothing_is_left_of_it() -> None:
    before = _workers()
    with MathJudge(seconds=0.7, workers=1) as judge:
        for answer in ("9**9**9**9", "9^{9^{9^{9}}}", "99999999!!!!", "\\frac{1}{" * 300):
            assert not judge.right(answer, ["1/3"])
        assert judge.counts["died"]
        assert judge.right("1/2", ["0.5"]), "the next question is answered"
    assert _workers() == before


def test_threads_ask_one_judge(judge: MathJudge) -> None:
    found: dict[int, bool] = {}

    def ask(number: int) -> None:
        found[number] = judge.right(f"{number}/2", [rf"\frac{{{number - number % 2}}}{{2}}"])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {number: number % 2 == 0 for number in range(1, 7)}


def test_a_killed_process_is_replaced(judge: MathJudge) -> None:
    assert judge.right("1/2", ["0.5"])
    for worker in _workers():
        worker.kill()
        worker.wait()
    died = judge.counts["died"]
    assert judge.right("1/2", ["0.5"]), "it died of no answer"
    assert judge.counts["died"] == died


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "import sys; sys.exit('x' * 200_000 + '\\nno module sympy')",
            "ends at its .*no module sympy",
        ),
        ("import no_such_module_at_all", "ends at its start.*No module named"),
        ("raise SystemExit", "ends at its start: no word"),
        ("import time; time.sleep(60)", "is silent after 1 s"),
    ],
)
def test_a_process_that_does_not_start_is_no_verdict(
    code: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "symbols_worker.py").write_text(code, encoding="utf-8")
    with MathJudge(workers=1) as judge:
        with monkeypatch.context() as patched:
            patched.setattr(symbols, "WORKER", tmp_path / "symbols_worker.py")
            if "sleep" in code:
                patched.setattr(symbols, "_START_SECONDS", 1.0)
            with pytest.raises(TaskFault, match=says):
                judge.right("1/2", ["0.5"])
        assert not judge.counts["died"]
        assert judge._places.qsize() == 1, "the place is free for the next question"


def test_words_of_a_library_do_not_stop_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shouting = symbols.WORKER.read_text(encoding="utf-8").replace(
        "asked = json.loads(line)", "asked = json.loads(line); print('x' * 200_000, flush=True)"
    )
    (tmp_path / "symbols_worker.py").write_text(shouting, encoding="utf-8")
    monkeypatch.setattr(symbols, "WORKER", tmp_path / "symbols_worker.py")
    with MathJudge(workers=1) as judge:
        assert judge.right("1/2", ["0.5"])


@pytest.mark.parametrize(
    "options",
    [{"workers": 0}, {"workers": -1}, {"seconds": 0.0}, {"seconds": float("nan")},
     {"seconds": float("inf")}],
)  # fmt: skip
def test_a_judge_that_could_answer_nothing_is_refused(options: Any) -> None:
    with pytest.raises(TaskFault, match=next(iter(options))):
        MathJudge(**options)


def test_without_the_package_numbers_and_texts_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(symbols.importlib.util, "find_spec", lambda name: None)
    before = _workers()
    with MathJudge() as judge:
        assert judge.right("1/2", ["0.50001"])
        assert not judge.right("x+1", ["1+x"])
        assert _workers() == before
    said = capsys.readouterr()  # other tests may have sent the log to stderr
    assert "toolwright[tasks]" in said.out + said.err


def test_the_reward_of_the_docs(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/train/tasks.md").read_text(encoding="utf-8")
    (code,) = (block for block in page.split("```") if block.startswith("python\n# reward.py"))
    (tmp_path / "reward.py").write_text(code.removeprefix("python\n"), encoding="utf-8")
    reward = load_object("./reward.py:Right", tmp_path)()
    task = SimpleNamespace(answers=("12",))
    for texts, worth in (
        (["hm", "so \\boxed{12}"], 1.0),
        (["<answer>13</answer>"], 0.0),
        ([], 0.0),
    ):
        assert reward(SimpleNamespace(metadata={"texts": texts}, task=task)) == worth


def _workers() -> list[psutil.Process]:
    found = []
    for one in psutil.Process(os.getpid()).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # a zombie, or just gone
            if any("symbols_worker" in word for word in one.cmdline()):
                found.append(one)
    return found
