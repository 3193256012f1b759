"""The table of planted bugs fits the code, and a bug counts as caught by a red test alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

from bench.history.invariants import INVARIANTS
from tests.mutants.report import Result, markdown, read_results, sums, write_results
from tests.mutants.table import ROOT, Mutant, MutantError, Planted, read_table, table
from tests.mutants.tree import Stopped, Tree
from tests.mutants.trial import Caught, against_simulator, against_tests

pytestmark = pytest.mark.quick

TABLE = table()
MUTANTS = (*TABLE.planted, *TABLE.equivalent)
SOURCE = "def double(x):\n    return x + x\n"
ROW = """
[tests]
near = ["tests/test_double.py"]
[[mutant]]
name = "double-once"
file = "double.py"
old = "return x + x"
new = "return x"
breaks = "Twice is twice."
simulated = true
tests = ["near"]
[[equivalent]]
name = "double-by-two"
file = "double.py"
old = "return x + x"
new = "return 2 * x"
why = "Both double."
"""
PLANTED = read_table(ROW).planted[0]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_each_bug_can_be_planted_and_changes_one_line(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text(encoding="utf-8")
    before, after = source.splitlines(), mutant.planted(source).splitlines()
    removed, added = Counter(before) - Counter(after), Counter(after) - Counter(before)
    assert removed.total() <= 1
    assert added.total() <= 1


def test_there_are_enough_bugs_in_every_package() -> None:
    packages = Counter(one.package for one in TABLE.planted)
    assert packages.total() >= 60
    assert packages["engine"] >= 36
    assert packages["learner"] >= 12
    assert packages["toolsvc"] >= 10
    assert sum(one.simulated for one in TABLE.planted if one.package == "engine") >= 30


@pytest.mark.parametrize("one", TABLE.planted, ids=lambda one: one.name)
def test_a_bug_names_what_it_breaks_and_tests_that_exist(one: Planted) -> None:
    assert one.breaks.endswith(".") or one.breaks in {known.name for known in INVARIANTS}
    assert not (one.simulated and one.package == "engine") or not one.breaks.endswith(".")
    assert all((ROOT / path).exists() for paths in one.tests for path in paths)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("return x + x", "return y"), "0 times"),
        (("return x + x", "x"), "3 times"),
        (('new = "return x"', 'new = "return x +"'), "is not Python"),
        (('new = "return x"', 'new = "return x + x  # the same"'), "changes nothing"),
        (('"double-by-two"', '"double-once"'), "one name"),
        (('["near"]', '["far"]'), "far"),
        (('why = "Both double."', 'because = ""'), "because"),
        (('breaks = "Twice is twice."', ""), "breaks"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(change: tuple[str, str], said: str) -> None:
    with pytest.raises(MutantError, match=said):
        read_table(ROW.replace(*change, 1)).planted[0].planted(SOURCE)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A tree of one module whose test sees that it doubles."""
    folder = tmp_path / "tree"
    (folder / "tests").mkdir(parents=True)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    (folder / "double.py").write_text(SOURCE, encoding="utf-8")
    return Tree(folder)


def write_test(tree: Tree, body: str) -> None:
    text = f"from double import double\n\ndef test_it():\n    {body}\n"
    (tree.folder / "tests/test_double.py").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("body", "by", "tried"),
    [
        ("assert double(2) == 4", "tests/test_double.py::test_it", 1),
        ("assert double(0) == 0", "", 1),
        ("assert double(0) == 1", "", 1),  # red without the bug too
    ],
)
def test_what_is_red_with_the_bug_alone_catches_it(
    tree: Tree, body: str, by: str, tried: int
) -> None:
    write_test(tree, body)
    found = against_tests(tree, PLANTED, first=0, most=9, green={})
    assert (found.by, found.tried) == (by, tried)
    assert (tree.folder / "double.py").read_text(encoding="utf-8") == SOURCE


def test_lists_that_were_tried_are_not_tried_again(tree: Tree) -> None:
    write_test(tree, "assert double(2) == 4")
    assert against_tests(tree, PLANTED, first=1, most=9, green={}).by == ""


def test_a_program_out_of_time_is_ended(tree: Tree) -> None:
    done = tree.run("-c", "import time; print('here', flush=True); time.sleep(60)", timeout=1.0)
    assert (done.code, done.output.splitlines()[0]) == (None, "here")
    assert done.seconds < 30


def test_a_program_ends_with_the_run(tree: Tree) -> None:
    timer = Timer(1.0, tree.stop)
    timer.start()
    with pytest.raises(Stopped):
        tree.run("-c", "import time; time.sleep(60)", timeout=60.0)
    timer.join()


SIMULATOR = """
import sys
from double import double
wrong = double(2) != 4
if "--only" in sys.argv:
    sys.exit(wrong or sys.argv[-1] == "6")  # seed 6 fails with and without the bug
seed = int(sys.argv[sys.argv.index("--seed") + 1])
failing = next((one for one in (6, 11) if seed <= one and (wrong or one == 6)), 0)
if failing:
    print(f"found after {failing - seed + 1} schedules: twice_is_twice (seed {failing})")
sys.exit(failing > 0)
"""


@pytest.mark.parametrize(
    ("new", "by", "seeds"), [("return x", "twice_is_twice", 7), ("return 2 * x", "", 0)]
)
def test_a_schedule_that_fails_because_of_the_bug_catches_it(
    tree: Tree, new: str, by: str, seeds: int
) -> None:
    (tree.folder / "simulate.py").write_text(SIMULATOR, encoding="utf-8")
    mutant = replace(PLANTED, new=new)
    found = against_simulator(tree, mutant, schedules=300, seed=5, command=["simulate.py"])
    assert (found.by, found.seeds) == (by, seeds)


def test_a_simulator_that_breaks_is_no_catch(tree: Tree) -> None:
    (tree.folder / "simulate.py").write_text("raise SystemExit(2)", encoding="utf-8")
    with pytest.raises(RuntimeError, match="ended with 2"):
        against_simulator(tree, PLANTED, schedules=3, seed=1, command=["simulate.py"])


def test_results_are_kept_and_summed_up(tmp_path: Path) -> None:
    file, page = tmp_path / "results.json", tmp_path / "results.md"
    results = {
        "double-once": Result(
            tests=Caught(by="tests/test_double.py::test_it", seconds=2.0, tried=1),
            simulator=Caught(by="twice_is_twice", seconds=9.0, seeds=7),
        ),
        "gone": Result(tests=Caught(by="", seconds=1.0, tried=2)),
    }
    known = read_table(ROW.replace("double.py", "engine/double.py"))
    assert read_results(known.planted, file) == {}
    write_results(results, known.planted, known.equivalent, file=file, page=page)
    assert read_results(known.planted, file) == {"double-once": results["double-once"]}
    other = [replace(one, new=f"{one.new} # other") for one in known.planted]
    assert read_results(other, file) == {}, "the result of another bug"
    assert sums(results, known.planted) == [
        "Tests catch 1 of 1 (100 %).",
        "Of engine: 1 of 1 (100 %).",
        "The simulator catches 1 of 1 (100 %) of the engine's that it can show; the engine has 1.",
        "Schedules until the violation: median 7.",
    ]
    assert "| double-by-two | engine/double.py | Both double. |" in page.read_text(encoding="utf-8")
    assert "test_it" in markdown(results, known.planted, known.equivalent)
