"""A branch begins with its parent's tokens and calls, and goes on with its own."""

from __future__ import annotations

from typing import Any

import pytest

from bench.history.events import History, LifeBegan, Planned, Sampled, Segment
from bench.history.validator import violations
from tests.support.histories import A0, Story, replaced
from toolwright.types import ids

pytestmark = pytest.mark.quick

PARENT, BRANCH = "g0000000-0/b0r0a0", "g0000000-1/b0r0a0"


def history(**changes: Any) -> History:
    """A group of a trajectory with two turns and a branch after its first. changes: of the
    branch's member."""
    story = Story()
    story.add(
        Planned(at=0, eta=0, batch=2, group_size=2, steps=1),
        LifeBegan(at=0, life=0),
    )
    first, second = story.attempt(PARENT, life=0), story.attempt(BRANCH, life=0)
    first.sample((A0, 5, 5))
    first.call()
    first.sample((A0, 6, 6))
    parent, own = first.close(), second.close()
    shared = parent.segments[:3]
    prompt = ids(token for one in shared for token in one.token_ids)
    wrote = story.ids(4)
    story.add(
        Sampled(at=0, attempt=BRANCH, server="s0", prompt=prompt, token_ids=wrote, version=A0)
    )
    new = Segment(author="MODEL", token_ids=wrote, turn=1, version=A0, trainable=True)
    branch = replaced(
        own,
        calls=parent.calls,
        actions=parent.actions,
        segments=(*shared, new),
        parent="g0000000-0",
        shared=len(prompt),
    )
    story.offer(1, 0, A0, (parent, replaced(branch, **changes)))
    return story.events


def names(events: History) -> list[str]:
    return [one.invariant.name for one in violations(events)]


def test_a_branch_holds_what_its_parent_sampled_and_called() -> None:
    assert names(history()) == []
    assert names(history(parent=PARENT)) == []  # its parent was given up: there is no record


def test_without_a_parent_its_first_tokens_were_never_sent() -> None:
    assert names(history(parent="", shared=0)) == ["calls_in_order", "model_ids_were_sent"]


def test_a_branch_begins_as_its_parent() -> None:
    events = history()
    offered = events[-1]
    parent, branch = offered.members  # type: ignore[union-attr]
    other = replaced(branch.segments[1], token_ids=ids([7] * 5))
    prompt = ids([*branch.segments[0].token_ids, *other.token_ids, *branch.segments[2].token_ids])
    changed = replaced(branch, segments=(branch.segments[0], other, *branch.segments[2:]))
    events[-1] = replaced(offered, members=(parent, changed))
    events[-2] = replaced(events[-2], prompt=prompt)
    assert names(events) == ["model_ids_were_sent"]


def test_a_branch_holds_no_parents_call_after_its_own() -> None:
    calls = (f"{BRANCH}/0/0", f"{PARENT}/1/0")
    assert "calls_in_order" in names(history(calls=calls, actions=("a", "b")))
