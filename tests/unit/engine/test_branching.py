"""Branching without samplers or tools: its arithmetic, its budget, its options, and forked logs."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.core.branching.branching_checks import branching_warnings, check_top_k
from engine.core.branching.budget import Branch, BranchBudget
from engine.core.branching.entropy import branch_decision, entropy
from engine.core.branching.fork import fork
from engine.core.trajectory.events import Acted, Appended, Called, Ended, Forked, Noted, Streamed
from engine.core.trajectory.log import AttemptLog, before, whole_log
from engine.core.trajectory.record import is_orphan, record
from engine.core.trajectory.state import LogError, fold
from engine.errors import ForkRefused, StartupError
from engine.types import ToolSpec
from tests.support.journaled import identity_of
from tests.support.logs import PLACEHOLDER, V0, example
from tests.support.recipes import merged, recipe_tables, write_recipe
from toolwright.recipe import Branching, RecipeError, load_recipe
from toolwright.types import Author, BlobRef, Event, StopReason, Task, floats, ids

# arithmetic

ROWS = st.lists(st.lists(st.floats(-50, 0), min_size=1, max_size=5), max_size=6)


@given(ROWS, st.integers(2, 1 << 20))
def test_an_entropy_is_never_negative_and_its_mean_is_its_share(
    rows: list[list[float]], vocab: int
) -> None:
    whole = entropy(rows, vocab=vocab)
    assert whole >= 0 and math.isfinite(whole)
    mean = entropy(rows, vocab=vocab, agg="mean")
    assert mean * max(1, len(rows)) == pytest.approx(whole)


def test_a_uniform_choice_is_one_a_token_and_what_cannot_come_adds_nothing() -> None:
    rows = [[math.log(1 / 8)] * 8] * 3
    assert entropy(rows, vocab=8) == pytest.approx(3)
    assert entropy(rows, vocab=8, agg="mean") == pytest.approx(1)
    # SGLang names float32's least number, JSON null, of what is impossible.
    assert entropy([[0.0, -3.4028234663852886e38, -math.inf]], vocab=8) == 0
    with pytest.raises(ValueError, match="nothing to be uncertain about"):
        entropy([[-1.0]], vocab=1)


@given(
    st.floats(-100, 100),
    st.floats(-100, 100),
    st.floats(0, 100),
    st.floats(0, 1),
    st.floats(0, 1, exclude_max=True),
)
def test_a_verdict_follows_its_draw(
    first: float, now: float, weight: float, uniform: float, threshold: float
) -> None:
    found = branch_decision(
        h_init=first, h_now=now, weight=weight, uniform=uniform, threshold=threshold
    )
    assert 0 <= found.score <= 1 and 0 <= found.prob <= 1
    chance = threshold + weight * (now - first)
    if abs(uniform - chance) > 1e-9 < 1 - threshold:
        assert found.branch is (uniform < chance)


# options


def test_options_that_make_no_sense_are_refused() -> None:
    for name, values in {
        "beam": (1, 10**9), "weight": (-0.1, math.nan), "threshold": (math.nan, 1.0, -0.1),
        "top_k": (0, 10**6), "init": (0,), "agg": ("max",), "budget": (16,),
    }.items():  # fmt: skip
        for value in values:
            with pytest.raises(ValidationError):
                Branching(**{name: value})


@pytest.mark.parametrize(
    ("size", "init", "words"),
    [
        (1, 1, "leaves no member for a branch where 1 begin"),
        (8, 9, r"\(task.branching.init\): raise run.group_size, lower init"),
        (3, 2, ""),
    ],
)
def test_a_group_has_members_left_for_branches(
    tmp_path: Path, size: int, init: int, words: str
) -> None:
    tables = recipe_tables(policy=tmp_path, sampler="http://x:1", tools={}, engine="127.0.0.1:2")
    changes = {"run": {"group_size": size}, "task": {"branching": {"init": init}}}
    file = write_recipe(tmp_path, merged(tables, changes))
    if words:
        with pytest.raises(RecipeError, match=words):
            load_recipe(file)
    else:
        branching = load_recipe(file).shared.task.branching
        assert branching is not None and branching.starters(size) < size


def test_more_log_probs_than_tokens_would_end_the_sampler() -> None:
    check_top_k(None, 3)
    check_top_k(Branching(top_k=3), 3)
    with pytest.raises(StartupError, match=r"top_k = 4, but the policy's vocabulary has 3"):
        check_top_k(Branching(top_k=4), 3)


def test_tools_that_cannot_fork_are_named_where_anything_branches() -> None:
    tools = [
        ToolSpec(name="python", forks=True),
        ToolSpec(name="search", stateful=False),
        ToolSpec(name="browser"),
    ]
    (doubt,) = branching_warnings(Branching(), tools)
    assert "for browser cannot be forked" in doubt
    assert branching_warnings(None, tools) == branching_warnings(Branching(), tools[:2]) == []


# budget


class Sessions:
    """Stands for an environment."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def branch(name: str) -> Branch:
    return Branch(log=AttemptLog(name), tool_sessions=cast("Any", Sessions()))


def budget(starters: int, size: int) -> BranchBudget:
    return BranchBudget(Branching(), seed=0, starters=starters, size=size)


async def made(name: str) -> Branch:
    return branch(name)


async def test_who_waits_becomes_a_branch_or_begins_when_all_have_ended() -> None:
    group = budget(2, 4)
    waiting = [asyncio.create_task(group.wait(name)) for name in "ab"]
    await asyncio.sleep(0)
    assert group.open
    assert await group.branch(made)
    group.ended()
    group.ended()
    first = await waiting[0]
    assert first is not None and first.log.attempt == "a"
    assert group.open and not waiting[1].done()  # the branch is under way
    group.ended()
    assert await waiting[1] is None
    assert not group.open
    assert await group.wait("late") is None


@pytest.mark.parametrize("closed", [False, True])
async def test_nobody_is_lost_where_a_fork_fails(closed: bool) -> None:
    """Also where the branching of the group was ended meanwhile."""
    group = budget(1, 2)
    waiting = asyncio.create_task(group.wait("a"))
    await asyncio.sleep(0)

    async def fails(_attempt: str) -> Branch:
        if closed:
            group.close()
        raise ForkRefused("no")

    with pytest.raises(ForkRefused):
        await group.branch(fails)
    assert not waiting.done() or closed
    group.ended()
    assert await waiting is None


@pytest.mark.parametrize("when", ["before", "meanwhile", "after"])
async def test_a_branch_that_nobody_takes_is_closed(when: str) -> None:
    group = budget(1, 2)
    waiting = asyncio.create_task(group.wait("a"))
    await asyncio.sleep(0)
    child = branch("a")

    async def forks(_attempt: str) -> Branch:
        if when == "meanwhile":
            waiting.cancel()
            await asyncio.sleep(0)
        return child

    if when == "before":
        waiting.cancel()
        await asyncio.sleep(0)
    done = await group.branch(forks)
    assert done is (when == "after")
    if when == "after":
        waiting.cancel()  # in the same turn of the event loop that brought the branch
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert cast("Any", child.tool_sessions).closed is (when != "before")


@given(st.data())
def test_a_group_is_whole_whatever_happens(data: st.DataObject) -> None:
    """Rollouts end, branch and fail in any order; every member rolls out once."""
    starters = data.draw(st.integers(1, 4))
    size = starters + data.draw(st.integers(0, 4))
    places = data.draw(st.integers(1, size))

    async def run() -> int:
        group, rolled = budget(starters, size), 0
        free = asyncio.Semaphore(places)

        async def forks(attempt: str) -> Branch:
            await asyncio.sleep(0)
            if data.draw(st.booleans()):
                raise ForkRefused("no")
            return branch(attempt)

        async def member(index: int) -> None:
            nonlocal rolled
            async with free:
                if index >= starters:
                    await group.wait(str(index))
                for _ in range(data.draw(st.integers(0, 3))):
                    if group.open and data.draw(st.booleans()):
                        try:
                            await group.branch(forks)
                        except ForkRefused:
                            if data.draw(st.booleans()):
                                group.close()
                    await asyncio.sleep(0)
                rolled += 1
            group.ended()

        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            for index in range(size):
                tasks.create_task(member(index))
        return rolled

    assert asyncio.run(run()) == size


# forked logs


class Tools:
    """Forks every environment."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def fork(self, _parent: Any, attempt: str, _task: Any, _clock: Any) -> Any:
        self.asked.append(attempt)
        return SimpleNamespace(refs=())


async def forked(parent: AttemptLog, attempt: str = "g0-1/b1r0a0") -> AttemptLog:
    log, _ = await fork(cast("Any", Tools()), parent, cast("Any", None), attempt, Task(id="t"))
    return log


def observed(attempt: str = "g0-0/b1r0a0") -> tuple[AttemptLog, list[Any]]:
    """A log at the end of its first observation, and its events."""
    events = example()[:5]
    log = AttemptLog(attempt)
    for event in events:
        log.append(event)
    return log, events


async def test_a_branch_folds_behind_its_parents_events() -> None:
    parent, events = observed()
    kept: list[Any] = []
    parent.keeper = lambda _attempt, new, _blobs: kept.extend(new)
    child = await forked(parent)
    assert child.state.token_ids == parent.state.token_ids
    assert child.state.fork is not None and child.state.fork.offset == len(parent.state.token_ids)
    (own,) = kept
    assert isinstance(own, Forked) and own.events == len(events)

    # What the parent writes from here on is not the child's.
    logs = {parent.attempt: [*events, *example()[5:]], child.attempt: [own]}
    assert fold(whole_log([own], logs)) == child.state
    resumed = AttemptLog(child.attempt, events=[own], start=before([own], logs))
    assert (resumed.state, resumed.length) == (child.state, child.length)
    # A branch of a branch.
    third = await forked(resumed, "g0-2/b1r0a0")
    later = Forked(parent=child.attempt, events=1, offset=8, sessions=())
    assert fold(whole_log([later], logs)).token_ids == third.state.token_ids


@pytest.mark.parametrize("where", ["streamed", "acted", "called", "ended"])
async def test_nobodys_action_is_cut_in_two(where: str) -> None:
    parent, _ = observed()
    streamed = Streamed(token_ids=ids([9]), logprobs=floats([-1]), versions=((V0, 1),))
    for event in {
        "streamed": [streamed],
        "acted": [example()[6]],
        "called": [example()[6], Called(call_id="1/0", turn=1, index=0, action="")],
        "ended": [Ended(reason=StopReason.ANSWERED)],
    }[where]:
        parent.append(event)
    with pytest.raises(ForkRefused, match="inside a turn"):
        await forked(parent)


def test_a_log_whose_parent_is_gone_or_is_its_own_is_refused() -> None:
    own = Forked(parent="a", events=1, offset=3, sessions=())
    with pytest.raises(LogError, match="the log of a "):
        whole_log([own], {})
    with pytest.raises(LogError, match="fork"):
        before([own], {"a": []})
    with pytest.raises(LogError):
        whole_log([own], {"a": [Forked(parent="b", events=1, offset=3, sessions=())], "b": [own]})


async def test_a_branch_of_a_given_up_attempt_names_that_attempt() -> None:
    """Another attempt made the trajectory of its parent: they share no token."""
    parent, _ = observed()
    child = await forked(parent)
    child.append(Ended(reason=StopReason.MAX_TURNS))
    (sequence,) = record(child.state, identity_of("g0-1")).sequences
    assert (sequence.parent, sequence.fork_offset) == ("g0-0.0", len(parent.state.token_ids))
    assert not is_orphan(child.state, ["g0-0/b1r0a0", child.attempt])
    assert is_orphan(child.state, ["g0-0/b1r0a1", child.attempt])
    (sequence,) = record(child.state, identity_of("g0-1", orphan=True)).sequences
    assert sequence.parent == "g0-0/b1r0a0.0"


async def test_the_place_of_a_fork_counts_what_images_took() -> None:
    parent, _ = observed()
    image = BlobRef(sha256="x", media_type="image/png", size=1)
    act = example()[6]
    assert isinstance(act, Acted)
    parent.append(act)
    shown = ids([20, PLACEHOLDER, 21])
    parent.append(Appended(token_ids=shown, author=Author.TOOL, images=(image,)))
    parent.append(Noted(note=Event(kind="branching", turn=2, data={"entropy": 0.5})))
    child = await forked(parent)
    said = {"token_ids": ids([3]), "logprobs": floats([-1]), "versions": ((V0, 1),)}
    child.append(Acted(**said, finish=act.finish, text="", image_tokens=(9,)))  # type: ignore[arg-type]
    child.append(Ended(reason=StopReason.MAX_TURNS))
    (sequence,) = record(child.state, identity_of("g0-1", placeholder=PLACEHOLDER)).sequences
    assert sequence.fork_offset == len(parent.state.token_ids) + 8
    assert sequence.fork_offset == len(sequence.token_ids) - 1
