"""One mutant against the tests, and against the simulator.

A mutant is caught by a test that is red with it and green without it. The same holds for a hang: a
test that runs out of time counts only if it ends in time without the bug.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.mutants.table import Planted
from tests.mutants.tree import Done, Tree

LIST_S = 1500.0
"""Seconds for one list of test paths; a test of its own has pytest's timeout."""
SIMULATOR_S = 600.0
GREEN_S = 300.0
MOST_RETRIES = 3
"""Red tests that turned out red without the bug too, before the list is given up."""
_RED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
_FOUND = re.compile(r"^found after \d+ schedules: (.+) \(seed (\d+)\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """by: the red test's id, or the violated invariant; "" where nothing caught it. tried: lists of
    tests that ran. seeds: schedules up to the violation; 0 for tests."""

    by: str
    seconds: float
    tried: int = 0
    seeds: int = 0


def against_tests(
    tree: Tree, mutant: Planted, *, first: int, most: int, green: dict[str, bool]
) -> Caught:
    """Tries the mutant's lists number `first` to `most` until a test is red because of it.

    green: known results of tests without any bug, by id; it grows.
    """
    seconds, tried = 0.0, first
    for paths in mutant.tests[first:most]:
        tried += 1
        known_red: list[str] = []
        for _ in range(MOST_RETRIES):
            with tree.planted(mutant):
                done = _pytest(tree, paths, LIST_S, without=known_red)
            seconds += done.seconds
            if done.code in (0, 5):  # passed, or nothing is left to run
                break
            if done.code is None:
                if _pytest(tree, paths, LIST_S).code == 0:
                    return Caught(by=f"{paths[0]} (hangs)", seconds=seconds, tried=tried)
                break
            red = _RED.findall(done.output)
            if not red:
                raise RuntimeError(f"pytest ended with {done.code}:\n{done.output[-4000:]}")
            real = next((test for test in red if _is_green(tree, test, green)), None)
            if real is not None:
                return Caught(by=real, seconds=seconds, tried=tried)
            known_red += red
    return Caught(by="", seconds=seconds, tried=tried)


def against_simulator(
    tree: Tree, mutant: Planted, *, schedules: int, seed: int, command: Sequence[str]
) -> Caught:
    """Runs `command --schedules N --seed S` in the copy until a schedule fails that does not fail
    without the bug. Raises RuntimeError for an exit code other than 0 and 1."""
    seconds, first, end = 0.0, seed, seed + schedules
    while first < end:
        with tree.planted(mutant):
            words = (*command, "--schedules", str(end - first), "--seed", str(first))
            done = tree.run(*words, timeout=SIMULATOR_S)
        seconds += done.seconds
        if done.code == 0:
            break
        if done.code is None:
            ends = tree.run(*words, timeout=SIMULATOR_S).code == 0
            return Caught(by="hangs" if ends else "", seconds=seconds)
        found = _FOUND.search(done.output)
        if done.code != 1 or found is None:
            raise RuntimeError(f"the simulator ended with {done.code}:\n{done.output[-4000:]}")
        failing = int(found[2])
        alone = tree.run(*command, "--only", str(failing), timeout=GREEN_S)
        if alone.code == 0:
            return Caught(by=found[1], seconds=seconds, seeds=failing - seed + 1)
        first = failing + 1
    return Caught(by="", seconds=seconds)


def _is_green(tree: Tree, test: str, green: dict[str, bool]) -> bool:
    """The test passes without a bug."""
    if test not in green:
        green[test] = _pytest(tree, [test], GREEN_S).code == 0
    return green[test]


def _pytest(tree: Tree, paths: Sequence[str], timeout: float, without: Sequence[str] = ()) -> Done:
    left_out = [word for test in without for word in ("--deselect", test)]
    return tree.run(
        "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", "--tb=line",
        *left_out, *paths,
        timeout=timeout,
    )  # fmt: skip
