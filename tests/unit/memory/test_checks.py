"""What runs of tools tell, with a runner that is a plain function."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.checks.runner import Outcome, Run
from memory.checks.verdicts import Verdicts, equal, works_again
from memory.errors import ChecksDown, NoChecks
from memory.memory import Memory
from memory.search.embedding import hashing
from memory.store.volatile import VolatileLog
from memory.types import GroupWork, Tool
from tests.support.tool_memory import registering, rollout, tool


class Here:
    """Runs these tests' own code in this process."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.down = False

    def run(self, runs: Sequence[Run]) -> Sequence[Outcome]:
        if self.down:
            raise ChecksDown("nobody is there")
        self.runs += runs
        return [self._one(run) for run in runs]

    def close(self) -> None:
        pass

    def _one(self, run: Run) -> Outcome:
        space: dict[str, Any] = {}
        exec(run.tool.code, space)
        try:
            return Outcome(result=space[run.tool.name](**json.loads(run.inputs)))
        except Exception as error:  # noqa: BLE001 - what a tool raises is its outcome
            return Outcome(error=repr(error))


def doing(name: str, body: str, *inputs: str, argument: str = "x") -> Tool:
    code = f"def {name}({argument}):\n    return {body}\n"
    return tool(name, "double a number", code=code, inputs=inputs)


DOUBLE = doing("double", "x * 2", '{"x": 3}')


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (doing("twice", "x + x", '{"x": 5}'), True),
        (doing("square", "x * x", '{"x": 2}'), False),  # one on its own input, not on the other's
        (doing("third", "x / 0", '{"x": 5}'), False),
        (doing("named", "y + y", '{"y": 5}', argument="y"), False),
        (doing("floats", "x * 2.0000000000001"), True),
        (doing("texts", "str(x * 2)"), False),
    ],
)
def test_two_tools_are_alike_where_each_does_what_the_other_does(other: Tool, alike: bool) -> None:
    here = Here()
    verdicts = Verdicts(here)
    assert verdicts.alike(DOUBLE, other) is alike
    asked = len(here.runs)
    assert verdicts.alike(DOUBLE, other) is alike and len(here.runs) == asked == 2 * len(
        {*DOUBLE.inputs, *other.inputs}
    )


def test_without_inputs_only_the_same_code_is_alike() -> None:
    here = Here()
    assert Verdicts(here).alike(doing("a", "x"), doing("a", "x")) and not here.runs
    assert not Verdicts(here).alike(doing("a", "x"), doing("b", "x"))
    assert works_again(doing("a", "x"), here) == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(JSON, JSON)
def test_equality_of_results(one: Any, other: Any) -> None:
    assert equal(one, json.loads(json.dumps(one)))
    assert equal(one, other) == equal(other, one)
    if equal(one, other):
        assert isinstance(one, bool) == isinstance(other, bool)


def test_true_is_no_number_and_a_huge_number_is_itself() -> None:
    assert not equal(True, 1) and not equal({"a": 1}, {"b": 1}) and not equal([1], [1, 1])
    assert equal(10**400, 10**400) and not equal(10**400, 1.5)


def test_with_check_a_lie_is_no_alias() -> None:
    """A tool whose description is another's and whose behaviour is not."""
    memory = Memory(VolatileLog(), hashing, runner=Here())
    memory.merge_group(registering("a", DOUBLE))
    lie = doing("lie", "x * 3", '{"x": 4}')
    honest = doing("twice", "x + x", '{"x": 4}')
    work = GroupWork(
        group="b",
        step=1,
        rollouts=(rollout("t0", lie), rollout("t1", honest)),
        registers="t0",
        check=True,
    )
    merged = memory.merge_group(work)
    assert merged.canonical == ({"lie": "lie"}, {"twice": "double"})
    assert merged.registered == {"lie": "lie"}
    unchecked = Memory(VolatileLog(), hashing)
    unchecked.merge_group(registering("a", DOUBLE))
    assert unchecked.merge_group(registering("b", lie)).registered == {"lie": "double"}


def test_what_was_verified_is_in_the_change_and_folding_asks_nobody() -> None:
    log, here = VolatileLog(), Here()
    memory = Memory(log, hashing, runner=here)
    memory.merge_group(registering("a", DOUBLE))
    work = registering("b", doing("twice", "x + x", '{"x": 4}'), check=True)
    merged = memory.merge_group(work)
    here.down = True
    assert memory.merge_group(work) == merged
    again = Memory(log, hashing)
    assert again.graph.nodes == memory.graph.nodes
    assert again.graph.nodes[0].tool.inputs == ('{"x": 3}', '{"x": 4}')


def test_a_tool_whose_first_call_fails_now_is_not_registered_and_still_has_a_name() -> None:
    memory = Memory(VolatileLog(), hashing, runner=Here())
    broken = doing("broken", "x / 0", '{"x": 1}')
    merged = memory.merge_group(registering("a", broken))
    assert merged.registered == {} and merged.canonical == ({"broken": "broken"},)
    (refused,) = merged.refused
    assert (refused.trajectory, refused.name) == ("a/0", "broken")
    assert "does not work again" in refused.reason
    assert memory.graph.version == 1 and not memory.graph.nodes


def test_a_sandbox_that_is_away_changes_nothing() -> None:
    here = Here()
    memory = Memory(VolatileLog(), hashing, runner=here)
    here.down = True
    with pytest.raises(ChecksDown):
        memory.merge_group(registering("a", DOUBLE))
    assert memory.refresh() == 0
    here.down = False
    assert memory.merge_group(registering("a", DOUBLE)).version == 1


def test_without_a_sandbox_nothing_is_checked() -> None:
    with pytest.raises(NoChecks, match=r"\[memory\] checks"):
        Memory(VolatileLog(), hashing).merge_group(registering("a", DOUBLE, check=True))
