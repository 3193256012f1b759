"""Credit of branches: what they share has the mean of their advantages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from learner.config.objective import Advantage, Credit
from tests.unit.learner.records import Step, credited, group, sequence, trajectory
from toolwright.types import Group


def branched(*, fork: int, known: bool = True) -> Group:
    """`b` and `c` go on from `a`, of which they have `fork` tokens; `d` wrote the same itself."""
    step = [Step(tokens=4, seen=0)]
    a, b, c, d = (trajectory(n, "g", 4.0 if n == "a" else 0.0, step) for n in "abcd")
    b, c = (
        replace(t, sequences=(sequence(f"{t.id}.0", step, parent="a.0", fork_offset=fork),))
        for t in (b, c)
    )
    return group("g", *((a,) if known else ()), b, c, d)


def test_what_branches_share_has_the_mean_of_their_advantages() -> None:
    found = credited([branched(fork=4)], Advantage(std="none"), Credit(branches="hard"))
    assert found["a"] == pytest.approx([1 / 3, 1 / 3, 3, 3])
    assert found["b"] == found["c"] == pytest.approx([1 / 3, 1 / 3, -1, -1])
    assert found["d"] == [-1] * 4
    soft = credited([branched(fork=4)], Advantage(std="none"))
    assert soft["a"] == [3] * 4
    assert sum(map(sum, soft.values())) == pytest.approx(sum(map(sum, found.values())), abs=1e-6)


def test_branches_share_also_without_the_one_that_they_left() -> None:
    rewarded = branched(fork=5, known=False)
    b, c, d = rewarded.trajectories
    rewarded = group("g", replace(b, reward=3.0), c, d)
    found = credited([rewarded], Advantage(std="none"), Credit(branches="hard"))
    assert found["b"] == [0.5, 0.5, 0.5, 2]
    assert found["c"] == [0.5, 0.5, 0.5, -1]
    assert found["d"] == [-1] * 4


def test_a_branch_of_a_branch_shares_with_both_what_each_has() -> None:
    step = [Step(tokens=4, seen=0)]
    a = trajectory("a", "g", 6.0, step)
    b = replace(
        trajectory("b", "g", 0.0, step),
        sequences=(sequence("b.0", step, parent="a.0", fork_offset=3),),
    )
    c = replace(
        trajectory("c", "g", 0.0, step),
        sequences=(sequence("c.0", step, parent="b.0", fork_offset=5),),
    )
    found = credited([group("g", a, b, c)], Advantage(std="none"), Credit(branches="hard"))
    assert found == {"a": [0, 4, 4, 4], "b": [0, -2, -2, -2], "c": [0, -2, -2, -2]}


def test_parents_in_a_circle_end() -> None:
    step = [Step()]
    a, b = (
        replace(
            trajectory(name, "g", reward, step),
            sequences=(sequence(f"{name}.0", step, parent=f"{parent}.0", fork_offset=9),),
        )
        for name, parent, reward in (("a", "b", 1.0), ("b", "a", 0.0))
    )
    found = credited([group("g", a, b)], Advantage(std="none"), Credit(branches="hard"))
    assert set(map(len, found.values())) == {2}
